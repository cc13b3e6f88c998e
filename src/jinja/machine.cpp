#include "jinja/machine.h"

#include <fmt/format.h>

#include <utility>

#include "base/limits.h"
#include "jinja/builtins.h"
#include "jinja/text.h"

namespace sinew::jinja {
namespace {

constexpr std::size_t kStepsMax = 4'000'000;  // seconds at most
// Threads have 512 KiB on some systems; a turn of a recursive macro takes about 5 KiB, several
// times that with the address sanitizer.
#if defined(__SANITIZE_ADDRESS__)
#define SINEW_LARGE_FRAMES 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SINEW_LARGE_FRAMES 1
#endif
#endif
#ifdef SINEW_LARGE_FRAMES
constexpr std::size_t kStackBytesMax = 4u << 20;
#else
constexpr std::size_t kStackBytesMax = 320u << 10;
#endif

tl::unexpected<Error> wrong(std::string message) {
  return fail(Error{ErrorCode::kInvalidRequest, std::move(message), {}});
}

// Steps that looking through a value takes, beside the one of the expression.
std::size_t steps_through(const Value& value) {
  if (value.is_text()) return value.text().size() / 64;
  if (const List* list = value.items()) return list->items.size();
  if (const Dict* dict = value.dict()) return dict->entries.size();
  return 0;
}

// What `loop.name` is, where it is no function.
std::optional<Value> loop_member(const Loop& loop, std::string_view name) {
  const auto size = static_cast<std::int64_t>(loop.items.size());
  const auto index = static_cast<std::int64_t>(loop.index);
  if (name == "index") return Value{index + 1};
  if (name == "index0") return Value{index};
  if (name == "revindex") return Value{size - index};
  if (name == "revindex0") return Value{size - index - 1};
  if (name == "first") return Value{index == 0};
  if (name == "last") return Value{index + 1 == size};
  if (name == "length") return Value{size};
  if (name == "depth") return Value{std::int64_t{loop.depth}};
  if (name == "depth0") return Value{std::int64_t{loop.depth} - 1};
  if (name == "previtem") return index > 0 ? loop.items[loop.index - 1] : Value{};
  if (name == "nextitem") return index + 1 < size ? loop.items[loop.index + 1] : Value{};
  return std::nullopt;
}

}  // namespace

// --- errors and limits ---

Error Machine::located(int line, Error error) {
  if (located_) return error;
  located_ = true;
  return error.within(fmt::format("line {}", line));
}

template <typename T>
Result<T> Machine::at(int line, Result<T> result) {
  if (!result) return fail(located(line, std::move(result).error()));
  return result;
}

Status Machine::at(int line, Status result) {
  if (!result) return fail(located(line, std::move(result).error()));
  return result;
}

Status Machine::spend(std::size_t steps) {
  if (steps > kStepsMax - steps_) return wrong("the template runs for too long");
  steps_ += steps;
  return {};
}

Status Machine::check_stack() const {
  const auto* here = static_cast<const char*>(__builtin_frame_address(0));
  const std::ptrdiff_t used = stack_base_ > here ? stack_base_ - here : here - stack_base_;
  if (static_cast<std::size_t>(used) > kStackBytesMax) {
    return wrong("macros call each other too deeply");
  }
  return {};
}

tl::unexpected<Error> Machine::refuse(std::string reason) {
  refusal_ = std::move(reason);
  return wrong("raise_exception");
}

// --- statements ---

Result<std::string> Machine::render(const Template& parsed, Scope variables) {
  stack_base_ = static_cast<const char*>(__builtin_frame_address(0));
  scope_ = &variables;
  SINEW_TRY(run(parsed.body));
  return std::move(out_);
}

Status Machine::write(std::string_view text) {
  if (text.size() > kTextBytesMax - out_.size()) return wrong("the rendered chat is too long");
  out_ += text;
  return {};
}

Result<Machine::Flow> Machine::run(const std::vector<const Stmt*>& body) {
  SINEW_TRY(check_stack());
  for (const Stmt* statement : body) {
    SINEW_TRY(at(statement->line, spend(1)));
    SINEW_ASSIGN(const Flow flow, run(*statement));
    if (flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

Result<Machine::Flow> Machine::run(const Stmt& statement) {
  switch (statement.kind) {
    case Stmt::Kind::kText:
      SINEW_TRY(at(statement.line, write(statement.text)));
      return Flow::kNext;
    case Stmt::Kind::kOutput: {
      SINEW_ASSIGN(const Value value, evaluate(*statement.value));
      if (value.is_text()) {
        SINEW_TRY(at(statement.line, write(value.text())));
      } else {
        SINEW_ASSIGN(const std::string text, at(statement.line, to_text(value)));
        SINEW_TRY(at(statement.line, write(text)));
      }
      return Flow::kNext;
    }
    case Stmt::Kind::kIf: {
      SINEW_ASSIGN(const Value value, evaluate(*statement.value));
      return run(value.truth() ? statement.body : statement.otherwise);
    }
    case Stmt::Kind::kFor:
      return run_for(statement);
    case Stmt::Kind::kSet:
    case Stmt::Kind::kSetBlock:
      SINEW_TRY(run_set(statement));
      return Flow::kNext;
    case Stmt::Kind::kMacro: {
      Function made;
      made.code = &statement;
      made.scope = scope_;
      made.name = statement.text;
      SINEW_ASSIGN(Value function, at(statement.line, heap_.function(made)));
      scope_->set(statement.text, std::move(function));
      return Flow::kNext;
    }
    case Stmt::Kind::kCallBlock:
      SINEW_TRY(run_call_block(statement));
      return Flow::kNext;
    case Stmt::Kind::kFilterBlock: {
      SINEW_ASSIGN(const Value value, run_filtered(statement));
      SINEW_ASSIGN(const std::string text, at(statement.line, to_text(value)));
      SINEW_TRY(at(statement.line, write(text)));
      return Flow::kNext;
    }
    case Stmt::Kind::kBreak:
      return Flow::kBreak;
    case Stmt::Kind::kContinue:
      return Flow::kContinue;
  }
  return Flow::kNext;
}

Result<Machine::Flow> Machine::run_for(const Stmt& statement) {
  SINEW_ASSIGN(const Value value, evaluate(*statement.value));
  SINEW_ASSIGN(std::vector<Value> items, at(statement.line, iterate(heap_, value)));
  Scope* const outer = scope_;
  // One scope for all turns, emptied before each: what a turn sets ends with it.
  SINEW_ASSIGN(Scope * inner, at(statement.line, heap_.scope(outer)));
  if (statement.condition != nullptr) {
    std::vector<Value> kept;
    scope_ = inner;
    for (Value& item : items) {
      inner->variables.clear();
      SINEW_TRY(at(statement.line, assign(statement, item)));
      SINEW_ASSIGN(const Value keep, evaluate(*statement.condition));
      if (keep.truth()) kept.push_back(std::move(item));
    }
    items = std::move(kept);
    scope_ = outer;
  }
  if (items.empty()) return run(statement.otherwise);
  SINEW_ASSIGN(Loop * loop, at(statement.line, heap_.loop(std::move(items))));
  loop->depth = ++loop_depth_;
  scope_ = inner;
  for (; loop->index < loop->items.size(); ++loop->index) {
    inner->variables.clear();
    inner->set("loop", Value{loop});
    SINEW_TRY(at(statement.line, spend(1)));
    SINEW_TRY(at(statement.line, assign(statement, loop->items[loop->index])));
    SINEW_ASSIGN(const Flow flow, run(statement.body));
    if (flow == Flow::kBreak) break;
  }
  scope_ = outer;
  --loop_depth_;
  return Flow::kNext;
}

// Gives the statement's targets the value, or its items where there are several.
Status Machine::assign(const Stmt& statement, const Value& value) {
  const auto set = [&](const Target& target, const Value& part) -> Status {
    if (target.attribute.empty()) {
      SINEW_TRY(heap_.charge(sizeof(Value)));
      scope_->set(target.name, part);
      return {};
    }
    const Value* object = scope_->find(target.name);
    if (object == nullptr || !object->is<Namespace>()) {
      return wrong(fmt::format("'{}' is no namespace, so nothing can be set in it", target.name));
    }
    SINEW_ASSIGN(const Value key, heap_.text(target.attribute));
    return heap_.set(*std::get<Namespace>(object->data).dict, key, part);
  };
  if (statement.targets.size() == 1) return set(statement.targets[0], value);
  SINEW_ASSIGN(const std::vector<Value> parts, iterate(heap_, value));
  if (parts.size() != statement.targets.size()) {
    return wrong(fmt::format("{} values for {} names", parts.size(), statement.targets.size()));
  }
  for (std::size_t i = 0; i < parts.size(); ++i) SINEW_TRY(set(statement.targets[i], parts[i]));
  return {};
}

Status Machine::run_set(const Stmt& statement) {
  Value value;
  if (statement.kind == Stmt::Kind::kSet) {
    SINEW_ASSIGN(value, evaluate(*statement.value));
  } else {
    SINEW_ASSIGN(value, run_filtered(statement));
  }
  return at(statement.line, assign(statement, value));
}

// What the body prints, as a value.
Result<Value> Machine::run_to_text(const std::vector<const Stmt*>& body) {
  std::string outer = std::exchange(out_, std::string());
  auto flow = run(body);
  std::string text = std::exchange(out_, std::move(outer));
  if (!flow) return fail(std::move(flow).error());
  return heap_.text(std::move(text));
}

// What the body prints, in a scope of its own, through the statement's filters if it has some.
Result<Value> Machine::run_filtered(const Stmt& statement) {
  SINEW_ASSIGN(Scope * inner, at(statement.line, heap_.scope(scope_)));
  Scope* const outer = std::exchange(scope_, inner);
  SINEW_ASSIGN(Value value, run_to_text(statement.body));
  if (statement.value != nullptr) {
    inner->set(kBlockText, value);
    SINEW_ASSIGN(value, evaluate(*statement.value));
  }
  scope_ = outer;
  return value;
}

Status Machine::run_call_block(const Stmt& statement) {
  const Expr& call = *statement.value;
  Function made;
  made.code = &statement;
  made.scope = scope_;
  made.name = "caller";
  SINEW_ASSIGN(const Value caller, at(statement.line, heap_.function(made)));
  SINEW_ASSIGN(const Value function, evaluate(*call.parts[0]));
  SINEW_ASSIGN(Arguments given, arguments(call, 1));
  given.named.emplace_back("caller", caller);
  SINEW_ASSIGN(const Value value, at(statement.line, this->call(function, given)));
  SINEW_ASSIGN(const std::string text, at(statement.line, to_text(value)));
  return at(statement.line, write(text));
}

// --- calls ---

Result<Value> Machine::call(const Value& function, const Arguments& given) {
  const auto* found = std::get_if<Function*>(&function.data);
  if (found == nullptr) {
    const auto* undefined = std::get_if<Undefined>(&function.data);
    if (undefined != nullptr && !undefined->name.empty()) {
      return wrong(fmt::format("'{}' is undefined, so it cannot be called", undefined->name));
    }
    return type_error("cannot be called", function);
  }
  SINEW_TRY(check_stack());
  const Function& callee = **found;
  if (callee.builtin == nullptr) return call_macro(callee, given);
  if (callee.self.is_undefined()) return callee.builtin(*this, given);
  SINEW_TRY(spend(steps_through(callee.self)));
  Arguments with_self = given;
  with_self.positional.insert(with_self.positional.begin(), callee.self);
  return callee.builtin(*this, with_self);
}

Result<Value> Machine::call_macro(const Function& function, const Arguments& given) {
  const Stmt& code = *function.code;
  SINEW_TRY(spend(1 + code.targets.size()));
  if (given.positional.size() > code.targets.size()) {
    return wrong(fmt::format("{}() takes {} arguments, not {}", function.name, code.targets.size(),
                             given.positional.size()));
  }
  SINEW_ASSIGN(Scope * inner, heap_.scope(function.scope));
  for (const auto& [name, value] : given.named) {
    bool known = name == "caller" && code.kind == Stmt::Kind::kMacro;
    for (std::size_t i = given.positional.size(); i < code.targets.size(); ++i) {
      known = known || code.targets[i].name == name;
    }
    if (!known) return wrong(fmt::format("{}() has no argument '{}' left", function.name, name));
    inner->set(name, value);
  }
  Scope* const outer = std::exchange(scope_, inner);
  const int loops = std::exchange(loop_depth_, 0);
  for (std::size_t i = 0; i < code.targets.size(); ++i) {
    const std::string_view name = code.targets[i].name;
    if (i < given.positional.size()) {
      inner->set(name, given.positional[i]);
      continue;
    }
    bool set = false;
    for (const auto& variable : inner->variables) set = set || variable.first == name;
    if (set) continue;
    Value value{Undefined{name}};
    if (code.defaults[i] != nullptr) {
      SINEW_ASSIGN(value, evaluate(*code.defaults[i]));
    }
    inner->set(name, std::move(value));
  }
  SINEW_ASSIGN(Value text, run_to_text(code.body));
  scope_ = outer;
  loop_depth_ = loops;
  return text;
}

Result<Arguments> Machine::arguments(const Expr& expr, std::size_t first) {
  Arguments given;
  for (std::size_t i = first; i < expr.parts.size(); ++i) {
    SINEW_ASSIGN(Value value, evaluate(*expr.parts[i]));
    given.positional.push_back(std::move(value));
  }
  for (const auto& [name, part] : expr.named) {
    SINEW_ASSIGN(Value value, evaluate(*part));
    given.named.emplace_back(name, std::move(value));
  }
  return given;
}

Result<Value> Machine::call_expression(const Expr& expr) {
  SINEW_ASSIGN(const Value function, evaluate(*expr.parts[0]));
  SINEW_ASSIGN(const Arguments given, arguments(expr, 1));
  return at(expr.line, call(function, given));
}

Result<Value> Machine::call_builtin(const Expr& expr) {
  SINEW_ASSIGN(const Arguments given, arguments(expr, 0));
  SINEW_TRY(at(expr.line, spend(steps_through(given.positional[0]))));
  return at(expr.line, expr.builtin(*this, given));
}

// --- expressions ---

Result<Value> Machine::evaluate(const Expr& expr) {
  if (expr.kind == Expr::Kind::kLiteral) return expr.literal;
  SINEW_TRY(at(expr.line, spend(1)));
  if (expr.kind == Expr::Kind::kName) return name(expr);
  SINEW_TRY(at(expr.line, check_stack()));
  return evaluate_parts(expr);
}

Result<Value> Machine::evaluate_parts(const Expr& expr) {
  using Kind = Expr::Kind;
  switch (expr.kind) {
    case Kind::kLiteral:
      return expr.literal;
    case Kind::kName:
      return name(expr);
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kConcat:
      return list(expr);
    case Kind::kDict:
      return dict(expr);
    case Kind::kSlice:
      return slice(expr);
    case Kind::kCall:
      return call_expression(expr);
    case Kind::kFilter:
    case Kind::kTest:
      return call_builtin(expr);
    case Kind::kCompare:
      return compare(expr);
    case Kind::kAttribute:
    case Kind::kItem:
    case Kind::kBinary:
      return binary(expr);
    case Kind::kNot:
    case Kind::kNegative:
    case Kind::kPositive:
      return unary(expr);
    case Kind::kAnd:
    case Kind::kOr: {
      SINEW_ASSIGN(Value left, evaluate(*expr.parts[0]));
      return left.truth() == (expr.kind == Kind::kOr) ? left : evaluate(*expr.parts[1]);
    }
    case Kind::kCondition: {
      SINEW_ASSIGN(const Value test, evaluate(*expr.parts[1]));
      const Expr* chosen = expr.parts[test.truth() ? 0 : 2];
      return chosen == nullptr ? Value{} : evaluate(*chosen);
    }
  }
  return Value{};
}

Result<Value> Machine::unary(const Expr& expr) {
  SINEW_ASSIGN(const Value value, evaluate(*expr.parts[0]));
  if (expr.kind == Expr::Kind::kNot) return Value{!value.truth()};
  if (!value.is_number()) return at(expr.line, Result<Value>(type_error("has no sign", value)));
  if (expr.kind == Expr::Kind::kNegative && value.is<double>()) return Value{-value.number()};
  const auto sign = expr.kind == Expr::Kind::kNegative ? Operator::kSubtract : Operator::kAdd;
  return at(expr.line, apply(heap_, sign, Value{std::int64_t{0}}, value));
}

Result<Value> Machine::binary(const Expr& expr) {
  SINEW_ASSIGN(const Value left, evaluate(*expr.parts[0]));
  if (expr.kind == Expr::Kind::kAttribute) return at(expr.line, member(left, expr.literal, true));
  SINEW_ASSIGN(const Value right, evaluate(*expr.parts[1]));
  if (expr.kind == Expr::Kind::kItem) return at(expr.line, member(left, right, false));
  return at(expr.line, apply(heap_, expr.operators[0], left, right));
}

Result<Value> Machine::name(const Expr& expr) {
  if (const Value* found = scope_->find(expr.name)) return *found;
  if (const Builtin builtin = find_function(expr.name)) {
    if (expr.name == "strftime_now" && now_ == nullptr) return Value{Undefined{expr.name}};
    Function made;
    made.builtin = builtin;
    made.name = expr.name;
    return at(expr.line, heap_.function(made));
  }
  return Value{Undefined{expr.name}};
}

// A list, a tuple, or the texts of the parts together.
Result<Value> Machine::list(const Expr& expr) {
  std::vector<Value> items;
  std::string text;
  for (const Expr* part : expr.parts) {
    SINEW_ASSIGN(Value value, evaluate(*part));
    if (expr.kind != Expr::Kind::kConcat) {
      items.push_back(std::move(value));
      continue;
    }
    SINEW_ASSIGN(const std::string more, at(expr.line, to_text(value)));
    SINEW_TRY(at(expr.line, heap_.charge(more.size())));
    text += more;
  }
  if (expr.kind == Expr::Kind::kConcat) return at(expr.line, heap_.text(std::move(text)));
  return at(expr.line, expr.kind == Expr::Kind::kList ? heap_.list(std::move(items))
                                                      : heap_.tuple(std::move(items)));
}

Result<Value> Machine::dict(const Expr& expr) {
  SINEW_ASSIGN(Dict * made, at(expr.line, heap_.dict()));
  for (std::size_t i = 0; i + 1 < expr.parts.size(); i += 2) {
    SINEW_ASSIGN(const Value key, evaluate(*expr.parts[i]));
    SINEW_ASSIGN(Value value, evaluate(*expr.parts[i + 1]));
    SINEW_TRY(at(expr.line, heap_.set(*made, key, std::move(value))));
  }
  return Value{made};
}

Result<Value> Machine::slice(const Expr& expr) {
  Value parts[4];
  for (std::size_t i = 0; i < 4; ++i) {
    if (expr.parts[i] == nullptr) continue;
    SINEW_ASSIGN(parts[i], evaluate(*expr.parts[i]));
  }
  SINEW_TRY(at(expr.line, spend(steps_through(parts[0]))));
  return at(expr.line, jinja::slice(heap_, parts[0], parts[1], parts[2], parts[3]));
}

// A chain as in Python: a < b < c is a < b and b < c.
Result<Value> Machine::compare(const Expr& expr) {
  SINEW_ASSIGN(Value left, evaluate(*expr.parts[0]));
  for (std::size_t i = 0; i < expr.operators.size(); ++i) {
    SINEW_ASSIGN(Value right, evaluate(*expr.parts[i + 1]));
    SINEW_TRY(at(expr.line, spend(steps_through(right))));
    SINEW_ASSIGN(const bool true_so_far, at(expr.line, holds(expr.operators[i], left, right)));
    if (!true_so_far) return Value{false};
    left = std::move(right);
  }
  return Value{true};
}

Result<Value> Machine::member(const Value& object, const Value& name, bool dotted) {
  if (const auto* undefined = std::get_if<Undefined>(&object.data)) {
    return wrong(fmt::format("'{}' is undefined, so it has nothing in it", undefined->name));
  }
  if (name.is_text()) {
    const std::string& key = name.text();
    const Builtin method = find_method(object, key);
    const Dict* dict =
        object.is<Namespace>() ? std::get<Namespace>(object.data).dict : object.dict();
    const Value* found = dict == nullptr ? nullptr : dict->find(key);
    if (dict != nullptr) SINEW_TRY(spend(dict->entries.size() / 8));
    if (found != nullptr && (method == nullptr || !dotted)) return *found;
    if (object.is<Loop*>()) {
      if (auto value = loop_member(*std::get<Loop*>(object.data), key)) return *std::move(value);
    }
    if (method == nullptr) return Value{};
    Function made;
    made.builtin = method;
    made.self = object;
    return heap_.function(made);
  }
  if (const Dict* dict = object.dict()) {
    const Value* found = dict->find(name);
    return found == nullptr ? Value{} : *found;
  }
  if (!name.is_integer()) return Value{};
  if (const List* list = object.items()) {
    const auto size = static_cast<std::int64_t>(list->items.size());
    const std::int64_t index = name.integer() < 0 ? name.integer() + size : name.integer();
    return index < 0 || index >= size ? Value{} : list->items[static_cast<std::size_t>(index)];
  }
  if (!object.is_text()) return Value{};
  SINEW_TRY(spend(object.text().size() / 16));
  const auto offsets = code_point_offsets(object.text());
  const auto size = static_cast<std::int64_t>(offsets.size()) - 1;
  const std::int64_t index = name.integer() < 0 ? name.integer() + size : name.integer();
  if (index < 0 || index >= size) return Value{};
  const auto i = static_cast<std::size_t>(index);
  return heap_.text(object.text().substr(offsets[i], offsets[i + 1] - offsets[i]));
}

}  // namespace sinew::jinja
