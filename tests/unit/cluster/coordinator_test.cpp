#include "cluster/coordinator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace sinew {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

Member make(std::uint8_t n, std::uint64_t available, std::uint64_t incarnation = 1) {
  Member m;
  m.id.bytes.fill(n);
  m.name = "node-" + std::to_string(n);
  m.incarnation = incarnation;
  m.nonce = n + 100 * incarnation;
  m.memory_available_bytes = available;
  return m;
}

// Node 1 coordinates; the others beat and hear each other unless they are taken out.
struct CoordinatorDecision : ::testing::Test {
  Membership members{make(1, 1000), ClusterTiming{}};
  std::map<std::uint8_t, Membership> others;
  std::vector<PeerLink> everyone;
  Coordinator coordinator{ClusterTiming{}};
  ClusterState state;
  std::vector<Event> events;
  Time now{};

  CoordinatorDecision() {
    members.start({});
    for (std::uint8_t n = 2; n <= 4; ++n) others.emplace(n, Membership(make(n, 1000), {}));
    for (std::uint8_t n = 1; n <= 4; ++n) everyone.push_back({make(n, 0).id, PathKind::kEthernet});
    state.voters = {make(1, 0).id, make(2, 0).id, make(3, 0).id};
    coordinator.begin({});
    run(10s);
  }
  void run(Time time) {
    for (const Time end = now + time; now < end;) {
      now += 200ms;
      members.advance(now);
      for (auto& [n, other] : others)
        members.on_beat(other.self().id, other.next_beat(everyone), events);
      members.tick(events);
      if (auto next = coordinator.decide({now, now, 7, members}, state, events)) {
        state = std::move(*next);
        coordinator.written(true);
      }
    }
  }
  DesiredModel model(std::uint64_t bytes) {
    DesiredModel m;
    m.name = "kimi";
    m.needs = {bytes, 10, 64, 32};
    return m;
  }
  void ask(NodeCore::Command command) {
    coordinator.request({make(2, 0).id, 1, std::move(command)});
  }
  bool said(EventKind kind) {
    return std::ranges::any_of(events, [&](const Event& e) { return e.kind == kind; });
  }
};

TEST_F(CoordinatorDecision, PlacesAModelOnAllWithTheTermOfItsLease) {
  ask(NodeCore::LoadModel{model(2000)});
  run(1s);
  ASSERT_TRUE(state.models.size() == 1 && state.models[0].assignment);
  EXPECT_EQ(state.models[0].assignment->shares.size(), 4U);
  EXPECT_EQ(state.models[0].assignment->term, 7U);
  const auto replies = coordinator.take_replies();
  ASSERT_EQ(replies.size(), 1U);
  EXPECT_TRUE(replies[0].reply.status);
}

TEST_F(CoordinatorDecision, RefusesWhatDoesNotFitBeforeAnythingIsLoaded) {
  ask(NodeCore::LoadModel{model(5000)});
  run(1s);
  const auto replies = coordinator.take_replies();
  ASSERT_EQ(replies.size(), 1U);
  ASSERT_FALSE(replies[0].reply.status);
  EXPECT_EQ(replies[0].reply.status.error().code, ErrorCode::kNoMemory);
  EXPECT_THAT(replies[0].reply.status.error().message, HasSubstr("node-3"));
  EXPECT_TRUE(state.models.empty());
}

TEST_F(CoordinatorDecision, ASecondModelGetsWhatTheFirstLeaves) {
  ask(NodeCore::LoadModel{model(3000)});
  run(1s);
  DesiredModel second = model(2000);
  second.id.bytes.fill(9);
  ask(NodeCore::LoadModel{second});
  run(1s);
  EXPECT_EQ(state.models.size(), 1U);
  ASSERT_EQ(coordinator.take_replies().size(), 2U);
}

TEST_F(CoordinatorDecision, ALostNodeEndsTheEpochAndTheRestGoesOn) {
  ask(NodeCore::LoadModel{model(2000)});
  run(1s);
  const Epoch before = state.models[0].assignment->epoch;
  others.erase(4);
  run(3s);
  EXPECT_TRUE(said(EventKind::kEpochEnded));
  ASSERT_TRUE(state.models[0].assignment);
  EXPECT_GT(state.models[0].assignment->epoch, before);
  EXPECT_EQ(state.models[0].assignment->shares.size(), 3U);
}

TEST_F(CoordinatorDecision, WaitsForTheNodeWhenTheRestIsTooSmall) {
  ask(NodeCore::LoadModel{model(3500)});
  run(1s);
  others.erase(4);
  run(10s);
  EXPECT_FALSE(state.models[0].assignment);
  EXPECT_TRUE(said(EventKind::kNotPlaced));
  others.emplace(4, Membership(make(4, 1000, 2), {}));
  run(2s);
  ASSERT_TRUE(state.models[0].assignment);
  EXPECT_EQ(state.models[0].assignment->shares.size(), 4U);
}

TEST_F(CoordinatorDecision, WaitsAsThePolicySaysAndNoLonger) {
  DesiredModel waiting = model(2000);
  waiting.on_loss = OnLoss::kWait;
  waiting.wait_ms = 8000;
  ask(NodeCore::LoadModel{waiting});
  run(1s);
  others.erase(4);
  run(6s);
  EXPECT_FALSE(state.models[0].assignment);
  run(6s);
  EXPECT_TRUE(state.models[0].assignment);
}

TEST_F(CoordinatorDecision, ANodeThatComesBackIsUsedAsThePolicySays) {
  DesiredModel wide = model(2000);
  wide.on_return = OnReturn::kWiden;
  ask(NodeCore::LoadModel{wide});
  run(1s);
  others.erase(4);
  run(10s);
  ASSERT_EQ(state.models[0].assignment->shares.size(), 3U);
  others.emplace(4, Membership(make(4, 1000, 2), {}));
  run(3s);
  EXPECT_EQ(state.models[0].assignment->shares.size(), 3U) << "it may go again";
  run(4s);
  EXPECT_EQ(state.models[0].assignment->shares.size(), 4U);
}

TEST_F(CoordinatorDecision, AnEpochThatFailsAtEachStartIsTriedEverMoreRarely) {
  ask(NodeCore::LoadModel{model(2000)});
  run(1s);
  const Epoch first = state.last_epoch;
  for (int i = 0; i < 300; ++i) {
    if (state.models[0].assignment)
      coordinator.request(
          {make(2, 0).id, 0,
           NodeCore::FailEpoch{
               state.models[0].desired.id, state.models[0].assignment->epoch, {}, "dies"}});
    run(200ms);
  }
  EXPECT_GT(state.last_epoch, first + 3);
  EXPECT_LT(state.last_epoch, first + 16);  // a minute: 0.5, 1, 2, 4, then 8 s apart
}

TEST_F(CoordinatorDecision, AReportOfAnOldEpochEndsNothing) {
  ask(NodeCore::LoadModel{model(2000)});
  run(1s);
  const Epoch epoch = state.models[0].assignment->epoch;
  ask(NodeCore::FailEpoch{state.models[0].desired.id, epoch - 1, {}, "late"});
  run(1s);
  EXPECT_EQ(state.models[0].assignment->epoch, epoch);
}

TEST_F(CoordinatorDecision, VotersStayOddAndALostOneIsReplacedInTheEnd) {
  EXPECT_EQ(state.voters.size(), 3U);
  others.erase(3);
  run(60s);
  EXPECT_EQ(state.voters.size(), 3U);
  EXPECT_EQ(state.voters[2], make(3, 0).id) << "a restart takes no seat away";
  run(5min);
  EXPECT_EQ(state.voters.size(), 3U);
  EXPECT_EQ(std::ranges::count(state.voters, make(4, 0).id), 1);
  EXPECT_EQ(std::ranges::count(state.voters, make(3, 0).id), 0);
}

}  // namespace
}  // namespace sinew
