#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace sinew::jinja {

// Strings as Python has them: sequences of code points, here kept as valid UTF-8.

// White space as str.isspace() and the \s of Python's re see it.
bool is_space(char32_t code_point);

// Code point at byte `at`, and its length in bytes. `text` is valid UTF-8 and `at` a boundary in
// it.
char32_t code_point_at(std::string_view text, std::size_t at, std::size_t& length);

std::size_t code_point_count(std::string_view text);

// Byte offset of every code point, and the size of the text after the last.
std::vector<std::size_t> code_point_offsets(std::string_view text);

// str.strip and its halves; an empty `characters` means white space.
std::string_view strip_left(std::string_view text, std::string_view characters = {});
std::string_view strip_right(std::string_view text, std::string_view characters = {});

bool is_ascii(std::string_view text);
std::string ascii_lower(std::string_view text);
std::string ascii_upper(std::string_view text);

// repr() of a string: quotes as Python chooses them, what cannot be printed escaped.
std::string python_repr(std::string_view text);
// repr() of a float, which is also its str() and its JSON.
std::string python_repr(double number);

// A JSON string with its quotes, as json.dumps writes it.
std::string json_string(std::string_view text, bool ensure_ascii);

}  // namespace sinew::jinja
