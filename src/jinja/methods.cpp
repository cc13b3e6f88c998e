// Methods of texts, lists, dictionaries and loops, as Python and Jinja have them.
#include <fmt/format.h>

#include <algorithm>

#include "jinja/builtins.h"
#include "jinja/machine.h"
#include "jinja/text.h"

namespace sinew::jinja {
namespace {

tl::unexpected<Error> wrong(std::string_view message) {
  return fail(ErrorCode::kInvalidRequest, "{}", message);
}

Result<std::string_view> text_argument(const Value& value, std::string_view otherwise) {
  if (value.is_undefined() || value.is_none()) return otherwise;
  if (!value.is_text()) return type_error("stands where a text is needed", value);
  return std::string_view(value.text());
}

// --- texts ---

template <bool left, bool right>
Result<Value> strip(Machine& machine, const Arguments& given) {
  SINEW_ASSIGN(const auto args, bind(given, {"self", "chars"}, 1));
  SINEW_ASSIGN(const std::string_view characters, text_argument(args[1], ""));
  std::string_view text = args[0].text();
  if (args[1].is_text() && characters.empty()) return args[0];
  if (left) text = strip_left(text, characters);
  if (right) text = strip_right(text, characters);
  return machine.heap().text(std::string(text));
}

template <bool at_end>
Result<Value> affix(Machine&, const Arguments& given) {
  SINEW_ASSIGN(const auto args, bind(given, {"self", "affix"}, 2));
  const auto has = [&](const Value& part) -> Result<bool> {
    if (!part.is_text()) return type_error("stands where a text is needed", part);
    return at_end ? args[0].text().ends_with(part.text()) : args[0].text().starts_with(part.text());
  };
  if (!args[1].is<Tuple>()) {
    SINEW_ASSIGN(const bool found, has(args[1]));
    return Value{found};
  }
  for (const Value& part : args[1].items()->items) {
    SINEW_ASSIGN(const bool found, has(part));
    if (found) return Value{true};
  }
  return Value{false};
}

template <bool at_end>
Result<Value> remove_affix(Machine& machine, const Arguments& given) {
  SINEW_ASSIGN(const auto args, bind(given, {"self", "affix"}, 2));
  SINEW_ASSIGN(const std::string_view part, text_argument(args[1], ""));
  std::string_view text = args[0].text();
  if (at_end && text.ends_with(part)) text.remove_suffix(part.size());
  if (!at_end && text.starts_with(part)) text.remove_prefix(part.size());
  return machine.heap().text(std::string(text));
}

Status check_ascii(const Value& value) {
  if (is_ascii(value.text())) return {};
  return wrong("upper and lower case of text that is not ASCII are not supported");
}

Result<Value> upper(Machine& machine, const Arguments& given) {
  SINEW_ASSIGN(const auto args, bind(given, {"self"}, 1));
  SINEW_TRY(check_ascii(args[0]));
  return machine.heap().text(ascii_upper(args[0].text()));
}

Result<Value> lower(Machine& machine, const Arguments& given) {
  SINEW_ASSIGN(const auto args, bind(given, {"self"}, 1));
  SINEW_TRY(check_ascii(args[0]));
  return machine.heap().text(ascii_lower(args[0].text()));
}

Result<Value> capitalize(Machine& machine, const Arguments& given) {
  SINEW_ASSIGN(const auto args, bind(given, {"self"}, 1));
  SINEW_TRY(check_ascii(args[0]));
  const std::string_view text = args[0].text();
  return machine.heap().text(ascii_upper(text.substr(0, 1)) +
                             ascii_lower(text.substr(text.empty() ? 0 : 1)));
}

Result<Value> title(Machine& machine, const Arguments& given) {
  SINEW_ASSIGN(const auto args, bind(given, {"self"}, 1));
  SINEW_TRY(check_ascii(args[0]));
  std::string text = ascii_lower(args[0].text());
  bool starting = true;
  for (char& c : text) {
    const bool letter = c >= 'a' && c <= 'z';
    if (letter && starting) c = static_cast<char>(c - 'a' + 'A');
    starting = !letter;
  }
  return machine.heap().text(std::move(text));
}

template <bool from_right>
Result<Value> split(Machine& machine, const Arguments& given) {
  SINEW_ASSIGN(const auto args, bind(given, {"self", "sep", "maxsplit"}, 1));
  if (!args[2].is_undefined() && !args[2].is_integer()) return type_error("is no count", args[2]);
  std::int64_t left =
      args[2].is_integer() && args[2].integer() >= 0 ? args[2].integer() : INT64_MAX;
  std::vector<Value> parts;
  std::string_view text = args[0].text();
  const auto add = [&](std::string_view part) -> Status {
    SINEW_TRY(machine.spend(1));
    SINEW_ASSIGN(Value made, machine.heap().text(std::string(part)));
    parts.push_back(std::move(made));
    return {};
  };
  if (!args[1].is_text()) {
    // Without a separator: words, at any white space.
    if (from_right) return wrong("rsplit without a separator is not supported");
    for (text = strip_left(text); !text.empty(); text = strip_left(text)) {
      std::size_t end = 0;
      std::size_t length = 0;
      while (end < text.size() && !is_space(code_point_at(text, end, length))) end += length;
      if (left-- == 0) {
        SINEW_TRY(add(strip_right(text)));
        break;
      }
      SINEW_TRY(add(text.substr(0, end)));
      text.remove_prefix(end);
    }
    return machine.heap().list(std::move(parts));
  }
  const std::string_view separator = args[1].text();
  if (separator.empty()) return wrong("split at an empty separator");
  while (left-- > 0) {
    const std::size_t at = from_right ? text.rfind(separator) : text.find(separator);
    if (at == text.npos) break;
    if (from_right) {
      SINEW_TRY(add(text.substr(at + separator.size())));
      text = text.substr(0, at);
    } else {
      SINEW_TRY(add(text.substr(0, at)));
      text.remove_prefix(at + separator.size());
    }
  }
  SINEW_TRY(add(text));
  if (from_right) std::reverse(parts.begin(), parts.end());
  return machine.heap().list(std::move(parts));
}

Result<Value> split_lines(Machine& machine, const Arguments& given) {
  SINEW_ASSIGN(const auto args, bind(given, {"self"}, 1));
  std::vector<Value> lines;
  const std::string_view text = args[0].text();
  for (std::size_t at = 0; at < text.size();) {
    std::size_t end = at;
    std::size_t length = 0;
    const auto breaks = [](char32_t c) {
      return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 ||
             c == 0x2029;
    };
    while (end < text.size() && !breaks(code_point_at(text, end, length))) end += length;
    SINEW_ASSIGN(Value line, machine.heap().text(std::string(text.substr(at, end - at))));
    lines.push_back(std::move(line));
    if (text.substr(end).starts_with("\r\n")) length = 2;
    at = end + length;
  }
  return machine.heap().list(std::move(lines));
}

Result<Value> replace(Machine& machine, const Arguments& given) {
  SINEW_ASSIGN(const auto args, bind(given, {"self", "old", "new", "count"}, 3));
  SINEW_ASSIGN(const std::string_view old, text_argument(args[1], ""));
  SINEW_ASSIGN(const std::string_view fresh, text_argument(args[2], ""));
  std::int64_t left =
      args[3].is_integer() && args[3].integer() >= 0 ? args[3].integer() : INT64_MAX;
  const std::string_view text = args[0].text();
  if (old.empty()) return wrong("replacing an empty text is not supported");
  std::string out;
  std::size_t from = 0;
  while (left-- > 0) {
    const std::size_t at = text.find(old, from);
    if (at == text.npos) break;
    SINEW_TRY(machine.heap().charge(at - from + fresh.size()));
    out += text.substr(from, at - from);
    out += fresh;
    from = at + old.size();
  }
  out += text.substr(from);
  return machine.heap().text(std::move(out));
}

template <bool from_right>
Result<Value> find(Machine&, const Arguments& given) {
  SINEW_ASSIGN(const auto args, bind(given, {"self", "sub"}, 2));
  SINEW_ASSIGN(const std::string_view part, text_argument(args[1], ""));
  const std::string_view text = args[0].text();
  const std::size_t at = from_right ? text.rfind(part) : text.find(part);
  if (at == text.npos) return Value{std::int64_t{-1}};
  return Value{static_cast<std::int64_t>(code_point_count(text.substr(0, at)))};
}

Result<Value> count(Machine& machine, const Arguments& given) {
  SINEW_ASSIGN(const auto args, bind(given, {"self", "value"}, 2));
  std::int64_t found = 0;
  if (const List* list = args[0].items()) {
    for (const Value& item : list->items) found += equal(item, args[1]) ? 1 : 0;
    return Value{found};
  }
  SINEW_ASSIGN(const Value parts, split<false>(machine, {{args[0], args[1]}, {}}));
  return Value{static_cast<std::int64_t>(parts.items()->items.size()) - 1};
}

Result<Value> join(Machine& machine, const Arguments& given) {
  SINEW_ASSIGN(const auto args, bind(given, {"self", "items"}, 2));
  SINEW_ASSIGN(const auto items, iterate(machine.heap(), args[1]));
  std::string out;
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (!items[i].is_text()) return type_error("cannot be joined with texts", items[i]);
    SINEW_TRY(machine.heap().charge(args[0].text().size() + items[i].text().size()));
    if (i > 0) out += args[0].text();
    out += items[i].text();
  }
  return machine.heap().text(std::move(out));
}

// {}, {0} and {name}; no specifications of format.
Result<Value> format(Machine& machine, const Arguments& given) {
  const std::string_view text = given.positional[0].text();
  std::string out;
  std::size_t next = 1;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const std::string_view rest = text.substr(i);
    if (rest.starts_with("{{") || rest.starts_with("}}")) {
      out += text[i++];
      continue;
    }
    if (text[i] != '{') {
      if (text[i] == '}') return wrong("format() of a single '}'");
      out += text[i];
      continue;
    }
    const std::size_t end = text.find('}', i);
    if (end == text.npos) return wrong("format() of a '{' that is not closed");
    const std::string_view name = text.substr(i + 1, end - i - 1);
    const Value* value = nullptr;
    if (name.empty() || (name.size() == 1 && name[0] >= '0' && name[0] <= '9')) {
      const std::size_t index = name.empty() ? next++ : static_cast<std::size_t>(name[0] - '0') + 1;
      if (index < given.positional.size()) value = &given.positional[index];
    }
    for (const auto& [own, named] : given.named) {
      if (own == name) value = &named;
    }
    if (value == nullptr) {
      return wrong(fmt::format("format() has nothing for '{{{}}}', or it is not supported", name));
    }
    SINEW_ASSIGN(const std::string part, to_text(*value));
    SINEW_TRY(machine.heap().charge(part.size()));
    out += part;
    i = end;
  }
  return machine.heap().text(std::move(out));
}

template <bool (*belongs)(char)>
Result<Value> all_ascii(Machine&, const Arguments& given) {
  SINEW_ASSIGN(const auto args, bind(given, {"self"}, 1));
  SINEW_TRY(check_ascii(args[0]));
  const std::string& text = args[0].text();
  return Value{!text.empty() && std::all_of(text.begin(), text.end(), belongs)};
}
bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_alpha(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}
bool is_alnum(char c) {
  return is_digit(c) || is_alpha(c);
}

Result<Value> all_space(Machine&, const Arguments& given) {
  SINEW_ASSIGN(const auto args, bind(given, {"self"}, 1));
  return Value{!args[0].text().empty() && strip_left(args[0].text()).empty()};
}

// --- lists ---

Result<Value> append(Machine& machine, const Arguments& given) {
  SINEW_ASSIGN(const auto args, bind(given, {"self", "value"}, 2));
  SINEW_TRY(machine.heap().append(*args[0].items(), args[1]));
  return Value{None{}};
}

Result<Value> pop(Machine&, const Arguments& given) {
  SINEW_ASSIGN(const auto args, bind(given, {"self", "index"}, 1));
  std::vector<Value>& items = args[0].items()->items;
  const auto size = static_cast<std::int64_t>(items.size());
  if (!args[1].is_undefined() && !args[1].is_integer()) return type_error("is no index", args[1]);
  std::int64_t index = args[1].is_undefined() ? -1 : args[1].integer();
  if (index < 0) index += size;
  if (index < 0 || index >= size) return wrong("pop() of an item that the list does not have");
  Value value = items[static_cast<std::size_t>(index)];
  items.erase(items.begin() + index);
  return value;
}

// --- dictionaries ---

Result<Value> get(Machine&, const Arguments& given) {
  SINEW_ASSIGN(const auto args, bind(given, {"self", "key", "default"}, 2));
  const Value* found = args[0].dict()->find(args[1]);
  if (found != nullptr) return *found;
  return args[2].is_undefined() && given.positional.size() < 3 ? Value{None{}} : args[2];
}

enum class Part { kKeys, kValues, kItems };

template <Part part>
Result<Value> entries(Machine& machine, const Arguments& given) {
  SINEW_ASSIGN(const auto args, bind(given, {"self"}, 1));
  std::vector<Value> made;
  for (const auto& [key, value] : args[0].dict()->entries) {
    if (part == Part::kItems) {
      SINEW_ASSIGN(Value pair, machine.heap().tuple({key, value}));
      made.push_back(std::move(pair));
    } else {
      made.push_back(part == Part::kKeys ? key : value);
    }
  }
  return machine.heap().list(std::move(made));
}

// --- loops ---

Result<Value> cycle(Machine&, const Arguments& given) {
  const std::size_t count = given.positional.size() - 1;
  if (count == 0) return wrong("cycle() of nothing");
  return given.positional[1 + std::get<Loop*>(given.positional[0].data)->index % count];
}

struct Entry {
  std::string_view name;
  Builtin builtin;
};

constexpr Entry kTextMethods[] = {
    {"strip", strip<true, true>},
    {"lstrip", strip<true, false>},
    {"rstrip", strip<false, true>},
    {"startswith", affix<false>},
    {"endswith", affix<true>},
    {"removeprefix", remove_affix<false>},
    {"removesuffix", remove_affix<true>},
    {"upper", upper},
    {"lower", lower},
    {"capitalize", capitalize},
    {"title", title},
    {"split", split<false>},
    {"rsplit", split<true>},
    {"splitlines", split_lines},
    {"replace", replace},
    {"find", find<false>},
    {"rfind", find<true>},
    {"count", count},
    {"join", join},
    {"format", format},
    {"isdigit", all_ascii<is_digit>},
    {"isalpha", all_ascii<is_alpha>},
    {"isalnum", all_ascii<is_alnum>},
    {"isspace", all_space},
};
constexpr Entry kListMethods[] = {{"append", append}, {"pop", pop}, {"count", count}};
constexpr Entry kTupleMethods[] = {{"count", count}};
constexpr Entry kDictMethods[] = {{"get", get},
                                  {"keys", entries<Part::kKeys>},
                                  {"values", entries<Part::kValues>},
                                  {"items", entries<Part::kItems>}};
constexpr Entry kLoopMethods[] = {{"cycle", cycle}};

template <std::size_t size>
Builtin find_in(const Entry (&entries)[size], std::string_view name) {
  for (const Entry& entry : entries) {
    if (entry.name == name) return entry.builtin;
  }
  return nullptr;
}

}  // namespace

Builtin find_method(const Value& object, std::string_view name) {
  if (object.is_text()) return find_in(kTextMethods, name);
  if (object.is<List*>()) return find_in(kListMethods, name);
  if (object.is<Tuple>()) return find_in(kTupleMethods, name);
  if (object.dict() != nullptr) return find_in(kDictMethods, name);
  if (object.is<Loop*>()) return find_in(kLoopMethods, name);
  return nullptr;
}

}  // namespace sinew::jinja
