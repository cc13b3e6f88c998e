#include "engine/supervisor.h"

#include <poll.h>
#include <signal.h>

#include <algorithm>
#include <random>

#include "base/log.h"
#include "engine/rank_main.h"
#include "transport/shm_segment.h"

namespace sinew {
namespace {

constexpr std::chrono::milliseconds kLookInterval{50};
// After the first sign of trouble, how long other ranks' evidence is waited for before the cause is
// decided.
constexpr std::chrono::milliseconds kSettle{250};
// How long ranks get to end by themselves after their control socket is closed.
constexpr std::chrono::milliseconds kEndMax{1000};
constexpr std::chrono::milliseconds kVerbsEndMax{3000};
constexpr std::chrono::milliseconds kReapMax{1000};  // from SIGKILL to the end

JobId draw_job() {
  std::random_device entropy;
  const auto word = [&] { return (std::uint64_t{entropy()} << 32) | entropy(); };
  return JobId{{word(), word()}};
}

}  // namespace

Result<std::unique_ptr<Supervisor>> Supervisor::launch(
    const LaunchOptions& options,
    const std::function<void(const std::vector<RankStatus>&)>& progress) {
  std::unique_ptr<Supervisor> supervisor(new Supervisor);
  SINEW_TRY(supervisor->start(options));
  std::unique_lock lock(supervisor->mutex_);
  while (true) {
    if (supervisor->failure_) return fail(*supervisor->failure_);
    if (supervisor->stage_ == Stage::kServing) break;
    supervisor->changed_.wait_for(lock, std::chrono::milliseconds(250));
    lock.unlock();
    progress(supervisor->ranks());
    lock.lock();
  }
  return supervisor;
}

Status Supervisor::start(const LaunchOptions& options) {
  options_ = options;
  if (options_.program.empty()) {
    SINEW_ASSIGN(options_.program, own_program());
  }
  const int ranks = static_cast<int>(options.layout.shares.size());
  recovery_ = RecoveryPolicy(options.recover);
  if (options.link == LinkKind::kShm && ranks > 1) {
    SINEW_ASSIGN(segment_, ShmSegment::create(ranks));
  }
  config_ = ConfigureMessage{options.model_path,
                             draw_job(),
                             1,
                             options.layout,
                             0,
                             options.link,
                             options.device,
                             options.threads,
                             options.context,
                             options.slots,
                             options.chunk_tokens,
                             static_cast<std::uint32_t>(options.timeout.count()),
                             options.wire,
                             options.one_shot_max,
                             options.cache_type,
                             options.hashes,
                             options.verbs,
                             {},
                             options.verbose,
                             options.recover.count() > 0};
  std::vector<JoinedRank> joined;
  if (options.launched) {
    SINEW_ASSIGN(joined, await_ranks(*options.launched, Clock::now() + kJoinMax));
  }
  for (Rank rank = 0; rank < ranks; ++rank) {
    Child child;
    if (options.launched && rank > 0) {
      JoinedRank& found = joined[static_cast<std::size_t>(rank)];
      child.joined = child.reaped = true;
      child.status.host = std::move(found.host);
      child.channel = std::make_unique<ControlChannel>(std::move(found.socket));
    } else if (Status started = start_child(child, rank); !started) {
      end_children();
      return started;
    }
    child.last_heard = child.last_progress = Clock::now();
    children_.push_back(std::move(child));
    configure(children_.back(), rank);
  }
  monitor_ = std::thread([this] { monitor(); });
  return {};
}

void Supervisor::configure(Child& child, Rank rank) {
  config_.epoch = child.left = epoch_;
  config_.rank = rank;
  config_.listen = host_of(rank);
  child.last_heard = child.last_progress = Clock::now();
  // A child that is gone already is found by the monitor, with its cause.
  if (!child.channel->send(config_)) child.closed = true;
}

Status Supervisor::start_child(Child& child, Rank rank) {
  SINEW_ASSIGN(auto sockets, socket_pair());
  std::vector<int> descriptors{sockets.second.get()};
  if (segment_) descriptors.push_back(segment_->fd());
  std::vector<std::string> arguments{"rank"};
  for (const auto& [damaged, what] : options_.faults)
    if (damaged == rank) arguments.insert(arguments.end(), {"--inject", what});
  SINEW_ASSIGN(child.status.process, spawn(options_.program, arguments, descriptors));
  child.channel = std::make_unique<ControlChannel>(std::move(sockets.first));
  return {};
}

std::string Supervisor::host_of(Rank rank) const {
  const std::string& host = children_[static_cast<std::size_t>(rank)].status.host;
  if (!host.empty()) return host;
  return options_.launched ? options_.launched->rendezvous.host : "127.0.0.1";
}

Supervisor::~Supervisor() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  if (monitor_.joinable()) monitor_.join();
  end_children();
}

Status Supervisor::begin(BeginMessage request) {
  const std::lock_guard lock(mutex_);
  if (failure_) return fail(*failure_);
  if (loss_) return fail(*loss_);
  request_epoch_ = epoch_;
  events_.clear();
  in_request_ = true;
  for (std::size_t rank = 0; rank < children_.size(); ++rank) {
    Child& child = children_[rank];
    child.done = false;
    child.last_progress = Clock::now();
    const BeginMessage for_follower{request.kind, {}, request.fresh};
    if (!child.channel->send(rank == 0 ? request : for_follower)) child.closed = true;
  }
  return {};
}

void Supervisor::cancel() {
  const std::lock_guard lock(mutex_);
  if (!failure_ && !loss_ && in_request_ && !children_.front().channel->send(CancelMessage{}))
    children_.front().closed = true;
}

Result<std::optional<ControlMessage>> Supervisor::next_event(std::chrono::milliseconds longest) {
  std::unique_lock lock(mutex_);
  const auto over = [&] { return failure_ || loss_ || request_epoch_ != epoch_; };
  changed_.wait_for(lock, longest, [&] { return !events_.empty() || over(); });
  if (!events_.empty()) {
    ControlMessage event = std::move(events_.front());
    events_.pop_front();
    return std::optional<ControlMessage>(std::move(event));
  }
  if (failure_) return fail(*failure_);
  if (loss_) return fail(*loss_);
  if (over()) return fail(ErrorCode::kPeerLost, "the epoch in which the request began is over");
  return std::optional<ControlMessage>();
}

Result<bool> Supervisor::await_epoch(std::chrono::milliseconds longest) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, longest, [&] { return failure_ || stage_ == Stage::kServing; });
  if (failure_) return fail(*failure_);
  return stage_ == Stage::kServing;
}

std::optional<Error> Supervisor::recovering() const {
  const std::lock_guard lock(mutex_);
  return loss_;
}

Status Supervisor::health() const {
  const std::lock_guard lock(mutex_);
  if (failure_) return fail(*failure_);
  return {};
}

std::vector<RankStatus> Supervisor::ranks() const {
  const std::lock_guard lock(mutex_);
  std::vector<RankStatus> all;
  for (const Child& child : children_) all.push_back(child.status);
  return all;
}

void Supervisor::monitor() {
  std::vector<pollfd> descriptors(children_.size());
  while (true) {
    {
      const std::lock_guard lock(mutex_);
      // The ranks that this thread has started again die with it.
      if (stopping_) end_children();
      if (stopping_ || failure_) return;
      for (std::size_t i = 0; i < children_.size(); ++i) {
        const Child& child = children_[i];
        const bool open = child.channel && !child.closed;
        descriptors[i] = {open ? child.channel->descriptor() : -1, POLLIN, 0};
        if (open && child.channel->has_unsent()) descriptors[i].events |= POLLOUT;
      }
    }
    ::poll(descriptors.data(), static_cast<nfds_t>(descriptors.size()),
           static_cast<int>(kLookInterval.count()));
    const std::lock_guard lock(mutex_);
    const auto now = Clock::now();
    for (std::size_t i = 0; i < children_.size(); ++i) {
      read_messages(children_[i], static_cast<Rank>(i));
      look_at(children_[i], static_cast<Rank>(i), now);
    }
    decide(now);
    if (!failure_) go_on(now);
  }
}

void Supervisor::read_messages(Child& child, Rank rank) {
  if (child.closed || !child.channel) return;
  std::vector<ControlMessage> messages;
  Status status = child.channel->send_queued();
  if (const Status received = child.channel->receive(messages); !received) status = received;
  if (!messages.empty()) child.last_heard = Clock::now();
  for (ControlMessage& message : messages) handle(child, rank, std::move(message));
  if (status) return;
  child.closed = true;
  if (status.error().code == ErrorCode::kProtocol)
    note(Evidence::kOwnFault, ErrorCode::kProtocol, rank, status.error().message);
}

void Supervisor::handle(Child& child, Rank rank, ControlMessage message) {
  RankStatus& status = child.status;
  if (const auto* left = std::get_if<LeftMessage>(&message)) {
    child.left = left->next;
    return;
  }
  // What a rank says of an epoch that is over helps nobody, but that it ends.
  const auto* last_words = std::get_if<FailedMessage>(&message);
  if (child.left != epoch_ && !(last_words != nullptr && last_words->ends) &&
      !std::holds_alternative<HeartbeatMessage>(message))
    return;
  if (auto* listening = std::get_if<ListeningMessage>(&message)) {
    child.port = listening->port;
    if (!std::all_of(children_.begin(), children_.end(),
                     [](const Child& each) { return each.port.has_value(); }))
      return;
    PeersMessage peers;
    for (std::size_t each = 0; each < children_.size(); ++each) {
      peers.hosts.push_back(host_of(static_cast<Rank>(each)));
      peers.ports.push_back(*children_[each].port);
    }
    for (Child& each : children_)
      if (!each.channel->send(peers)) each.closed = true;
  } else if (auto* loading = std::get_if<LoadingMessage>(&message)) {
    status.loading = *loading;
    child.last_progress = Clock::now();
  } else if (auto* ready = std::get_if<ReadyMessage>(&message)) {
    status.ready = std::move(*ready);
  } else if (auto* heartbeat = std::get_if<HeartbeatMessage>(&message)) {
    if (heartbeat->steps != child.steps_seen) child.last_progress = Clock::now();
    child.steps_seen = heartbeat->steps;
    status.heartbeat = std::move(*heartbeat);
  } else if (auto* done = std::get_if<DoneMessage>(&message)) {
    status.last_request = *done;
    child.done = true;
    if (!std::all_of(children_.begin(), children_.end(),
                     [](const Child& each) { return each.done; }))
      return;
    in_request_ = false;
    recovery_.progressed();
    events_.push_back(children_.front().status.last_request);
    changed_.notify_all();
  } else if (auto* failed = std::get_if<FailedMessage>(&message)) {
    child.failed = failed->ends;
    const ErrorCode code = failed->error.code;
    const bool blames_other = (code == ErrorCode::kPeerLost || code == ErrorCode::kDeadline) &&
                              failed->error.rank != rank;
    // Its memory may be damaged: it is not kept.
    if (code == ErrorCode::kIntegrity && failed->error.rank && *failed->error.rank >= 0 &&
        static_cast<std::size_t>(*failed->error.rank) < children_.size())
      children_[static_cast<std::size_t>(*failed->error.rank)].suspect = true;
    note(blames_other ? Evidence::kBlamesOther : Evidence::kOwnFault, code, rank,
         failed->error.message);
  } else if (std::holds_alternative<TraceMessage>(message) ||
             std::holds_alternative<SliceHashMessage>(message) ||
             (rank == 0 && (std::holds_alternative<TokenMessage>(message) ||
                            std::holds_alternative<LogitsMessage>(message)))) {
    child.last_progress = Clock::now();
    recovery_.progressed();
    events_.push_back(std::move(message));
    changed_.notify_all();
  } else {
    note(Evidence::kOwnFault, ErrorCode::kProtocol, rank,
         fmt::format("sent message {} out of turn", message.index()));
  }
}

void Supervisor::look_at(Child& child, Rank rank, Clock::time_point now) {
  if (child.joined) {
    if (!child.closed) return look_at_silence(child, rank, now);
    if (!child.failed)
      note(Evidence::kExited, ErrorCode::kPeerLost, rank,
           "closed its connection: its process ended or was killed, or its machine was lost");
    return;
  }
  if (child.reaped) return;
  if (const auto event = poll_child(child.status.process)) {
    switch (event->kind) {
      case ChildEvent::Kind::kKilled:
        child.reaped = true;
        note(Evidence::kKilled, ErrorCode::kPeerLost, rank,
             fmt::format("was killed by {}{}", signal_name(event->value),
                         event->value == SIGKILL
                             ? " (by someone, or by the system because memory ran out: see 'dmesg')"
                             : ""));
        return;
      case ChildEvent::Kind::kStopped:
        child.stopped_by = event->value;
        break;
      case ChildEvent::Kind::kContinued:
        child.stopped_by = 0;
        break;
      case ChildEvent::Kind::kExited:
        child.reaped = true;
        if (child.failed) return;
        note(Evidence::kExited, ErrorCode::kPeerLost, rank,
             fmt::format("ended with status {}", event->value));
        return;
    }
  }
  look_at_silence(child, rank, now);
}

void Supervisor::look_at_silence(Child& child, Rank rank, Clock::time_point now) {
  const auto seconds = [](auto duration) {
    return std::chrono::duration_cast<std::chrono::seconds>(duration).count();
  };
  // A rank that is stopped for a moment goes on as if nothing had been.
  if (child.stopped_by != 0 && now - child.last_heard > kSilenceSuspect)
    note(Evidence::kStopped, ErrorCode::kPeerLost, rank,
         fmt::format("was stopped by {}", signal_name(child.stopped_by)));
  if (now - child.last_heard > kSilenceMax)
    note(Evidence::kSilent, ErrorCode::kPeerLost, rank,
         fmt::format("has given no sign of life for {} s", seconds(now - child.last_heard)));
  const bool loading = !child.status.ready.has_value();
  if (loading && now - child.last_progress > kLoadSilenceMax)
    note(Evidence::kSilent, ErrorCode::kDeadline, rank,
         fmt::format("made no progress for {} s", seconds(now - child.last_progress)));
  if (!loading && in_request_ && !child.done && now - child.last_progress > kProgressMax)
    note(Evidence::kSilent, ErrorCode::kDeadline, rank,
         fmt::format("finished no step for {} s", seconds(now - child.last_progress)));
}

std::string Supervisor::describe(Rank rank) const {
  const RankStatus& status = children_[static_cast<std::size_t>(rank)].status;
  const std::string where = status.host.empty() ? fmt::format("process {}", status.process)
                                                : fmt::format("at {}", status.host);
  return fmt::format("rank {} ({}, last seen {})", rank, where,
                     status.heartbeat.activity.empty() ? "starting" : status.heartbeat.activity);
}

void Supervisor::note(Evidence evidence, ErrorCode code, Rank rank, std::string_view what) {
  if (evidence == Evidence::kSilent || evidence == Evidence::kStopped)
    children_[static_cast<std::size_t>(rank)].suspect = true;
  if (troubles_.empty()) first_trouble_ = Clock::now();
  // A rank's own words need no introduction by process; what others see of it does.
  std::string message = evidence == Evidence::kOwnFault || evidence == Evidence::kBlamesOther
                            ? fmt::format("rank {}: {}", rank, what)
                            : fmt::format("{} {}", describe(rank), what);
  troubles_.push_back({evidence, Error{code, std::move(message), rank}});
}

void Supervisor::decide(Clock::time_point now) {
  if (troubles_.empty() || now - first_trouble_ < kSettle) return;
  const auto cause =
      std::min_element(troubles_.begin(), troubles_.end(),
                       [](const Trouble& a, const Trouble& b) { return a.evidence < b.evidence; });
  const Error error = cause->error;
  const bool first = stage_ == Stage::kStarting;
  if (first || !recovery_.lost(now)) return give_up(error);
  leave_epoch(error, now);
}

void Supervisor::give_up(Error cause) {
  if (recovery_.losses() > RecoveryPolicy::kLossesMax)
    cause.message +=
        fmt::format("; given up after {} losses without a token between them", recovery_.losses());
  else if (loss_)
    cause.message += fmt::format("; it could not be mended within {} s (--recover)",
                                 std::chrono::duration<double>(recovery_.longest()).count());
  failure_ = std::move(cause);
  end_children();
  changed_.notify_all();
}

void Supervisor::end_children() {
  for (Child& child : children_) {
    // A launcher takes a rank that ends badly for a failure of the job. One that cannot be told is
    // gone already.
    if (child.joined && !failure_ && child.channel)
      static_cast<void>(child.channel->send(EndMessage{}));
    child.channel.reset();  // a rank ends when its socket is closed
  }
  // After a failure there is nothing to wait for, but over verbs: a process that is killed while it
  // holds queue pairs is known to leave the device unusable.
  const bool patient = !failure_ || options_.link == LinkKind::kVerbs;
  const auto deadline = Clock::now() + (options_.link == LinkKind::kVerbs ? kVerbsEndMax : kEndMax);
  for (Child& child : children_) {
    // A stopped rank would not end by itself.
    while (!child.reaped && patient && child.stopped_by == 0 && Clock::now() < deadline) {
      const auto event = poll_child(child.status.process);
      child.reaped = event && (event->kind == ChildEvent::Kind::kExited ||
                               event->kind == ChildEvent::Kind::kKilled);
      if (!child.reaped) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    if (child.reaped) continue;
    if (const Status ended = reap(child, std::max(deadline, Clock::now())); !ended)
      spdlog::warn("{}", ended.error().message);
    child.reaped = true;
  }
}

Status Supervisor::reap(const Child& child, Clock::time_point from) {
  if (kill_child(child.status.process, from + kReapMax)) return {};
  return fail(ErrorCode::kPeerLost,
              "process {} of a rank was killed and does not end: its driver holds it",
              child.status.process);
}

}  // namespace sinew
