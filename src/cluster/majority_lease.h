#pragma once

#include <deque>
#include <map>
#include <set>

#include "cluster/coordination.h"

namespace sinew {

// A lease granted by a majority of the cluster's voters, and a register replicated to all members.
// The rules are Raft's (Ongaro 2014, chapters 3, 4 and 6.4) with a log of length one: the value is
// small and each one replaces the last, so that only its tag (term, version) is compared.
//
// - A voter promises a term to one candidate, on disk before it answers, and never to a candidate
//   whose value is older than its own. It promises nothing while another's lease may run: for
//   `lease` from its last promise or renewal by its own clock, and for as long after its start.
// - A candidate first asks whether it would win, so that a node that was cut off disturbs nobody.
// - The holder counts its lease from the moment it *sent* what a majority has answered, and ends it
//   two drifts early. Clocks are compared with themselves alone.
// - A new holder writes the value again under its own term; before a majority has it, it does not
// act.
// - Voters are part of the value and change by one node at a time, so that old and new majorities
//   overlap, and only after the write before is agreed.
class MajorityLease final : public Coordination {
 public:
  struct Options {
    NodeId self;
    ClusterTiming timing;
    std::uint64_t seed = 0;
  };
  // `record` is what the store holds, `store` outlives this.
  MajorityLease(Options options, LeaseRecord record, ClusterStore& store);

  void start(Time now);
  // A new cluster with this node as its only voter.
  Status found();
  std::vector<Outgoing> tick(Time now, const std::vector<NodeId>& members) override;
  Time next_tick() const override { return next_tick_; }
  std::vector<Outgoing> received(Time now, const NodeId& from, const LeaseMessage& message);
  // While false, this node neither votes nor campaigns (another machine has its id).
  void set_voting(bool voting) { voting_ = voting; }

  bool holds(Time now) const override;
  std::optional<NodeId> holder(Time now) const override;
  std::uint64_t term() const override { return record_.term; }
  const std::optional<ClusterState>& agreed() const override { return agreed_; }
  ValueTag agreed_tag() const override { return agreed_tag_; }
  Status compare_and_swap(Time now, ValueTag expected, ClusterState next) override;
  // A moment of this node's clock at or after which a holder has held the lease. When a renewal
  // arrives says nothing: it may have waited while this process was stopped.
  std::optional<Time> contact() const { return contact_; }
  // The last failure of the store, once.
  std::optional<Error> take_store_error();

 private:
  enum class Role : std::uint8_t { kFollower, kAsking, kCandidate, kHolder };
  struct Progress {
    Time renewed{};  // when the newest message that it has answered was sent
    ValueTag value;
    Time stamp{};  // of its newest answer, by its own clock
  };

  bool is_voter(const NodeId& id) const;
  std::size_t majority() const { return record_.state.voters.size() / 2 + 1; }
  bool promised_to_another(Time now, const NodeId& candidate) const;
  Status save(const LeaseRecord& next);
  void step_down(Time now);
  void back_off(Time now);
  void wait_for_promise();
  Time random_backoff();
  void ask(Time now, std::vector<Outgoing>& out);
  void campaign(Time now, std::vector<Outgoing>& out);
  // Of all other voters, or (kAsk) whether they would vote.
  void request_votes(LeaseMessage::Kind kind, std::uint64_t term, std::vector<Outgoing>& out) const;
  void become_holder(Time now, std::vector<Outgoing>& out);
  void renew(Time now, std::vector<Outgoing>& out);
  void count_renewals();
  void grant(Time now, const NodeId& to);
  LeaseMessage answer_ask(Time now, const NodeId& from, const LeaseMessage& message) const;
  LeaseMessage answer_vote(Time now, const NodeId& from, const LeaseMessage& message);
  LeaseMessage answer_renew(Time now, const NodeId& from, const LeaseMessage& message);
  void on_reply(Time now, const NodeId& from, const LeaseMessage& message,
                std::vector<Outgoing>& out);
  void on_renew_reply(const NodeId& from, const LeaseMessage& message);
  std::uint64_t random();

  Options options_;
  LeaseRecord record_;  // what the store holds
  ClusterStore& store_;
  std::optional<Error> store_error_;
  std::uint64_t random_;
  bool voting_ = true;

  Role role_ = Role::kFollower;
  Time silent_until_{};  // after a start: an earlier promise may still run
  NodeId promised_to_;
  Time promised_until_{};
  Time next_campaign_{};
  Time next_renew_{};
  Time next_tick_{};
  Time lease_until_{};
  std::optional<Time> holder_heard_;  // when its last renewal arrived
  std::optional<Time> contact_;
  Time started_{};

  std::uint64_t sequence_ = 0;
  std::uint64_t seen_term_ = 0;  // highest that anyone has named; not yet promised here
  std::set<NodeId> votes_;
  std::map<NodeId, Progress> progress_;
  std::deque<std::pair<std::uint64_t, Time>> sent_;  // rounds that may still be answered
  std::vector<NodeId> members_;
  std::optional<ClusterState> agreed_;
  ValueTag agreed_tag_;
};

}  // namespace sinew
