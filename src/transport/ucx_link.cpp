#include "transport/ucx_link.h"

#include <poll.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <utility>

#include "base/assert.h"
#include "base/limits.h"
#include "base/log.h"
#include "transport/poll_timeout.h"
#include "transport/side_channel.h"
#include "transport/ucx_piece.h"
#include "transport/ucx_worker.h"

namespace sinew {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// The stream travels in data messages of one slot. A sender has at most `kWindow` of them under way
// that the receiver has not made room for again, so UCX never holds more for a peer that does not
// read. The exchange of a decode step fits one slot.
constexpr std::size_t kSlotBytes = 64u << 10;
constexpr std::size_t kPayloadMax = kSlotBytes - kUcxPieceBytes;
constexpr std::size_t kWindow = 8;
// Room is told with every data message, and by a note of its own once so much is untold. A peer
// that this rank sends nothing to therefore gets two notes a window at most.
constexpr std::size_t kUntoldMax = kWindow / 2;
constexpr std::size_t kNotes = 4;  // notes whose receives are posted
constexpr std::size_t kPeerBytes = 2 * kWindow * kSlotBytes + 2 * kNotes * kUcxPieceBytes;
// Without an event to sleep on, a rank looks again after so long.
constexpr milliseconds kNap{2};
// How often `arm` may find news that are none of the awaited link before the rank naps.
constexpr int kRefusalsMax = 16;

// Messages of one kind in one direction: a ring of buffers, each with the request that last used
// it.
class SlotRing {
 public:
  SlotRing(std::span<std::byte> memory, std::size_t slots)
      : memory_(memory), requests_(slots), slot_bytes_(memory.size() / slots) {}

  std::span<std::byte> slot(std::uint64_t number) const {
    return memory_.subspan(number % requests_.size() * slot_bytes_, slot_bytes_);
  }
  UcxRequest& request(std::uint64_t number) { return requests_[number % requests_.size()]; }
  bool any_pending() const {
    return std::any_of(requests_.begin(), requests_.end(),
                       [](const UcxRequest& request) { return request.pending(); });
  }
  void cancel(ucp_worker_h worker) {
    for (UcxRequest& request : requests_) request.cancel(worker);
  }

 private:
  std::span<std::byte> memory_;
  std::vector<UcxRequest> requests_;
  std::size_t slot_bytes_;
};

class UcxLink;

// Sleeps on UCX's event descriptor and the side channels of the links concerned.
class UcxSleeper final : public LinkSleeper {
 public:
  explicit UcxSleeper(std::shared_ptr<UcxWorker> worker) : worker_(std::move(worker)) {}
  void add(UcxLink& link) { links_.push_back(&link); }
  void remove(UcxLink& link) { std::erase(links_, &link); }

  void arm(const StreamLink&) override { armed_ = worker_->arm(); }
  // UCX forgets by itself: the next event only makes the descriptor readable.
  void disarm() override {}
  void sleep(const StreamLink& awaited, Direction direction, Deadline until) override;

 private:
  std::shared_ptr<UcxWorker> worker_;
  std::vector<UcxLink*> links_;  // the living ones
  bool armed_ = false;
  int refusals_ = 0;  // in a row
};

class UcxLink final : public StreamLink {
 public:
  UcxLink(std::shared_ptr<LinkHub> hub, std::shared_ptr<UcxSleeper> sleeper,
          std::shared_ptr<UcxWorker> worker, std::unique_ptr<UcxEndpoint> endpoint, Socket side,
          const GroupIdentity& identity, Rank peer, std::span<std::byte> memory);
  ~UcxLink() override;

  std::string_view kind() const override { return "ucx"; }

  // Posts all receives and sends the first data message, which is empty. Once the peer's has come
  // (`greeted`), both directions are proven.
  Status greet();
  Result<bool> greeted();

  // -1 once the peer's end is known.
  int side_fd() const { return gone_ ? -1 : side_.fd(); }
  void look_at_side() { gone_ = gone_ || !farewell_.read(side_); }
  std::string transports() const { return endpoint_->transports(); }

 private:
  Progress push() override;
  Progress pull(std::span<std::byte>& left) override;
  LinkSleeper& sleeper() override { return *sleeper_; }
  bool pending() const override { return sending() || untold() >= kUntoldMax; }

  std::size_t untold() const { return static_cast<std::size_t>(data_taken_ - told_); }
  bool window_full() const { return data_sent_ - peer_taken_ >= kWindow; }
  bool unread() const { return data_arrived_ > data_taken_; }

  // Sends one data message with the next bytes of the pending send, or one without any.
  Status send_data();
  bool send_note();
  Status post_data(std::uint64_t number);
  Status post_note(std::uint64_t number);
  // Looks at what UCX has delivered, in order.
  void look_at_arrivals();
  Status take_arrival(SlotRing& ring, std::uint64_t number, UcxPiece expected);
  // Why nothing more can come, or be sent, if that is so.
  std::optional<Error> fault() const;
  void keep_fault(Status status) {
    if (!status && !fault_) fault_ = status.error();
  }

  // Shared by the ucx links of a rank, which are destroyed one by one.
  std::shared_ptr<UcxSleeper> sleeper_;
  std::shared_ptr<UcxWorker> worker_;
  std::unique_ptr<UcxEndpoint> endpoint_;
  Socket side_;
  FarewellReader farewell_;
  bool gone_ = false;  // the peer has closed its end of the side channel
  std::optional<Error> fault_;

  UcxPiece data_out_, note_out_;
  UcxPiece data_in_, note_in_;
  std::uint64_t data_out_tag_, note_out_tag_;
  std::uint64_t data_in_tag_, note_in_tag_;

  SlotRing data_out_ring_, data_in_ring_;
  SlotRing note_out_ring_, note_in_ring_;

  // Counts of messages; the number of a message is the count before it.
  std::uint64_t data_sent_ = 0;
  std::uint64_t peer_taken_ = 0;
  std::uint64_t notes_sent_ = 0;
  std::uint64_t data_arrived_ = 0;
  std::uint64_t data_taken_ = 0;  // their receives are posted again
  std::uint64_t told_ = 0;        // of data_taken_, to the peer
  std::uint64_t notes_arrived_ = 0;
  std::size_t read_ = 0;  // payload bytes of the oldest unread message that were read
};

void UcxSleeper::sleep(const StreamLink& awaited, Direction direction, Deadline until) {
  refusals_ = armed_ ? 0 : refusals_ + 1;
  // News that came while the sleeper was armed: the caller works and looks again.
  if (!armed_ && worker_->event_fd() >= 0 && refusals_ < kRefusalsMax) return;
  if (!armed_) until = std::min(until, steady_clock::now() + kNap);
  std::array<pollfd, kRankCountMax + 1> waits{};
  std::array<UcxLink*, kRankCountMax + 1> owners{};
  nfds_t count = 0;
  waits[count++] = pollfd{armed_ ? worker_->event_fd() : -1, POLLIN, 0};
  for (UcxLink* link : links_) {
    const bool reads = link == &awaited && direction == Direction::kReceive;
    if (!reads && !link->sending()) continue;
    owners[count] = link;
    waits[count++] = pollfd{link->side_fd(), POLLIN, 0};
  }
  poll(waits.data(), count, poll_timeout(until));
  for (nfds_t i = 1; i < count; ++i)
    if (waits[i].revents != 0) owners[i]->look_at_side();
}

UcxLink::UcxLink(std::shared_ptr<LinkHub> hub, std::shared_ptr<UcxSleeper> sleeper,
                 std::shared_ptr<UcxWorker> worker, std::unique_ptr<UcxEndpoint> endpoint,
                 Socket side, const GroupIdentity& identity, Rank peer, std::span<std::byte> memory)
    : StreamLink(std::move(hub), peer),
      sleeper_(std::move(sleeper)),
      worker_(std::move(worker)),
      endpoint_(std::move(endpoint)),
      side_(std::move(side)),
      data_out_(make_ucx_piece(identity, identity.rank, peer, UcxPiece::Kind::kData)),
      note_out_(make_ucx_piece(identity, identity.rank, peer, UcxPiece::Kind::kNote)),
      data_in_(make_ucx_piece(identity, peer, identity.rank, UcxPiece::Kind::kData)),
      note_in_(make_ucx_piece(identity, peer, identity.rank, UcxPiece::Kind::kNote)),
      data_out_tag_(ucx_tag(identity, identity.rank, UcxPiece::Kind::kData)),
      note_out_tag_(ucx_tag(identity, identity.rank, UcxPiece::Kind::kNote)),
      data_in_tag_(ucx_tag(identity, peer, UcxPiece::Kind::kData)),
      note_in_tag_(ucx_tag(identity, peer, UcxPiece::Kind::kNote)),
      data_out_ring_(memory.first(kWindow * kSlotBytes), kWindow),
      data_in_ring_(memory.subspan(kWindow * kSlotBytes, kWindow * kSlotBytes), kWindow),
      note_out_ring_(memory.subspan(2 * kWindow * kSlotBytes, kNotes * kUcxPieceBytes), kNotes),
      note_in_ring_(memory.last(kNotes * kUcxPieceBytes), kNotes) {
  SINEW_ASSERT(memory.size() == kPeerBytes);
  sleeper_->add(*this);
}

UcxLink::~UcxLink() {
  sleeper_->remove(*this);
  // What was sent is still to be delivered, if the peer is there to receive it.
  look_at_side();
  if (!fault()) {
    endpoint_->flush(kUcxCloseMax);
    worker_->progress_until([&] { return !data_out_ring_.any_pending() || fault(); }, kUcxCloseMax);
  }
  say_farewell(side_, {data_sent_});
  for (SlotRing* ring : {&data_in_ring_, &note_in_ring_}) ring->cancel(worker_->handle());
  worker_->progress_until(
      [&] { return !data_in_ring_.any_pending() && !note_in_ring_.any_pending(); }, kUcxCloseMax);
  // The endpoint closes before the side channel does: what it still had to say goes first.
  endpoint_.reset();
}

Status UcxLink::post_data(std::uint64_t number) {
  const std::span<std::byte> slot = data_in_ring_.slot(number);
  std::memset(slot.data(), 0, kUcxPieceBytes);  // nothing that could be taken for a message
  SINEW_ASSIGN(data_in_ring_.request(number), worker_->receive(slot, data_in_tag_));
  return {};
}

Status UcxLink::post_note(std::uint64_t number) {
  const std::span<std::byte> slot = note_in_ring_.slot(number);
  std::memset(slot.data(), 0, kUcxPieceBytes);
  SINEW_ASSIGN(note_in_ring_.request(number), worker_->receive(slot, note_in_tag_));
  return {};
}

Status UcxLink::greet() {
  for (std::size_t number = 0; number < kWindow; ++number) SINEW_TRY(post_data(number));
  for (std::size_t number = 0; number < kNotes; ++number) SINEW_TRY(post_note(number));
  return send_data();
}

Result<bool> UcxLink::greeted() {
  look_at_side();
  look_at_arrivals();
  if (unread()) return true;
  if (const auto error = fault()) return fail(*error);
  return false;
}

Status UcxLink::send_data() {
  const std::span<std::byte> slot = data_out_ring_.slot(data_sent_);
  UcxRequest& request = data_out_ring_.request(data_sent_);
  SINEW_ASSERT(!request.pending());
  std::size_t length = 0;
  for (const auto part : {head_left(), body_left()}) {
    const std::size_t count = std::min(part.size(), kPayloadMax - length);
    if (count > 0) std::memcpy(slot.data() + kUcxPieceBytes + length, part.data(), count);
    length += count;
  }
  take(length);
  UcxPiece piece = data_out_;
  piece.number = data_sent_;
  piece.taken = data_taken_;
  piece.length = static_cast<std::uint32_t>(length);
  std::memcpy(slot.data(), &piece, kUcxPieceBytes);
  SINEW_ASSIGN(request, endpoint_->send(slot.first(kUcxPieceBytes + length), data_out_tag_));
  ++data_sent_;
  told_ = data_taken_;
  return {};
}

bool UcxLink::send_note() {
  UcxRequest& request = note_out_ring_.request(notes_sent_);
  if (request.pending()) return false;
  const std::span<std::byte> slot = note_out_ring_.slot(notes_sent_);
  UcxPiece piece = note_out_;
  piece.number = notes_sent_;
  piece.taken = data_taken_;
  std::memcpy(slot.data(), &piece, kUcxPieceBytes);
  auto sent = endpoint_->send(slot, note_out_tag_);
  if (!sent) {
    keep_fault(fail(lost(fmt::format("broke its ucx link: {}", sent.error().message))));
    return false;
  }
  request = std::move(*sent);
  ++notes_sent_;
  told_ = data_taken_;
  return true;
}

Status UcxLink::take_arrival(SlotRing& ring, std::uint64_t number, UcxPiece expected) {
  const Result<std::size_t> came = ring.request(number).received();
  if (!came) return fail(lost(fmt::format("broke its ucx link: {}", came.error().message)));
  expected.number = number;
  SINEW_ASSIGN(const UcxPiece piece,
               check_ucx_piece(ring.slot(number).first(*came), expected, data_sent_));
  peer_taken_ = std::max(peer_taken_, piece.taken);
  return {};
}

void UcxLink::look_at_arrivals() {
  while (!fault_ && data_arrived_ - data_taken_ < kWindow &&
         !data_in_ring_.request(data_arrived_).pending()) {
    Status taken = take_arrival(data_in_ring_, data_arrived_, data_in_);
    if (taken) ++data_arrived_;
    keep_fault(std::move(taken));
  }
  while (!fault_ && !note_in_ring_.request(notes_arrived_).pending()) {
    Status taken = take_arrival(note_in_ring_, notes_arrived_, note_in_);
    if (taken) taken = post_note(notes_arrived_++);
    keep_fault(std::move(taken));
  }
  if (endpoint_->failure()) look_at_side();
}

std::optional<Error> UcxLink::fault() const {
  if (fault_) return fault_;
  if (endpoint_->failure() && !farewell_.said())  // a peer that closes says so first
    return lost(fmt::format("broke its ucx link: {}", *endpoint_->failure()));
  if (gone_) return lost("closed its ucx link");
  return std::nullopt;
}

Progress UcxLink::push() {
  bool moved = false;
  bool looked = false;
  while (sending()) {
    if (const auto error = fault()) return stop_sending(*error);
    UcxRequest& last_use = data_out_ring_.request(data_sent_);
    if (window_full() || last_use.pending()) {
      if (looked) break;
      worker_->progress();
      look_at_arrivals();
      looked = true;
      continue;
    }
    Status sent = last_use.sent();
    if (sent) sent = send_data();
    if (!sent)
      return stop_sending(lost(fmt::format("broke its ucx link: {}", sent.error().message)));
    moved = true;
  }
  // Also while the window is full: the peer may wait for room as well.
  if (untold() >= kUntoldMax && !fault()) moved = send_note() || moved;
  return moved ? Progress::kSome : Progress::kNone;
}

Progress UcxLink::pull(std::span<std::byte>& left) {
  if (!unread()) {
    look_at_arrivals();
    if (!unread()) {
      worker_->progress();
      look_at_arrivals();
    }
  }
  bool moved = false;
  while (unread()) {
    const std::span<std::byte> slot = data_in_ring_.slot(data_taken_);
    UcxPiece piece;
    std::memcpy(&piece, slot.data(), kUcxPieceBytes);
    const std::size_t count = std::min<std::size_t>(left.size(), piece.length - read_);
    if (count > 0) std::memcpy(left.data(), slot.data() + kUcxPieceBytes + read_, count);
    left = left.subspan(count);
    read_ += count;
    if (read_ == piece.length) {
      read_ = 0;
      const std::uint64_t number = data_taken_++;
      keep_fault(post_data(number));
    }
    moved = true;
    if (left.empty()) return Progress::kDone;
  }
  if (moved) return Progress::kSome;
  // What the peer had sent before it left may still be on its way within UCX.
  const bool complete = !gone_ || data_arrived_ >= farewell_.sent(0);
  if (const auto error = fault(); error && (complete || fault_)) return stop_receiving(*error);
  return Progress::kNone;
}

// Waits until every link has heard from its peer.
Status await_greetings(UcxWorker& worker, const std::vector<UcxLink*>& links, Deadline deadline) {
  std::vector<UcxLink*> silent = links;
  Status status;
  const auto all_heard = [&] {
    std::erase_if(silent, [&](UcxLink* link) {
      const Result<bool> greeted = link->greeted();
      if (!greeted && status) status = fail(greeted.error());
      return greeted && *greeted;
    });
    return silent.empty() || !status;
  };
  const auto left = deadline - steady_clock::now();
  worker.progress_until(all_heard, std::chrono::ceil<milliseconds>(left));
  if (!status || silent.empty()) return status;
  const Rank late = silent.front()->peer();
  return fail(Error{ErrorCode::kDeadline,
                    fmt::format("rank {} does not answer over ucx: its transports ({}) may not be "
                                "reachable from here; see UCX_TLS and UCX_NET_DEVICES",
                                late, silent.front()->transports()),
                    late});
}

}  // namespace

Result<Links> make_ucx_links(const GroupIdentity& identity, std::vector<Socket> sockets,
                             const LinkShare& share, const UcxOptions& options, Deadline deadline) {
  SINEW_ASSIGN(const UcxApi* ucx, load_ucx(options.verbose));
  const auto peers = static_cast<std::size_t>(share.peers.count());
  SINEW_ASSIGN(const std::shared_ptr<UcxWorker> worker, UcxWorker::open(*ucx, peers * kPeerBytes));
  SINEW_ASSIGN(const std::vector<std::byte> address, worker->address());
  SINEW_ASSIGN(const auto addresses, exchange_side(sockets, share.peers, address, deadline));
  auto sleeper = std::make_shared<UcxSleeper>(worker);
  std::vector<UcxLink*> made;
  Links links(sockets.size());
  for (std::size_t index = 0; index < sockets.size(); ++index) {
    const auto peer = static_cast<Rank>(index);
    if (!share.peers.contains(peer)) continue;
    auto endpoint = UcxEndpoint::connect(worker, addresses[index], on_same_machine(sockets[index]));
    if (!endpoint) {
      Error error = endpoint.error().within(fmt::format("rank {}", peer));
      error.rank = peer;
      return fail(std::move(error));
    }
    auto link = std::make_unique<UcxLink>(
        share.hub, sleeper, worker, std::move(*endpoint), std::move(sockets[index]), identity, peer,
        worker->memory().subspan(made.size() * kPeerBytes, kPeerBytes));
    SINEW_TRY(link->greet());
    made.push_back(link.get());
    links[index] = std::move(link);
  }
  SINEW_TRY(await_greetings(*worker, made, deadline));
  if (options.verbose) {
    for (const UcxLink* link : made)
      spdlog::info("rank {} reaches rank {} by ucx over {}", identity.rank, link->peer(),
                   link->transports());
  }
  return links;
}

}  // namespace sinew
