#pragma once

#include <string>
#include <vector>

#include "host/process.h"

namespace sinew {

// The program of one rank, `sinew rank`: started by a supervisor with the control socket as
// descriptor kRankControlDescriptor and, for shared-memory links, the segment as
// kRankSegmentDescriptor. Returns the exit status. Ends when the supervisor closes the socket or
// dies, whatever the rank is doing.
inline constexpr int kRankControlDescriptor = 3;
inline constexpr int kRankSegmentDescriptor = 4;
// `arguments`: nothing, or --inject and what to damage, once or more (engine/fault.h).
int rank_main(const std::vector<std::string>& arguments);

// The same for a process that a launcher started, once `control` connects it to rank 0's process.
// Does not return.
[[noreturn]] void serve_as_rank(Descriptor control);

}  // namespace sinew
