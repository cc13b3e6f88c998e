#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "doctor/facts.h"

namespace sinew {

enum class CheckState : std::uint8_t { kOk, kWarn, kFail, kSkip };
std::string_view check_state_name(CheckState state);

// One thing that was looked at. `id` is stable: scripts rely on it.
struct Check {
  std::string id;
  CheckState state = CheckState::kOk;
  std::string reason;
  std::string remedy;  // one command or act that mends it; empty where nothing is to mend
};

// True unless a check failed.
bool healthy(const std::vector<Check>& checks);

// Pure: every check of one machine, in the order in which people read them.
std::vector<Check> judge_machine(const MachineFacts& facts);

// The Thunderbolt ports of a Mac and where their cables go, a line each; empty without ports.
std::string draw_cables(const MachineFacts& facts);

}  // namespace sinew
