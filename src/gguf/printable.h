#pragma once

#include <string>
#include <string_view>

namespace sinew {

// Text of a file for a message: control bytes are escaped, so that a name in a file cannot steer
// the reader's terminal, and what is longer than `bytes_max` ends in "..".
std::string printable(std::string_view text, std::size_t bytes_max = 96);

}  // namespace sinew
