// The shared segment, and peers that write nonsense into it.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <future>

#include "unit/transport/ranks.h"

namespace sinew::testing {
namespace {

using ::testing::HasSubstr;

class ShmLinkTest : public ::testing::Test {
 protected:
  ShmLinkTest() {
    auto segment = ShmSegment::create(2);
    EXPECT_TRUE(segment) << segment.error().message;
    segment_.push_back(std::move(*segment));
  }
  Links links(Rank rank) {
    auto made = make_shm_links(segment_.front(), identity_of(rank, 2));
    EXPECT_TRUE(made) << made.error().message;
    return std::move(*made);
  }
  shm::Ring& ring(Rank from, Rank to) { return segment_.front().ring(from, to); }

  std::vector<ShmSegment> segment_;
};

TEST_F(ShmLinkTest, AdoptedDescriptor_IsTheSameMemory) {
  auto other = ShmSegment::adopt(dup(segment_.front().fd()), 2);
  ASSERT_TRUE(other) << other.error().message;
  auto theirs = make_shm_links(*other, identity_of(1, 2));
  ASSERT_TRUE(theirs);
  Links ours = links(0);
  const std::array<std::byte, 2> message{std::byte{1}, std::byte{2}};
  ASSERT_TRUE(ours[1]->start_send(message, {}));
  std::array<std::byte, 2> came{};
  ASSERT_TRUE((*theirs)[0]->receive(came, in(milliseconds{1000})));
  EXPECT_EQ(came, message);
}

TEST_F(ShmLinkTest, RenewedSegment_ServesAnotherEpochAndKeepsNothingOfTheOld) {
  const std::array<std::byte, 2> old{std::byte{1}, std::byte{2}};
  {
    Links ours = links(0);
    const Links theirs = links(1);
    ASSERT_TRUE(ours[1]->start_send(old, {}));  // and nobody receives it
  }
  segment_.front().renew();
  Links ours = links(0);
  Links theirs = links(1);
  const std::array<std::byte, 2> message{std::byte{3}, std::byte{4}};
  ASSERT_TRUE(ours[1]->start_send(message, {}));
  std::array<std::byte, 2> came{};
  ASSERT_TRUE(theirs[0]->receive(came, in(milliseconds{1000})));
  EXPECT_EQ(came, message);
}

TEST_F(ShmLinkTest, WaitingForASilentPeer_EndsWhenToldToStop) {
  const LinkShare share = LinkShare::everyone(identity_of(0, 2));
  std::atomic<bool> stop{false};
  share.hub->stop_when(stop);
  auto ours = make_shm_links(segment_.front(), identity_of(0, 2), share);
  ASSERT_TRUE(ours);
  auto waiting = std::async(std::launch::async, [&] {
    std::array<std::byte, 2> came{};
    return (*ours)[1]->receive(came, in(milliseconds{20000}));
  });
  EXPECT_EQ(waiting.wait_for(milliseconds{50}), std::future_status::timeout);
  stop = true;
  ASSERT_EQ(waiting.wait_for(milliseconds{5000}), std::future_status::ready);
  EXPECT_EQ(waiting.get().error().code, ErrorCode::kCancelled);
}

TEST_F(ShmLinkTest, WrongDescriptors_AreRefusedNotMapped) {
  EXPECT_FALSE(ShmSegment::adopt(dup(segment_.front().fd()), 3)) << "made for two ranks";
  EXPECT_FALSE(ShmSegment::adopt(open("/dev/null", O_RDWR), 2));
  EXPECT_FALSE(ShmSegment::adopt(-1, 2));
#ifdef __linux__
  const int unsealed = memfd_create("test", 0);
  ASSERT_EQ(ftruncate(unsealed, 16 << 20), 0);
  EXPECT_FALSE(ShmSegment::adopt(unsealed, 2)) << "could shrink under our feet";
  EXPECT_NE(ftruncate(segment_.front().fd(), 0), 0) << "sealed";
#endif
}

TEST_F(ShmLinkTest, TakenPlace_IsRefused) {
  const Links first = links(0);
  const auto second = make_shm_links(segment_.front(), identity_of(0, 2));
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, ErrorCode::kProtocol);
}

TEST_F(ShmLinkTest, CountersOfACorruptPeer_AreProtocolErrors) {
  Links ours = links(0);
  std::array<std::byte, 8> into{};
  ring(1, 0).tail.store(~std::uint64_t{0} - 5);
  const Status received = ours[1]->receive(into, in(milliseconds{500}));
  ASSERT_FALSE(received);
  EXPECT_EQ(received.error().code, ErrorCode::kProtocol);
  EXPECT_EQ(received.error().rank, 1);

  const std::vector<std::byte> message(shm::kRingBytes * 2);
  ring(0, 1).head.store(shm::kRingBytes * 7);
  ASSERT_TRUE(ours[1]->start_send(message, {}));
  const Status sent = ours[1]->finish_send(in(milliseconds{500}));
  ASSERT_FALSE(sent);
  EXPECT_EQ(sent.error().code, ErrorCode::kProtocol);
  EXPECT_THAT(sent.error().message, HasSubstr("rank 1 says it has read"));
  const Status again = ours[1]->finish_send(in(milliseconds{500}));
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().message, sent.error().message);
}

TEST_F(ShmLinkTest, CounterThatRunsBack_IsAProtocolError) {
  Links ours = links(0);
  std::array<std::byte, 8> into{};
  ring(1, 0).tail.store(8);
  ASSERT_TRUE(ours[1]->receive(into, in(milliseconds{500})));
  ring(1, 0).tail.store(4);
  const Status received = ours[1]->receive(into, in(milliseconds{500}));
  ASSERT_FALSE(received);
  EXPECT_EQ(received.error().code, ErrorCode::kProtocol);
}

TEST_F(ShmLinkTest, WhatWasSentBeforeTheClose_IsDelivered) {
  Links ours = links(0);
  {
    Links theirs = links(1);
    const std::array<std::byte, 4> message{std::byte{9}};
    ASSERT_TRUE(theirs[0]->start_send(message, {}));
  }
  std::array<std::byte, 4> came{};
  ASSERT_TRUE(ours[1]->receive(came, in(milliseconds{500})));
  EXPECT_EQ(came[0], std::byte{9});
  const Status status = ours[1]->receive(came, in(milliseconds{5000}));
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kPeerLost);
}

TEST_F(ShmLinkTest, PassedDeadline_AllowsOneAttemptAndNoWait) {
  Links ours = links(0);
  Links theirs = links(1);
  std::array<std::byte, 4> came{};
  const std::array<std::byte, 4> message{std::byte{9}};
  ASSERT_TRUE(theirs[0]->start_send(message, {}));
  EXPECT_TRUE(ours[1]->receive(came, Deadline{}));
  const auto start = std::chrono::steady_clock::now();
  EXPECT_FALSE(ours[1]->receive(came, Deadline{}));
  EXPECT_LT(std::chrono::steady_clock::now() - start, milliseconds{50});
}

}  // namespace
}  // namespace sinew::testing
