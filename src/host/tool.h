#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

#include "base/result.h"

namespace sinew {

struct ToolOutput {
  int exit_status = 0;  // 128 + signal where a signal ended it
  std::string out;      // standard output; standard error is dropped
};

// Runs a program of the system, found by PATH, with no input, and waits at most `limit`. kNotFound
// if there is none of that name; kDeadline after `limit`, when it and
// what it started have been asked to end, then killed; kIo if it says more than `bytes_max`.
Result<ToolOutput> run_tool(const std::vector<std::string>& command,
                            std::chrono::milliseconds limit, std::size_t bytes_max);

}  // namespace sinew
