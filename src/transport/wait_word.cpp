#include "transport/wait_word.h"

#include <algorithm>
#include <climits>

#ifdef __linux__
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <ctime>
#else
#include <thread>
#endif

namespace sinew {

#ifdef __linux__

// The shared futex operations, not the _PRIVATE ones: the sleeper may be another process.
void sleep_on(std::atomic<std::uint32_t>& word, std::uint32_t seen,
              std::chrono::nanoseconds longest) {
  if (longest <= std::chrono::nanoseconds::zero()) return;
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(longest);
  timespec time{};
  time.tv_sec = seconds.count();
  time.tv_nsec = (longest - seconds).count();
  // Every outcome (woken, word changed, timed out, interrupted) means the same to the caller: look
  // again.
  syscall(SYS_futex, &word, FUTEX_WAIT, seen, &time, nullptr, 0);
}

void wake(std::atomic<std::uint32_t>& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

#else

// Without a documented wait across processes: naps that start short and double up to a millisecond.
void sleep_on(std::atomic<std::uint32_t>& word, std::uint32_t seen,
              std::chrono::nanoseconds longest) {
  const auto end = std::chrono::steady_clock::now() + longest;
  std::chrono::nanoseconds nap = std::chrono::microseconds{10};
  while (word.load() == seen && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(nap);
    nap = std::min<std::chrono::nanoseconds>(nap * 2, std::chrono::milliseconds{1});
  }
}

void wake(std::atomic<std::uint32_t>&) {}

#endif

}  // namespace sinew
