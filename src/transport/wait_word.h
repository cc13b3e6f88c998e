#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace sinew {

// Sleeps in the kernel while `word`, which may lie in memory shared with other processes, still
// holds `seen`: until `wake`, for `longest` at most, or without cause. The caller looks again
// afterwards.
void sleep_on(std::atomic<std::uint32_t>& word, std::uint32_t seen,
              std::chrono::nanoseconds longest);

// Wakes all sleepers of `word`. The caller has changed it before.
void wake(std::atomic<std::uint32_t>& word);

}  // namespace sinew
