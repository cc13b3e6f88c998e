#include "transport/shm_link.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "transport/wait_word.h"

namespace sinew {
namespace {

using std::chrono::steady_clock;

// A long message is handed over in parts, so that the receiver copies one while the next is
// written.
constexpr std::size_t kPublishBytes = 16u << 10;
// The receiver gives space back in parts this large, or before it sleeps.
constexpr std::size_t kReleaseBytes = shm::kRingBytes / 4;
// No sleep lasts longer, so that a lost wake-up (a corrupt peer may forget it) costs time, not the
// wait.
constexpr std::chrono::milliseconds kSleepMax{100};

void ring_bell(shm::RankState& rank) {
  // Sequentially consistent with the ring's counter before it, as the sleeper's flag is with its
  // last look at that counter: one of the two sees the other.
  if (rank.sleeping.load() == 0) return;
  rank.bell.fetch_add(1);
  wake(rank.bell);
}

// What the links of one rank share beside the hub: the segment, and how the rank sleeps on its
// bell.
class ShmSleeper final : public LinkSleeper {
 public:
  ShmSleeper(ShmSegment segment, Rank rank) : segment_(std::move(segment)), rank_(rank) {}

  const ShmSegment& segment() const { return segment_; }
  shm::RankState& state(Rank rank) const { return segment_.header().rank_states[rank]; }
  Rank rank() const { return rank_; }

  void arm(const StreamLink&) override {
    seen_ = state(rank_).bell.load();
    state(rank_).sleeping.store(1);
  }
  void disarm() override { state(rank_).sleeping.store(0); }
  void sleep(const StreamLink&, Direction, Deadline until) override {
    sleep_on(state(rank_).bell, seen_,
             std::min<steady_clock::duration>(until - steady_clock::now(), kSleepMax));
  }

 private:
  ShmSegment segment_;
  Rank rank_;
  std::uint32_t seen_ = 0;  // the bell's value when the sleeper was armed
};

class ShmLink final : public StreamLink {
 public:
  ShmLink(std::shared_ptr<LinkHub> hub, std::shared_ptr<ShmSleeper> sleeper, Rank peer)
      : StreamLink(std::move(hub), peer),
        sleeper_(std::move(sleeper)),
        out_(sleeper_->segment().ring(sleeper_->rank(), peer)),
        in_(sleeper_->segment().ring(peer, sleeper_->rank())) {}
  ~ShmLink() override {
    out_.closed.store(1);
    ring_bell(sleeper_->state(peer()));
  }

  std::string_view kind() const override { return "shm"; }

 private:
  // Writes what fits of the pending send.
  Progress push() override;
  Progress pull(std::span<std::byte>& left) override;
  LinkSleeper& sleeper() override { return *sleeper_; }
  // Gives the peer the space of what has been read.
  void settle() override;

  std::size_t write_part(std::span<const std::byte> bytes, std::size_t room);
  void copy_in(std::uint64_t at, std::span<const std::byte> bytes);
  void copy_out(std::uint64_t at, std::span<std::byte> bytes) const;
  Error closed_error() const { return lost("closed its shm link"); }

  // Shared by the shm links of a rank, which are destroyed one by one.
  std::shared_ptr<ShmSleeper> sleeper_;
  shm::Ring& out_;
  shm::Ring& in_;
  // This rank's own counters live here: the copies in the segment are only for the peer to read.
  std::uint64_t out_tail_ = 0;
  std::uint64_t out_head_seen_ = 0;
  std::uint64_t in_head_ = 0;
  std::uint64_t in_head_released_ = 0;
};

void ShmLink::copy_in(std::uint64_t at, std::span<const std::byte> bytes) {
  const std::size_t offset = at % shm::kRingBytes;
  const std::size_t first = std::min(bytes.size(), shm::kRingBytes - offset);
  std::memcpy(out_.data + offset, bytes.data(), first);
  if (first < bytes.size()) std::memcpy(out_.data, bytes.data() + first, bytes.size() - first);
}

void ShmLink::copy_out(std::uint64_t at, std::span<std::byte> bytes) const {
  const std::size_t offset = at % shm::kRingBytes;
  const std::size_t first = std::min(bytes.size(), shm::kRingBytes - offset);
  std::memcpy(bytes.data(), in_.data + offset, first);
  if (first < bytes.size()) std::memcpy(bytes.data() + first, in_.data, bytes.size() - first);
}

std::size_t ShmLink::write_part(std::span<const std::byte> bytes, std::size_t room) {
  const std::size_t count = std::min(bytes.size(), room);
  if (count == 0) return 0;
  copy_in(out_tail_, bytes.first(count));
  out_tail_ += count;
  take(count);
  return count;
}

Progress ShmLink::push() {
  bool moved = false;
  while (sending()) {
    std::size_t room = shm::kRingBytes - (out_tail_ - out_head_seen_);
    if (room < std::min(kPublishBytes, head_left().size() + body_left().size())) {
      const std::uint64_t head = out_.head.load();
      if (head < out_head_seen_ || head > out_tail_) {
        return stop_sending(
            Error{ErrorCode::kProtocol,
                  fmt::format("rank {} says it has read {} bytes of the {} sent over shm", peer(),
                              head, out_tail_),
                  peer()});
      }
      out_head_seen_ = head;
      room = shm::kRingBytes - (out_tail_ - head);
    }
    if (room == 0) {
      // The peer's own ring to this rank tells whether it is still there to make room.
      if (in_.closed.load() != 0) {
        return stop_sending(closed_error());
      }
      break;
    }
    room = std::min(room, kPublishBytes);
    room -= write_part(head_left(), room);
    write_part(body_left(), room);
    out_.tail.store(out_tail_);
    ring_bell(sleeper_->state(peer()));
    moved = true;
  }
  return moved ? Progress::kSome : Progress::kNone;
}

void ShmLink::settle() {
  if (in_head_ == in_head_released_) return;
  in_head_released_ = in_head_;
  in_.head.store(in_head_);
  ring_bell(sleeper_->state(peer()));
}

Progress ShmLink::pull(std::span<std::byte>& left) {
  // Read before `tail`: what was written before the close is still delivered.
  const bool closed = in_.closed.load() != 0;
  const std::uint64_t tail = in_.tail.load();
  if (tail < in_head_ || tail - in_head_ > shm::kRingBytes) {
    return stop_receiving(
        Error{ErrorCode::kProtocol,
              fmt::format("rank {} says it has sent {} bytes over shm, {} of them are read", peer(),
                          tail, in_head_),
              peer()});
  }
  const std::size_t count = std::min<std::size_t>(left.size(), tail - in_head_);
  if (count == 0) {
    if (!closed) return Progress::kNone;
    return stop_receiving(closed_error());
  }
  copy_out(in_head_, left.first(count));
  in_head_ += count;
  left = left.subspan(count);
  if (in_head_ - in_head_released_ >= kReleaseBytes) settle();
  return left.empty() ? Progress::kDone : Progress::kSome;
}

}  // namespace

Result<Links> make_shm_links(const ShmSegment& segment, const GroupIdentity& identity,
                             const LinkShare& share) {
  if (segment.ranks() != identity.size || identity.rank < 0 || identity.rank >= identity.size) {
    return fail(ErrorCode::kProtocol, "rank {} of {} does not fit a shared segment of {} ranks",
                identity.rank, identity.size, segment.ranks());
  }
  auto sleeper = std::make_shared<ShmSleeper>(segment, identity.rank);
  if (sleeper->state(identity.rank).attached.exchange(1) != 0) {
    return fail(ErrorCode::kProtocol,
                "rank {} of the shared segment is taken: a segment serves one epoch",
                identity.rank);
  }
  Links links(static_cast<std::size_t>(identity.size));
  for (Rank peer = 0; peer < identity.size; ++peer) {
    if (peer == identity.rank || !share.peers.contains(peer)) continue;
    links[static_cast<std::size_t>(peer)] = std::make_unique<ShmLink>(share.hub, sleeper, peer);
  }
  return links;
}

Result<Links> make_shm_links(const ShmSegment& segment, const GroupIdentity& identity) {
  return make_shm_links(segment, identity, LinkShare::everyone(identity));
}

}  // namespace sinew
