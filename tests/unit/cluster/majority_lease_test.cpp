#include "cluster/majority_lease.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace sinew {
namespace {

using namespace std::chrono_literals;

NodeId id(std::uint8_t n) {
  NodeId value;
  value.bytes.fill(n);
  return value;
}

struct MemoryStore final : ClusterStore {
  Status save(ByteSpan block) override {
    if (broken) return fail(ErrorCode::kIo, "broken");
    content.assign(block.begin(), block.end());
    ++saves;
    return {};
  }
  std::vector<std::byte> content;
  bool broken = false;
  int saves = 0;
};

// Voters that are all on one clock and hear each other at once, unless cut off.
struct Group {
  struct Voter {
    MemoryStore store;
    std::unique_ptr<MajorityLease> lease;
    bool cut = false;
  };
  std::map<NodeId, Voter> voters;
  std::vector<NodeId> ids;
  Time now{};

  explicit Group(std::uint8_t count) {
    for (std::uint8_t n = 1; n <= count; ++n) ids.push_back(id(n));
    LeaseRecord record;
    record.value.version = 1;
    record.state.voters = ids;
    for (const NodeId& who : ids) {
      voters[who].store.content = encode_record(record);
      boot(who);
    }
  }
  void boot(const NodeId& who) {
    Voter& v = voters[who];
    v.lease = std::make_unique<MajorityLease>(MajorityLease::Options{who, {}, who.bytes[0]},
                                              *decode_record(v.store.content), v.store);
    v.lease->start(now);
  }
  void deliver(const NodeId& from, std::vector<Coordination::Outgoing> messages) {
    if (voters[from].cut) return;
    for (auto& m : messages) {
      if (voters[m.to].cut) continue;
      deliver(m.to, voters[m.to].lease->received(now, from, m.message));
    }
  }
  void run(Time time) {
    for (const Time end = now + time; now < end; now += 20ms)
      for (const NodeId& who : ids)
        if (now >= voters[who].lease->next_tick()) deliver(who, voters[who].lease->tick(now, {}));
  }
  std::vector<NodeId> holders() {
    std::vector<NodeId> result;
    for (const NodeId& who : ids)
      if (voters[who].lease->holds(now)) result.push_back(who);
    return result;
  }
};

TEST(MajorityLease, OneOfThreeHoldsItAndTheOthersKnow) {
  Group group(3);
  group.run(5s);
  ASSERT_EQ(group.holders().size(), 1U);
  for (const NodeId& who : group.ids)
    EXPECT_EQ(group.voters[who].lease->holder(group.now), group.holders().front());
}

TEST(MajorityLease, AHolderThatIsCutOffStopsBeforeAnotherBegins) {
  Group group(3);
  group.run(5s);
  const NodeId first = group.holders().front();
  group.voters[first].cut = true;
  bool gap = false;
  for (int i = 0; i < 500; ++i) {
    group.run(20ms);
    ASSERT_LE(group.holders().size(), 1U);
    gap = gap || group.holders().empty();
  }
  EXPECT_TRUE(gap);
  ASSERT_EQ(group.holders().size(), 1U);
  EXPECT_NE(group.holders().front(), first);
}

TEST(MajorityLease, AMinorityNeverHoldsIt) {
  Group group(5);
  for (std::uint8_t n = 1; n <= 3; ++n) group.voters[id(n)].cut = true;
  for (int i = 0; i < 200; ++i) {
    group.run(100ms);
    ASSERT_TRUE(group.holders().empty());
  }
}

TEST(MajorityLease, ANodeThatWasCutOffDisturbsNobody) {
  Group group(3);
  group.run(5s);
  const NodeId holder = group.holders().front();
  const std::uint64_t term = group.voters[holder].lease->term();
  const NodeId other = holder == id(1) ? id(2) : id(1);
  group.voters[other].cut = true;
  group.run(30s);
  group.voters[other].cut = false;
  group.run(5s);
  EXPECT_EQ(group.holders(), std::vector<NodeId>{holder});
  EXPECT_EQ(group.voters[holder].lease->term(), term);
}

TEST(MajorityLease, NothingIsPromisedThatIsNotOnDisk) {
  Group group(3);
  for (auto& [who, voter] : group.voters) voter.store.broken = who != id(1);
  group.run(10s);
  EXPECT_TRUE(group.holders().empty());
  EXPECT_TRUE(group.voters[id(1)].store.saves > 0);
  EXPECT_EQ(group.voters[id(2)].lease->term(), 0U);
}

TEST(MajorityLease, ARestartedVoterIsSilentWhileAnEarlierPromiseMayRun) {
  Group group(3);
  group.run(5s);
  const NodeId holder = group.holders().front();
  const NodeId voter = holder == id(1) ? id(2) : id(1);
  group.boot(voter);
  LeaseMessage vote;
  vote.kind = LeaseMessage::Kind::kVote;
  vote.term = 100;
  vote.value = {100, 1};
  const auto asked = [&] {
    return group.voters[voter].lease->received(group.now, id(9), vote).front().message.granted;
  };
  EXPECT_FALSE(asked());
  group.now += 1900ms;
  EXPECT_FALSE(asked());
  group.now += 200ms;
  EXPECT_TRUE(asked());
}

TEST(MajorityLease, AVoteSurvivesARestart) {
  Group group(3);
  LeaseMessage vote;
  vote.kind = LeaseMessage::Kind::kVote;
  vote.term = 100;
  vote.value = {1, 1};
  ASSERT_TRUE(group.voters[id(1)].lease->received(group.now, id(2), vote).front().message.granted);
  group.boot(id(1));
  group.now += 10s;
  EXPECT_FALSE(group.voters[id(1)].lease->received(group.now, id(3), vote).front().message.granted);
  EXPECT_TRUE(group.voters[id(1)].lease->received(group.now, id(2), vote).front().message.granted);
}

TEST(MajorityLease, ACandidateWithAnOlderValueIsRefused) {
  Group group(3);
  group.run(5s);
  group.run(10s);
  const NodeId holder = group.holders().front();
  const NodeId voter = holder == id(1) ? id(2) : id(1);
  group.now += 10s;  // every promise is over
  LeaseMessage vote;
  vote.kind = LeaseMessage::Kind::kVote;
  vote.term = 100;
  vote.value = {0, 1};
  EXPECT_FALSE(group.voters[voter].lease->received(group.now, id(3), vote).front().message.granted);
}

TEST(MajorityLease, AWriteIsAgreedByAMajorityAndOutlivesItsWriter) {
  Group group(3);
  group.run(5s);
  const NodeId writer = group.holders().front();
  MajorityLease& lease = *group.voters[writer].lease;
  ClusterState next = *lease.agreed();
  next.last_epoch = 42;
  const ValueTag before = lease.agreed_tag();
  ASSERT_TRUE(lease.compare_and_swap(group.now, before, next));
  EXPECT_EQ(lease.agreed_tag(), before) << "agreed before anyone else has it";
  EXPECT_FALSE(lease.compare_and_swap(group.now, before, next)) << "two writes at once";
  group.run(100ms);
  EXPECT_GT(lease.agreed_tag(), before);
  group.voters[writer].cut = true;
  group.run(8s);
  ASSERT_EQ(group.holders().size(), 1U);
  ASSERT_NE(group.holders().front(), writer);
  EXPECT_EQ(group.voters[group.holders().front()].lease->agreed()->last_epoch, 42U);
  EXPECT_FALSE(lease.compare_and_swap(group.now, lease.agreed_tag(), next));
}

TEST(MajorityLease, ARenewalThatHasWaitedIsNoContact) {
  Group group(3);
  group.run(5s);
  const NodeId holder = group.holders().front();
  const NodeId voter = holder == id(1) ? id(2) : id(1);
  MajorityLease& lease = *group.voters[voter].lease;
  const auto before = lease.contact();
  ASSERT_TRUE(before);
  EXPECT_LE(*before, group.now);
  EXPECT_GT(*before, group.now - 1s);
  LeaseMessage renew;
  renew.kind = LeaseMessage::Kind::kRenew;
  renew.term = lease.term();
  renew.value = lease.agreed_tag();
  renew.stamp = *before;
  lease.received(group.now + 60s, holder, renew);  // this process was stopped for a minute
  EXPECT_EQ(lease.contact(), before);
}

TEST(MajorityLease, VotersChangeByOneAtATime) {
  Group group(5);
  group.run(5s);
  MajorityLease& lease = *group.voters[group.holders().front()].lease;
  ClusterState next = *lease.agreed();
  next.voters.resize(3);
  const Status status = lease.compare_and_swap(group.now, lease.agreed_tag(), next);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kUsage);
}

}  // namespace
}  // namespace sinew
