#pragma once

#include <chrono>
#include <optional>

namespace sinew {

// Decides whether a lost rank is worth starting again. A loss that is mended counts only until the
// model has answered something since: a rank that dies whenever it is asked is given up, one that
// dies once a day is not.
class RecoveryPolicy {
 public:
  using Clock = std::chrono::steady_clock;

  // More losses without any progress between them are given up.
  static constexpr int kLossesMax = 5;

  // `longest`: from a loss until all ranks are ready again; 0: no loss is mended.
  explicit RecoveryPolicy(std::chrono::milliseconds longest) : longest_(longest) {}

  // A rank is lost. False: it is not to be mended.
  bool lost(Clock::time_point now);
  // All ranks are ready again.
  void mended() { until_.reset(); }
  // A token, or the end of a request.
  void progressed() { losses_ = 0; }

  // Whether a loss has not been mended in time.
  bool late(Clock::time_point now) const { return until_ && now >= *until_; }
  int losses() const { return losses_; }
  std::chrono::milliseconds longest() const { return longest_; }

 private:
  std::chrono::milliseconds longest_;
  int losses_ = 0;
  std::optional<Clock::time_point> until_;
};

}  // namespace sinew
