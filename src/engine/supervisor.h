#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "engine/control_channel.h"
#include "engine/launcher.h"
#include "engine/recovery.h"
#include "host/process.h"
#include "transport/shm_segment.h"

namespace sinew {

struct LaunchOptions {
  std::string program;  // to start as `program rank`; "" for the running one
  std::string model_path;
  Layout layout;  // its number of shares is the number of ranks
  LinkKind link = LinkKind::kShm;
  VerbsOptions verbs;
  std::string device;
  int threads = 1;  // of each rank
  std::int64_t context = 0;
  int slots = 1;
  int chunk_tokens = 512;
  std::chrono::milliseconds timeout{30000};  // of a collective
  WireType wire = WireType::kF32;
  std::optional<std::uint64_t> one_shot_max;  // bytes; nothing: measured
  TensorType cache_type = TensorType::kF16;
  HashScope hashes = HashScope::kNone;  // what ranks hash while they load, for kHashes
  bool verbose = false;                 // ranks tell how they are joined
  // How long the loss of a rank may take to mend; 0: the first loss ends everything. Ranks that a
  // launcher has started cannot be started again: 0 is needed there.
  std::chrono::milliseconds recover{0};
  // An answer that goes on is computed again in the very steps of the first time.
  bool recover_exactly = false;
  // Where a launcher has started the processes of all ranks: that of rank 0, which is this one,
  // finds the others and starts rank 0 alone.
  std::optional<LaunchedRank> launched;
  // Damage for tests, see engine/fault.h: the rank and what it is told.
  std::vector<std::pair<Rank, std::string>> faults;
};

// What is known of one rank.
struct RankStatus {
  pid_t process = -1;  // unless a launcher started it
  std::string host;    // where that was
  LoadingMessage loading;
  std::optional<ReadyMessage> ready;
  DoneMessage last_request;  // figures of the last finished request
  HeartbeatMessage heartbeat;
};

// Starts the ranks of one model as child processes, or finds those that a launcher started, watches
// them, and ends them. The first trouble ends the epoch: its cause is decided once (a killed rank
// before those that merely noticed). Then the ranks that are at fault are started again, the others
// leave their group and keep their weights, and all form the next epoch; or, where that is not
// wanted or does not work, all ranks are killed and every later call returns that one error.
//
// Threads: `launch` is called on a thread that outlives the ranks, because they die with it; a
// monitor thread of its own owns the sockets and children; all methods may be called from any
// thread, one request at a time.
class Supervisor {
 public:
  // Returns when all ranks are ready. `progress` is called on the calling thread now and then while
  // they load.
  static Result<std::unique_ptr<Supervisor>> launch(
      const LaunchOptions& options,
      const std::function<void(const std::vector<RankStatus>&)>& progress);
  ~Supervisor();
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;

  // Begins a request on all ranks. Then `next_event` until the DoneMessage. kPeerLost between two
  // epochs: see `await_epoch`.
  Status begin(BeginMessage request);
  void cancel();
  // Rank 0's next token or logits, any rank's trace or hash, or, once all ranks are done, the
  // DoneMessage; nothing if none comes within `longest`. An error at the latest when the monitor
  // gives a rank up: the request is over, with the epoch in which it began.
  Result<std::optional<ControlMessage>> next_event(std::chrono::milliseconds longest);
  // True once requests can begin, false if that takes longer than `longest`; the error that ended
  // everything.
  Result<bool> await_epoch(std::chrono::milliseconds longest);
  Status health() const;
  // The loss that is being mended.
  std::optional<Error> recovering() const;
  std::vector<RankStatus> ranks() const;

 private:
  using Clock = std::chrono::steady_clock;
  // Causes of trouble, the most telling first.
  enum class Evidence : std::uint8_t {
    kKilled,
    kStopped,
    kOwnFault,
    kExited,
    kSilent,
    kBlamesOther
  };
  struct Trouble {
    Evidence evidence = Evidence::kExited;
    Error error;
  };
  struct Child {
    RankStatus status;
    std::unique_ptr<ControlChannel> channel;
    Clock::time_point last_heard;
    Clock::time_point last_progress;
    std::uint64_t steps_seen = 0;
    std::optional<std::uint16_t> port;
    bool done = true;  // with the current request
    bool reaped = false;
    bool failed = false;   // it said why it ends
    bool suspect = false;  // silent, or its results are wrong: not to be kept
    Epoch left = 0;        // the epoch that it waits for, or is in
    int stopped_by = 0;    // signal, while it is stopped
    bool joined = false;   // started by a launcher: only its connection tells of it
    bool closed = false;   // its end of the control socket

    // Dead, stopped or not to be trusted: it has no place in the next epoch.
    bool lost() const { return reaped || closed || failed || suspect || stopped_by != 0; }
  };

  Supervisor() = default;
  Status start(const LaunchOptions& options);
  Status start_child(Child& child, Rank rank);
  void monitor();
  void read_messages(Child& child, Rank rank);
  void handle(Child& child, Rank rank, ControlMessage message);
  void look_at(Child& child, Rank rank, Clock::time_point now);
  void look_at_silence(Child& child, Rank rank, Clock::time_point now);
  void note(Evidence evidence, ErrorCode code, Rank rank, std::string_view what);
  void decide(Clock::time_point now);
  void give_up(Error cause);
  void configure(Child& child, Rank rank);
  // Between two epochs, in this order.
  void leave_epoch(const Error& cause, Clock::time_point now);
  static Status replace(Child& child);
  void go_on(Clock::time_point now);
  Status start_epoch();
  void epoch_is_ready(Clock::time_point now);
  void end_children();
  // Kills it; an error if it has not ended a second after `from`.
  static Status reap(const Child& child, Clock::time_point from);
  std::string describe(Rank rank) const;
  // Where the ranks listen for each other.
  std::string host_of(Rank rank) const;

  LaunchOptions options_;
  mutable std::mutex mutex_;  // guards all below
  std::condition_variable changed_;
  std::vector<Child> children_;
  std::deque<ControlMessage> events_;
  std::vector<Trouble> troubles_;
  Clock::time_point first_trouble_;
  std::optional<Error> failure_;
  // What an epoch goes through. Only the first one never leaves: a model that cannot be started is
  // not started again.
  enum class Stage : std::uint8_t { kStarting, kServing, kLeaving, kJoining };
  Stage stage_ = Stage::kStarting;
  Epoch epoch_ = 1;
  Epoch request_epoch_ = 1;
  std::optional<Error> loss_;  // that is being mended
  Clock::time_point loss_time_;
  Clock::time_point leave_end_;
  RecoveryPolicy recovery_{std::chrono::milliseconds(0)};
  ConfigureMessage config_;  // of every rank and epoch but for what `configure` fills in
  std::optional<ShmSegment> segment_;
  bool in_request_ = false;
  bool stopping_ = false;
  std::thread monitor_;
};

}  // namespace sinew
