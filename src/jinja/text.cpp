#include "jinja/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/unicode.h"

namespace sinew::jinja {
namespace {

bool is_one_of(char32_t code_point, std::string_view characters) {
  for (std::size_t at = 0; at < characters.size();) {
    std::size_t length = 0;
    if (code_point_at(characters, at, length) == code_point) return true;
    at += length;
  }
  return false;
}

bool is_stripped(char32_t code_point, std::string_view characters) {
  return characters.empty() ? is_space(code_point) : is_one_of(code_point, characters);
}

// Of str.isprintable, what chats contain: controls, separators other than the space, format
// characters, private use, and noncharacters are escaped in repr().
bool is_printable(char32_t c) {
  if (c < 0x20 || (c >= 0x7F && c <= 0xA0) || c == 0xAD) return false;
  if (is_space(c)) return c == ' ';
  if (c >= 0x600 && c <= 0x605) return false;
  if (c == 0x61C || c == 0x6DD || c == 0x70F || c == 0x180E || c == 0xFEFF) return false;
  if ((c >= 0x200B && c <= 0x200F) || (c >= 0x202A && c <= 0x202E)) return false;
  if (c >= 0x2060 && c <= 0x206F) return false;
  if (c >= 0xE000 && c <= 0xF8FF) return false;
  if ((c >= 0xFDD0 && c <= 0xFDEF) || (c >= 0xFFF0 && c <= 0xFFFB)) return false;
  return (c & 0xFFFE) != 0xFFFE && c < 0xE0000;
}

}  // namespace

bool is_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 ||
         c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F ||
         c == 0x205F || c == 0x3000;
}

char32_t code_point_at(std::string_view text, std::size_t at, std::size_t& length) {
  const auto byte = [&](std::size_t i) {
    return static_cast<char32_t>(at + i < text.size() ? static_cast<unsigned char>(text[at + i])
                                                      : 0u);
  };
  const char32_t first = byte(0);
  if (first < 0x80) {
    length = 1;
    return first;
  }
  if (first < 0xE0) {
    length = 2;
    return ((first & 0x1F) << 6) | (byte(1) & 0x3F);
  }
  if (first < 0xF0) {
    length = 3;
    return ((first & 0x0F) << 12) | ((byte(1) & 0x3F) << 6) | (byte(2) & 0x3F);
  }
  length = 4;
  return ((first & 0x07) << 18) | ((byte(1) & 0x3F) << 12) | ((byte(2) & 0x3F) << 6) |
         (byte(3) & 0x3F);
}

std::size_t code_point_count(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  }));
}

std::vector<std::size_t> code_point_offsets(std::string_view text) {
  std::vector<std::size_t> offsets;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if ((static_cast<unsigned char>(text[i]) & 0xC0) != 0x80) offsets.push_back(i);
  }
  offsets.push_back(text.size());
  return offsets;
}

std::string_view strip_left(std::string_view text, std::string_view characters) {
  while (!text.empty()) {
    std::size_t length = 0;
    if (!is_stripped(code_point_at(text, 0, length), characters)) break;
    text.remove_prefix(length);
  }
  return text;
}

std::string_view strip_right(std::string_view text, std::string_view characters) {
  while (!text.empty()) {
    std::size_t at = text.size() - 1;
    while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) --at;
    std::size_t length = 0;
    if (!is_stripped(code_point_at(text, at, length), characters)) break;
    text = text.substr(0, at);
  }
  return text;
}

bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

std::string ascii_lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return out;
}

std::string ascii_upper(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
  }
  return out;
}

std::string python_repr(std::string_view text) {
  const bool double_quotes = text.find('\'') != text.npos && text.find('"') == text.npos;
  const char quote = double_quotes ? '"' : '\'';
  std::string out(1, quote);
  for (std::size_t at = 0; at < text.size();) {
    std::size_t length = 0;
    const char32_t c = code_point_at(text, at, length);
    const auto number = static_cast<std::uint32_t>(c);
    if (c == static_cast<char32_t>(quote) || c == '\\') {
      out += '\\';
      out += static_cast<char>(c);
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\r') {
      out += "\\r";
    } else if (c == '\t') {
      out += "\\t";
    } else if (is_printable(c)) {
      out += text.substr(at, length);
    } else if (number < 0x100) {
      out += fmt::format("\\x{:02x}", number);
    } else if (number < 0x10000) {
      out += fmt::format("\\u{:04x}", number);
    } else {
      out += fmt::format("\\U{:08x}", number);
    }
    at += length;
  }
  return out + quote;
}

std::string python_repr(double number) {
  if (std::isnan(number)) return "nan";
  if (std::isinf(number)) return number > 0 ? "inf" : "-inf";
  // The shortest digits that give the same number again; Python writes an exponent where that of
  // the first digit is below -4 or above 15.
  char buffer[40];
  const auto end =
      std::to_chars(buffer, buffer + sizeof(buffer), number, std::chars_format::scientific);
  std::string text(buffer, end.ptr);
  const std::size_t e = text.find('e');
  int exponent = 0;
  const char* digits = text.c_str() + e + 1;
  if (*digits == '+') ++digits;
  std::from_chars(digits, text.c_str() + text.size(), exponent);
  if (exponent < -4 || exponent > 15) return text;
  const auto plain =
      std::to_chars(buffer, buffer + sizeof(buffer), number, std::chars_format::fixed);
  text.assign(buffer, plain.ptr);
  if (text.find('.') == text.npos) text += ".0";
  return text;
}

std::string json_string(std::string_view text, bool ensure_ascii) {
  std::string out = "\"";
  const auto escape = [&out](std::uint32_t unit) { out += fmt::format("\\u{:04x}", unit); };
  for (std::size_t at = 0; at < text.size();) {
    std::size_t length = 0;
    const char32_t c = code_point_at(text, at, length);
    const auto number = static_cast<std::uint32_t>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += static_cast<char>(c);
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\r') {
      out += "\\r";
    } else if (c == '\t') {
      out += "\\t";
    } else if (c == '\b') {
      out += "\\b";
    } else if (c == '\f') {
      out += "\\f";
    } else if (number < 0x20) {
      escape(number);
    } else if (number < 0x7F || !ensure_ascii) {
      out += text.substr(at, length);
    } else if (number < 0x10000) {
      escape(number);
    } else {
      escape(0xD800 + ((number - 0x10000) >> 10));
      escape(0xDC00 + ((number - 0x10000) & 0x3FF));
    }
    at += length;
  }
  return out + '"';
}

}  // namespace sinew::jinja
