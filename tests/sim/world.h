#pragma once

#include <array>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <queue>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "cluster/node_core.h"
#include "cluster/request_log.h"

// A whole cluster in one thread: real NodeCores and RequestLogs over a network, clocks, disks,
// engines and clients that are simulated. One seed decides everything, so that a failure replays.
namespace sinew::sim {

// Deliberate faults of the program: each must be caught by the invariant it is aimed at.
enum class Mutation {
  kNone,
  kLongLease,      // holders count on their lease for longer than voters promise
  kForgetfulDisk,  // disks say that they have written, and have not
  kSlowBurial,     // the dead stay members
  kRawTokens,      // clients get what engines send, unfiltered
  kLostRequest,    // heads ignore some requests for ever
  kServeAlone,     // nodes never notice that they hear no coordinator
  kDeafNode,       // one node never hears the others again
  kOldDisks,       // all machines are set back to an old copy of their disks
};
inline constexpr int kMutationCount = 9;
std::string mutation_name(Mutation mutation);

struct Outcome {
  std::string violation;  // empty: all is well
  std::uint64_t events = 0;
  int faults = 0;
  int faults_at_once = 0;
  int elections = 0;
  int epochs = 0;
  int requests = 0;
  int finished = 0;
  int failed = 0;  // ended with an error
  int tokens = 0;
};

struct Settings {
  std::uint64_t seed = 1;
  Mutation mutation = Mutation::kNone;
  bool verbose = false;
};
Outcome run(const Settings& settings);

// ----- the inside, in several files -----

using namespace std::chrono_literals;

class Disk final : public ClusterStore {
 public:
  enum class Fault { kNone, kError, kErrorAfterWrite, kPowerBefore, kPowerAfter };
  Status save(ByteSpan block) override;

  std::vector<std::byte> content;
  Fault fault = Fault::kNone;
  bool forgetful = false;
  bool power_lost = false;  // the machine is gone when the call returns
};

// What ranks and request logs say to each other. The step protocol in little: a head sends a step
// to all ranks, takes it for done when all have answered, and emits tokens.
struct EngineMessage {
  enum class Kind { kReady, kStep, kAck, kBegin, kToken };
  Kind kind = Kind::kReady;
  ModelId model;
  Epoch epoch = 0;
  std::uint64_t number = 0;
  RequestLog::Begin begin;
  RequestId request = 0;
  std::uint32_t index = 0;
  TokenId token = 0;
  bool last = false;
};

// One node's part of one model in one epoch.
struct RankState {
  Assignment assignment;
  Time ready_at{};  // when its weights are loaded
  bool ready = false;
  // The head's.
  std::set<NodeId> ready_ranks;
  std::map<RequestId, std::pair<NodeId, RequestLog::Begin>> active;
  std::uint64_t step = 0;
  Time step_began{};
  Time step_sent{};
  std::set<NodeId> acks;
  bool failed = false;
};

struct Node {
  NodeId id;
  Member member;
  std::unique_ptr<NodeCore> core;
  Disk disk;
  std::vector<std::byte> old_disk;
  bool up = false;
  bool paused = false;
  bool dead_for_good = false;
  std::deque<std::function<void()>> held;  // arrives while it is paused
  Time base_true{};
  Time base_local{};
  double rate = 1.0;
  std::uint64_t life = 0;  // grows at each crash and start: old timers are of no use
  Time timer_at = Time::max();
  Time last_contact{};  // with a majority, in true time: see invariants.cpp
  ValueTag agreed;
  Epoch last_epoch_agreed = 0;
  std::map<ModelId, Epoch> last_started;
  std::map<ModelId, RankState> ranks;
  std::map<ModelId, RequestLog> logs;
  std::map<ModelId, Epoch> log_epoch;
};

class World {
 public:
  explicit World(const Settings& settings);
  Outcome run();

 private:
  struct Pending {
    Time at;
    std::uint64_t order = 0;
    std::function<void()> act;
    bool operator<(const Pending& o) const { return at != o.at ? at > o.at : order > o.order; }
  };
  struct Link {
    int cuts = 0;  // faults that cut it
    int slow = 0;
  };
  struct Expected {  // a client and the answer it must get
    std::size_t node = 0;
    std::uint64_t life = 0;
    ModelId model;
    std::uint32_t tokens_max = 0;
    std::uint32_t received = 0;
    TokenId previous = 0;
    bool ended = false;
    Time since{};
  };

  // world.cpp
  void at(Time when, std::function<void()> act);
  Time local(const Node& node) const;
  void boot(std::size_t index);
  void crash(std::size_t index);
  void pause(std::size_t index);
  void resume(std::size_t index);
  void set_rate(std::size_t index, double rate);
  void drive(std::size_t index, const std::function<NodeCore::Actions(NodeCore&, Time)>& call);
  void carry_out(std::size_t index, NodeCore::Actions actions);
  void set_timer(std::size_t index);
  void transmit(std::size_t from, std::size_t to, std::function<void()> arrive);
  std::size_t index_of(const NodeId& id) const;
  void introduce();
  double chance() { return std::uniform_real_distribution<>(0, 1)(random_); }
  Time between(Time least, Time most);
  template <typename... Args>
  void say(fmt::format_string<Args...> format, Args&&... args) {
    if (settings_.verbose) say_line(fmt::format(format, std::forward<Args>(args)...));
  }
  void say_line(const std::string& line) const;
  void violate(const std::string& what);

  // engine.cpp
  void start_rank(std::size_t index, const NodeCore::StartModel& start);
  void stop_rank(std::size_t index, const NodeCore::StopModel& stop);
  void engine_tick(std::size_t index);
  void head_tick(std::size_t index, const ModelId& model, RankState& rank);
  void engine_send(std::size_t from, const NodeId& to, EngineMessage message);
  void engine_received(std::size_t index, const NodeId& from, const EngineMessage& message);
  void emit_tokens(std::size_t index, RankState& rank, const ModelId& model);
  void logs_tick(std::size_t index);
  void send_begins(std::size_t index, const ModelId& model, std::vector<RequestLog::Begin> begins);
  void client_asks();
  void deliver(std::size_t index, const RequestLog::Delivery& delivery);
  void client_gone(std::size_t index);

  // faults.cpp
  void schedule_faults();
  void start_fault();
  void end_fault() { --faults_now_; }
  void heal_all();

  // invariants.cpp
  void check_now();
  void note_contact();
  void check_started(std::size_t index, const NodeCore::StartModel& start);
  std::string unfinished();  // what has not converged yet; empty if all has
  std::string ghosts();

  Settings settings_;
  std::mt19937_64 random_;
  Outcome outcome_;
  Time now_{};
  std::uint64_t order_ = 0;
  std::priority_queue<Pending> events_;
  std::vector<Node> nodes_;
  std::vector<std::vector<Link>> links_;
  double loss_ = 0;
  double twice_ = 0;
  int faults_now_ = 0;
  std::vector<DesiredModel> models_;
  std::map<std::uint64_t, NodeId> holder_of_term_;
  std::map<Epoch, Assignment> epochs_;
  std::vector<Expected> requests_;
  std::map<std::uint64_t, Status> answers_;
  std::uint64_t commands_ = 0;
  ValueTag newest_tag_;
  std::vector<NodeId> voters_;  // of the newest agreed state
};

TokenId expected_token(RequestId request, std::uint32_t index, TokenId previous);

inline constexpr Time kFaultsBegin = 14s;
inline constexpr Time kFaultsEnd = 34s;
inline constexpr Time kGhostMax = 10s;
inline constexpr Time kConvergeMax = 40s;

}  // namespace sinew::sim
