#include "agent/secure_channel.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>

#include "base/assert.h"

namespace sinew {
namespace {

using ::testing::HasSubstr;

ClusterSecret secret_of(std::uint8_t cluster, std::uint8_t key) {
  ClusterSecret secret;
  secret.cluster.fill(cluster);
  secret.secret.fill(key);
  return secret;
}

std::unique_ptr<TlsSettings> settings(std::uint8_t cluster = 1, std::uint8_t key = 2,
                                      Greeting greeting = {kControlVersion, "1.0"}) {
  auto made = TlsSettings::create(secret_of(cluster, key), std::move(greeting));
  SINEW_ASSERT(made.has_value());
  return std::move(*made);
}

std::pair<Socket, Socket> sockets() {
  std::array<int, 2> pair{};
  SINEW_ASSERT(::socketpair(AF_UNIX, SOCK_STREAM, 0, pair.data()) == 0);
  for (const int fd : pair) SINEW_ASSERT(::fcntl(fd, F_SETFL, O_NONBLOCK) == 0);
  return {Socket(pair[0]), Socket(pair[1])};
}

struct Side {
  std::unique_ptr<SecureChannel> channel;
  std::vector<ControlFrame> frames;
  Status status;

  void advance() {
    if (status) status = channel->advance(frames);
  }
};

Side side(const TlsSettings& settings, Socket socket, bool dials) {
  auto channel = SecureChannel::create(settings, std::move(socket), dials);
  SINEW_ASSERT(channel.has_value());
  return {std::move(*channel), {}, {}};
}

// Two ends of one connection; the first one dials.
std::pair<Side, Side> two_sides(const TlsSettings& dials, const TlsSettings& accepts) {
  auto [left, right] = sockets();
  return {side(dials, std::move(left), true), side(accepts, std::move(right), false)};
}

// Nothing waits: a fixed number of turns moves all that there is.
void talk(Side& a, Side& b) {
  for (int turn = 0; turn < 12; ++turn) {
    a.advance();
    b.advance();
  }
}

std::vector<std::byte> bytes_of(std::string_view text) {
  const ByteSpan bytes = as_bytes(text);
  return {bytes.begin(), bytes.end()};
}

void write_raw(const Socket& socket, ByteSpan bytes) {
  SINEW_ASSERT(::send(socket.fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
               static_cast<ssize_t>(bytes.size()));
}

std::vector<std::byte> read_raw(const Socket& socket) {
  std::vector<std::byte> bytes(65536);
  const ssize_t got = ::recv(socket.fd(), bytes.data(), bytes.size(), 0);
  bytes.resize(static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
  return bytes;
}

TEST(SecureChannel, TheRightKeyCarriesMessagesBothWays) {
  const auto keys = settings();
  auto [dials, accepts] = two_sides(*keys, *keys);
  talk(dials, accepts);
  ASSERT_TRUE(dials.channel->established()) << dials.status.error().message;
  ASSERT_TRUE(accepts.channel->established()) << accepts.status.error().message;
  ASSERT_TRUE(dials.channel->send(FrameKind::kCluster, as_bytes("there")));
  ASSERT_TRUE(accepts.channel->send(FrameKind::kCluster, as_bytes("back")));
  talk(dials, accepts);
  ASSERT_EQ(accepts.frames.size(), 1U);
  EXPECT_EQ(accepts.frames[0].payload, bytes_of("there"));
  ASSERT_EQ(dials.frames.size(), 1U);
  EXPECT_EQ(dials.frames[0].payload, bytes_of("back"));
}

TEST(SecureChannel, NothingOfAMessageIsReadableOnTheWire) {
  const auto keys = settings();
  auto [left, middle_left] = sockets();
  auto [middle_right, right] = sockets();
  Side dials = side(*keys, std::move(left), true);
  Side accepts = side(*keys, std::move(right), false);
  std::string wire;
  const auto relay = [&](const Socket& from, const Socket& to) {
    const auto bytes = read_raw(from);
    wire.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    if (!bytes.empty()) write_raw(to, bytes);
  };
  for (int turn = 0; turn < 20; ++turn) {
    dials.advance();
    relay(middle_left, middle_right);
    accepts.advance();
    relay(middle_right, middle_left);
    if (turn == 12) {
      ASSERT_TRUE(dials.channel->send(FrameKind::kCluster, as_bytes("a word to find")));
    }
  }
  ASSERT_EQ(accepts.frames.size(), 1U);
  EXPECT_EQ(wire.find("a word to find"), std::string::npos);
}

TEST(SecureChannel, AnotherSecretIsRefusedOnBothSides) {
  const auto keys = settings(1, 2);
  const auto wrong = settings(1, 3);
  auto [dials, accepts] = two_sides(*wrong, *keys);
  talk(dials, accepts);
  ASSERT_FALSE(dials.status);
  ASSERT_FALSE(accepts.status);
  EXPECT_EQ(dials.status.error().code, ErrorCode::kUnauthorised);
  EXPECT_THAT(dials.status.error().message, HasSubstr("sinew cluster create"));
  EXPECT_EQ(accepts.status.error().code, ErrorCode::kUnauthorised);
  EXPECT_FALSE(dials.channel->established());
  EXPECT_FALSE(accepts.channel->established());
}

TEST(SecureChannel, AnotherClusterIsRefusedOnBothSides) {
  const auto keys = settings(1, 2);
  const auto other = settings(9, 2);
  auto [dials, accepts] = two_sides(*other, *keys);
  talk(dials, accepts);
  ASSERT_FALSE(dials.status);
  ASSERT_FALSE(accepts.status);
  EXPECT_EQ(dials.status.error().code, ErrorCode::kUnauthorised);
  EXPECT_EQ(accepts.status.error().code, ErrorCode::kUnauthorised);
}

TEST(SecureChannel, AnotherVersionIsNamedOnBothSides) {
  const auto keys = settings();
  const auto newer = settings(1, 2, {kControlVersion + 1, "9.9"});
  auto [dials, accepts] = two_sides(*newer, *keys);
  talk(dials, accepts);
  for (const Side* one : {&dials, &accepts}) {
    ASSERT_FALSE(one->status);
    EXPECT_EQ(one->status.error().code, ErrorCode::kProtocol);
    EXPECT_THAT(one->status.error().message, HasSubstr("sinew 1.0"));
    EXPECT_THAT(one->status.error().message, HasSubstr("sinew 9.9"));
    EXPECT_THAT(one->status.error().message, HasSubstr("install the same version"));
  }
}

TEST(SecureChannel, GarbageIsRefusedByItsFirstBytes) {
  const auto keys = settings();
  auto [left, right] = sockets();
  Side accepts = side(*keys, std::move(right), false);
  write_raw(left, as_bytes("GET"));
  accepts.advance();
  ASSERT_FALSE(accepts.status);
  EXPECT_EQ(accepts.status.error().code, ErrorCode::kProtocol);
}

TEST(SecureChannel, AHugeFirstMessageIsRefusedBeforeOpenSslMakesRoomForIt) {
  const auto keys = settings();
  auto [left, right] = sockets();
  Side accepts = side(*keys, std::move(right), false);
  write_raw(left, encode_greeting({kControlVersion, "1.0"}));
  // A record of 64 bytes that starts a handshake message of 128 KiB.
  constexpr std::array<unsigned char, 9> kStart{22, 3, 1, 0, 64, 1, 2, 0, 0};
  write_raw(left, std::as_bytes(std::span(kStart)));
  accepts.advance();
  ASSERT_FALSE(accepts.status);
  EXPECT_THAT(accepts.status.error().message, HasSubstr("does not begin as TLS does"));
}

TEST(SecureChannel, AStrangerMaySendNoMoreThanTheBound) {
  const auto keys = settings();
  auto [left, right] = sockets();
  Side accepts = side(*keys, std::move(right), false);
  write_raw(left, encode_greeting({kControlVersion, "1.0"}));
  // A first record of a sane size that never ends.
  std::vector<std::byte> rest(SecureChannel::kUnknownBytesMax);
  constexpr std::array<unsigned char, 9> kStart{22, 3, 1, 0x3f, 0xff, 1, 0, 0x0f, 0xff};
  std::memcpy(rest.data(), kStart.data(), kStart.size());
  write_raw(left, rest);
  accepts.advance();
  ASSERT_FALSE(accepts.status);
  EXPECT_EQ(accepts.status.error().code, ErrorCode::kProtocol);
  EXPECT_THAT(accepts.status.error().message, HasSubstr("before it proved its key"));
}

TEST(SecureChannel, ARecordedConnectionCannotBePlayedAgain) {
  const auto keys = settings();
  std::vector<std::vector<std::byte>> flights;
  {
    auto [left, middle_left] = sockets();
    auto [middle_right, right] = sockets();
    Side dials = side(*keys, std::move(left), true);
    Side accepts = side(*keys, std::move(right), false);
    for (int turn = 0; turn < 12; ++turn) {
      dials.advance();
      if (auto bytes = read_raw(middle_left); !bytes.empty()) {
        write_raw(middle_right, bytes);
        flights.push_back(std::move(bytes));
      }
      accepts.advance();
      if (const auto bytes = read_raw(middle_right); !bytes.empty()) write_raw(middle_left, bytes);
    }
    ASSERT_TRUE(accepts.channel->established());
  }
  ASSERT_GE(flights.size(), 2U);
  auto [left, right] = sockets();
  Side accepts = side(*keys, std::move(right), false);
  for (const auto& flight : flights) {
    accepts.advance();
    if (accepts.status) write_raw(left, flight);
  }
  accepts.advance();
  accepts.advance();
  EXPECT_FALSE(accepts.channel->established());
  ASSERT_FALSE(accepts.status);
  EXPECT_EQ(accepts.status.error().code, ErrorCode::kUnauthorised);
}

TEST(SecureChannel, AShortMessageOvertakesLongOnes) {
  const auto keys = settings();
  auto [dials, accepts] = two_sides(*keys, *keys);
  talk(dials, accepts);
  const std::vector<std::byte> large(kFramePayloadMax);
  for (int i = 0; i < 6; ++i) ASSERT_TRUE(dials.channel->send(FrameKind::kCluster, large));
  ASSERT_TRUE(dials.channel->send(FrameKind::kCluster, as_bytes("beat")));
  for (int turn = 0; turn < 200 && accepts.frames.size() < 7; ++turn) talk(dials, accepts);
  ASSERT_EQ(accepts.frames.size(), 7U) << "long messages come whole, behind the short one";
  EXPECT_EQ(accepts.frames[0].payload, bytes_of("beat"));
}

TEST(SecureChannel, APeerThatDoesNotReadIsGivenUp) {
  const auto keys = settings();
  auto [dials, accepts] = two_sides(*keys, *keys);
  talk(dials, accepts);
  const std::vector<std::byte> large(kFramePayloadMax);
  Status status;
  for (int i = 0; i < 20 && status; ++i) status = dials.channel->send(FrameKind::kCluster, large);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kPeerLost);
}

TEST(FrameReader, RefusesLengthsAndKindsOutsideTheLimits) {
  const auto first = [](std::uint32_t length, std::uint8_t kind) {
    FrameReader reader;
    std::array<std::byte, kFrameHeaderBytes> header{};
    std::memcpy(header.data(), &length, 4);
    header[4] = std::byte{kind};
    reader.append(header);
    return reader.next();
  };
  EXPECT_FALSE(first(0, 4));
  EXPECT_FALSE(first(kFramePayloadMax + 2, 4));
  EXPECT_FALSE(first(10, 2));  // a probe has 8 bytes
  EXPECT_FALSE(first(1, 0));
  EXPECT_FALSE(first(1, 99));
  const auto waits = first(kFramePayloadMax + 1, 4);
  ASSERT_TRUE(waits);
  EXPECT_FALSE(waits->has_value());
}

}  // namespace
}  // namespace sinew
