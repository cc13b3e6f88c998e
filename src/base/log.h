#pragma once

#include <spdlog/spdlog.h>

#include <string_view>

namespace sinew {

// Messages for people go to standard error through spdlog; standard output is the answer's alone.
// Call once at start. `name` is shown in front of every line: "sinew", "rank 2".
// `level` is a name of spdlog ("info", "debug", ..); unknown names mean "info".
void set_up_log(std::string_view name, std::string_view level);

}  // namespace sinew
