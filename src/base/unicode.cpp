#include "base/unicode.h"

#include <array>

#include "base/assert.h"

namespace sinew {
namespace {

constexpr char32_t kCodePointMax = 0x10FFFF;
constexpr char32_t kFirstStandIn = 0x100;  // of the bytes that have no printable character
constexpr int kStandInCount = 68;

std::uint8_t byte_at(std::string_view bytes, std::size_t i) {
  return static_cast<std::uint8_t>(bytes[i]);
}

bool is_continuation(std::uint8_t byte) {
  return (byte & 0xC0) == 0x80;
}

bool is_printable_latin(int byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

struct Alphabet {
  std::array<char32_t, 256> character{};
  std::array<std::uint8_t, kStandInCount> byte_of_stand_in{};
};

Alphabet make_alphabet() {
  Alphabet alphabet;
  int stand_in = 0;
  for (int byte = 0; byte < 256; ++byte) {
    const auto index = static_cast<std::size_t>(byte);
    if (is_printable_latin(byte)) {
      alphabet.character[index] = static_cast<char32_t>(byte);
      continue;
    }
    alphabet.character[index] = kFirstStandIn + static_cast<char32_t>(stand_in);
    alphabet.byte_of_stand_in[static_cast<std::size_t>(stand_in++)] =
        static_cast<std::uint8_t>(byte);
  }
  SINEW_ASSERT(stand_in == kStandInCount);
  return alphabet;
}

const Alphabet& alphabet() {
  static const Alphabet value = make_alphabet();
  return value;
}

// The allowed range of the second byte depends on the first (Unicode, table 3-7).
struct Lead {
  std::size_t length = 0;  // 0: cannot start a sequence
  std::uint8_t second_min = 0x80;
  std::uint8_t second_max = 0xBF;
};

Lead lead_of(std::uint8_t byte) {
  if (byte < 0x80) return {1};
  if (byte < 0xC2) return {0};
  if (byte < 0xE0) return {2};
  if (byte == 0xE0) return {3, 0xA0, 0xBF};
  if (byte == 0xED) return {3, 0x80, 0x9F};
  if (byte < 0xF0) return {3};
  if (byte == 0xF0) return {4, 0x90, 0xBF};
  if (byte < 0xF4) return {4};
  if (byte == 0xF4) return {4, 0x80, 0x8F};
  return {0};
}

// Length of the sequence by its first byte alone, 0 for a byte that cannot start one.
std::size_t loose_length(std::uint8_t byte) {
  if (byte < 0x80) return 1;
  if (byte < 0xC0) return 0;
  if (byte < 0xE0) return 2;
  if (byte < 0xF0) return 3;
  if (byte < 0xF8) return 4;
  return 0;
}

}  // namespace

Utf8Step utf8_step(std::string_view bytes) {
  SINEW_DEBUG_ASSERT(!bytes.empty());
  const Lead lead = lead_of(byte_at(bytes, 0));
  if (lead.length == 0) return {Utf8Step::Kind::kInvalid, 1};
  for (std::size_t i = 1; i < lead.length; ++i) {
    if (i == bytes.size()) return {Utf8Step::Kind::kIncomplete, i};
    const std::uint8_t byte = byte_at(bytes, i);
    const bool fits =
        i == 1 ? byte >= lead.second_min && byte <= lead.second_max : is_continuation(byte);
    if (!fits) return {Utf8Step::Kind::kInvalid, i};
  }
  return {Utf8Step::Kind::kValid, lead.length};
}

bool is_valid_utf8(std::string_view bytes) {
  std::size_t i = 0;
  while (i < bytes.size()) {
    if (byte_at(bytes, i) < 0x80) {
      ++i;
      continue;
    }
    const Utf8Step step = utf8_step(bytes.substr(i));
    if (step.kind != Utf8Step::Kind::kValid) return false;
    i += step.length;
  }
  return true;
}

void append_utf8(std::string& out, char32_t code_point) {
  SINEW_ASSERT(code_point <= kCodePointMax);
  const auto put = [&out](char32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (code_point < 0x80) {
    put(code_point);
    return;
  }
  if (code_point < 0x800) {
    put(0xC0 | (code_point >> 6));
  } else {
    if (code_point < 0x10000) {
      put(0xE0 | (code_point >> 12));
    } else {
      put(0xF0 | (code_point >> 18));
      put(0x80 | ((code_point >> 12) & 0x3F));
    }
    put(0x80 | ((code_point >> 6) & 0x3F));
  }
  put(0x80 | (code_point & 0x3F));
}

std::optional<char32_t> loose_code_point(std::string_view bytes, std::size_t& length) {
  length = loose_length(byte_at(bytes, 0));
  if (length == 0 || length > bytes.size()) return std::nullopt;
  if (length == 1) return static_cast<char32_t>(byte_at(bytes, 0));
  char32_t code_point = byte_at(bytes, 0) & (0x7Fu >> length);
  for (std::size_t i = 1; i < length; ++i) {
    if (!is_continuation(byte_at(bytes, i))) return std::nullopt;
    code_point = (code_point << 6) | (byte_at(bytes, i) & 0x3Fu);
  }
  if (code_point > kCodePointMax) return std::nullopt;
  return code_point;
}

std::string decode_loosely(std::string_view bytes) {
  std::string result;
  result.reserve(bytes.size());
  std::size_t i = 0;
  while (i < bytes.size()) {
    std::size_t length = 0;
    const std::optional<char32_t> code_point = loose_code_point(bytes.substr(i), length);
    if (!code_point) {
      result += kReplacement;
      ++i;
      continue;
    }
    append_utf8(result, *code_point);
    i += length;
  }
  return result;
}

std::optional<std::uint8_t> byte_of_bpe_character(char32_t code_point) {
  if (code_point < 0x100) {
    if (!is_printable_latin(static_cast<int>(code_point))) return std::nullopt;
    return static_cast<std::uint8_t>(code_point);
  }
  if (code_point >= kFirstStandIn + kStandInCount) return std::nullopt;
  return alphabet().byte_of_stand_in[code_point - kFirstStandIn];
}

std::optional<std::string> decode_bpe_text(std::string_view text) {
  std::string bytes;
  bytes.reserve(text.size());
  while (!text.empty()) {
    if (utf8_step(text).kind != Utf8Step::Kind::kValid) return std::nullopt;
    std::size_t length = 0;
    const std::optional<char32_t> code_point = loose_code_point(text, length);
    SINEW_ASSERT(code_point.has_value());
    const std::optional<std::uint8_t> byte = byte_of_bpe_character(*code_point);
    if (!byte) return std::nullopt;
    bytes.push_back(static_cast<char>(*byte));
    text.remove_prefix(length);
  }
  return bytes;
}

std::string encode_bpe_text(std::string_view bytes) {
  std::string text;
  text.reserve(bytes.size() * 2);
  for (const char c : bytes) append_utf8(text, alphabet().character[static_cast<std::uint8_t>(c)]);
  return text;
}

}  // namespace sinew
