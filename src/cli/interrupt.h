#pragma once

namespace sinew {

// Ctrl-C and SIGTERM as a count. The second one ends the process at once; its ranks end with it.
void watch_interrupts();
int interrupts();
void forget_interrupts();

}  // namespace sinew
