#include "gguf/printable.h"

#include <fmt/format.h>

#include <iterator>

namespace sinew {

std::string printable(std::string_view text, std::size_t bytes_max) {
  std::size_t length = text.size();
  if (length > bytes_max) {
    length = bytes_max;
    // A cut inside a UTF-8 sequence would leave half a character: step back to its first byte.
    while (length > 0 && (static_cast<unsigned char>(text[length]) & 0xC0) == 0x80) --length;
  }
  std::string shown;
  shown.reserve(length + 2);
  for (const char letter : text.substr(0, length)) {
    const auto byte = static_cast<unsigned char>(letter);
    if (byte < 0x20 || byte == 0x7F) {
      fmt::format_to(std::back_inserter(shown), "\\x{:02x}", byte);
    } else {
      shown.push_back(letter);
    }
  }
  if (length < text.size()) shown += "..";
  return shown;
}

}  // namespace sinew
