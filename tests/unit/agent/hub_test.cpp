#include "agent/hub.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <time.h>

#include <algorithm>

#include "base/assert.h"

namespace sinew {
namespace {

using Kind = Hub::Happening::Kind;
using ::testing::HasSubstr;

std::unique_ptr<TlsSettings> settings(std::uint8_t key = 2) {
  ClusterSecret secret;
  secret.secret.fill(key);
  auto made = TlsSettings::create(secret, {kControlVersion, "1.0"});
  SINEW_ASSERT(made.has_value());
  return std::move(*made);
}

NodeId node(std::uint8_t number) {
  NodeId id;
  id.bytes.fill(number);
  return id;
}

// Time is the tests' own, so that a slow machine makes no deadline pass.
struct Machine {
  std::unique_ptr<Hub> hub;
  std::vector<Hub::Happening> seen;

  Machine(const TlsSettings& keys, std::uint8_t number, std::uint64_t nonce = 0) {
    Hub::Options options;
    options.self = {node(number), 1, nonce == 0 ? number : nonce, 0, "m" + std::to_string(number)};
    options.listen = {"127.0.0.1"};
    auto made = Hub::create(keys, options);
    SINEW_ASSERT(made.has_value());
    hub = std::move(*made);
  }
  Address address() const { return {PathKind::kLoopback, false, "127.0.0.1", hub->port()}; }
  void serve(Time now) {
    hub->serve(now);
    for (auto& happening : hub->take_happenings()) seen.push_back(std::move(happening));
  }
  int count(Kind kind) const {
    return static_cast<int>(std::ranges::count(seen, kind, &Hub::Happening::kind));
  }
};

// Serves all, with time standing still, until `done`: false after a number of turns that is ample.
bool turn_until(std::vector<Machine*> machines, Time now, const std::function<bool()>& done) {
  for (int turn = 0; turn < 4000; ++turn) {
    if (done()) return true;
    for (Machine* machine : machines) machine->serve(now);
    const timespec breath{0, 500'000};
    ::nanosleep(&breath, nullptr);
  }
  return done();
}

constexpr Time kStart = std::chrono::seconds{100};

TEST(Hub, TwoMachinesFindEachOtherAndTalk) {
  const auto keys = settings();
  Machine a(*keys, 1);
  Machine b(*keys, 2);
  a.hub->set_targets({{b.address(), {}}});
  ASSERT_TRUE(turn_until({&a, &b}, kStart, [&] {
    return a.count(Kind::kConnected) > 0 && b.count(Kind::kConnected) > 0;
  }));
  // b dialled nobody and answers over the connection that came.
  ASSERT_TRUE(a.hub->send(node(2), std::nullopt, as_bytes("to b")));
  ASSERT_TRUE(b.hub->send(node(1), std::nullopt, as_bytes("to a")));
  ASSERT_TRUE(turn_until({&a, &b}, kStart, [&] {
    return a.count(Kind::kMessage) == 1 && b.count(Kind::kMessage) == 1 &&
           a.count(Kind::kProbed) > 0;
  }));
  const auto message = std::ranges::find(b.seen, Kind::kMessage, &Hub::Happening::kind);
  EXPECT_EQ(message->peer, node(1));
  EXPECT_FALSE(a.hub->send(node(3), std::nullopt, as_bytes("x")));
}

TEST(Hub, AWrongSecretIsRefusedAndNeverConnects) {
  const auto keys = settings(2);
  const auto wrong = settings(3);
  Machine a(*wrong, 1);
  Machine b(*keys, 2);
  a.hub->set_targets({{b.address(), {}}});
  ASSERT_TRUE(turn_until({&a, &b}, kStart, [&] {
    return a.count(Kind::kRefused) > 0 && b.count(Kind::kRefused) > 0;
  }));
  EXPECT_EQ(a.seen.front().error.code, ErrorCode::kUnauthorised);
  EXPECT_TRUE(a.seen.front().dialled);
  EXPECT_EQ(b.seen.front().error.code, ErrorCode::kUnauthorised);
  EXPECT_EQ(a.count(Kind::kConnected) + b.count(Kind::kConnected), 0);
}

TEST(Hub, AConnectionThatBringsNothingIsClosedWithinThreeSeconds) {
  const auto keys = settings();
  Machine a(*keys, 1);
  Machine b(*keys, 2);
  a.hub->set_targets({{b.address(), {}}});
  ASSERT_TRUE(turn_until({&a, &b}, kStart, [&] { return b.count(Kind::kConnected) > 0; }));
  ASSERT_TRUE(turn_until({&a, &b}, kStart, [&] { return a.count(Kind::kProbed) > 0; }));
  // Time passes at a while b is still, as a stopped machine or a pulled cable is.
  a.serve(kStart + std::chrono::seconds{2});
  EXPECT_EQ(a.count(Kind::kDisconnected), 0);
  a.serve(kStart + std::chrono::seconds{3});
  EXPECT_EQ(a.count(Kind::kDisconnected), 1);
  // And comes back without being told.
  const Time later = kStart + std::chrono::seconds{10};
  EXPECT_TRUE(turn_until({&a, &b}, later, [&] { return a.count(Kind::kConnected) > 1; }));
}

TEST(Hub, ASlowStrangerIsClosedAtTheDeadline) {
  const auto keys = settings();
  Machine a(*keys, 1);
  auto stranger = start_connect({"127.0.0.1", a.hub->port()});
  ASSERT_TRUE(stranger);
  ASSERT_TRUE(turn_until({&a}, kStart, [&] { return a.hub->unknown_count() == 1; }));
  ASSERT_EQ(::send(stranger->fd(), "S", 1, MSG_NOSIGNAL), 1);
  a.serve(kStart + std::chrono::milliseconds{4900});
  EXPECT_EQ(a.hub->unknown_count(), 1U);
  a.serve(kStart + std::chrono::milliseconds{5100});
  EXPECT_EQ(a.hub->unknown_count(), 0U);
  ASSERT_EQ(a.count(Kind::kRefused), 1);
  EXPECT_EQ(a.seen.back().error.code, ErrorCode::kDeadline);
}

TEST(Hub, StrangersBeyondTheBoundDoNotKeepMembersOut) {
  const auto keys = settings();
  Machine a(*keys, 1);
  Machine b(*keys, 2);
  std::vector<Socket> strangers;
  for (std::size_t i = 0; i < 3 * Hub::kUnknownMax; ++i) {
    auto socket = start_connect({"127.0.0.1", a.hub->port()});
    ASSERT_TRUE(socket);
    strangers.push_back(std::move(*socket));
  }
  ASSERT_TRUE(turn_until({&a}, kStart, [&] {
    EXPECT_LE(a.hub->unknown_count(), Hub::kUnknownMax);
    return a.count(Kind::kRefused) >= static_cast<int>(2 * Hub::kUnknownMax);
  }));
  b.hub->set_targets({{a.address(), {}}});
  EXPECT_TRUE(turn_until({&a, &b}, kStart, [&] { return b.count(Kind::kConnected) > 0; }));
}

TEST(Hub, AnotherMachineWithTheSameIdIsReported) {
  const auto keys = settings();
  Machine a(*keys, 1, 77);
  Machine b(*keys, 1, 88);
  a.hub->set_targets({{b.address(), {}}});
  ASSERT_TRUE(turn_until({&a, &b}, kStart, [&] {
    return a.count(Kind::kDuplicate) > 0 || b.count(Kind::kDuplicate) > 0;
  }));
  EXPECT_EQ(a.count(Kind::kConnected) + b.count(Kind::kConnected), 0);
}

TEST(Hub, DialsItselfOnceAndNeverAgain) {
  const auto keys = settings();
  Machine a(*keys, 1);
  a.hub->set_targets({{a.address(), {}}});
  for (int turn = 0; turn < 400; ++turn) {
    a.serve(kStart + turn * std::chrono::milliseconds{50});
    const timespec breath{0, 500'000};
    ::nanosleep(&breath, nullptr);
  }
  EXPECT_TRUE(a.hub->paths().empty());
  EXPECT_TRUE(a.seen.empty());
}

TEST(Hub, AnotherNodeAtAnExpectedAddressIsNotTakenForIt) {
  const auto keys = settings();
  Machine a(*keys, 1);
  Machine b(*keys, 2);
  a.hub->set_targets({{b.address(), node(9)}});
  // b sees a connect before a has compared; a never takes it for node 9, nor for b.
  ASSERT_TRUE(turn_until({&a, &b}, kStart, [&] { return b.count(Kind::kDisconnected) > 0; }));
  EXPECT_EQ(a.count(Kind::kConnected), 0);
}

TEST(Hello, GarbageIsRefusedAndControlCharactersAreHidden) {
  Hello hello{node(1), 2, 3, 4, "na\x1bme"};
  const auto bytes = encode_hello(hello);
  const auto decoded = decode_hello(bytes);
  ASSERT_TRUE(decoded);
  EXPECT_EQ(decoded->name, "na?me");
  EXPECT_EQ(decoded->port, 4);
  EXPECT_FALSE(decode_hello(ByteSpan(bytes).first(bytes.size() - 1)));
  EXPECT_FALSE(decode_hello(encode_hello({})));
}

}  // namespace
}  // namespace sinew
