#include "engine/rank_main.h"

#include <fcntl.h>
#include <ggml.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <deque>
#include <mutex>
#include <optional>
#include <thread>

#include "base/log.h"
#include "collective/mesh_group.h"
#include "engine/control_channel.h"
#include "engine/head.h"
#include "engine/step_runner.h"
#include "transport/shm_link.h"
#include "transport/tcp_link.h"
#include "transport/ucx_link.h"
#include "transport/verbs_bringup.h"

namespace sinew {
namespace {

using Clock = std::chrono::steady_clock;

// How long ranks look for each other over TCP, and how often loading is reported.
constexpr std::chrono::seconds kConnectMax{20};
constexpr std::chrono::milliseconds kLoadingInterval{250};
constexpr std::chrono::milliseconds kTearDownMax{2000};

// Set by SIGTERM, or once the supervisor is gone, in a rank that must not just end.
std::atomic<bool> g_ending{false};
// Set when the rank is to give up whatever it waits for: it ends, or its epoch is over.
std::atomic<bool> g_leave{false};
static_assert(std::atomic<bool>::is_always_lock_free, "changed in a signal handler");

// In a signal handler, too.
void end_this_rank() {
  g_ending = true;
  g_leave = true;
}

enum class Phase : std::uint8_t { kStarting, kLoading, kConnecting, kIdle, kRequest, kBetween };

std::string phase_text(Phase phase, std::uint64_t steps) {
  switch (phase) {
    case Phase::kStarting:
      return "starting";
    case Phase::kLoading:
      return "loading weights";
    case Phase::kConnecting:
      return "connecting to the other ranks";
    case Phase::kIdle:
      return "idle";
    case Phase::kRequest:
      return fmt::format("computing step {}", steps + 1);
    case Phase::kBetween:
      return "waiting for the next epoch";
  }
  return "?";
}

// The control socket of a rank and the thread that keeps it alive: receives, sends heartbeats, and
// ends the process at once when the supervisor is gone, whatever the main thread waits for.
//
// Over verbs the process must not just end: the main thread first gives back what it holds of the
// device. `g_ending` tells it to, and it has kTearDownMax for that.
class ControlThread {
 public:
  explicit ControlThread(Descriptor socket)
      : channel_(std::move(socket)), thread_([this] { run(); }) {}
  ~ControlThread() {
    stop_ = true;
    thread_.join();
  }
  ControlThread(const ControlThread&) = delete;
  ControlThread& operator=(const ControlThread&) = delete;

  void send(const ControlMessage& message) {
    const std::lock_guard lock(mutex_);
    if (!channel_.send(message)) supervisor_is_gone();
  }
  // Waits for the supervisor's next message, for as long as it lives: the control thread ends the
  // process otherwise. kCancelled if the rank is to end in order, or the epoch is over.
  Result<ControlMessage> next() {
    std::unique_lock lock(mutex_);
    SINEW_TRY(await_message(lock));
    if (std::holds_alternative<AbandonMessage>(inbox_.front()))
      return fail(ErrorCode::kCancelled, "the epoch is over");
    return pop();
  }
  // Between two epochs: waits for the configuration of the next one.
  Result<ConfigureMessage> next_epoch() {
    std::unique_lock lock(mutex_);
    while (true) {
      SINEW_TRY(await_message(lock));
      const ControlMessage message = pop();
      if (const auto* abandon = std::get_if<AbandonMessage>(&message)) {
        if (!channel_.send(LeftMessage{abandon->next})) supervisor_is_gone();
      } else if (const auto* config = std::get_if<ConfigureMessage>(&message)) {
        // What says that this epoch is over, too, comes later: it would have taken the message
        // along.
        g_leave = g_ending.load();
        return *config;
      }
      // Else it was sent before the supervisor knew that the epoch is over.
    }
  }
  // From now on the process ends by way of `g_ending`.
  void end_in_order() { in_order_ = true; }
  const std::atomic<bool>& cancelled() const { return cancelled_; }
  void set_phase(Phase phase) { phase_ = phase; }
  void count_step() { ++steps_; }

 private:
  Status await_message(std::unique_lock<std::mutex>& lock) {
    while (inbox_.empty()) {
      if (g_ending) return fail(ErrorCode::kCancelled, "this rank was told to end");
      arrived_.wait_for(lock, std::chrono::milliseconds(100));
    }
    return {};
  }
  ControlMessage pop() {
    ControlMessage message = std::move(inbox_.front());
    inbox_.pop_front();
    return message;
  }
  void supervisor_is_gone() {
    if (!in_order_) std::_Exit(exit_status(ErrorCode::kPeerLost));
    end_this_rank();
  }
  void run() {
    auto next_heartbeat = Clock::now();
    std::optional<Clock::time_point> end;
    while (!stop_) {
      if (g_ending && !end) end = Clock::now() + kTearDownMax;
      if (end && Clock::now() >= *end) std::_Exit(exit_status(ErrorCode::kPeerLost));
      pollfd descriptor{channel_.descriptor(), POLLIN, 0};
      {
        const std::lock_guard lock(mutex_);
        if (channel_.has_unsent()) descriptor.events |= POLLOUT;
      }
      ::poll(&descriptor, 1, static_cast<int>(kHeartbeatInterval.count() / 2));
      const std::lock_guard lock(mutex_);
      std::vector<ControlMessage> messages;
      Status alive = channel_.send_queued();
      if (alive) alive = channel_.receive(messages);
      for (ControlMessage& message : messages) take(std::move(message));
      if (!alive) {
        supervisor_is_gone();
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
        continue;
      }
      if (Clock::now() >= next_heartbeat) {
        next_heartbeat = Clock::now() + kHeartbeatInterval;
        // While the supervisor does not read (it may be stopped), old signs of life are enough.
        if (!channel_.has_unsent() &&
            !channel_.send(HeartbeatMessage{phase_text(phase_, steps_), steps_}))
          supervisor_is_gone();
      }
    }
  }
  void take(ControlMessage message) {
    if (std::holds_alternative<EndMessage>(message)) std::_Exit(0);
    if (std::holds_alternative<CancelMessage>(message)) {
      cancelled_ = true;
      return;
    }
    if (std::holds_alternative<BeginMessage>(message)) cancelled_ = false;
    if (std::holds_alternative<AbandonMessage>(message)) {
      inbox_.clear();
      g_leave = true;
    }
    inbox_.push_back(std::move(message));
    arrived_.notify_one();
  }

  std::mutex mutex_;
  ControlChannel channel_;            // guarded by mutex_
  std::deque<ControlMessage> inbox_;  // guarded by mutex_
  std::condition_variable arrived_;
  std::atomic<bool> cancelled_{false};
  std::atomic<bool> stop_{false};
  std::atomic<bool> in_order_{false};
  std::atomic<Phase> phase_{Phase::kStarting};
  std::atomic<std::uint64_t> steps_{0};
  std::thread thread_;  // last: started when the rest is ready
};

ControlThread* g_control = nullptr;  // for ggml's abort callback, which takes no context

void report_abort(const char* message) {
  if (g_control != nullptr)
    g_control->send(FailedMessage{
        Error{ErrorCode::kInternal, fmt::format("ggml stopped: {}", message), {}}, true});
}

template <typename Message>
Result<Message> expect(ControlThread& control) {
  SINEW_ASSIGN(ControlMessage message, control.next());
  if (auto* wanted = std::get_if<Message>(&message)) return std::move(*wanted);
  return fail(ErrorCode::kProtocol, "the supervisor sent message {} out of turn", message.index());
}

// A rank that holds queue pairs gives them back before it ends, whoever ends it.
void end_in_order(ControlThread& control) {
  control.end_in_order();
  struct sigaction action {};
  action.sa_handler = [](int) { end_this_rank(); };
  ::sigaction(SIGTERM, &action, nullptr);
  die_with_parent(SIGTERM);
}

Result<Links> connect(const ConfigureMessage& config, ControlThread& control) {
  const GroupIdentity identity{config.job, config.epoch, config.rank,
                               static_cast<int>(config.layout.shares.size())};
  if (identity.size == 1) return Links(1);
  if (config.link == LinkKind::kVerbs) end_in_order(control);
  const LinkShare everyone = LinkShare::everyone(identity);
  everyone.hub->stop_when(g_leave);
  if (config.link == LinkKind::kShm) {
    // The descriptor itself serves the next epoch.
    SINEW_ASSIGN(
        const ShmSegment segment,
        ShmSegment::adopt(::fcntl(kRankSegmentDescriptor, F_DUPFD_CLOEXEC, 0), identity.size));
    return make_shm_links(segment, identity, everyone);
  }
  SINEW_ASSIGN(TcpListener listener, TcpListener::bind(config.listen, 0));
  control.send(ListeningMessage{listener.port()});
  SINEW_ASSIGN(const PeersMessage peers, expect<PeersMessage>(control));
  std::vector<Endpoint> endpoints;
  for (std::size_t rank = 0; rank < peers.ports.size(); ++rank)
    endpoints.push_back(Endpoint{peers.hosts[rank], peers.ports[rank]});
  const Deadline deadline = Clock::now() + kConnectMax;
  if (config.link == LinkKind::kVerbs) {
    return connect_verbs_links(identity, load_system_verbs(), config.verbs, listener, endpoints,
                               deadline, &g_leave);
  }
  SINEW_ASSIGN(std::vector<Socket> sockets,
               connect_tcp_sockets(identity, listener, endpoints, deadline, &g_leave));
  if (config.link == LinkKind::kTcp) return make_tcp_links(std::move(sockets), everyone);
  return make_ucx_links(identity, std::move(sockets), everyone, {config.verbose}, deadline);
}

void send_logits(std::span<const float> rows, ControlThread& control) {
  constexpr std::size_t kPiece = (kControlBytesMax / 4) / sizeof(float);
  for (; !rows.empty(); rows = rows.subspan(std::min(rows.size(), kPiece))) {
    const auto piece = rows.first(std::min(rows.size(), kPiece));
    control.send(LogitsMessage{{piece.begin(), piece.end()}});
  }
}

void send_trace(const Step& step, StepRunner& runner, ControlThread& control) {
  runner.read_trace(step, [&](TraceBlock block) {
    control.send(TraceMessage{block.place, block.position, std::move(block.sketches)});
  });
}

// Rank 0's side of one request.
Result<GenerationResult> lead(const BeginMessage& begin, Head& head, StepRunner& runner,
                              ControlThread& control) {
  switch (begin.kind) {
    case BeginMessage::Kind::kGenerate:
      return head.generate(begin.request, control.cancelled(), [&](TokenId token) {
        control.count_step();
        control.send(TokenMessage{token});
      });
    case BeginMessage::Kind::kEvaluateLast:
    case BeginMessage::Kind::kEvaluateAll:
      SINEW_TRY(head.evaluate(begin.request.prompt, begin.kind == BeginMessage::Kind::kEvaluateAll,
                              [&](std::span<const float> rows) {
                                control.count_step();
                                send_logits(rows, control);
                              }));
      return GenerationResult{};
    case BeginMessage::Kind::kTrace:
    case BeginMessage::Kind::kTraceNoisy:
      SINEW_TRY(head.trace(
          begin.request.prompt,
          begin.kind == BeginMessage::Kind::kTraceNoisy ? Trace::kNoisy : Trace::kOn, begin.fresh,
          control.cancelled(), [&](const Step& step, std::span<const float> logits) {
            control.count_step();
            send_trace(step, runner, control);
            send_logits(logits, control);
          }));
      return GenerationResult{};
    case BeginMessage::Kind::kHashes:
      return GenerationResult{};
  }
  return fail(ErrorCode::kProtocol, "request of unknown kind {}", static_cast<int>(begin.kind));
}

Status follow(StepRunner& runner, Group& group, ControlThread& control) {
  while (true) {
    SINEW_ASSIGN(const Step step, receive_step(group));
    if (step.kind == Step::Kind::kEnd) return {};
    SINEW_TRY(runner.run(step, group));
    control.count_step();
    send_trace(step, runner, control);
  }
}

Status serve_requests(const ConfigureMessage& config, StepRunner& runner, Group& group,
                      ControlThread& control) {
  Head head(runner, group, config.chunk_tokens);
  while (true) {
    control.set_phase(Phase::kIdle);
    SINEW_ASSIGN(const BeginMessage begin, expect<BeginMessage>(control));
    control.set_phase(Phase::kRequest);
    const auto compute_before = runner.compute_time();
    const Group::Totals before = group.totals();
    DoneMessage done;
    if (begin.kind == BeginMessage::Kind::kHashes) {
      runner.hash_slices([&](SliceHash hash) {
        control.count_step();
        control.send(SliceHashMessage{config.rank, std::move(hash)});
      });
    } else if (config.rank == 0) {
      SINEW_ASSIGN(done.result, lead(begin, head, runner, control));
    } else {
      SINEW_TRY(follow(runner, group, control));
    }
    const Group::Totals after = group.totals();
    done.compute_seconds =
        std::chrono::duration<double>(runner.compute_time() - compute_before).count();
    done.collective_seconds = std::chrono::duration<double>(after.time - before.time).count();
    done.collectives = after.operations - before.operations;
    done.bytes_sent = after.bytes_sent - before.bytes_sent;
    done.peak_resident = peak_resident_bytes();
    control.send(done);
  }
}

// Damage for tests.
Result<Faults> injected(const std::vector<std::string>& arguments) {
  std::vector<std::string> wanted;
  for (std::size_t i = 0; i < arguments.size(); i += 2) {
    if (arguments[i] != "--inject" || i + 1 == arguments.size())
      return fail(ErrorCode::kUsage, "a rank takes no argument '{}'", arguments[i]);
    spdlog::warn("THIS RANK IS DAMAGED ON PURPOSE: --inject {}", arguments[i + 1]);
    wanted.push_back(arguments[i + 1]);
  }
  return Faults::parse(wanted);
}

Result<std::unique_ptr<StepRunner>> load(const ConfigureMessage& config, const Faults& faults,
                                         ControlThread& control) {
  control.set_phase(Phase::kLoading);
  auto next_report = Clock::now();
  const RunnerOptions options{config.model_path, config.layout,  config.rank,  config.device,
                              config.threads,    config.context, config.slots, config.cache_type,
                              config.hashes,     faults};
  return StepRunner::load(options, [&](std::uint64_t bytes, std::uint64_t total) {
    if (Clock::now() < next_report) return;
    next_report = Clock::now() + kLoadingInterval;
    control.count_step();
    control.send(LoadingMessage{bytes, total});
  });
}

// Until the group breaks. `runner` is loaded if it is not yet.
Status run_epoch(const ConfigureMessage& config, const Faults& faults,
                 std::unique_ptr<StepRunner>& runner, ControlThread& control) {
  control.set_phase(Phase::kConnecting);
  SINEW_ASSIGN(Links links, connect(config, control));
  GroupOptions group_options;
  group_options.timeout = std::chrono::milliseconds(config.timeout_ms);
  const GroupIdentity identity{config.job, config.epoch, config.rank,
                               static_cast<int>(config.layout.shares.size())};
  group_options.wire = config.wire;
  if (config.one_shot_max) group_options.threshold_bytes = *config.one_shot_max;
  SINEW_ASSIGN(const std::unique_ptr<Group> group,
               form_group(identity, std::move(links), group_options));

  const auto start = Clock::now();
  std::uint64_t read = 0;
  if (!runner) {
    SINEW_ASSIGN(runner, load(config, faults, control));
    read = runner->weight_bytes();
  }
  const std::chrono::duration<double> load_time = Clock::now() - start;
  control.send(ReadyMessage{runner->weight_bytes(), read, runner->cache_bytes(),
                            runner->device_name(), load_time.count()});
  return serve_requests(config, *runner, *group, control);
}

// Whether an error says something of the group and nothing of this rank: its weights are good.
bool ends_epoch_only(ErrorCode code) {
  return code == ErrorCode::kPeerLost || code == ErrorCode::kDeadline ||
         code == ErrorCode::kProtocol || code == ErrorCode::kIntegrity ||
         code == ErrorCode::kCancelled;
}

Status run_rank(ControlThread& control, const std::vector<std::string>& arguments) {
  SINEW_ASSIGN(const Faults faults, injected(arguments));
  std::unique_ptr<StepRunner> runner;
  while (true) {
    SINEW_ASSIGN(const ConfigureMessage config, control.next_epoch());
    const Status ended = run_epoch(config, faults, runner, control);
    const ErrorCode code = ended.error().code;
    if (!config.recover || g_ending || !ends_epoch_only(code)) return ended;
    control.set_phase(Phase::kBetween);
    if (code != ErrorCode::kCancelled) control.send(FailedMessage{ended.error(), false});
  }
}

[[noreturn]] void serve(Descriptor socket, const std::vector<std::string>& arguments) {
  // ggml would start a debugger to print a stack; the supervisor reports instead.
  ::setenv("GGML_NO_BACKTRACE", "1", 1);
  ggml_log_set(
      [](ggml_log_level level, const char* text, void*) {
        if (level >= GGML_LOG_LEVEL_ERROR) spdlog::debug("ggml: {}", text);
      },
      nullptr);
  ControlThread control{std::move(socket)};
  g_control = &control;
  ggml_set_abort_callback(report_abort);
  const Status status = run_rank(control, arguments);
  // The supervisor ends ranks by ending the process; a rank that returns has failed.
  control.send(FailedMessage{status.error(), true});
  std::this_thread::sleep_for(kHeartbeatInterval);  // lets the control thread send what is queued
  std::_Exit(exit_status(status.error().code));
}

}  // namespace

int rank_main(const std::vector<std::string>& arguments) {
  die_with_parent();
  serve(Descriptor(kRankControlDescriptor), arguments);
}

void serve_as_rank(Descriptor control) {
  serve(std::move(control), {});
}

}  // namespace sinew
