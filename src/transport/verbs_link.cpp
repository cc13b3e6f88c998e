#include "transport/verbs_link.h"

#include <poll.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <thread>
#include <utility>

#include "base/assert.h"
#include "base/limits.h"
#include "base/log.h"
#include "transport/poll_timeout.h"
#include "transport/verbs_side.h"

namespace sinew {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kSideInterval{1};
// No sleep lasts longer: the side channel's and the ports' turn comes.
constexpr milliseconds kSleepMax = kVerbsPortInterval;
// Without a completion channel: naps of an eighth of the time already waited.
constexpr microseconds kNapMin{20};
constexpr microseconds kNapMax{1000};
// A closing link lets what it has sent arrive, if the peer still takes it.
constexpr milliseconds kCloseMax{500};

class VerbsLink;

// Sleeps on the completion channels and side channels of the awaited link and of those that have
// something pending; in naps where the stack has no completion channel.
class VerbsSleeper final : public LinkSleeper {
 public:
  void add(VerbsLink& link) { links_.push_back(&link); }
  void remove(VerbsLink& link) { std::erase(links_, &link); }
  // Something moved: the next nap is short again.
  void wake() { waiting_since_ = {}; }

  void arm(const StreamLink& awaited) override;
  // An armed queue that never fires costs one needless wake-up at most.
  void disarm() override {}
  void sleep(const StreamLink& awaited, Direction direction, Deadline until) override;

 private:
  void nap(Deadline until);

  std::vector<VerbsLink*> links_;  // the living ones
  Deadline waiting_since_{};
};

class VerbsLink final : public StreamLink {
 public:
  VerbsLink(std::shared_ptr<LinkHub> hub, std::shared_ptr<VerbsSleeper> sleeper,
            VerbsConnection connection)
      : StreamLink(std::move(hub), connection.peer),
        sleeper_(std::move(sleeper)),
        rails_(std::move(connection.rails)),
        side_(std::move(connection.side)) {
    sleeper_->add(*this);
    next_port_look_ = steady_clock::now() + kVerbsPortInterval;
  }
  ~VerbsLink() override;

  std::string_view kind() const override { return "verbs"; }
  bool pending() const override {
    return !fault_ && (sending() || std::any_of(rails_.begin(), rails_.end(),
                                                [](const auto& rail) { return rail->note_due(); }));
  }
  std::span<const std::unique_ptr<VerbsRail>> rails() const { return rails_; }
  int side_fd() const { return side_.fd(); }

 private:
  Progress push() override;
  Progress pull(std::span<std::byte>& left) override;
  LinkSleeper& sleeper() override { return *sleeper_; }

  // Side channel and ports, each in its turn. An error ends the link.
  Status look_around();
  void look_at_side();
  Status push_data(bool& moved);
  Status push_notes(bool& moved);
  Status pull_data(std::span<std::byte>& left, bool& moved);
  // Nothing more is to be waited for once the side channel has closed.
  bool all_came() const;
  void drain();

  // Shared by the verbs links of a rank, which are destroyed one by one.
  std::shared_ptr<VerbsSleeper> sleeper_;
  std::vector<std::unique_ptr<VerbsRail>> rails_;
  Socket side_;
  std::size_t next_out_ = 0;     // rail of the next slot sent
  std::size_t next_in_ = 0;      // and of the next one taken
  std::size_t front_taken_ = 0;  // bytes of that slot already delivered
  std::optional<Error> fault_;   // after which nothing is posted
  Deadline next_side_look_{};
  Deadline next_port_look_{};
  bool side_closed_ = false;
  FarewellReader farewell_;
};

void VerbsSleeper::arm(const StreamLink& awaited) {
  for (const VerbsLink* link : links_) {
    if (link != &awaited && !link->pending()) continue;
    for (const auto& rail : link->rails()) {
      const VerbsDevice& device = rail->device();
      if (device.channel() == nullptr) continue;
      device.provider().drain_channel(device.channel());
      // A queue that cannot be armed is looked at after the sleep, which is bounded.
      static_cast<void>(device.provider().arm_cq(rail->cq()));
    }
  }
}

void VerbsSleeper::nap(Deadline until) {
  const auto now = steady_clock::now();
  if (waiting_since_ == Deadline{}) waiting_since_ = now;
  const auto length =
      std::clamp<steady_clock::duration>((now - waiting_since_) / 8, kNapMin, kNapMax);
  std::this_thread::sleep_until(std::min(until, now + length));
}

void VerbsSleeper::sleep(const StreamLink& awaited, Direction, Deadline until) {
  std::array<pollfd, kRankCountMax*(kVerbsRailsMax + 1)> waits{};
  nfds_t count = 0;
  for (const VerbsLink* link : links_) {
    if (link != &awaited && !link->pending()) continue;
    for (const auto& rail : link->rails()) {
      const VerbsDevice& device = rail->device();
      if (device.channel() == nullptr) return nap(until);
      waits[count++] = {device.provider().channel_fd(device.channel()), POLLIN, 0};
    }
    // Once closed it would end every sleep; what is left to wait for comes over the channels.
    if (link->side_fd() >= 0) waits[count++] = {link->side_fd(), POLLIN, 0};
  }
  poll(waits.data(), count, poll_timeout(std::min(until, steady_clock::now() + kSleepMax)));
}

void VerbsLink::look_at_side() {
  if (side_closed_ || steady_clock::now() < next_side_look_) return;
  next_side_look_ = steady_clock::now() + kSideInterval;
  if (farewell_.read(side_)) return;
  side_closed_ = true;
  side_.reset();
}

Status VerbsLink::look_around() {
  look_at_side();
  if (steady_clock::now() < next_port_look_) return {};
  next_port_look_ = steady_clock::now() + kVerbsPortInterval;
  for (const auto& rail : rails_) {
    Status up = rail->device().check_port();
    if (up) continue;
    Error error = std::move(up).error().within(fmt::format("rank {} over verbs", peer()));
    error.rank = peer();
    return fail(std::move(error));
  }
  return {};
}

Status VerbsLink::push_data(bool& moved) {
  while (sending()) {
    VerbsRail& rail = *rails_[next_out_];
    std::span<std::byte> slot = rail.free_slot();
    if (slot.empty()) {
      SINEW_TRY(rail.poll());
      slot = rail.free_slot();
    }
    if (slot.empty()) {
      // Not a fault: what the peer said before it left can still be read.
      if (side_closed_) stop_sending(lost("closed its verbs link"));
      return {};
    }
    std::size_t filled = 0;
    for (const auto part : {head_left(), body_left()}) {
      const std::size_t count = std::min(part.size(), slot.size() - filled);
      if (count > 0) std::memcpy(slot.data() + filled, part.data(), count);
      filled += count;
    }
    SINEW_TRY(rail.send(filled));
    take(filled);
    next_out_ = (next_out_ + 1) % rails_.size();
    moved = true;
  }
  return {};
}

Status VerbsLink::push_notes(bool& moved) {
  for (const auto& rail : rails_) {
    if (!rail->note_due()) continue;
    SINEW_TRY(rail->poll());
    SINEW_TRY(rail->send_note());
    moved = moved || !rail->note_due();
  }
  return {};
}

Progress VerbsLink::push() {
  if (fault_) return stop_sending(*fault_);
  bool moved = false;
  Status status = look_around();
  if (status) status = push_data(moved);
  if (status) status = push_notes(moved);
  if (!status) {
    fault_ = status.error();
    return stop_sending(*fault_);
  }
  if (moved) sleeper_->wake();
  return moved ? Progress::kSome : Progress::kNone;
}

bool VerbsLink::all_came() const {
  for (std::size_t rail = 0; rail < rails_.size(); ++rail) {
    if (rails_[rail]->arrived() < farewell_.sent(rail)) return false;
  }
  return true;
}

Status VerbsLink::pull_data(std::span<std::byte>& left, bool& moved) {
  while (!left.empty()) {
    VerbsRail& rail = *rails_[next_in_];
    std::span<const std::byte> payload = rail.front();
    if (payload.empty()) {
      if (fault_) return fail(*fault_);
      SINEW_TRY(rail.poll());
      payload = rail.front();
    }
    if (payload.empty()) return {};
    payload = payload.subspan(front_taken_);
    const std::size_t count = std::min(payload.size(), left.size());
    std::memcpy(left.data(), payload.data(), count);
    left = left.subspan(count);
    front_taken_ += count;
    moved = true;
    if (count < payload.size()) return {};
    front_taken_ = 0;
    next_in_ = (next_in_ + 1) % rails_.size();
    if (fault_) {
      rail.drop_front();
      continue;
    }
    SINEW_TRY(rail.take_front());
    if (rail.note_due()) SINEW_TRY(rail.send_note());
  }
  return {};
}

Progress VerbsLink::pull(std::span<std::byte>& left) {
  bool moved = false;
  const bool was_closed = side_closed_;
  if (!fault_) {
    if (const Status up = look_around(); !up) fault_ = up.error();
  }
  // What came before a fault is still delivered; nothing is posted for it.
  const Status status = pull_data(left, moved);
  if (!status && !fault_) fault_ = status.error();
  if (moved) sleeper_->wake();
  // A fault that follows the awaited bytes is the next call's.
  if (left.empty()) return Progress::kDone;
  if (!status) return stop_receiving(status.error());
  if (!moved && was_closed && all_came()) return stop_receiving(lost("closed its verbs link"));
  return moved ? Progress::kSome : Progress::kNone;
}

void VerbsLink::drain() {
  const Deadline end = steady_clock::now() + kCloseMax;
  for (const auto& rail : rails_) {
    while (!rail->sends_done() && steady_clock::now() < end) {
      look_at_side();
      if (side_closed_ || !rail->poll()) return;
      if (!rail->sends_done()) std::this_thread::sleep_for(kNapMin);
    }
  }
}

VerbsLink::~VerbsLink() {
  sleeper_->remove(*this);
  std::uint64_t dropped = 0;
  for (const auto& rail : rails_) dropped += rail->dropped();
  if (dropped > 0) {
    spdlog::warn("verbs: {} messages of an earlier life, or repeated ones, came from rank {}",
                 dropped, peer());
  }
  if (fault_) return;
  drain();
  if (side_closed_) return;
  RailCounts sent{};
  for (std::size_t rail = 0; rail < rails_.size(); ++rail) sent[rail] = rails_[rail]->sent();
  say_farewell(side_, sent);
}

}  // namespace

Links make_verbs_links(int ranks, std::vector<VerbsConnection> connections,
                       const std::shared_ptr<LinkHub>& hub) {
  auto sleeper = std::make_shared<VerbsSleeper>();
  Links links(static_cast<std::size_t>(ranks));
  for (VerbsConnection& connection : connections) {
    SINEW_ASSERT(!connection.rails.empty() && connection.rails.size() <= kVerbsRailsMax);
    const auto peer = static_cast<std::size_t>(connection.peer);
    links[peer] = std::make_unique<VerbsLink>(hub, sleeper, std::move(connection));
  }
  return links;
}

}  // namespace sinew
