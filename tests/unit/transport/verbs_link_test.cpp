// What a link over verbs does with messages that are lost, damaged, repeated or of an earlier life.
#include <gmock/gmock.h>
#include <time.h>

#include <cstring>
#include <random>

#include "transport/verbs_trailer.h"
#include "unit/transport/verbs_ranks.h"

namespace sinew::testing {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

VerbsTrailer trailer_of(std::uint32_t payload_bytes) {
  VerbsTrailer trailer;
  trailer.payload_bytes = payload_bytes;
  trailer.job[0] = 0x1234;
  trailer.job[1] = 0x5678;
  trailer.epoch = 7;
  trailer.number = 41;
  trailer.queue = 99;
  trailer.source = 1;
  trailer.target = 0;
  return trailer;
}

TEST(VerbsTrailer, SlotThatWasSealed_IsExpected) {
  std::vector<std::byte> slot(4096, std::byte{5});
  VerbsTrailer came;
  seal_slot(slot, trailer_of(100));
  const auto verdict = check_slot(slot, trailer_of(0), came);
  ASSERT_TRUE(verdict) << verdict.error().message;
  EXPECT_EQ(*verdict, SlotVerdict::kExpected);
  EXPECT_EQ(came.payload_bytes, 100u);
}

TEST(VerbsTrailer, PoisonedSlot_IsNeverAMessage) {
  std::vector<std::byte> slot(4096);
  VerbsTrailer came;
  seal_slot(slot, trailer_of(100));
  poison_slot(slot);
  EXPECT_FALSE(check_slot(slot, trailer_of(0), came));
}

TEST(VerbsTrailer, FlippedBits_AreAlwaysCaught) {
  constexpr std::size_t kBytes = 4096;
  std::vector<std::byte> slot(kBytes);
  std::mt19937 random(5);
  for (std::byte& byte : slot) byte = static_cast<std::byte>(random());
  seal_slot(slot, trailer_of(verbs_payload_max(kBytes)));
  VerbsTrailer came;
  const auto flip = [&](std::size_t bit) {
    slot[bit / 8] ^= static_cast<std::byte>(1u << (bit % 8));
  };
  for (std::size_t bit = 0; bit < kBytes * 8; ++bit) {
    flip(bit);
    EXPECT_FALSE(check_slot(slot, trailer_of(0), came)) << "bit " << bit;
    flip(bit);
  }
  // Two to five at once.
  for (int round = 0; round < 100000; ++round) {
    std::vector<std::size_t> bits(2 + random() % 4);
    for (std::size_t& bit : bits) bit = random() % (kBytes * 8);
    std::sort(bits.begin(), bits.end());
    bits.erase(std::unique(bits.begin(), bits.end()), bits.end());
    for (const std::size_t bit : bits) flip(bit);
    ASSERT_FALSE(check_slot(slot, trailer_of(0), came)) << "round " << round;
    for (const std::size_t bit : bits) flip(bit);
  }
  EXPECT_TRUE(check_slot(slot, trailer_of(0), came));
}

struct Case {
  const char* what;
  std::function<void(VerbsTrailer&)> change;
  std::optional<SlotVerdict> verdict;  // nothing: an error
};

TEST(VerbsTrailer, MessagesOfOtherLives_AreOlderOrWrong) {
  const std::vector<Case> cases{
      {"earlier epoch", [](auto& t) { t.epoch = 6; }, SlotVerdict::kOlder},
      {"later epoch", [](auto& t) { t.epoch = 8; }, {}},
      {"other job", [](auto& t) { t.job[1] = 1; }, SlotVerdict::kOlder},
      {"other attempt", [](auto& t) { t.queue = 98; }, SlotVerdict::kOlder},
      {"repetition", [](auto& t) { t.number = 40; }, SlotVerdict::kOlder},
      {"gap", [](auto& t) { t.number = 42; }, {}},
      {"other source", [](auto& t) { t.source = 2; }, {}},
      {"other target", [](auto& t) { t.target = 3; }, {}},
      {"other rail", [](auto& t) { t.rail = 1; }, {}},
      {"unknown kind", [](auto& t) { t.kind = VerbsTrailer::Kind{9}; }, {}},
  };
  for (const Case& one : cases) {
    std::vector<std::byte> slot(4096);
    VerbsTrailer trailer = trailer_of(10);
    one.change(trailer);
    seal_slot(slot, trailer);
    VerbsTrailer came;
    const auto verdict = check_slot(slot, trailer_of(0), came);
    EXPECT_EQ(verdict.has_value(), one.verdict.has_value()) << one.what;
    if (verdict && one.verdict) {
      EXPECT_EQ(*verdict, *one.verdict) << one.what;
    }
  }
}

std::vector<std::byte> pattern(std::size_t bytes, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<std::byte> data(bytes);
  for (std::byte& byte : data) byte = static_cast<std::byte>(random());
  return data;
}

// Sends `bytes` from rank 0 to rank 1 in pieces of odd sizes; true if all came right.
bool stream(std::vector<Links>& links, std::size_t bytes, std::optional<Error>* error = nullptr) {
  const std::vector<std::byte> sent = pattern(bytes, 3);
  auto sender = std::async(std::launch::async, [&]() -> Status {
    std::mt19937 random(1);
    for (std::size_t at = 0; at < sent.size();) {
      const std::size_t count = std::min<std::size_t>(sent.size() - at, 1 + random() % 100000);
      const auto piece = std::span(sent).subspan(at, count);
      SINEW_TRY(links[0][1]->start_send(piece.first(count / 2), piece.subspan(count / 2)));
      SINEW_TRY(links[0][1]->finish_send(in(milliseconds{5000})));
      at += count;
    }
    return {};
  });
  std::vector<std::byte> came(bytes);
  std::mt19937 random(2);
  Status status;
  for (std::size_t at = 0; at < bytes && status;) {
    const std::size_t count = std::min<std::size_t>(bytes - at, 1 + random() % 50000);
    status = links[1][0]->receive(std::span(came).subspan(at, count), in(milliseconds{2000}));
    at += count;
  }
  if (error != nullptr && !status) *error = status.error();
  if (!status) links[1].clear();  // releases the sender
  const Status sent_status = sender.get();
  return status && sent_status && came == sent;
}

class VerbsLinkTest : public ::testing::TestWithParam<FakeStack> {
 protected:
  void TearDown() override {
    EXPECT_EQ(fabric.violations(), 0u) << fabric.first_violation();
    EXPECT_EQ(fabric.leaks(), 0);
  }
  FakeFabric fabric{GetParam(), 2};
};

INSTANTIATE_TEST_SUITE_P(Stacks, VerbsLinkTest,
                         ::testing::Values(FakeStack::kApple, FakeStack::kLinux),
                         [](const ::testing::TestParamInfo<FakeStack>& shape) {
                           return shape.param == FakeStack::kApple ? "apple" : "linux";
                         });

// A receiver that has nothing to say must still tell what it has taken.
TEST_P(VerbsLinkTest, LongStreamOneWay_NeverStopsNorMeetsAnEmptyQueue) {
  auto links = VerbsRanks(fabric, 2).links();
  EXPECT_TRUE(stream(links, 20u << 20));
  EXPECT_EQ(fabric.counts().met_no_receive, 0u);
}

TEST_P(VerbsLinkTest, SmallestSlots_CarryTheSameStream) {
  VerbsRanks ranks(fabric, 2);
  for (VerbsOptions& options : ranks.options) options.slot_bytes = 4096;
  auto links = ranks.links();
  EXPECT_TRUE(stream(links, 5u << 20));
  EXPECT_EQ(fabric.counts().met_no_receive, 0u);
}

TEST_P(VerbsLinkTest, LateMessages_ChangeNothing) {
  auto links = VerbsRanks(fabric, 2).links();
  FakeFaults faults;
  faults.late = 100000;
  fabric.set_faults(faults);
  EXPECT_TRUE(stream(links, 4u << 20));
  EXPECT_GT(fabric.counts().late, 0u);
}

TEST_P(VerbsLinkTest, LostMessage_IsNamed) {
  auto links = VerbsRanks(fabric, 2).links();
  FakeFaults faults;
  faults.loss = 20000;
  fabric.set_faults(faults);
  std::optional<Error> error;
  EXPECT_FALSE(stream(links, 20u << 20, &error));
  ASSERT_TRUE(error);
  EXPECT_EQ(error->rank, 0);
  EXPECT_THAT(error->message, AnyOf(HasSubstr("lost on the way"), HasSubstr("did not answer")));
}

TEST_P(VerbsLinkTest, DamagedMessage_IsNamed) {
  auto links = VerbsRanks(fabric, 2).links();
  FakeFaults faults;
  faults.corrupt = 20000;
  fabric.set_faults(faults);
  std::optional<Error> error;
  EXPECT_FALSE(stream(links, 20u << 20, &error));
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code, ErrorCode::kIntegrity);
  EXPECT_THAT(error->message, HasSubstr("of rank 0 over verbs, rail 0, is damaged"));
}

TEST_P(VerbsLinkTest, RepeatedMessage_IsDropped) {
  auto links = VerbsRanks(fabric, 2).links();
  FakeFaults faults;
  faults.duplicate = 1000;
  fabric.set_faults(faults);
  EXPECT_TRUE(stream(links, 20u << 20));
  EXPECT_GT(fabric.counts().duplicated, 0u);
}

TEST_P(VerbsLinkTest, MessageOfAnEarlierEpoch_IsNeverConsumed) {
  {
    auto links = VerbsRanks(fabric, 2, 7).links();
    fabric.capture(0);
    const std::vector<std::byte> message(1000, std::byte{0xee});
    ASSERT_TRUE(links[0][1]->start_send(message, {}));
    std::vector<std::byte> came(1000);
    ASSERT_TRUE(links[1][0]->receive(came, in(milliseconds{2000})));
  }
  fabric.capture(-1);
  const std::vector<std::byte> stale = fabric.captured();
  ASSERT_FALSE(stale.empty());

  auto links = VerbsRanks(fabric, 2, 8).links();
  std::vector<std::byte> came(1000);
  for (int round = 0; round < 20; ++round) {
    fabric.inject(1, stale);
    // Alone it is not taken for the next message, nor ends the link ..
    if (round == 0) {
      std::array<std::byte, 1> one{};
      auto late = VerbsRanks(fabric, 2, 9).links();
      fabric.inject(1, stale);
      EXPECT_FALSE(late[1][0]->receive(one, in(milliseconds{100})));
    }
    // .. and the right one that follows is.
    const std::vector<std::byte> message(1000, static_cast<std::byte>(round));
    ASSERT_TRUE(links[0][1]->start_send(message, {}));
    const Status status = links[1][0]->receive(came, in(milliseconds{2000}));
    ASSERT_TRUE(status) << status.error().message;
    EXPECT_EQ(came, message);
  }
}

TEST_P(VerbsLinkTest, WhatWasSentBeforeTheClose_IsDelivered) {
  auto links = VerbsRanks(fabric, 2).links();
  FakeFaults faults;
  faults.late = 1000000;
  faults.late_by = std::chrono::microseconds{50000};
  fabric.set_faults(faults);
  const std::vector<std::byte> message = pattern(15000, 4);
  ASSERT_TRUE(links[0][1]->start_send(message, {}));
  links[0].clear();
  std::vector<std::byte> came(message.size());
  const Status status = links[1][0]->receive(came, in(milliseconds{2000}));
  ASSERT_TRUE(status) << status.error().message;
  EXPECT_EQ(came, message);
  const auto start = std::chrono::steady_clock::now();
  const Status closed = links[1][0]->receive(came, in(milliseconds{5000}));
  ASSERT_FALSE(closed);
  EXPECT_EQ(closed.error().code, ErrorCode::kPeerLost);
  EXPECT_THAT(closed.error().message, HasSubstr("rank 0 closed its verbs link"));
  EXPECT_LT(std::chrono::steady_clock::now() - start, milliseconds{2000});
}

double thread_cpu_seconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return double(time.tv_sec) + double(time.tv_nsec) * 1e-9;
}

// This stack has no completion channel: the rank looks from time to time, and must sleep between.
TEST_P(VerbsLinkTest, SilentPeer_IsNamedByTheDeadlineWhileThisRankSleeps) {
  auto links = VerbsRanks(fabric, 2).links();
  fabric.silence(0);
  std::array<std::byte, 8> came{};
  const double start = thread_cpu_seconds();
  const Status status = links[1][0]->receive(came, in(milliseconds{1000}));
#ifndef SINEW_SLOW_BUILD
  EXPECT_LT(thread_cpu_seconds() - start, 0.05) << "of one second";
#endif
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kDeadline);
  EXPECT_EQ(status.error().rank, 0);
}

// A post on a pulled cable crashes the process on one stack, so a violation here.
TEST_P(VerbsLinkTest, PulledCable_IsNoticedBeforeAnythingIsPosted) {
  auto links = VerbsRanks(fabric, 2).links();
  std::this_thread::sleep_for(2 * kVerbsPortInterval);
  fabric.set_port(0, 0, false);
  const std::vector<std::byte> message(100);
  ASSERT_TRUE(links[0][1]->start_send(message, {}));
  const Status status = links[0][1]->finish_send(in(milliseconds{2000}));
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kPeerLost);
  EXPECT_EQ(status.error().rank, 1);
  EXPECT_THAT(status.error().message, HasSubstr("is down: check the cable"));

  std::array<std::byte, 8> came{};
  fabric.set_port(1, 0, false);
  const Status waiting = links[1][0]->receive(came, in(milliseconds{2000}));
  ASSERT_FALSE(waiting);
  EXPECT_EQ(waiting.error().code, ErrorCode::kPeerLost);
}

TEST(VerbsRails, SeveralCables_CarryOneStreamInOrder) {
  for (const bool crossed : {false, true}) {
    FakeFabric fabric(FakeStack::kApple, 2, 3, crossed);
    auto links = VerbsRanks(fabric, 2).links();
    FakeFaults faults;
    faults.late = 200000;  // rails overtake each other
    fabric.set_faults(faults);
    EXPECT_TRUE(stream(links, 4u << 20));
    links.clear();
    EXPECT_EQ(fabric.violations(), 0u) << fabric.first_violation();
    EXPECT_EQ(fabric.leaks(), 0);
    EXPECT_EQ(fabric.counts().met_no_receive, 0u);
  }
}

TEST(VerbsUc, OnLinux_NeverLosesAMessageForWantOfAReceive) {
  FakeFabric fabric(FakeStack::kLinux, 2);
  VerbsRanks ranks(fabric, 2);
  for (VerbsOptions& options : ranks.options) options.qp_type = VerbsQpType::kUc;
  auto links = ranks.links();
  EXPECT_TRUE(stream(links, 10u << 20));
  EXPECT_EQ(fabric.counts().met_no_receive, 0u);
}

}  // namespace
}  // namespace sinew::testing
