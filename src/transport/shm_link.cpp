#include "transport/shm_link.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "base/assert.h"
#include "transport/spin.h"
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

class ShmLink;

// What the links of one rank share: a wait for one of them moves the sends of all.
struct Hub {
  ShmSegment segment;
  GroupIdentity identity;
  Spin spin;
  std::vector<ShmLink*> links;  // the living ones

  shm::RankState& state(Rank rank) const { return segment.header().rank_states[rank]; }
  // Calls `attempt` until it is done, fails, or `deadline` passes.
  template <typename Attempt>
  Status wait(const ShmLink& link, Deadline deadline, const Attempt& attempt);
};

enum class Progress : std::uint8_t { kNone, kSome, kDone };

class ShmLink final : public Link {
 public:
  ShmLink(std::shared_ptr<Hub> hub, Rank peer)
      : hub_(std::move(hub)),
        peer_(peer),
        out_(hub_->segment.ring(hub_->identity.rank, peer)),
        in_(hub_->segment.ring(peer, hub_->identity.rank)) {
    hub_->links.push_back(this);
  }
  ~ShmLink() override {
    std::erase(hub_->links, this);
    out_.closed.store(1);
    ring_bell(hub_->state(peer_));
  }

  Rank peer() const override { return peer_; }
  std::string_view kind() const override { return "shm"; }
  bool vouches() const override { return true; }
  bool sending() const override { return !head_left_.empty() || !body_left_.empty(); }

  Status start_send(std::span<const std::byte> head, std::span<const std::byte> body) override;
  Status finish_send(Deadline deadline) override;
  Status receive(std::span<std::byte> into, Deadline deadline) override;

  // Writes what fits of the pending send. An error is kept for the link's next call.
  Progress pump_send();
  void release_space();

 private:
  Progress read_some(std::span<std::byte>& left);
  std::size_t write_part(std::span<const std::byte>& left, std::size_t room);
  void copy_in(std::uint64_t at, std::span<const std::byte> bytes);
  void copy_out(std::uint64_t at, std::span<std::byte> bytes) const;
  Progress stop_sending(Error error);
  Progress stop_receiving(Error error);
  Error closed_error() const;

  // Shared by the links of a rank, which are destroyed one by one.
  std::shared_ptr<Hub> hub_;
  Rank peer_;
  shm::Ring& out_;
  shm::Ring& in_;
  // This rank's own counters live here: the copies in the segment are only for the peer to read.
  std::uint64_t out_tail_ = 0;
  std::uint64_t out_head_seen_ = 0;
  std::uint64_t in_head_ = 0;
  std::uint64_t in_head_released_ = 0;
  std::span<const std::byte> head_left_;
  std::span<const std::byte> body_left_;
  std::optional<Error> send_error_;
  std::optional<Error> receive_error_;
};

template <typename Attempt>
Status Hub::wait(const ShmLink& link, Deadline deadline, const Attempt& attempt) {
  shm::RankState& own = state(identity.rank);
  bool armed = false;  // the peers know that they must ring
  std::uint32_t seen = 0;
  Progress progress = Progress::kNone;
  spin.restart();
  while (true) {
    progress = attempt();
    bool moved = progress == Progress::kSome;
    if (progress == Progress::kDone) break;
    for (ShmLink* other : links) moved = other->pump_send() == Progress::kSome || moved;
    if (moved) {
      spin.restart();
      continue;
    }
    const auto now = steady_clock::now();
    if (now >= deadline) break;
    if (!armed && spin.turn(now)) continue;
    if (!armed) {
      for (ShmLink* other : links) other->release_space();
      seen = own.bell.load();
      own.sleeping.store(1);
      armed = true;
      continue;  // a last look: a peer may have acted before it could see the flag
    }
    sleep_on(own.bell, seen, std::min<steady_clock::duration>(deadline - now, kSleepMax));
    own.sleeping.store(0);
    armed = false;
    spin.restart();
  }
  if (armed) own.sleeping.store(0);
  if (progress == Progress::kDone) return {};
  return fail(Error{ErrorCode::kDeadline,
                    fmt::format("rank {} did not answer over shm in time", link.peer()),
                    link.peer()});
}

Progress ShmLink::stop_sending(Error error) {
  send_error_ = std::move(error);
  head_left_ = {};
  body_left_ = {};
  return Progress::kDone;
}

Progress ShmLink::stop_receiving(Error error) {
  receive_error_ = std::move(error);
  return Progress::kDone;
}

Error ShmLink::closed_error() const {
  return Error{ErrorCode::kPeerLost, fmt::format("rank {} closed its shm link", peer_), peer_};
}

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

std::size_t ShmLink::write_part(std::span<const std::byte>& left, std::size_t room) {
  const std::size_t count = std::min(left.size(), room);
  if (count == 0) return 0;
  copy_in(out_tail_, left.first(count));
  out_tail_ += count;
  left = left.subspan(count);
  return count;
}

Progress ShmLink::pump_send() {
  if (!sending()) return Progress::kNone;
  bool moved = false;
  while (sending()) {
    std::size_t room = shm::kRingBytes - (out_tail_ - out_head_seen_);
    if (room < std::min(kPublishBytes, head_left_.size() + body_left_.size())) {
      const std::uint64_t head = out_.head.load();
      if (head < out_head_seen_ || head > out_tail_) {
        return stop_sending(
            Error{ErrorCode::kProtocol,
                  fmt::format("rank {} says it has read {} bytes of the {} sent over shm", peer_,
                              head, out_tail_),
                  peer_});
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
    room -= write_part(head_left_, room);
    write_part(body_left_, room);
    out_.tail.store(out_tail_);
    ring_bell(hub_->state(peer_));
    moved = true;
  }
  return moved ? Progress::kSome : Progress::kNone;
}

void ShmLink::release_space() {
  if (in_head_ == in_head_released_) return;
  in_head_released_ = in_head_;
  in_.head.store(in_head_);
  ring_bell(hub_->state(peer_));
}

Progress ShmLink::read_some(std::span<std::byte>& left) {
  if (left.empty()) return Progress::kDone;
  // Read before `tail`: what was written before the close is still delivered.
  const bool closed = in_.closed.load() != 0;
  const std::uint64_t tail = in_.tail.load();
  if (tail < in_head_ || tail - in_head_ > shm::kRingBytes) {
    return stop_receiving(
        Error{ErrorCode::kProtocol,
              fmt::format("rank {} says it has sent {} bytes over shm, {} of them are read", peer_,
                          tail, in_head_),
              peer_});
  }
  const std::size_t count = std::min<std::size_t>(left.size(), tail - in_head_);
  if (count == 0) {
    if (!closed) return Progress::kNone;
    return stop_receiving(closed_error());
  }
  copy_out(in_head_, left.first(count));
  in_head_ += count;
  left = left.subspan(count);
  if (in_head_ - in_head_released_ >= kReleaseBytes) release_space();
  return left.empty() ? Progress::kDone : Progress::kSome;
}

Status ShmLink::start_send(std::span<const std::byte> head, std::span<const std::byte> body) {
  if (send_error_) return fail(*send_error_);
  SINEW_ASSERT(!sending());
  head_left_ = head;
  body_left_ = body;
  pump_send();
  return {};
}

Status ShmLink::finish_send(Deadline deadline) {
  if (!send_error_ && sending()) {
    const Status waited = hub_->wait(*this, deadline, [this] {
      const Progress progress = pump_send();
      return sending() ? progress : Progress::kDone;
    });
    if (!waited) stop_sending(waited.error());
  }
  return send_error_ ? Status(fail(*send_error_)) : Status();
}

Status ShmLink::receive(std::span<std::byte> into, Deadline deadline) {
  if (receive_error_) return fail(*receive_error_);
  std::span<std::byte> left = into;
  const Status waited = hub_->wait(*this, deadline, [this, &left] { return read_some(left); });
  if (!waited) stop_receiving(waited.error());
  return receive_error_ ? Status(fail(*receive_error_)) : Status();
}

}  // namespace

Result<Links> make_shm_links(const ShmSegment& segment, const GroupIdentity& identity) {
  if (segment.ranks() != identity.size || identity.rank < 0 || identity.rank >= identity.size) {
    return fail(ErrorCode::kProtocol, "rank {} of {} does not fit a shared segment of {} ranks",
                identity.rank, identity.size, segment.ranks());
  }
  auto hub = std::make_shared<Hub>(Hub{segment, identity, Spin(identity.size), {}});
  if (hub->state(identity.rank).attached.exchange(1) != 0) {
    return fail(ErrorCode::kProtocol,
                "rank {} of the shared segment is taken: a segment serves one epoch",
                identity.rank);
  }
  Links links(static_cast<std::size_t>(identity.size));
  for (Rank peer = 0; peer < identity.size; ++peer) {
    if (peer == identity.rank) continue;
    links[static_cast<std::size_t>(peer)] = std::make_unique<ShmLink>(hub, peer);
  }
  return links;
}

}  // namespace sinew
