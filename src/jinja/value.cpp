#include "jinja/value.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/limits.h"
#include "base/unicode.h"
#include "jinja/text.h"

namespace sinew::jinja {
namespace {

constexpr int kDepthMax = 64;  // of values inside values, where they are compared or printed
constexpr int kEqualPartsMax = 1'000'000;

tl::unexpected<Error> wrong(std::string_view what, const Value& value) {
  return fail(ErrorCode::kInvalidRequest, "{} {}", value.type_name(), what);
}

bool numbers_equal(const Value& left, const Value& right) {
  if (left.is_integer() && right.is_integer()) return left.integer() == right.integer();
  return left.number() == right.number();
}

Result<bool> lists_less(const List& left, const List& right) {
  const std::size_t shared = std::min(left.items.size(), right.items.size());
  for (std::size_t i = 0; i < shared; ++i) {
    if (!equal(left.items[i], right.items[i])) return less(left.items[i], right.items[i]);
  }
  return left.items.size() < right.items.size();
}

}  // namespace

std::int64_t Value::integer() const {
  if (const bool* value = std::get_if<bool>(&data)) return *value ? 1 : 0;
  return std::get<std::int64_t>(data);
}

double Value::number() const {
  return is<double>() ? std::get<double>(data) : static_cast<double>(integer());
}

List* Value::items() const {
  if (const auto* list = std::get_if<List*>(&data)) return *list;
  if (const auto* tuple = std::get_if<Tuple>(&data)) return tuple->list;
  return nullptr;
}

bool Value::truth() const {
  if (is_undefined() || is_none()) return false;
  if (is_number()) return number() != 0;
  if (is_text()) return !text().empty();
  if (const List* list = items()) return !list->items.empty();
  if (const Dict* entries = dict()) return !entries->entries.empty();
  return true;
}

std::string_view Value::type_name() const {
  static constexpr std::string_view kNames[] = {"an undefined value",
                                                "None",
                                                "a bool",
                                                "an int",
                                                "a float",
                                                "a str",
                                                "a list",
                                                "a tuple",
                                                "a dict",
                                                "a namespace",
                                                "a loop",
                                                "a function"};
  return kNames[data.index()];
}

const Value* Dict::find(const Value& key) const {
  const auto at = std::find_if(entries.begin(), entries.end(),
                               [&](const auto& entry) { return equal(entry.first, key); });
  return at == entries.end() ? nullptr : &at->second;
}

const Value* Dict::find(std::string_view key) const {
  const auto at = std::find_if(entries.begin(), entries.end(), [&](const auto& entry) {
    return entry.first.is_text() && entry.first.text() == key;
  });
  return at == entries.end() ? nullptr : &at->second;
}

void Dict::set(const Value& key, Value value) {
  for (auto& entry : entries) {
    if (equal(entry.first, key)) {
      entry.second = std::move(value);
      return;
    }
  }
  entries.emplace_back(key, std::move(value));
}

const Value* Scope::find(std::string_view name) const {
  for (const Scope* scope = this; scope != nullptr; scope = scope->parent) {
    for (const auto& [own, value] : scope->variables) {
      if (own == name) return &value;
    }
  }
  return nullptr;
}

void Scope::set(std::string_view name, Value value) {
  for (auto& [own, old] : variables) {
    if (own == name) {
      old = std::move(value);
      return;
    }
  }
  variables.emplace_back(name, std::move(value));
}

Status Heap::charge(std::size_t bytes) {
  if (bytes > bytes_left_) {
    return fail(ErrorCode::kInvalidRequest, "the template uses too much memory");
  }
  bytes_left_ -= bytes;
  return {};
}

Result<Value> Heap::text(std::string text) {
  SINEW_TRY(charge(text.size() + sizeof(std::string)));
  return Value{std::make_shared<const std::string>(std::move(text))};
}

Result<Value> Heap::list(std::vector<Value> items) {
  SINEW_TRY(charge(sizeof(List) + items.size() * sizeof(Value)));
  return Value{&lists_.emplace_back(List{std::move(items)})};
}

Result<Value> Heap::tuple(std::vector<Value> items) {
  SINEW_TRY(charge(sizeof(List) + items.size() * sizeof(Value)));
  return Value{Tuple{&lists_.emplace_back(List{std::move(items)})}};
}

Result<Dict*> Heap::dict() {
  SINEW_TRY(charge(sizeof(Dict)));
  return &dicts_.emplace_back();
}

Result<Value> Heap::function(Function function) {
  SINEW_TRY(charge(sizeof(Function)));
  return Value{&functions_.emplace_back(std::move(function))};
}

Result<Scope*> Heap::scope(Scope* parent) {
  SINEW_TRY(charge(sizeof(Scope) + 4 * sizeof(Value)));
  return &scopes_.emplace_back(Scope{parent, {}});
}

Result<Loop*> Heap::loop(std::vector<Value> items) {
  SINEW_TRY(charge(sizeof(Loop)));
  return &loops_.emplace_back(Loop{std::move(items)});
}

Status Heap::append(List& list, Value value) {
  SINEW_TRY(charge(2 * sizeof(Value)));
  list.items.push_back(std::move(value));
  return {};
}

Status Heap::set(Dict& dict, const Value& key, Value value) {
  if (key.items() != nullptr || key.dict() != nullptr) return wrong("cannot be a key", key);
  SINEW_TRY(charge(4 * sizeof(Value)));
  dict.set(key, std::move(value));
  return {};
}

Result<Value> Heap::from_json(const nlohmann::ordered_json& json) {
  using Type = nlohmann::ordered_json::value_t;
  switch (json.type()) {
    case Type::null:
      return Value{None{}};
    case Type::boolean:
      return Value{json.get<bool>()};
    case Type::number_integer:
      return Value{json.get<std::int64_t>()};
    case Type::number_float:
      return Value{json.get<double>()};
    case Type::number_unsigned:
      if (json.get<std::uint64_t>() > static_cast<std::uint64_t>(INT64_MAX)) {
        return fail(ErrorCode::kInvalidRequest, "the integer {} is too large", json.dump());
      }
      return Value{json.get<std::int64_t>()};
    case Type::string: {
      const auto& bytes = json.get_ref<const std::string&>();
      if (!is_valid_utf8(bytes)) {
        return fail(ErrorCode::kInvalidRequest, "the conversation has text that is not UTF-8");
      }
      return text(bytes);
    }
    case Type::array: {
      std::vector<Value> items;
      items.reserve(json.size());
      for (const auto& item : json) {
        SINEW_ASSIGN(Value value, from_json(item));
        items.push_back(std::move(value));
      }
      return list(std::move(items));
    }
    case Type::object: {
      SINEW_ASSIGN(Dict * made, dict());
      for (const auto& [name, item] : json.items()) {
        SINEW_ASSIGN(const Value key, from_json(name));
        SINEW_ASSIGN(Value value, from_json(item));
        // Names of a JSON object are unique already.
        SINEW_TRY(charge(4 * sizeof(Value)));
        made->entries.emplace_back(key, std::move(value));
      }
      return Value{made};
    }
    case Type::binary:
    case Type::discarded:
      break;
  }
  return fail(ErrorCode::kInvalidRequest, "the conversation has a value that is no JSON");
}

Result<Value> Heap::from_json_text(std::string_view text) {
  using Json = nlohmann::ordered_json;
  SINEW_TRY(charge(text.size() * sizeof(Value)));
  bool too_deep = false;
  const auto check = [&](int depth, Json::parse_event_t, Json&) {
    too_deep = too_deep || depth > kDepthMax;
    return !too_deep;
  };
  const Json json = Json::parse(text, check, /*allow_exceptions=*/false);
  if (too_deep || json.is_discarded()) {
    return fail(ErrorCode::kInvalidRequest, "a text that should be JSON is not, or is too deep");
  }
  return from_json(json);
}

Result<std::vector<Value>> iterate(Heap& heap, const Value& value) {
  std::vector<Value> items;
  if (value.is_undefined()) return items;
  if (const List* list = value.items()) {
    SINEW_TRY(heap.charge(list->items.size() * sizeof(Value)));
    return list->items;
  }
  if (const Dict* dict = value.dict()) {
    SINEW_TRY(heap.charge(dict->entries.size() * sizeof(Value)));
    for (const auto& entry : dict->entries) items.push_back(entry.first);
    return items;
  }
  if (!value.is_text()) return wrong("cannot be iterated over", value);
  const std::string_view text = value.text();
  for (std::size_t at = 0; at < text.size();) {
    std::size_t length = 0;
    code_point_at(text, at, length);
    SINEW_ASSIGN(Value item, heap.text(std::string(text.substr(at, length))));
    items.push_back(std::move(item));
    at += length;
  }
  return items;
}

namespace {

bool equal_parts(const Value& left, const Value& right, int depth, int& budget) {
  if (depth > kDepthMax || --budget < 0) return false;
  if (left.is_number() && right.is_number()) return numbers_equal(left, right);
  if (left.data.index() != right.data.index()) return false;
  if (left.is_text()) return left.text() == right.text();
  if (left.is_undefined() || left.is_none()) return true;
  if (const List* list = left.items()) {
    const List& other = *right.items();
    return std::equal(
        list->items.begin(), list->items.end(), other.items.begin(), other.items.end(),
        [&](const Value& a, const Value& b) { return equal_parts(a, b, depth + 1, budget); });
  }
  if (const Dict* dict = left.dict()) {
    const Dict& other = *right.dict();
    if (dict->entries.size() != other.entries.size()) return false;
    return std::all_of(dict->entries.begin(), dict->entries.end(), [&](const auto& entry) {
      const Value* found = other.find(entry.first);
      return found != nullptr && equal_parts(entry.second, *found, depth + 1, budget);
    });
  }
  if (left.is<Namespace>()) {
    return std::get<Namespace>(left.data).dict == std::get<Namespace>(right.data).dict;
  }
  if (left.is<Loop*>()) return std::get<Loop*>(left.data) == std::get<Loop*>(right.data);
  return std::get<Function*>(left.data) == std::get<Function*>(right.data);
}

}  // namespace

bool equal(const Value& left, const Value& right) {
  int budget = kEqualPartsMax;
  return equal_parts(left, right, 0, budget);
}

Result<bool> less(const Value& left, const Value& right) {
  if (left.is_integer() && right.is_integer()) return left.integer() < right.integer();
  if (left.is_number() && right.is_number()) return left.number() < right.number();
  if (left.is_text() && right.is_text()) return left.text() < right.text();
  if (left.items() != nullptr && left.data.index() == right.data.index()) {
    return lists_less(*left.items(), *right.items());
  }
  return fail(ErrorCode::kInvalidRequest, "{} and {} have no order", left.type_name(),
              right.type_name());
}

Result<bool> contains(const Value& container, const Value& value) {
  if (container.is_undefined()) return false;
  if (container.is_text()) {
    if (!value.is_text()) return wrong("is not text, so it cannot be in a text", value);
    return container.text().find(value.text()) != std::string::npos;
  }
  if (const List* list = container.items()) {
    return std::any_of(list->items.begin(), list->items.end(),
                       [&](const Value& item) { return equal(item, value); });
  }
  if (const Dict* dict = container.dict()) return dict->find(value) != nullptr;
  return wrong("has nothing in it", container);
}

namespace {

Status write_repr(const Value& value, int depth, std::string& out);

Status write_reprs(const std::vector<Value>& items, int depth, std::string& out) {
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out += ", ";
    SINEW_TRY(write_repr(items[i], depth + 1, out));
  }
  return {};
}

// One value may stand in many places of another, so the text is bounded as it grows.
Status check_print(int depth, const std::string& out) {
  if (depth > kDepthMax) return fail(ErrorCode::kInvalidRequest, "a value is nested too deeply");
  if (out.size() > kTextBytesMax) return fail(ErrorCode::kInvalidRequest, "a text is too long");
  return {};
}

Status write_repr(const Value& value, int depth, std::string& out) {
  SINEW_TRY(check_print(depth, out));
  if (value.is_text()) {
    out += python_repr(value.text());
  } else if (value.is_undefined()) {
    out += "Undefined";
  } else if (value.is<List*>()) {
    out += '[';
    SINEW_TRY(write_reprs(value.items()->items, depth, out));
    out += ']';
  } else if (value.is<Tuple>()) {
    out += '(';
    SINEW_TRY(write_reprs(value.items()->items, depth, out));
    out += value.items()->items.size() == 1 ? ",)" : ")";
  } else if (const Dict* dict = value.dict()) {
    out += '{';
    bool first = true;
    for (const auto& [key, item] : dict->entries) {
      if (!first) out += ", ";
      first = false;
      SINEW_TRY(write_repr(key, depth + 1, out));
      out += ": ";
      SINEW_TRY(write_repr(item, depth + 1, out));
    }
    out += '}';
  } else {
    SINEW_ASSIGN(const std::string text, to_text(value));
    out += text;
  }
  return {};
}

class JsonWriter {
 public:
  explicit JsonWriter(const JsonStyle& style) : style_(style) {}

  Status write(const Value& value, int depth) {
    SINEW_TRY(check_print(depth, out));
    if (value.is_none()) {
      out += "null";
    } else if (const bool* boolean = std::get_if<bool>(&value.data)) {
      out += *boolean ? "true" : "false";
    } else if (value.is_integer()) {
      out += std::to_string(value.integer());
    } else if (value.is<double>()) {
      if (!std::isfinite(value.number())) return wrong("without a finite value has no JSON", value);
      out += python_repr(value.number());
    } else if (value.is_text()) {
      out += json_string(value.text(), style_.ensure_ascii);
    } else if (const List* list = value.items()) {
      SINEW_TRY(write_list(*list, depth));
    } else if (const Dict* dict = value.dict()) {
      SINEW_TRY(write_dict(*dict, depth));
    } else {
      return wrong("cannot be written as JSON", value);
    }
    return {};
  }

  std::string out;

 private:
  void new_line(int depth) {
    if (style_.indent < 0) return;
    out += '\n';
    out.append(static_cast<std::size_t>(style_.indent) * static_cast<std::size_t>(depth), ' ');
  }

  Status write_list(const List& list, int depth) {
    out += '[';
    for (std::size_t i = 0; i < list.items.size(); ++i) {
      if (i > 0) out += style_.item_separator;
      new_line(depth + 1);
      SINEW_TRY(write(list.items[i], depth + 1));
    }
    if (!list.items.empty()) new_line(depth);
    out += ']';
    return {};
  }

  Status write_dict(const Dict& dict, int depth) {
    std::vector<std::pair<std::string, const Value*>> entries;
    for (const auto& [key, value] : dict.entries) {
      JsonWriter name(style_);
      if (key.is_text()) {
        entries.emplace_back(key.text(), &value);
        continue;
      }
      if (!key.is_number() && !key.is_none()) return wrong("cannot be a key of JSON", key);
      SINEW_TRY(name.write(key, depth + 1));
      entries.emplace_back(name.out, &value);
    }
    if (style_.sort_keys) {
      std::stable_sort(entries.begin(), entries.end(),
                       [](const auto& a, const auto& b) { return a.first < b.first; });
    }
    out += '{';
    for (std::size_t i = 0; i < entries.size(); ++i) {
      if (i > 0) out += style_.item_separator;
      new_line(depth + 1);
      out += json_string(entries[i].first, style_.ensure_ascii) + style_.key_separator;
      SINEW_TRY(write(*entries[i].second, depth + 1));
    }
    if (!entries.empty()) new_line(depth);
    out += '}';
    return {};
  }

  const JsonStyle& style_;  // of the caller, who waits for the text
};

}  // namespace

Result<std::string> to_text(const Value& value) {
  if (value.is_text()) return value.text();
  if (value.is_undefined()) return std::string();
  if (value.is_none()) return std::string("None");
  if (const bool* boolean = std::get_if<bool>(&value.data)) {
    return std::string(*boolean ? "True" : "False");
  }
  if (value.is_integer()) return std::to_string(value.integer());
  if (value.is<double>()) return python_repr(value.number());
  if (value.items() == nullptr && value.dict() == nullptr) return wrong("cannot be printed", value);
  std::string out;
  SINEW_TRY(write_repr(value, 0, out));
  return out;
}

Result<std::string> to_json(const Value& value, const JsonStyle& style) {
  JsonWriter writer(style);
  SINEW_TRY(writer.write(value, 0));
  return std::move(writer.out);
}

}  // namespace sinew::jinja
