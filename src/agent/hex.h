#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace sinew {

// Lower-case hexadecimal digits.
std::string to_hex(std::span<const std::uint8_t> bytes);
// Fills `bytes`; false if `text` is not exactly that many pairs of digits.
bool from_hex(std::string_view text, std::span<std::uint8_t> bytes);

}  // namespace sinew
