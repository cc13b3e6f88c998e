// How ranks find each other over TCP, and who is turned away.
#include <gmock/gmock.h>
#include <poll.h>
#include <sys/socket.h>

#include <atomic>
#include <future>

#include "transport/tcp_hello.h"
#include "unit/transport/ranks.h"

namespace sinew::testing {
namespace {

using ::testing::HasSubstr;

TEST(Hello, EncodedHello_NamesItsRank) {
  const auto rank = check_hello(encode_hello(identity_of(2, 4)), identity_of(0, 4));
  ASSERT_TRUE(rank) << rank.error().message;
  EXPECT_EQ(*rank, 2);
}

TEST(Hello, AnyFlippedBit_IsRefusedOrNamesAnotherRank) {
  const HelloBytes right = encode_hello(identity_of(2, 4));
  for (std::size_t bit = 0; bit < kHelloBytes * 8; ++bit) {
    HelloBytes bytes = right;
    bytes[bit / 8] ^= static_cast<std::byte>(1u << (bit % 8));
    const auto rank = check_hello(bytes, identity_of(0, 4));
    EXPECT_TRUE(!rank || *rank == 3) << "bit " << bit;
  }
}

TEST(Hello, Errors_SayWhatWasExpected) {
  GroupIdentity other = identity_of(1, 4);
  other.epoch = 6;
  EXPECT_THAT(check_hello(encode_hello(other), identity_of(0, 4)).error().message,
              HasSubstr("epoch 6, expected epoch 7"));
  EXPECT_THAT(check_hello(encode_hello(identity_of(1, 3)), identity_of(0, 4)).error().message,
              HasSubstr("rank 1 of 3"));
  EXPECT_FALSE(check_hello(encode_hello(identity_of(0, 4)), identity_of(0, 4)));
}

TEST(TcpSockets, Connecting_EndsWhenToldToStop) {
  auto listener = TcpListener::bind("127.0.0.1", 0);
  ASSERT_TRUE(listener);
  const std::vector<Endpoint> peers(2, Endpoint{"127.0.0.1", listener->port()});
  std::atomic<bool> stop{false};
  auto connecting = std::async(std::launch::async, [&] {
    return connect_tcp_sockets(identity_of(0, 2), *listener, peers, in(milliseconds{20000}), &stop);
  });
  EXPECT_EQ(connecting.wait_for(milliseconds{50}), std::future_status::timeout);
  stop = true;
  ASSERT_EQ(connecting.wait_for(milliseconds{5000}), std::future_status::ready);
  const auto sockets = connecting.get();
  ASSERT_FALSE(sockets);
  EXPECT_EQ(sockets.error().code, ErrorCode::kCancelled);
}

// A stranger's connection to rank 0 of two.
Socket connect_to(const TcpListener& listener) {
  auto socket = start_connect({"127.0.0.1", listener.port()});
  EXPECT_TRUE(socket) << socket.error().message;
  pollfd writable{socket->fd(), POLLOUT, 0};
  EXPECT_EQ(poll(&writable, 1, 2000), 1);
  return std::move(*socket);
}

void send_all(const Socket& socket, std::span<const std::byte> bytes) {
  EXPECT_EQ(send(socket.fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(bytes.size()));
}

struct Pair {
  std::vector<TcpListener> listeners;
  std::vector<Endpoint> endpoints;

  Pair() {
    for (int rank = 0; rank < 2; ++rank) {
      auto listener = TcpListener::bind("127.0.0.1", 0);
      EXPECT_TRUE(listener) << listener.error().message;
      endpoints.push_back({"127.0.0.1", listener->port()});
      listeners.push_back(std::move(*listener));
    }
  }
  Result<Links> connect(Rank rank, milliseconds time) {
    return connect_tcp_links(identity_of(rank, 2), listeners[static_cast<std::size_t>(rank)],
                             endpoints, in(time));
  }
};

TEST(TcpMesh, Strangers_AreTurnedAwayAndTheMeshForms) {
  Pair pair;
  // Ahead of the real peer in the queue: silence, garbage, another epoch, half a hello, and many
  // more.
  std::vector<Socket> strangers;
  strangers.push_back(connect_to(pair.listeners[0]));
  strangers.push_back(connect_to(pair.listeners[0]));
  send_all(strangers.back(), std::vector<std::byte>(500, std::byte{'G'}));
  GroupIdentity old = identity_of(1, 2);
  old.epoch = 6;
  strangers.push_back(connect_to(pair.listeners[0]));
  send_all(strangers.back(), encode_hello(old));
  strangers.push_back(connect_to(pair.listeners[0]));
  const HelloBytes hello = encode_hello(identity_of(1, 2));
  send_all(strangers.back(), std::span(hello).first(20));
  for (int i = 0; i < 40; ++i) strangers.push_back(connect_to(pair.listeners[0]));

  auto one = std::async(std::launch::async, [&] { return pair.connect(1, milliseconds{8000}); });
  auto zero = pair.connect(0, milliseconds{8000});
  ASSERT_TRUE(zero) << zero.error().message;
  auto other = one.get();
  ASSERT_TRUE(other) << other.error().message;
  const std::array<std::byte, 3> message{std::byte{1}, std::byte{2}, std::byte{3}};
  ASSERT_TRUE((*other)[0]->start_send(message, {}));
  std::array<std::byte, 3> came{};
  ASSERT_TRUE((*zero)[1]->receive(came, in(milliseconds{2000})));
  EXPECT_EQ(came, message);
}

TEST(TcpMesh, RankThatStartsLate_IsWaitedFor) {
  Pair pair;
  auto one = std::async(std::launch::async, [&] { return pair.connect(1, milliseconds{5000}); });
  std::this_thread::sleep_for(milliseconds{150});
  EXPECT_TRUE(pair.connect(0, milliseconds{5000}));
  EXPECT_TRUE(one.get());
}

TEST(TcpMesh, MissingRank_IsNamedWithTheLastTrouble) {
  Pair pair;
  const Socket stranger = connect_to(pair.listeners[0]);
  send_all(stranger, std::vector<std::byte>(64, std::byte{'G'}));
  auto links = pair.connect(0, milliseconds{300});
  ASSERT_FALSE(links);
  EXPECT_EQ(links.error().code, ErrorCode::kDeadline);
  EXPECT_EQ(links.error().rank, 1);
  EXPECT_THAT(links.error().message, HasSubstr("rank 1 has not connected to rank 0"));
  EXPECT_THAT(links.error().message, HasSubstr("turned away: not a hello"));
}

TEST(TcpMesh, NobodyListening_IsNamedWithTheSystemsReason) {
  Pair pair;
  {
    auto gone = TcpListener::bind("127.0.0.1", 0);
    ASSERT_TRUE(gone);
    pair.endpoints[0].port = gone->port();
  }
  auto links = pair.connect(1, milliseconds{300});
  ASSERT_FALSE(links);
  EXPECT_EQ(links.error().rank, 0);
  EXPECT_THAT(links.error().message, HasSubstr("Connection refused"));
}

TEST(TcpMesh, HostNames_AreRefused) {
  auto listener = TcpListener::bind("localhost", 0);
  ASSERT_FALSE(listener);
  EXPECT_EQ(listener.error().code, ErrorCode::kUsage);
}

}  // namespace
}  // namespace sinew::testing
