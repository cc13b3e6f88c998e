// Filters, with the meaning that Jinja's documentation gives them.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "jinja/builtins.h"
#include "jinja/machine.h"
#include "jinja/text.h"

namespace sinew::jinja {
namespace {

tl::unexpected<Error> wrong(std::string_view message) {
  return fail(ErrorCode::kInvalidRequest, "{}", message);
}

Result<Value> to_json_filter(Machine& machine, const Arguments& given) {
  // As transformers defines it: no escaping for HTML, and every character as it is.
  SINEW_ASSIGN(const auto args,
               bind(given, {"value", "ensure_ascii", "indent", "separators", "sort_keys"}, 1));
  JsonStyle style;
  style.ensure_ascii = args[1].truth();
  style.sort_keys = args[4].truth();
  if (args[2].is_integer()) {
    style.indent = static_cast<int>(std::clamp<std::int64_t>(args[2].integer(), 0, 16));
    style.item_separator = ",";
  } else if (args[2].truth()) {
    return type_error("is no indentation", args[2]);
  }
  if (const List* separators = args[3].items()) {
    const auto& items = separators->items;
    if (items.size() != 2 || !items[0].is_text() || !items[1].is_text()) {
      return wrong("separators are two texts");
    }
    style.item_separator = items[0].text();
    style.key_separator = items[1].text();
  }
  SINEW_ASSIGN(std::string text, to_json(args[0], style));
  return machine.heap().text(std::move(text));
}

Result<Value> length(Machine&, const Arguments& given) {
  SINEW_ASSIGN(const auto args, bind(given, {"value"}, 1));
  const Value& value = args[0];
  std::size_t size = 0;
  if (value.is_text()) {
    size = code_point_count(value.text());
  } else if (const List* list = value.items()) {
    size = list->items.size();
  } else if (const Dict* dict = value.dict()) {
    size = dict->entries.size();
  } else if (!value.is_undefined()) {
    return type_error("has no length", value);
  }
  return Value{static_cast<std::int64_t>(size)};
}

Result<Value> trim(Machine& machine, const Arguments& given) {
  SINEW_ASSIGN(const auto args, bind(given, {"value", "chars"}, 1));
  SINEW_ASSIGN(const std::string text, to_text(args[0]));
  const std::string_view characters = args[1].is_text() ? args[1].text() : std::string_view();
  return machine.heap().text(std::string(strip_left(strip_right(text, characters), characters)));
}

Result<Value> string(Machine& machine, const Arguments& given) {
  SINEW_ASSIGN(const auto args, bind(given, {"value"}, 1));
  if (args[0].is_text()) return args[0];
  SINEW_ASSIGN(std::string text, to_text(args[0]));
  return machine.heap().text(std::move(text));
}

Result<Value> default_filter(Machine& machine, const Arguments& given) {
  SINEW_ASSIGN(const auto args, bind(given, {"value", "default_value", "boolean"}, 1));
  if (!args[0].is_undefined() && (args[0].truth() || !args[2].truth())) return args[0];
  return args[1].is_undefined() ? machine.heap().text("") : Result<Value>(args[1]);
}

// One of the methods of texts, on whatever the value prints as.
template <const char* name>
Result<Value> text_method(Machine& machine, const Arguments& given) {
  SINEW_ASSIGN(const Value text, string(machine, {{given.positional[0]}, {}}));
  Arguments with_text = given;
  with_text.positional[0] = text;
  return find_method(text, name)(machine, with_text);
}
constexpr char kUpper[] = "upper";
constexpr char kLower[] = "lower";
constexpr char kTitle[] = "title";
constexpr char kCapitalize[] = "capitalize";
constexpr char kReplace[] = "replace";

// The attribute "a.0.b" of a value; undefined where it has none.
Result<Value> attribute(Machine& machine, Value value, std::string_view path) {
  while (true) {
    const std::string_view part = path.substr(0, path.find('.'));
    Value name{std::make_shared<const std::string>(part)};
    std::int64_t index = 0;
    const auto read = std::from_chars(part.data(), part.data() + part.size(), index);
    if (read.ec == std::errc() && read.ptr == part.data() + part.size()) name = Value{index};
    SINEW_TRY(machine.spend(1));
    SINEW_ASSIGN(value, machine.member(value, name, false));
    if (part.size() == path.size()) return value;
    path.remove_prefix(part.size() + 1);
  }
}

Result<Value> attribute_or_self(Machine& machine, const Value& value, const Value& path) {
  if (path.is_text()) return attribute(machine, value, path.text());
  if (path.is_integer()) return machine.member(value, path, false);
  return value;
}

Result<Value> join(Machine& machine, const Arguments& given) {
  SINEW_ASSIGN(const auto args, bind(given, {"value", "d", "attribute"}, 1));
  SINEW_ASSIGN(const auto items, iterate(machine.heap(), args[0]));
  SINEW_ASSIGN(const std::string separator, to_text(args[1]));
  std::string out;
  for (std::size_t i = 0; i < items.size(); ++i) {
    SINEW_ASSIGN(const Value item, attribute_or_self(machine, items[i], args[2]));
    SINEW_ASSIGN(const std::string text, to_text(item));
    SINEW_TRY(machine.heap().charge(text.size() + separator.size()));
    if (i > 0) out += separator;
    out += text;
  }
  return machine.heap().text(std::move(out));
}

Result<Value> pairs(Machine& machine, const Dict& dict) {
  std::vector<Value> items;
  for (const auto& [key, value] : dict.entries) {
    SINEW_ASSIGN(Value pair, machine.heap().tuple({key, value}));
    items.push_back(std::move(pair));
  }
  return machine.heap().list(std::move(items));
}

Result<Value> items(Machine& machine, const Arguments& given) {
  SINEW_ASSIGN(const auto args, bind(given, {"value"}, 1));
  if (args[0].is_undefined()) return machine.heap().list({});
  if (args[0].dict() == nullptr) return type_error("has no items", args[0]);
  return pairs(machine, *args[0].dict());
}

// A key for sorting: without regard to case, unless asked for.
Result<Value> sort_key(const Value& value, bool case_sensitive) {
  if (case_sensitive || !value.is_text()) return value;
  if (!is_ascii(value.text())) return wrong("only ASCII text is sorted without regard to case");
  return Value{std::make_shared<const std::string>(ascii_lower(value.text()))};
}

Result<std::vector<Value>> sorted(Machine& machine, std::vector<Value> values,
                                  const std::vector<Value>& keys, bool reverse) {
  std::vector<std::size_t> order(values.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  SINEW_TRY(machine.spend(8 * values.size()));
  Status status;
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    const auto is_less = reverse ? less(keys[b], keys[a]) : less(keys[a], keys[b]);
    if (!is_less && status) status = fail(is_less.error());
    return is_less.value_or(false);
  });
  SINEW_TRY(status);
  std::vector<Value> out;
  for (const std::size_t i : order) out.push_back(values[i]);
  return out;
}

Result<Value> dict_sort(Machine& machine, const Arguments& given) {
  SINEW_ASSIGN(const auto args, bind(given, {"value", "case_sensitive", "by", "reverse"}, 1));
  if (args[0].dict() == nullptr) return type_error("has no items", args[0]);
  const bool by_value = args[2].is_text() && args[2].text() == "value";
  std::vector<Value> keys;
  for (const auto& [key, value] : args[0].dict()->entries) {
    SINEW_ASSIGN(Value sortable, sort_key(by_value ? value : key, args[1].truth()));
    keys.push_back(std::move(sortable));
  }
  SINEW_ASSIGN(const Value all, pairs(machine, *args[0].dict()));
  SINEW_ASSIGN(auto out, sorted(machine, all.items()->items, keys, args[3].truth()));
  return machine.heap().list(std::move(out));
}

Result<Value> sort(Machine& machine, const Arguments& given) {
  SINEW_ASSIGN(const auto args,
               bind(given, {"value", "reverse", "case_sensitive", "attribute"}, 1));
  SINEW_ASSIGN(const auto values, iterate(machine.heap(), args[0]));
  std::vector<Value> keys;
  for (const Value& value : values) {
    SINEW_ASSIGN(const Value part, attribute_or_self(machine, value, args[3]));
    SINEW_ASSIGN(Value key, sort_key(part, args[2].truth()));
    keys.push_back(std::move(key));
  }
  SINEW_ASSIGN(auto out, sorted(machine, values, keys, args[1].truth()));
  return machine.heap().list(std::move(out));
}

Result<Value> unique(Machine& machine, const Arguments& given) {
  SINEW_ASSIGN(const auto args, bind(given, {"value", "case_sensitive", "attribute"}, 1));
  SINEW_ASSIGN(const auto values, iterate(machine.heap(), args[0]));
  std::vector<Value> seen;
  std::vector<Value> out;
  for (const Value& value : values) {
    SINEW_ASSIGN(const Value part, attribute_or_self(machine, value, args[2]));
    SINEW_ASSIGN(Value key, sort_key(part, args[1].truth()));
    SINEW_TRY(machine.spend(1 + seen.size()));
    if (std::any_of(seen.begin(), seen.end(), [&](const Value& old) { return equal(old, key); })) {
      continue;
    }
    seen.push_back(std::move(key));
    out.push_back(value);
  }
  return machine.heap().list(std::move(out));
}

Result<Value> list(Machine& machine, const Arguments& given) {
  SINEW_ASSIGN(const auto args, bind(given, {"value"}, 1));
  SINEW_ASSIGN(auto values, iterate(machine.heap(), args[0]));
  return machine.heap().list(std::move(values));
}

Result<Value> reverse(Machine& machine, const Arguments& given) {
  SINEW_ASSIGN(const auto args, bind(given, {"value"}, 1));
  SINEW_ASSIGN(auto values, iterate(machine.heap(), args[0]));
  std::reverse(values.begin(), values.end());
  if (!args[0].is_text()) return machine.heap().list(std::move(values));
  std::string text;
  for (const Value& value : values) text += value.text();
  return machine.heap().text(std::move(text));
}

Result<Value> first(Machine& machine, const Arguments& given) {
  SINEW_ASSIGN(const auto args, bind(given, {"value"}, 1));
  SINEW_ASSIGN(const auto values, iterate(machine.heap(), args[0]));
  return values.empty() ? Value{} : values.front();
}

Result<Value> last(Machine& machine, const Arguments& given) {
  SINEW_ASSIGN(const auto args, bind(given, {"value"}, 1));
  SINEW_ASSIGN(const auto values, iterate(machine.heap(), args[0]));
  return values.empty() ? Value{} : values.back();
}

// The test that given.positional[from] names, on `value`; whether it is true where none is named.
Result<bool> passes(Machine& machine, const Arguments& given, std::size_t from,
                    const Value& value) {
  if (given.positional.size() <= from) return value.truth();
  const Value& name = given.positional[from];
  const Builtin test = name.is_text() ? find_test(name.text()) : nullptr;
  if (test == nullptr) return wrong("a test that is not supported");
  Arguments arguments;
  arguments.positional.push_back(value);
  arguments.positional.insert(arguments.positional.end(),
                              given.positional.begin() + static_cast<std::ptrdiff_t>(from) + 1,
                              given.positional.end());
  arguments.named = given.named;
  SINEW_ASSIGN(const Value passed, test(machine, arguments));
  return passed.truth();
}

template <bool by_attribute, bool wanted>
Result<Value> select(Machine& machine, const Arguments& given) {
  SINEW_ASSIGN(const auto values, iterate(machine.heap(), given.positional[0]));
  if (by_attribute && given.positional.size() < 2) return wrong("the attribute is missing");
  std::vector<Value> out;
  for (const Value& value : values) {
    SINEW_TRY(machine.spend(1));
    Value judged = value;
    if (by_attribute) {
      SINEW_ASSIGN(judged, attribute_or_self(machine, value, given.positional[1]));
    }
    SINEW_ASSIGN(const bool passed, passes(machine, given, by_attribute ? 2 : 1, judged));
    if (passed == wanted) out.push_back(value);
  }
  return machine.heap().list(std::move(out));
}

Result<Value> map(Machine& machine, const Arguments& given) {
  SINEW_ASSIGN(const auto values, iterate(machine.heap(), given.positional[0]));
  std::vector<Value> out;
  if (given.positional.size() == 1) {
    SINEW_ASSIGN(const auto args, bind(given, {"value", "attribute", "default"}, 2));
    for (const Value& value : values) {
      SINEW_ASSIGN(Value part, attribute_or_self(machine, value, args[1]));
      out.push_back(std::move(part));
      if (out.back().is_undefined()) out.back() = args[2];
    }
    return machine.heap().list(std::move(out));
  }
  const Value& name = given.positional[1];
  const Builtin filter = name.is_text() ? find_filter(name.text()) : nullptr;
  if (filter == nullptr) return wrong("a filter that is not supported");
  Arguments arguments;
  arguments.positional.assign(given.positional.begin() + 1, given.positional.end());
  arguments.named = given.named;
  for (const Value& value : values) {
    arguments.positional[0] = value;
    SINEW_TRY(machine.spend(1));
    SINEW_ASSIGN(Value made, filter(machine, arguments));
    out.push_back(std::move(made));
  }
  return machine.heap().list(std::move(out));
}

// Indents all lines but the first, and but empty ones, unless asked for.
Result<Value> indent(Machine& machine, const Arguments& given) {
  SINEW_ASSIGN(const auto args, bind(given, {"s", "width", "first", "blank"}, 1));
  std::string margin(4, ' ');
  if (args[1].is_text()) margin = args[1].text();
  if (args[1].is_integer()) {
    margin.assign(static_cast<std::size_t>(std::clamp<std::int64_t>(args[1].integer(), 0, 256)),
                  ' ');
  }
  SINEW_ASSIGN(const std::string text, to_text(args[0]));
  std::string out;
  bool is_first = true;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = std::string_view(text).substr(at, end - at);
    SINEW_TRY(machine.heap().charge(margin.size() + line.size()));
    if (!is_first) out += '\n';
    const bool wanted = is_first ? args[2].truth() : args[3].truth() || !line.empty();
    if (wanted) out += margin;
    out += line;
    is_first = false;
    at = end + 1;
  }
  return machine.heap().text(std::move(out));
}

Result<Value> to_integer(Machine&, const Arguments& given) {
  SINEW_ASSIGN(const auto args, bind(given, {"value", "default"}, 1));
  const Value otherwise = args[1].is_undefined() ? Value{std::int64_t{0}} : args[1];
  if (args[0].is_integer()) return Value{args[0].integer()};
  if (args[0].is<double>()) {
    const double number = std::trunc(args[0].number());
    // Of the doubles that fit, the largest is below 2^63.
    if (!(std::abs(number) < 9.2e18)) return otherwise;
    return Value{static_cast<std::int64_t>(number)};
  }
  if (!args[0].is_text()) return otherwise;
  const std::string_view text = strip_left(strip_right(args[0].text()));
  double number = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), number);
  if (read.ec != std::errc() || read.ptr != text.data() + text.size() ||
      !(std::abs(number) < 9.2e18)) {
    return otherwise;
  }
  std::int64_t integer = 0;
  const auto whole = std::from_chars(text.data(), text.data() + text.size(), integer);
  if (whole.ec == std::errc() && whole.ptr == text.data() + text.size()) return Value{integer};
  return Value{static_cast<std::int64_t>(number)};
}

Result<Value> to_float(Machine&, const Arguments& given) {
  SINEW_ASSIGN(const auto args, bind(given, {"value", "default"}, 1));
  if (args[0].is_number()) return Value{args[0].number()};
  const Value otherwise = args[1].is_undefined() ? Value{0.0} : args[1];
  if (!args[0].is_text()) return otherwise;
  const std::string_view text = strip_left(strip_right(args[0].text()));
  double number = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool whole = read.ec == std::errc() && read.ptr == text.data() + text.size();
  return whole ? Value{number} : otherwise;
}

Result<Value> absolute(Machine& machine, const Arguments& given) {
  SINEW_ASSIGN(const auto args, bind(given, {"value"}, 1));
  if (!args[0].is_number()) return type_error("has no absolute value", args[0]);
  if (args[0].number() >= 0) return args[0];
  return apply(machine.heap(), Operator::kSubtract, Value{std::int64_t{0}}, args[0]);
}

Result<Value> escape(Machine& machine, const Arguments& given) {
  SINEW_ASSIGN(const auto args, bind(given, {"value"}, 1));
  SINEW_ASSIGN(const std::string text, to_text(args[0]));
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '\'':
        out += "&#39;";
        break;
      case '"':
        out += "&#34;";
        break;
      default:
        out += c;
    }
  }
  return machine.heap().text(std::move(out));
}

Result<Value> sum(Machine& machine, const Arguments& given) {
  SINEW_ASSIGN(const auto args, bind(given, {"value", "attribute", "start"}, 1));
  SINEW_ASSIGN(const auto values, iterate(machine.heap(), args[0]));
  Value total = args[2].is_undefined() ? Value{std::int64_t{0}} : args[2];
  for (const Value& value : values) {
    SINEW_ASSIGN(const Value part, attribute_or_self(machine, value, args[1]));
    SINEW_ASSIGN(total, apply(machine.heap(), Operator::kAdd, total, part));
  }
  return total;
}

template <bool largest>
Result<Value> extreme(Machine& machine, const Arguments& given) {
  SINEW_ASSIGN(const auto args, bind(given, {"value", "case_sensitive", "attribute"}, 1));
  SINEW_ASSIGN(const auto values, iterate(machine.heap(), args[0]));
  Value best;
  Value best_key;
  for (const Value& value : values) {
    SINEW_ASSIGN(const Value part, attribute_or_self(machine, value, args[2]));
    SINEW_ASSIGN(Value key, sort_key(part, args[1].truth()));
    bool better = best.is_undefined();
    if (!better) {
      SINEW_ASSIGN(better, largest ? less(best_key, key) : less(key, best_key));
    }
    if (!better) continue;
    best = value;
    best_key = std::move(key);
  }
  return best;
}

// Not of Jinja: templates that come with llama.cpp use it for arguments that are JSON texts.
Result<Value> from_json(Machine& machine, const Arguments& given) {
  SINEW_ASSIGN(const auto args, bind(given, {"value"}, 1));
  if (!args[0].is_text()) return type_error("is no JSON text", args[0]);
  return machine.heap().from_json_text(args[0].text());
}

struct Entry {
  std::string_view name;
  Builtin builtin;
};

constexpr Entry kFilters[] = {
    {"tojson", to_json_filter},
    {"length", length},
    {"count", length},
    {"trim", trim},
    {"string", string},
    // Text is never escaped by itself here, so there is nothing to mark.
    {"safe", string},
    {"default", default_filter},
    {"d", default_filter},
    {"upper", text_method<kUpper>},
    {"lower", text_method<kLower>},
    {"title", text_method<kTitle>},
    {"capitalize", text_method<kCapitalize>},
    {"replace", text_method<kReplace>},
    {"join", join},
    {"items", items},
    {"dictsort", dict_sort},
    {"sort", sort},
    {"unique", unique},
    {"list", list},
    {"reverse", reverse},
    {"first", first},
    {"last", last},
    {"select", select<false, true>},
    {"reject", select<false, false>},
    {"selectattr", select<true, true>},
    {"rejectattr", select<true, false>},
    {"map", map},
    {"indent", indent},
    {"int", to_integer},
    {"float", to_float},
    {"abs", absolute},
    {"escape", escape},
    {"e", escape},
    {"sum", sum},
    {"min", extreme<false>},
    {"max", extreme<true>},
    {"from_json", from_json},
};

}  // namespace

Builtin find_filter(std::string_view name) {
  for (const Entry& entry : kFilters) {
    if (entry.name == name) return entry.builtin;
  }
  return nullptr;
}

tl::unexpected<Error> type_error(std::string_view what, const Value& value) {
  return fail(ErrorCode::kInvalidRequest, "{} {}", value.type_name(), what);
}

Result<std::vector<Value>> bind(const Arguments& given,
                                std::initializer_list<std::string_view> names,
                                std::size_t required) {
  if (given.positional.size() > names.size()) {
    return fail(ErrorCode::kInvalidRequest, "{} arguments where at most {} are taken",
                given.positional.size(), names.size());
  }
  std::vector<Value> values = given.positional;
  std::vector<bool> set(names.size(), false);
  std::fill_n(set.begin(), values.size(), true);
  values.resize(names.size());
  for (const auto& [name, value] : given.named) {
    const auto at = std::find(names.begin(), names.end(), name);
    const auto index = static_cast<std::size_t>(at - names.begin());
    if (at == names.end() || set[index]) {
      return fail(ErrorCode::kInvalidRequest, "the argument '{}' is not taken here", name);
    }
    values[index] = value;
    set[index] = true;
  }
  for (std::size_t i = 0; i < required; ++i) {
    if (!set[i]) {
      return fail(ErrorCode::kInvalidRequest, "the argument '{}' is missing", names.begin()[i]);
    }
  }
  return values;
}

}  // namespace sinew::jinja
