#pragma once

#include <deque>
#include <map>
#include <optional>
#include <vector>

#include "cluster/assignment.h"
#include "cluster/membership.h"
#include "cluster/node_core.h"

namespace sinew {

// What the holder of the lease decides: which models run where, and who votes. It sees members and
// the agreed state, and answers with the state that should follow; the lease makes it agreed or
// not, and nobody acts on it before. What it remembers besides may be lost with it.
class Coordinator {
 public:
  struct Request {
    NodeId from;
    std::uint64_t number = 0;
    NodeCore::Command command;
  };
  struct Reply {
    NodeId to;
    CommandReply reply;
  };
  struct View {
    Time now{};
    Time up_for{};  // since this node's start
    std::uint64_t term = 0;
    const Membership& members;
  };

  explicit Coordinator(const ClusterTiming& timing) : timing_(timing) {}

  // This node has got the lease: what an earlier term remembered is worth nothing.
  void begin(Time now);
  void request(Request request);
  // The state that should follow `state`; nothing if all is well. Ends epochs that have lost a
  // node, places models, carries out requests, mends the set of voters.
  std::optional<ClusterState> decide(const View& view, const ClusterState& state,
                                     std::vector<Event>& events);
  // The write of decide()'s state was agreed, or was refused.
  void written(bool agreed);
  std::vector<Reply> take_replies();

 private:
  struct Memory {
    std::vector<NodeId> before;  // nodes of the epoch that was lost
    Time lost_at{};
    Time not_before{};
    Time started{};
    int failures = 0;        // epochs in a row that ended soon after their start
    std::string not_placed;  // last reason that was told
  };

  Status apply(const View& view, const Request& request, ClusterState& state,
               std::vector<Event>& events);
  void fail_epoch(const View& view, const NodeCore::FailEpoch& failed, ClusterState& state,
                  std::vector<Event>& events);
  void end_epoch(const View& view, ModelState& model, const std::string& why,
                 std::vector<Event>& events);
  void review(const View& view, ClusterState& state, ModelState& model, std::vector<Event>& events);
  void place(const View& view, ClusterState& state, ModelState& model, std::vector<Event>& events);
  void start_epoch(const View& view, ClusterState& state, ModelState& model, Assignment assignment,
                   std::vector<Event>& events);
  void mend_voters(const View& view, ClusterState& state, std::vector<Event>& events);

  ClusterTiming timing_;
  Time began_{};
  std::deque<Request> requests_;
  std::vector<Reply> waiting_;  // for the write that is under way
  std::vector<Reply> replies_;
  std::map<ModelId, Memory> memory_;
  std::map<NodeId, Time> voter_missing_;
};

}  // namespace sinew
