#include "transport/spin.h"

#include <sched.h>

#include <thread>

namespace sinew {
namespace {

constexpr std::chrono::microseconds kSpinLength{50};
// With too few cores: a few turns of yielding, in case the awaited rank is ready to run.
constexpr std::chrono::microseconds kYieldLength{20};

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
  if (now - started_ >= (cores_suffice_ ? kSpinLength : kYieldLength)) return false;
  if (cores_suffice_) {
    pause_core();
  } else {
    sched_yield();
  }
  return true;
}

}  // namespace sinew
