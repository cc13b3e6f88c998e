// Functions and tests.
#include <fmt/format.h>

#include <array>
#include <ctime>

#include "base/unicode.h"
#include "jinja/builtins.h"
#include "jinja/machine.h"
#include "jinja/text.h"

namespace sinew::jinja {
namespace {

tl::unexpected<Error> wrong(std::string_view message) {
  return fail(ErrorCode::kInvalidRequest, "{}", message);
}

// --- functions ---

Result<Value> range(Machine& machine, const Arguments& given) {
  SINEW_ASSIGN(const auto args, bind(given, {"start", "stop", "step"}, 1));
  for (const Value& value : given.positional) {
    if (!value.is_integer()) return type_error("is no bound of a range", value);
  }
  const bool one = args[1].is_undefined();
  const std::int64_t start = one ? 0 : args[0].integer();
  const std::int64_t stop = args[one ? 0 : 1].integer();
  const std::int64_t step = args[2].is_undefined() ? 1 : args[2].integer();
  if (step == 0) return wrong("range() with a step of 0");
  std::vector<Value> items;
  for (std::int64_t value = start; step > 0 ? value < stop : value > stop;) {
    SINEW_TRY(machine.spend(1));
    SINEW_TRY(machine.heap().charge(sizeof(Value)));
    items.push_back(Value{value});
    if (__builtin_add_overflow(value, step, &value)) break;
  }
  return machine.heap().list(std::move(items));
}

Result<Dict*> dict_of(Machine& machine, const Arguments& given) {
  SINEW_ASSIGN(Dict * made, machine.heap().dict());
  if (given.positional.size() > 1) return wrong("at most one value is taken here");
  if (!given.positional.empty()) {
    const Dict* old = given.positional[0].dict();
    if (old == nullptr) return type_error("is no dict", given.positional[0]);
    for (const auto& [key, value] : old->entries) {
      SINEW_TRY(machine.heap().set(*made, key, value));
    }
  }
  for (const auto& [name, value] : given.named) {
    SINEW_ASSIGN(const Value key, machine.heap().text(std::string(name)));
    SINEW_TRY(machine.heap().set(*made, key, value));
  }
  return made;
}

Result<Value> make_dict(Machine& machine, const Arguments& given) {
  SINEW_ASSIGN(Dict * made, dict_of(machine, given));
  return Value{made};
}

Result<Value> make_namespace(Machine& machine, const Arguments& given) {
  SINEW_ASSIGN(Dict * made, dict_of(machine, given));
  return Value{Namespace{made}};
}

Result<Value> raise_exception(Machine& machine, const Arguments& given) {
  SINEW_ASSIGN(const auto args, bind(given, {"message"}, 0));
  SINEW_ASSIGN(std::string reason, to_text(args[0]));
  return machine.refuse(reason.empty() ? "no reason given" : std::move(reason));
}

Result<Value> strftime_now(Machine& machine, const Arguments& given) {
  SINEW_ASSIGN(const auto args, bind(given, {"format"}, 1));
  if (!args[0].is_text()) return type_error("is no format of a time", args[0]);
  const std::string& format = args[0].text();
  if (format.empty()) return args[0];
  std::array<char, 1024> buffer{};
  const std::size_t size =
      std::strftime(buffer.data(), buffer.size(), format.c_str(), machine.now());
  if (size == 0) return wrong("the format of a time is too long");
  std::string text(buffer.data(), size);
  if (!is_valid_utf8(text)) return wrong("the time has text that is not UTF-8");
  return machine.heap().text(std::move(text));
}

// --- tests ---

template <bool (*holds)(const Value&)>
Result<Value> test(Machine&, const Arguments& given) {
  SINEW_ASSIGN(const auto args, bind(given, {"value"}, 1));
  return Value{holds(args[0])};
}

template <Operator meaning>
Result<Value> comparison(Machine&, const Arguments& given) {
  SINEW_ASSIGN(const auto args, bind(given, {"value", "other"}, 2));
  SINEW_ASSIGN(const bool result, holds(meaning, args[0], args[1]));
  return Value{result};
}

bool is_defined(const Value& value) {
  return !value.is_undefined();
}
bool is_undefined(const Value& value) {
  return value.is_undefined();
}
bool is_none(const Value& value) {
  return value.is_none();
}
bool is_boolean(const Value& value) {
  return value.is<bool>();
}
bool is_true(const Value& value) {
  return value.is<bool>() && value.truth();
}
bool is_false(const Value& value) {
  return value.is<bool>() && !value.truth();
}
bool is_integer(const Value& value) {
  return value.is<std::int64_t>();
}
bool is_float(const Value& value) {
  return value.is<double>();
}
bool is_number(const Value& value) {
  return value.is_number();
}
bool is_string(const Value& value) {
  return value.is_text();
}
bool is_mapping(const Value& value) {
  return value.dict() != nullptr;
}
bool is_iterable(const Value& value) {
  return value.is_text() || value.items() != nullptr || value.dict() != nullptr ||
         value.is_undefined() || value.is<Loop*>();
}
bool is_sequence(const Value& value) {
  return is_iterable(value) && !value.is<Loop*>();
}
bool is_callable(const Value& value) {
  return value.is<Function*>();
}

template <int remainder>
Result<Value> parity(Machine& machine, const Arguments& given) {
  SINEW_ASSIGN(const auto args, bind(given, {"value"}, 1));
  SINEW_ASSIGN(const Value rest,
               apply(machine.heap(), Operator::kModulo, args[0], Value{std::int64_t{2}}));
  return Value{rest.number() == remainder};
}

Result<Value> divisible(Machine& machine, const Arguments& given) {
  SINEW_ASSIGN(const auto args, bind(given, {"value", "num"}, 2));
  SINEW_ASSIGN(const Value rest, apply(machine.heap(), Operator::kModulo, args[0], args[1]));
  return Value{rest.number() == 0};
}

struct Entry {
  std::string_view name;
  Builtin builtin;
};

constexpr Entry kFunctions[] = {
    {"range", range},
    {"dict", make_dict},
    {"namespace", make_namespace},
    {"raise_exception", raise_exception},
    {"strftime_now", strftime_now},
};

constexpr Entry kTests[] = {
    {"defined", test<is_defined>},
    {"undefined", test<is_undefined>},
    {"none", test<is_none>},
    {"boolean", test<is_boolean>},
    {"true", test<is_true>},
    {"false", test<is_false>},
    {"integer", test<is_integer>},
    {"float", test<is_float>},
    {"number", test<is_number>},
    {"string", test<is_string>},
    {"mapping", test<is_mapping>},
    {"iterable", test<is_iterable>},
    {"sequence", test<is_sequence>},
    {"callable", test<is_callable>},
    {"odd", parity<1>},
    {"even", parity<0>},
    {"divisibleby", divisible},
    {"eq", comparison<Operator::kEqual>},
    {"equalto", comparison<Operator::kEqual>},
    {"==", comparison<Operator::kEqual>},
    {"ne", comparison<Operator::kNotEqual>},
    {"!=", comparison<Operator::kNotEqual>},
    {"lt", comparison<Operator::kLess>},
    {"lessthan", comparison<Operator::kLess>},
    {"<", comparison<Operator::kLess>},
    {"le", comparison<Operator::kLessEqual>},
    {"<=", comparison<Operator::kLessEqual>},
    {"gt", comparison<Operator::kGreater>},
    {"greaterthan", comparison<Operator::kGreater>},
    {">", comparison<Operator::kGreater>},
    {"ge", comparison<Operator::kGreaterEqual>},
    {">=", comparison<Operator::kGreaterEqual>},
    {"in", comparison<Operator::kIn>},
};

}  // namespace

Builtin find_function(std::string_view name) {
  for (const Entry& entry : kFunctions) {
    if (entry.name == name) return entry.builtin;
  }
  return nullptr;
}

Builtin find_test(std::string_view name) {
  for (const Entry& entry : kTests) {
    if (entry.name == name) return entry.builtin;
  }
  return nullptr;
}

}  // namespace sinew::jinja
