#include "engine/control_channel.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <numeric>

namespace sinew {
namespace {

// Both ends of one connection in one thread: nothing here blocks.
class Channels : public ::testing::Test {
 protected:
  void SetUp() override {
    auto pair = socket_pair();
    ASSERT_TRUE(pair) << pair.error().message;
    near_.emplace(std::move(pair->first));
    far_.emplace(std::move(pair->second));
  }
  void write_raw(const std::vector<std::byte>& bytes) {
    ASSERT_EQ(::send(far_->descriptor(), bytes.data(), bytes.size(), 0),
              static_cast<ssize_t>(bytes.size()));
  }
  static std::vector<std::byte> announced(std::uint32_t length,
                                          const std::vector<std::byte>& bytes) {
    std::vector<std::byte> all(sizeof(length));
    std::memcpy(all.data(), &length, sizeof(length));
    all.insert(all.end(), bytes.begin(), bytes.end());
    return all;
  }

  std::optional<ControlChannel> near_;
  std::optional<ControlChannel> far_;
  std::vector<ControlMessage> messages_;
};

TEST_F(Channels, MessagesArriveInOrder) {
  for (TokenId token = 0; token < 100; ++token) ASSERT_TRUE(far_->send(TokenMessage{token}));
  ASSERT_TRUE(near_->receive(messages_));
  ASSERT_EQ(messages_.size(), 100u);
  for (TokenId token = 0; token < 100; ++token)
    EXPECT_EQ(std::get<TokenMessage>(messages_[static_cast<std::size_t>(token)]).token, token);
}

TEST_F(Channels, NothingToReadIsNoErrorAndDoesNotWait) {
  EXPECT_TRUE(near_->receive(messages_));
  EXPECT_TRUE(messages_.empty());
}

TEST_F(Channels, BothDirectionsWork) {
  ASSERT_TRUE(near_->send(CancelMessage{}));
  ASSERT_TRUE(far_->send(TokenMessage{7}));
  ASSERT_TRUE(far_->receive(messages_));
  ASSERT_TRUE(near_->receive(messages_));
  ASSERT_EQ(messages_.size(), 2u);
  EXPECT_TRUE(std::holds_alternative<CancelMessage>(messages_[0]));
  EXPECT_TRUE(std::holds_alternative<TokenMessage>(messages_[1]));
}

TEST_F(Channels, MessageLargerThanTheSocketsBufferArrivesWhole) {
  LogitsMessage large;
  large.values.resize(3u << 20);  // 12 MiB; a socket holds about 0.2
  std::iota(large.values.begin(), large.values.end(), 0.0F);
  ASSERT_TRUE(far_->send(large));
  ASSERT_TRUE(far_->send(TokenMessage{8}));
  EXPECT_TRUE(far_->has_unsent());
  for (int round = 0; round < 100000 && messages_.size() < 2; ++round) {
    ASSERT_TRUE(near_->receive(messages_));
    ASSERT_TRUE(far_->send_queued());
  }
  EXPECT_FALSE(far_->has_unsent());
  ASSERT_EQ(messages_.size(), 2u);
  EXPECT_EQ(std::get<LogitsMessage>(messages_[0]).values, large.values);
  EXPECT_EQ(std::get<TokenMessage>(messages_[1]).token, 8);
}

TEST_F(Channels, MessageThatArrivesByteByByteIsWaitedFor) {
  const std::vector<std::byte> body = encode_control(HeartbeatMessage{"idle", 3});
  const auto bytes = announced(static_cast<std::uint32_t>(body.size()), body);
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    EXPECT_TRUE(messages_.empty()) << i;
    write_raw({bytes[i]});
    ASSERT_TRUE(near_->receive(messages_));
  }
  ASSERT_EQ(messages_.size(), 1u);
  EXPECT_EQ(std::get<HeartbeatMessage>(messages_[0]).activity, "idle");
}

TEST_F(Channels, ClosedPeerIsLostAfterItsLastMessage) {
  ASSERT_TRUE(far_->send(TokenMessage{1}));
  far_.reset();
  const Status status = near_->receive(messages_);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kPeerLost);
  ASSERT_EQ(messages_.size(), 1u);
  EXPECT_EQ(std::get<TokenMessage>(messages_[0]).token, 1);
}

TEST_F(Channels, PeerThatClosesInTheMiddleOfAMessageIsLost) {
  write_raw(announced(100, {std::byte{1}}));
  far_.reset();
  const Status status = near_->receive(messages_);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kPeerLost);
  EXPECT_TRUE(messages_.empty());
}

TEST_F(Channels, SendingToAClosedPeerIsAnErrorAndNoSignal) {
  far_.reset();
  const Status status = near_->send(CancelMessage{});
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kPeerLost);
}

TEST_F(Channels, PeerThatClosesWithoutReadingIsLost) {
  ASSERT_TRUE(near_->send(TokenMessage{1}));
  far_.reset();
  const Status status = near_->receive(messages_);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kPeerLost);
}

TEST_F(Channels, AnnouncedLengthBeyondTheLimitIsAProtocolError) {
  write_raw(announced(kControlBytesMax + 1, {}));
  const Status status = near_->receive(messages_);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kProtocol);
}

TEST_F(Channels, MalformedMessageIsAProtocolErrorAfterTheGoodOnes) {
  ASSERT_TRUE(far_->send(TokenMessage{1}));
  write_raw(announced(1, {std::byte{200}}));
  const Status status = near_->receive(messages_);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kProtocol);
  EXPECT_EQ(messages_.size(), 1u);
}

TEST_F(Channels, MessageBeyondTheLimitIsNotSent) {
  LogitsMessage large;
  large.values.resize(kControlBytesMax / sizeof(float) + 1);
  const Status status = near_->send(large);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kProtocol);
  EXPECT_FALSE(near_->has_unsent());
}

}  // namespace
}  // namespace sinew
