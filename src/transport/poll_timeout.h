#pragma once

#include <algorithm>
#include <chrono>

namespace sinew {

// Milliseconds for poll() until `end`: rounded up, so that the wait does not turn into a spin in
// its last millisecond; 0 once `end` has passed.
inline int poll_timeout(std::chrono::steady_clock::time_point end) {
  const auto left =
      std::chrono::ceil<std::chrono::milliseconds>(end - std::chrono::steady_clock::now());
  return static_cast<int>(std::clamp<std::chrono::milliseconds::rep>(left.count(), 0, 60000));
}

}  // namespace sinew
