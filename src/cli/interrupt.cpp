#include "cli/interrupt.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>

namespace sinew {
namespace {

std::atomic<int> g_interrupts{0};
static_assert(std::atomic<int>::is_always_lock_free, "changed in a signal handler");

constexpr int kSignalStatus = 128;

void on_interrupt(int signal) {
  if (g_interrupts.fetch_add(1) >= 1) ::_exit(kSignalStatus + signal);
}

}  // namespace

void watch_interrupts() {
  struct sigaction action {};
  action.sa_handler = on_interrupt;
  sigemptyset(&action.sa_mask);
  // Without SA_RESTART, so that a read of the terminal ends as well.
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
}

int interrupts() {
  return g_interrupts;
}
void forget_interrupts() {
  g_interrupts = 0;
}

}  // namespace sinew
