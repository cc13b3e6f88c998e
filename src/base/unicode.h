#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace sinew {

// U+FFFD in UTF-8: what stands for bytes that are no text.
inline constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

// One step through bytes that should be UTF-8.
struct Utf8Step {
  enum class Kind : std::uint8_t { kValid, kInvalid, kIncomplete };
  Kind kind = Kind::kInvalid;
  // kValid: of the sequence. kInvalid: of the maximal subpart to replace by one U+FFFD (Unicode,
  // section 3.9). kIncomplete: of what is left of the input, which may still become a sequence.
  std::size_t length = 0;
};
// `bytes` must not be empty.
Utf8Step utf8_step(std::string_view bytes);

bool is_valid_utf8(std::string_view bytes);

void append_utf8(std::string& out, char32_t code_point);

// The code point at the front of `bytes`, which must not be empty, and the length of its sequence;
// or nothing if the bytes there are no sequence even loosely (see decode_loosely).
std::optional<char32_t> loose_code_point(std::string_view bytes, std::size_t& length);

// Text as the reference tokenizer (llama.cpp) sees it, so that ids agree on every input: overlong
// forms and surrogates are decoded like any other sequence and written back canonically, every byte
// that does not belong to a sequence becomes U+FFFD.
std::string decode_loosely(std::string_view bytes);

// The byte that a character of the alphabet of byte-level BPE stands for: printable Latin-1
// characters stand for themselves, the 68 other bytes for U+0100 onwards, in order.
std::optional<std::uint8_t> byte_of_bpe_character(char32_t code_point);

// The bytes that a token's text in the file stands for; nothing if a character is not in the
// alphabet.
std::optional<std::string> decode_bpe_text(std::string_view text);

// The opposite: how a file spells these bytes.
std::string encode_bpe_text(std::string_view bytes);

}  // namespace sinew
