#pragma once

#include <cstdint>
#include <ctime>
#include <optional>
#include <string>
#include <string_view>

#include "jinja/ast.h"

namespace sinew::jinja {

// Renders a parsed template once. Bounded in steps, in the memory of its Heap, in the size of its
// output and in the stack that macros use; what is beyond a bound is an error.
class Machine {
 public:
  // `heap` and `now` (null: the template has no clock) outlive the machine.
  Machine(Heap& heap, const std::tm* now) : heap_(heap), now_(now) {}
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  // Names of `variables` outlive the call.
  Result<std::string> render(const Template& parsed, Scope variables);
  // The argument of raise_exception, if the template called it.
  const std::optional<std::string>& refusal() const { return refusal_; }

  // For built-in functions.
  Heap& heap() { return heap_; }
  const std::tm* now() const { return now_; }
  Status spend(std::size_t steps);
  Result<Value> call(const Value& function, const Arguments& arguments);
  // object.name where `dotted`, else object[name].
  Result<Value> member(const Value& object, const Value& name, bool dotted);
  tl::unexpected<Error> refuse(std::string reason);

 private:
  enum class Flow : std::uint8_t { kNext, kBreak, kContinue };

  Result<Flow> run(const std::vector<const Stmt*>& body);
  Result<Flow> run(const Stmt& statement);
  Result<Flow> run_for(const Stmt& statement);
  Status run_set(const Stmt& statement);
  Status run_call_block(const Stmt& statement);
  Result<Value> run_to_text(const std::vector<const Stmt*>& body);
  Result<Value> run_filtered(const Stmt& statement);
  Status assign(const Stmt& statement, const Value& value);
  Status write(std::string_view text);

  Result<Value> evaluate(const Expr& expr);
  Result<Value> evaluate_parts(const Expr& expr);
  Result<Value> unary(const Expr& expr);
  Result<Value> binary(const Expr& expr);
  Result<Value> name(const Expr& expr);
  Result<Value> list(const Expr& expr);
  Result<Value> dict(const Expr& expr);
  Result<Value> slice(const Expr& expr);
  Result<Value> compare(const Expr& expr);
  Result<Value> call_expression(const Expr& expr);
  Result<Value> call_builtin(const Expr& expr);
  Result<Value> call_macro(const Function& function, const Arguments& given);
  Result<Arguments> arguments(const Expr& expr, std::size_t first);
  Status check_stack() const;

  // The error with the line of the innermost expression or statement that it came from.
  template <typename T>
  Result<T> at(int line, Result<T> result);
  Status at(int line, Status result);
  Error located(int line, Error error);

  Heap& heap_;
  const std::tm* now_;
  std::optional<std::string> refusal_;
  Scope* scope_ = nullptr;
  std::string out_;
  std::size_t steps_ = 0;
  int loop_depth_ = 0;
  bool located_ = false;
  const char* stack_base_ = nullptr;
};

// Result of one operator on two values.
Result<Value> apply(Heap& heap, Operator meaning, const Value& left, const Value& right);
Result<bool> holds(Operator meaning, const Value& left, const Value& right);
Result<Value> slice(Heap& heap, const Value& object, const Value& start, const Value& stop,
                    const Value& step);

}  // namespace sinew::jinja
