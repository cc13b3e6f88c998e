#include "cluster/membership.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace sinew {
namespace {

using namespace std::chrono_literals;

Member make(std::uint8_t id, std::uint64_t incarnation = 1) {
  Member m;
  m.id.bytes.fill(id);
  m.name = "node-" + std::to_string(id);
  m.incarnation = incarnation;
  m.nonce = id * 1000 + incarnation;
  return m;
}

bool has(const std::vector<Event>& events, EventKind kind) {
  return std::ranges::any_of(events, [&](const Event& e) { return e.kind == kind; });
}

struct Observer {
  Membership members{make(1), ClusterTiming{}};
  std::vector<Event> events;
  Time now{};

  explicit Observer(std::uint8_t id = 1) : members(make(id), ClusterTiming{}) { members.start({}); }
  void wait(Time time) {
    for (const Time end = now + time; now < end;) {
      now += 100ms;
      members.advance(now);
      members.tick(events);
    }
  }
  void hear(Membership& from) { members.on_beat(from.self().id, from.next_beat({}), events); }
};

TEST(Membership, JoiningByOneHostIsEnough) {
  Observer a(1);
  Observer b(2);
  Observer c(3);
  b.hear(c.members);
  a.hear(b.members);
  EXPECT_EQ(a.members.ids().size(), 2U);
  EXPECT_TRUE(has(a.events, EventKind::kJoined));
}

TEST(Membership, ASilentNodeIsSuspectThenGoneWithinTenSeconds) {
  Observer a(1);
  Observer b(2);
  a.hear(b.members);
  a.wait(2s);
  EXPECT_TRUE(has(a.events, EventKind::kSuspect));
  EXPECT_EQ(a.members.views().front().liveness, Liveness::kSuspect);
  a.wait(7s);
  EXPECT_TRUE(has(a.events, EventKind::kGone));
  EXPECT_TRUE(a.members.ids().empty());
}

TEST(Membership, OldNewsOfTheDeadNeverRevivesThem) {
  Observer a(1);
  Observer b(2);
  Observer c(3);
  const BeatMessage last = c.members.next_beat({});
  a.members.on_beat(c.members.self().id, last, a.events);
  a.wait(8s);
  ASSERT_TRUE(a.members.ids().empty());
  // Another node, stopped meanwhile, tells what it knew.
  b.members.on_beat(c.members.self().id, last, b.events);
  a.hear(b.members);
  EXPECT_EQ(a.members.ids(), std::vector<NodeId>{b.members.self().id});
}

TEST(Membership, ANodeThatOthersHearIsAlive) {
  Observer a(1);
  Observer b(2);
  Observer c(3);
  a.hear(c.members);
  for (int i = 0; i < 30; ++i) {
    b.hear(c.members);
    a.hear(b.members);
    a.wait(400ms);
  }
  EXPECT_FALSE(has(a.events, EventKind::kGone));
  for (const MemberView& v : a.members.views())
    EXPECT_EQ(v.heard, v.member.id != c.members.self().id);
}

TEST(Membership, ARestartedNodeReplacesItsGhostAtOnce) {
  Observer a(1);
  Observer b(2);
  a.hear(b.members);
  Membership again(make(2, 2), ClusterTiming{});
  a.hear(again);
  ASSERT_EQ(a.members.views().size(), 1U);
  EXPECT_EQ(a.members.views().front().member.incarnation, 2U);
  EXPECT_TRUE(has(a.events, EventKind::kRestarted));
  a.hear(b.members);  // a message of the earlier life, late
  EXPECT_EQ(a.members.views().front().member.incarnation, 2U);
  EXPECT_FALSE(has(a.events, EventKind::kDuplicateId));
}

TEST(Membership, TwoLiveMachinesWithOneIdAreNamed) {
  Observer a(1);
  Observer b(2);
  Member copied = make(2);
  copied.name = "copy";
  copied.nonce = 5;
  Membership copy(copied, ClusterTiming{});
  a.hear(b.members);
  a.hear(copy);
  const auto it = std::ranges::find(a.events, EventKind::kDuplicateId, &Event::kind);
  ASSERT_NE(it, a.events.end());
  EXPECT_NE(it->text.find("'node-2' and 'copy'"), std::string::npos) << it->text;
  // The copy learns of it as well, and takes no part.
  std::vector<Event> events;
  copy.on_beat(a.members.self().id, a.members.next_beat({}), events);
  EXPECT_TRUE(copy.duplicated());
}

TEST(Membership, OwnSleepIsNobodysSilence) {
  Observer a(1);
  Observer b(2);
  a.hear(b.members);
  a.now += 60s;
  a.members.advance(a.now);
  a.members.tick(a.events);
  EXPECT_FALSE(has(a.events, EventKind::kGone));
  a.wait(8s);
  EXPECT_TRUE(has(a.events, EventKind::kGone));
}

TEST(Membership, WhoLeavesIsGoneAtOnceAndForGood) {
  Observer a(1);
  Observer b(2);
  a.hear(b.members);
  a.members.on_leave(b.members.self().id, 1, a.events);
  EXPECT_TRUE(a.members.ids().empty());
  a.hear(b.members);  // sent before, arrived after
  EXPECT_TRUE(a.members.ids().empty());
}

TEST(Membership, ABeatInAnothersNameIsRefused) {
  Observer a(1);
  Observer b(2);
  a.members.on_beat(make(3).id, b.members.next_beat({}), a.events);
  EXPECT_TRUE(has(a.events, EventKind::kRefused));
  EXPECT_TRUE(a.members.ids().empty());
}

}  // namespace
}  // namespace sinew
