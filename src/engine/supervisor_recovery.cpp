// How a supervisor gets from a lost rank to the next epoch. All of it runs on the monitor thread,
// with the lock held.
#include <algorithm>

#include "base/bytes.h"
#include "base/log.h"
#include "engine/supervisor.h"

namespace sinew {
namespace {

// A rank leaves its group at once, unless it computes: then after that step.
constexpr std::chrono::seconds kLeaveMax{30};

}  // namespace

void Supervisor::leave_epoch(const Error& cause, Clock::time_point now) {
  if (!loss_) loss_time_ = now;
  loss_ = cause;
  ++epoch_;
  stage_ = Stage::kLeaving;
  leave_end_ = now + kLeaveMax;
  in_request_ = false;
  troubles_.clear();
  spdlog::warn("{}; what is lost is started again for epoch {}", cause.message, epoch_);
  for (Child& child : children_) {
    if (!child.lost() && child.channel->send(AbandonMessage{epoch_})) continue;
    if (const Status replaced = replace(child); !replaced) return give_up(replaced.error());
  }
  changed_.notify_all();
}

// Its place is empty after that, until `start_epoch`.
Status Supervisor::replace(Child& child) {
  if (!child.reaped) SINEW_TRY(reap(child, Clock::now()));
  const HeartbeatMessage last = child.status.heartbeat;
  child = Child{};
  child.reaped = true;
  child.status.heartbeat = last;
  return {};
}

void Supervisor::go_on(Clock::time_point now) {
  if (stage_ == Stage::kStarting || stage_ == Stage::kJoining) {
    if (std::all_of(children_.begin(), children_.end(),
                    [](const Child& child) { return child.status.ready.has_value(); }))
      return epoch_is_ready(now);
  }
  if (loss_ && recovery_.late(now)) return give_up(*loss_);
  if (stage_ != Stage::kLeaving) return;
  bool all_left = true;
  for (Child& child : children_) {
    if (child.reaped || child.left == epoch_) continue;
    all_left = false;
    if (now < leave_end_) continue;
    if (const Status replaced = replace(child); !replaced) return give_up(replaced.error());
  }
  if (!all_left) return;
  if (const Status started = start_epoch(); !started) give_up(started.error());
}

Status Supervisor::start_epoch() {
  stage_ = Stage::kJoining;
  if (segment_) segment_->renew();
  for (std::size_t i = 0; i < children_.size(); ++i) {
    Child& child = children_[i];
    const auto rank = static_cast<Rank>(i);
    if (child.reaped) {
      SINEW_TRY(start_child(child, rank));
      child.reaped = false;
      if (options_.verbose) spdlog::info("rank {}: pid {}", rank, child.status.process);
    }
    child.status.ready.reset();
    child.port.reset();
    child.done = true;
    configure(child, rank);
  }
  return {};
}

void Supervisor::epoch_is_ready(Clock::time_point now) {
  stage_ = Stage::kServing;
  recovery_.mended();
  if (loss_) {
    std::uint64_t read = 0;
    std::uint64_t held = 0;
    for (const Child& child : children_) {
      read += child.status.ready->read_bytes;
      held += child.status.ready->weight_bytes;
    }
    spdlog::warn("epoch {} serves, {:.2f} s after the loss: {} of {} read again", epoch_,
                 std::chrono::duration<double>(now - loss_time_).count(), format_bytes(read),
                 format_bytes(held));
    loss_.reset();
  }
  changed_.notify_all();
}

}  // namespace sinew
