#include "transport/stream_link.h"

#include <algorithm>
#include <utility>

#include "base/assert.h"

namespace sinew {
namespace {

using std::chrono::steady_clock;

// No sleep lasts longer while a link of a kind that cannot end it has something pending.
constexpr std::chrono::milliseconds kMixedSleepMax{1};

}  // namespace

Deadline LinkHub::sleep_end(const LinkSleeper& sleeper, Deadline now, Deadline deadline) const {
  const bool mixed = std::any_of(links_.begin(), links_.end(), [&](StreamLink* other) {
    return &other->sleeper() != &sleeper && other->pending();
  });
  if (mixed) return std::min(deadline, now + kMixedSleepMax);
  return stop_ == nullptr ? deadline : std::min(deadline, now + kStopLookInterval);
}

template <typename Attempt>
Status LinkHub::wait(StreamLink& link, Direction direction, Deadline deadline,
                     const Attempt& attempt) {
  LinkSleeper& sleeper = link.sleeper();
  bool armed = false;
  bool stopped = false;
  spin_.restart();
  Progress progress = Progress::kNone;
  while (true) {
    progress = attempt();
    if (progress == Progress::kDone) break;
    bool moved = progress == Progress::kSome;
    for (StreamLink* other : links_) {
      if (other->pending()) moved = other->push() == Progress::kSome || moved;
    }
    if (moved) {
      spin_.restart();
      continue;
    }
    const auto now = steady_clock::now();
    if (now >= deadline) break;
    stopped = stop_ != nullptr && stop_->load(std::memory_order_relaxed);
    if (stopped) break;
    if (!armed) {
      if (spin_.turn(now)) continue;
      for (StreamLink* other : links_) other->settle();
      sleeper.arm(link);
      armed = true;
      continue;
    }
    sleeper.sleep(link, direction, sleep_end(sleeper, now, deadline));
    sleeper.disarm();
    // Without news the next sleep follows at once: kinds that cannot be woken sleep in naps, and a
    // spin between two of them would keep a core busy.
    armed = false;
  }
  if (armed) sleeper.disarm();
  if (progress == Progress::kDone) return {};
  if (stopped) return fail(ErrorCode::kCancelled, "this rank was told to end");
  return fail(Error{ErrorCode::kDeadline,
                    fmt::format("rank {} did not answer over {} in time", link.peer(), link.kind()),
                    link.peer()});
}

StreamLink::StreamLink(std::shared_ptr<LinkHub> hub, Rank peer)
    : hub_(std::move(hub)), peer_(peer) {
  hub_->links_.push_back(this);
}

StreamLink::~StreamLink() {
  std::erase(hub_->links_, this);
}

void StreamLink::take(std::size_t count) {
  const std::size_t of_head = std::min(count, head_left_.size());
  head_left_ = head_left_.subspan(of_head);
  body_left_ = body_left_.subspan(count - of_head);
}

Progress StreamLink::stop_sending(Error error) {
  send_error_ = std::move(error);
  head_left_ = {};
  body_left_ = {};
  return Progress::kDone;
}

Progress StreamLink::stop_receiving(Error error) {
  receive_error_ = std::move(error);
  return Progress::kDone;
}

Error StreamLink::lost(std::string_view why) const {
  return Error{ErrorCode::kPeerLost, fmt::format("rank {} {}", peer_, why), peer_};
}

Status StreamLink::start_send(std::span<const std::byte> head, std::span<const std::byte> body) {
  if (send_error_) return fail(*send_error_);
  SINEW_ASSERT(!sending());
  head_left_ = head;
  body_left_ = body;
  if (sending()) push();
  return {};
}

Status StreamLink::finish_send(Deadline deadline) {
  if (!send_error_ && sending()) {
    const Status waited = hub_->wait(*this, Direction::kSend, deadline, [this] {
      const Progress progress = push();
      return sending() ? progress : Progress::kDone;
    });
    if (!waited) stop_sending(waited.error());
  }
  return send_error_ ? Status(fail(*send_error_)) : Status();
}

Status StreamLink::receive(std::span<std::byte> into, Deadline deadline) {
  if (receive_error_) return fail(*receive_error_);
  std::span<std::byte> left = into;
  if (left.empty()) return {};
  const Status waited =
      hub_->wait(*this, Direction::kReceive, deadline, [this, &left] { return pull(left); });
  if (!waited) stop_receiving(waited.error());
  return receive_error_ ? Status(fail(*receive_error_)) : Status();
}

LinkShare LinkShare::everyone(const GroupIdentity& identity) {
  RankSet peers = RankSet::range(0, identity.size);
  peers.bits &= ~(std::uint32_t{1} << identity.rank);
  return {std::make_shared<LinkHub>(identity.size), peers};
}

void add_links(Links& into, Links more) {
  SINEW_ASSERT(into.size() == more.size());
  for (std::size_t peer = 0; peer < more.size(); ++peer) {
    SINEW_ASSERT(!into[peer] || !more[peer]);
    if (more[peer]) into[peer] = std::move(more[peer]);
  }
}

}  // namespace sinew
