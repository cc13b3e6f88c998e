#pragma once

#include <functional>
#include <string>
#include <vector>

#include "collective/link.h"

namespace sinew {

// What one rank of a benchmark does with its links; its text is what it has to report.
using BenchRank = std::function<Result<std::string>(const GroupIdentity&, Links)>;

// Runs `body` as `ranks` forked processes that are joined by links of one kind ("shm", "tcp"), each
// kept to a core where there are enough. Returns what they report, by rank; the first error
// otherwise. No process is left: all are killed on an error, and when `longest` has passed.
//
// Called while this process has one thread.
Result<std::vector<std::string>> run_bench_ranks(const std::string& transport, int ranks,
                                                 std::chrono::seconds longest,
                                                 const BenchRank& body);

}  // namespace sinew
