#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/result.h"

namespace sinew::jinja {

struct Arguments;
struct Stmt;
struct List;
struct Dict;
class Machine;
struct Loop;
struct Function;

// What a name or an item that is not there evaluates to. Prints as nothing, is false and has no
// items; everything else about it is an error.
struct Undefined {
  std::string_view name;  // of the variable, where it was one: a view into the template
};
struct None {};
struct Tuple {
  List* list;
};
struct Namespace {
  Dict* dict;
};

// A value of a template, with Python's meaning. Small, copied freely; lists and dictionaries are
// shared as in Python and belong to the Heap of the rendering.
struct Value {
  using Text = std::shared_ptr<const std::string>;
  std::variant<Undefined, None, bool, std::int64_t, double, Text, List*, Tuple, Dict*, Namespace,
               Loop*, Function*>
      data;

  template <typename T>
  bool is() const {
    return std::holds_alternative<T>(data);
  }
  bool is_undefined() const { return is<Undefined>(); }
  bool is_none() const { return is<None>(); }
  bool is_text() const { return is<Text>(); }
  bool is_integer() const { return is<std::int64_t>() || is<bool>(); }  // bool is an int in Python
  bool is_number() const { return is_integer() || is<double>(); }
  // Preconditions: is_text(), is_integer(), is_number().
  const std::string& text() const { return *std::get<Text>(data); }
  std::int64_t integer() const;
  double number() const;
  // The items of a list or tuple; null for anything else.
  List* items() const;
  Dict* dict() const { return is<Dict*>() ? std::get<Dict*>(data) : nullptr; }
  bool truth() const;
  std::string_view type_name() const;  // as Python names it, for messages
};

struct List {
  std::vector<Value> items;
};

// Keeps the order of insertion, as Python's. Searched from the front: dictionaries of requests are
// small, and each search is paid for with steps.
struct Dict {
  std::vector<std::pair<Value, Value>> entries;

  const Value* find(const Value& key) const;
  const Value* find(std::string_view key) const;
  void set(const Value& key, Value value);
};

// The names of a template, a loop or a call, and of those around it. Names are views into the
// template.
struct Scope {
  Scope* parent = nullptr;
  std::vector<std::pair<std::string_view, Value>> variables;

  // Of this scope or one around it; null if there is none.
  const Value* find(std::string_view name) const;
  void set(std::string_view name, Value value);
};

// What `loop` is inside of a for loop.
struct Loop {
  std::vector<Value> items;
  std::size_t index = 0;
  int depth = 1;
};

// A built-in function, filter, test or method. Of filters and tests the first argument is the
// value; of methods it is the object.
using Builtin = Result<Value> (*)(Machine&, const Arguments&);

struct Function {
  Builtin builtin = nullptr;  // else a macro, or the caller of a call block: `code` and `scope`
  const Stmt* code = nullptr;
  Scope* scope = nullptr;
  Value self;  // of a method; undefined for others
  std::string_view name;
};

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string_view, Value>> named;
};

// Owner of what one rendering makes, and its account: a template that uses more than its share ends
// in an error. All is freed together, so values may refer to each other in circles.
class Heap {
 public:
  explicit Heap(std::size_t bytes_max) : bytes_left_(bytes_max) {}
  Heap(const Heap&) = delete;
  Heap& operator=(const Heap&) = delete;

  Status charge(std::size_t bytes);
  Result<Value> text(std::string text);
  Result<Value> list(std::vector<Value> items);
  Result<Value> tuple(std::vector<Value> items);
  Result<Dict*> dict();
  Result<Value> function(Function function);
  Result<Scope*> scope(Scope* parent);
  Result<Loop*> loop(std::vector<Value> items);
  Status append(List& list, Value value);
  Status set(Dict& dict, const Value& key, Value value);
  // A value of a request; its strings must be UTF-8 and its integers fit 64 bits.
  Result<Value> from_json(const nlohmann::ordered_json& json);
  Result<Value> from_json_text(std::string_view text);

 private:
  std::size_t bytes_left_;
  std::deque<List> lists_;
  std::deque<Dict> dicts_;
  std::deque<Function> functions_;
  std::deque<Scope> scopes_;
  std::deque<Loop> loops_;
};

// The items that a for loop visits: of lists, of strings (code points), of dictionaries (keys).
Result<std::vector<Value>> iterate(Heap& heap, const Value& value);

// ==, and <. Values of different kinds are unequal, but have no order. Structures of more than a
// million parts, which only a circle or a hostile template makes, count as unequal.
bool equal(const Value& left, const Value& right);
Result<bool> less(const Value& left, const Value& right);
// `value` in `container`.
Result<bool> contains(const Value& container, const Value& value);

// str(): what {{ }} prints.
Result<std::string> to_text(const Value& value);

// The arguments of json.dumps.
struct JsonStyle {
  bool ensure_ascii = false;
  bool sort_keys = false;
  int indent = -1;  // spaces a level; -1: all in one line
  std::string item_separator = ", ";
  std::string key_separator = ": ";
};
Result<std::string> to_json(const Value& value, const JsonStyle& style);

}  // namespace sinew::jinja
