#include "transport/spin.h"

#include <sched.h>

#include <thread>

namespace sinew {
namespace {

// Where every rank has a core, the first turns keep it: a peer that is about to answer is met at
// once.
constexpr std::chrono::microseconds kPauseLength{5};
// The later turns offer the core to others. On an idle core that costs a microsecond; on a busy one
// the awaited rank may be the one that waits for this very core.
constexpr std::chrono::microseconds kSpinLength{60};

int usable_cores() {
#ifdef __linux__
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) == 0) return CPU_COUNT(&set);
#endif
  return static_cast<int>(std::thread::hardware_concurrency());
}

void pause_core() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb" ::: "memory");
#endif
}

}  // namespace

Spin::Spin(int ranks) : cores_suffice_(ranks <= usable_cores()) {}

bool Spin::turn(std::chrono::steady_clock::time_point now) {
  if (started_ == std::chrono::steady_clock::time_point{}) started_ = now;
  if (now - started_ >= kSpinLength) return false;
  if (cores_suffice_ && now - started_ < kPauseLength) {
    pause_core();
  } else {
    sched_yield();
  }
  return true;
}

}  // namespace sinew
