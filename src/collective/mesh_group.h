#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>

#include "collective/collective_plan.h"
#include "collective/group.h"
#include "collective/link.h"
#include "collective/wire_type.h"

namespace sinew {

struct GroupOptions {
  // From the start of an operation to its error.
  std::chrono::milliseconds timeout{30000};
  // Given: all-reduces up to this many bytes are one-shot, whatever was measured. Same on all
  // ranks.
  std::optional<std::size_t> threshold_bytes;
  // How the values of all-reduces travel; same on all ranks. Every rank's vector is rounded to it,
  // its own too; the sum, in float32, is rounded again. So all algorithms and ranks hold the same
  // bits.
  WireType wire = WireType::kF32;
  // Checksums for payloads above kAlwaysChecksumBytes too. Same on all ranks.
  bool checksum_all = false;
  // The clock of deadlines and totals.
  Deadline (*now)() = &std::chrono::steady_clock::now;
};

// A group that chooses its algorithms by measurement: measures every link (about 100 ms), and
// agrees with the others on what follows. All ranks call it at the same time. `links` has an entry
// a rank, null for the own rank and for ranks that no link leads to; a group of one needs none.
// Every rank has links to the ranks next to it: a group that is not a mesh is cabled in the order
// of its ranks. Errors as of a Group's operations; kUnsupported for other cablings.
Result<std::unique_ptr<Group>> form_group(const GroupIdentity& identity, Links links,
                                          const GroupOptions& options);

// A group that measures nothing: every pair of ranks has a link, and without
// options.threshold_bytes all-reduces up to kAssumedOneShotMax are one-shot.
std::unique_ptr<Group> make_group(const GroupIdentity& identity, Links links,
                                  const GroupOptions& options);
// The same with a plan, which is the same on all ranks and has the links that there are.
std::unique_ptr<Group> make_group(const GroupIdentity& identity, Links links,
                                  const GroupOptions& options, const CollectivePlan& plan);

inline constexpr std::size_t kAssumedOneShotMax = 32u << 10;

}  // namespace sinew
