#pragma once

#include <chrono>

namespace sinew {

// How a rank looks for news before it sleeps in the kernel. A short spin hides the cost of a
// wake-up when every rank has a core; with fewer cores than ranks it would keep the awaited rank
// from running.
class Spin {
 public:
  // `ranks`: how many of the group may run on this host.
  explicit Spin(int ranks);

  // One turn of waiting. False once the spin has lasted long enough and the caller should sleep.
  bool turn(std::chrono::steady_clock::time_point now);
  // The next turn begins a new spin: something moved, or the caller has slept.
  void restart() { started_ = {}; }

 private:
  bool cores_suffice_;
  std::chrono::steady_clock::time_point started_{};
};

}  // namespace sinew
