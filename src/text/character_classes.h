#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/code_point_set.h"

namespace sinew {

// Turns expressions over characters into expressions over bytes, and texts into the bytes that
// these look at: ASCII stays as it is, and all other characters that the expressions cannot tell
// apart become one byte of 0x80 onwards. So the expressions' Unicode is ours, they can name what
// PCRE2 cannot (a class without another), and a class costs one look into a bitmap.
//
// Threads: const calls may run at the same time.
class CharacterClasses {
 public:
  // The expressions are part of the program: a malformed one is an assertion. Outside of classes
  // they are ASCII; \s, \S, \p{..} (see code_points_with) and [..] are classes, and inside of
  // brackets there may be \x{..}, ranges, and at the end &&[..] for what both classes have.
  explicit CharacterClasses(std::span<const std::string_view> expressions);

  std::string to_bytes(std::string_view expression) const;

  // One byte a character. `text` is UTF-8 or what decode_loosely makes of it.
  void to_bytes(std::string_view text, std::string& bytes) const;

 private:
  using Bitmap = std::array<bool, 256>;
  Bitmap bytes_of(const CodePointSet& set) const;

  std::vector<std::uint8_t> byte_of_;      // by code point
  std::vector<char32_t> representatives_;  // of the bytes from 0x80
};

}  // namespace sinew
