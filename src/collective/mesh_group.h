#pragma once

#include <chrono>
#include <cstddef>
#include <memory>

#include "collective/group.h"
#include "collective/link.h"

namespace sinew {

struct GroupOptions {
  // From the start of an operation to its error.
  std::chrono::milliseconds timeout{30000};
  // All-reduces up to this many bytes are one-shot: every rank sends its vector to every other, one
  // hop. Longer ones reduce-scatter and gather: two hops, but each byte travels 2 (p-1)/p times,
  // not p-1 times. Same on all ranks.
  std::size_t threshold_bytes = 32u << 10;
  // Checksums for payloads above kAlwaysChecksumBytes too. Same on all ranks.
  bool checksum_all = false;
  // The clock of deadlines and totals.
  Deadline (*now)() = &std::chrono::steady_clock::now;
};

// A group in which every rank has a link to every other. `links` has an entry a rank, null for the
// own rank; a group of one needs none.
std::unique_ptr<Group> make_group(const GroupIdentity& identity, Links links,
                                  const GroupOptions& options);

}  // namespace sinew
