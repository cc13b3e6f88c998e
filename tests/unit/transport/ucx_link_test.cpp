// What a ucx link takes from its peer, and what it refuses.
#ifdef SINEW_HAS_UCX
#include "transport/ucx_link.h"

#include <gmock/gmock.h>
#include <sys/socket.h>

#include <cstring>
#include <future>
#include <set>

#include "transport/side_channel.h"
#include "transport/ucx_piece.h"
#include "transport/ucx_worker.h"
#include "unit/transport/ranks.h"

namespace sinew::testing {
namespace {

using ::testing::HasSubstr;

constexpr int kSize = 2;

TEST(UcxPiece, AnyFlippedBit_IsRefusedUnlessItTakesOrMeasures) {
  const UcxPiece expected = make_ucx_piece(identity_of(0, kSize), 1, 0, UcxPiece::Kind::kData);
  std::vector<std::byte> message(kUcxPieceBytes);
  std::memcpy(message.data(), &expected, kUcxPieceBytes);
  ASSERT_TRUE(check_ucx_piece(message, expected, 0));
  for (std::size_t bit = 0; bit < kUcxPieceBytes * 8; ++bit) {
    std::vector<std::byte> damaged = message;
    damaged[bit / 8] ^= static_cast<std::byte>(1u << (bit % 8));
    const auto came = check_ucx_piece(damaged, expected, 0);
    ASSERT_FALSE(came) << "bit " << bit;
    EXPECT_EQ(came.error().code, ErrorCode::kProtocol);
    EXPECT_EQ(came.error().rank, 1);
  }
  for (std::size_t length = 0; length < kUcxPieceBytes; ++length)
    EXPECT_FALSE(check_ucx_piece(std::span(message).first(length), expected, 0)) << length;
}

TEST(UcxTag, DiffersBetweenEpochsJobsSourcesAndKinds) {
  GroupIdentity later = identity_of(0, kSize);
  later.epoch += 1;
  GroupIdentity other = identity_of(0, kSize);
  other.job.words[1] ^= 1;
  const auto tag = [](const GroupIdentity& identity, Rank source, UcxPiece::Kind kind) {
    return ucx_tag(identity, source, kind);
  };
  const std::set<std::uint64_t> tags{tag(identity_of(0, kSize), 1, UcxPiece::Kind::kData),
                                     tag(identity_of(0, kSize), 2, UcxPiece::Kind::kData),
                                     tag(identity_of(0, kSize), 1, UcxPiece::Kind::kNote),
                                     tag(later, 1, UcxPiece::Kind::kData),
                                     tag(other, 1, UcxPiece::Kind::kData)};
  EXPECT_EQ(tags.size(), 5u);
}

// Two ranks of which the second is played by the test, down to single messages of UCX.
class PlayedPeer : public ::testing::Test {
 protected:
  void SetUp() override {
    setenv("UCX_TLS", "tcp,self", 1);
    for (int rank = 0; rank < kSize; ++rank) {
      auto listener = TcpListener::bind("127.0.0.1", 0);
      ASSERT_TRUE(listener) << listener.error().message;
      endpoints_.push_back({"127.0.0.1", listener->port()});
      listeners_.push_back(std::move(*listener));
    }
  }

  // Rank 0 makes its links on a thread of its own; they are used on the test's later.
  void start(milliseconds time = milliseconds{5000}) {
    made_ = std::async(std::launch::async, [this, time]() -> Result<Links> {
      const GroupIdentity own = identity_of(0, kSize);
      SINEW_ASSIGN(std::vector<Socket> sockets,
                   connect_tcp_sockets(own, listeners_[0], endpoints_, in(time)));
      return make_ucx_links(own, std::move(sockets), LinkShare::everyone(own), {}, in(time));
    });
    auto sockets = connect_tcp_sockets(identity_of(1, kSize), listeners_[1], endpoints_, in(time));
    ASSERT_TRUE(sockets) << sockets.error().message;
    sockets_ = std::move(*sockets);
  }

  void connect() {
    const auto ucx = load_ucx(false);
    ASSERT_TRUE(ucx) << ucx.error().message;
    auto worker = UcxWorker::open(**ucx, 4096);
    ASSERT_TRUE(worker) << worker.error().message;
    worker_ = *worker;
    const auto address = worker_->address();
    ASSERT_TRUE(address);
    const auto addresses =
        exchange_side(sockets_, RankSet{}.with(0), *address, in(milliseconds{5000}));
    ASSERT_TRUE(addresses) << addresses.error().message;
    auto endpoint = UcxEndpoint::connect(worker_, (*addresses)[0], true);
    ASSERT_TRUE(endpoint) << endpoint.error().message;
    endpoint_ = std::move(*endpoint);
  }

  void send(const GroupIdentity& as, std::uint64_t tag, std::uint64_t number,
            std::string_view text) {
    UcxPiece piece = make_ucx_piece(as, 1, 0, UcxPiece::Kind::kData);
    piece.number = number;
    piece.length = static_cast<std::uint32_t>(text.size());
    const std::span<std::byte> slot = worker_->memory();
    std::memcpy(slot.data(), &piece, kUcxPieceBytes);
    std::memcpy(slot.data() + kUcxPieceBytes, text.data(), text.size());
    auto sent = endpoint_->send(slot.first(kUcxPieceBytes + text.size()), tag);
    ASSERT_TRUE(sent) << sent.error().message;
    ASSERT_TRUE(worker_->progress_until([&] { return !sent->pending(); }, milliseconds{2000}));
    endpoint_->flush(milliseconds{100});
  }
  void send(std::uint64_t number, std::string_view text) {
    const GroupIdentity own = identity_of(1, kSize);
    send(own, ucx_tag(own, 1, UcxPiece::Kind::kData), number, text);
  }

  // The links of rank 0, once the test has greeted them.
  Links links() {
    std::future_status state = std::future_status::timeout;
    for (int i = 0; i < 5000 && state != std::future_status::ready; ++i) {
      worker_->progress();
      state = made_.wait_for(milliseconds{1});
    }
    auto made = made_.get();
    EXPECT_TRUE(made) << made.error().message;
    return made ? std::move(*made) : Links(2);
  }

  std::vector<TcpListener> listeners_;
  std::vector<Endpoint> endpoints_;
  std::vector<Socket> sockets_;
  std::future<Result<Links>> made_;
  std::shared_ptr<UcxWorker> worker_;
  std::unique_ptr<UcxEndpoint> endpoint_;
};

std::string receive_text(Link& link, std::size_t length, milliseconds time = milliseconds{2000}) {
  std::string text(length, '?');
  const Status status = link.receive(std::as_writable_bytes(std::span(text)), in(time));
  return status ? text : status.error().message;
}

TEST_F(PlayedPeer, MessageOfAnEarlierEpoch_IsNeverConsumed) {
  start();
  connect();
  GroupIdentity old = identity_of(1, kSize);
  old.epoch -= 1;
  for (std::uint64_t number = 0; number < 4; ++number)
    send(old, ucx_tag(old, 1, UcxPiece::Kind::kData), number, "stale");
  send(0, "");
  const Links made = links();
  ASSERT_TRUE(made[1]);
  send(old, ucx_tag(old, 1, UcxPiece::Kind::kData), 1, "stale");
  send(1, "fresh");
  EXPECT_EQ(receive_text(*made[1], 5), "fresh");
}

// Even under the tag of this epoch, which only a corrupt or hostile peer would use.
TEST_F(PlayedPeer, MessageOfAnEarlierEpochUnderTheRightTag_EndsTheLink) {
  start();
  connect();
  send(0, "");
  const Links made = links();
  ASSERT_TRUE(made[1]);
  GroupIdentity old = identity_of(1, kSize);
  old.epoch -= 1;
  send(old, ucx_tag(identity_of(1, kSize), 1, UcxPiece::Kind::kData), 1, "stale");
  EXPECT_THAT(receive_text(*made[1], 5), HasSubstr("says epoch 6, number 1"));
}

TEST_F(PlayedPeer, RepeatedMessage_EndsTheLinkAfterWhatCameBefore) {
  start();
  connect();
  send(0, "");
  const Links made = links();
  ASSERT_TRUE(made[1]);
  send(1, "once");
  send(1, "once");
  EXPECT_EQ(receive_text(*made[1], 4), "once");
  std::array<std::byte, 4> more{};
  const Status status = made[1]->receive(more, in(milliseconds{2000}));
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kProtocol);
  EXPECT_EQ(status.error().rank, 1);
  EXPECT_THAT(status.error().message, HasSubstr("expected epoch 7, number 2"));
}

TEST_F(PlayedPeer, ThatSaysNoAddress_IsNamedByTheDeadline) {
  start(milliseconds{300});
  const auto made = made_.get();
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().code, ErrorCode::kDeadline);
  EXPECT_EQ(made.error().rank, 1);
}

TEST_F(PlayedPeer, ThatNeverGreets_IsNamedByTheDeadline) {
  start(milliseconds{700});
  connect();
  const auto made = made_.get();
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().code, ErrorCode::kDeadline);
  EXPECT_THAT(made.error().message, HasSubstr("rank 1 does not answer over ucx: its transports "));
}

TEST_F(PlayedPeer, ThatAnnouncesAnEndlessAddress_IsRefused) {
  start();
  const std::uint32_t length = 0xffffffff;
  ASSERT_EQ(::send(sockets_[0].fd(), &length, sizeof(length), 0), 4);
  const auto made = made_.get();
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().code, ErrorCode::kProtocol);
  EXPECT_THAT(made.error().message, HasSubstr("announces 4294967295 bytes"));
}

TEST_F(PlayedPeer, ThatClosesBeforeItsAddress_IsNamedAtOnce) {
  start();
  sockets_.clear();
  const auto made = made_.get();
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().code, ErrorCode::kPeerLost);
  EXPECT_EQ(made.error().rank, 1);
}

// A peer that dies says no farewell; what it had sent is still read, then its loss is told.
TEST_F(PlayedPeer, ThatDies_IsLostAfterWhatItHadSent) {
  start();
  connect();
  send(0, "");
  const Links made = links();
  ASSERT_TRUE(made[1]);
  send(1, "last words");
  sockets_.clear();
  EXPECT_EQ(receive_text(*made[1], 10), "last words");
  std::array<std::byte, 4> more{};
  const Status status = made[1]->receive(more, in(milliseconds{2000}));
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kPeerLost);
  EXPECT_EQ(status.error().rank, 1);
}

class UcxTransports : public ::testing::TestWithParam<Transport> {};

TEST_P(UcxTransports, RankThatClosesAfterALongMessage_IsReadToTheEnd) {
  Mesh mesh(GetParam(), kSize);
  constexpr std::size_t kBytes = 400000;  // less than a window, so the sender need not wait
  std::thread sender([&] {
    auto links = mesh.links(1);
    ASSERT_TRUE(links) << links.error().message;
    std::vector<std::byte> message(kBytes, std::byte{7});
    ASSERT_TRUE((*links)[0]->start_send(message, {}));
    const Status sent = (*links)[0]->finish_send(in(milliseconds{2000}));
    EXPECT_TRUE(sent) << sent.error().message;
  });
  auto links = mesh.links(0);
  ASSERT_TRUE(links) << links.error().message;
  std::this_thread::sleep_for(milliseconds{50});  // the sender is about to close
  std::vector<std::byte> came(kBytes);
  Link& link = *(*links)[1];
  const Status received = link.receive(came, in(milliseconds{5000}));
  EXPECT_TRUE(received) << received.error().message;
  EXPECT_EQ(came, std::vector<std::byte>(kBytes, std::byte{7}));
  std::array<std::byte, 1> more{};
  const Status end = link.receive(more, in(milliseconds{2000}));
  sender.join();
  ASSERT_FALSE(end);
  EXPECT_EQ(end.error().code, ErrorCode::kPeerLost) << end.error().message;
}

INSTANTIATE_TEST_SUITE_P(All, UcxTransports,
                         ::testing::Values(Transport::kUcxTcp, Transport::kUcxPosix,
                                           Transport::kUcxSysv),
                         [](const auto& given) { return transport_name(given.param); });

TEST(Ucx, TransportThatIsNotThere_IsNamedAsTheUsersChoice) {
  const auto ucx = load_ucx(false);
  ASSERT_TRUE(ucx) << ucx.error().message;
  setenv("UCX_TLS", "nosuch", 1);
  const auto worker = UcxWorker::open(**ucx, 4096);
  ASSERT_FALSE(worker);
  EXPECT_THAT(worker.error().message, HasSubstr("UCX_TLS"));
}

}  // namespace
}  // namespace sinew::testing
#endif
