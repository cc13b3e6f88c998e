#pragma once

namespace sinew {

// Prints one line with the broken condition and its place, then aborts: only for programmer errors.
[[noreturn]] void assertion_failed(const char* condition, const char* file, int line);

}  // namespace sinew

// Stays on in release builds. Never for anything that a file, a peer or a user can cause.
#define SINEW_ASSERT(condition) \
  ((condition) ? (void)0 : ::sinew::assertion_failed(#condition, __FILE__, __LINE__))

// For hot loops: only in builds with SINEW_DEBUG_ASSERTS.
#ifdef SINEW_DEBUG_ASSERTS
#define SINEW_DEBUG_ASSERT(condition) SINEW_ASSERT(condition)
#else
#define SINEW_DEBUG_ASSERT(condition) ((void)sizeof(condition))
#endif
