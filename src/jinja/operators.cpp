// Operators on values, as Python has them.
#include <fmt/format.h>

#include <cmath>

#include "jinja/builtins.h"
#include "jinja/machine.h"
#include "jinja/text.h"

namespace sinew::jinja {
namespace {

tl::unexpected<Error> wrong(std::string_view message) {
  return fail(ErrorCode::kInvalidRequest, "{}", message);
}

bool arithmetic(Operator meaning, std::int64_t a, std::int64_t b, std::int64_t& out) {
  if (meaning == Operator::kAdd) return !__builtin_add_overflow(a, b, &out);
  if (meaning == Operator::kSubtract) return !__builtin_sub_overflow(a, b, &out);
  return !__builtin_mul_overflow(a, b, &out);
}

// Quotient and remainder round down. The smallest integer by -1 overflows.
Result<Value> divide(Operator meaning, std::int64_t a, std::int64_t b) {
  if (b == 0) return wrong("division by zero");
  if (b == -1) {
    std::int64_t negative = 0;
    if (meaning == Operator::kModulo) return Value{negative};
    if (__builtin_sub_overflow(std::int64_t{0}, a, &negative)) return wrong("an integer overflows");
    return Value{negative};
  }
  const bool down = a % b != 0 && (a < 0) != (b < 0);
  if (meaning == Operator::kFloorDivide) return Value{a / b - (down ? 1 : 0)};
  return Value{a % b + (down ? b : 0)};
}

Result<Value> power(const Value& left, const Value& right) {
  if (!left.is_integer() || !right.is_integer() || right.integer() < 0) {
    return Value{std::pow(left.number(), right.number())};
  }
  std::int64_t result = 1;
  const std::int64_t base = left.integer();
  if (base == 0 || base == 1) return Value{right.integer() == 0 ? 1 : base};
  for (std::int64_t i = 0; i < right.integer(); ++i) {
    // Ends soon: every base but these and -1 overflows within 63 turns.
    if (base == -1 && i > 1) return Value{std::int64_t{right.integer() % 2 == 0 ? 1 : -1}};
    if (__builtin_mul_overflow(result, base, &result)) return wrong("an integer overflows");
  }
  return Value{result};
}

Result<Value> on_numbers(Operator meaning, const Value& left, const Value& right) {
  const bool integers = left.is_integer() && right.is_integer();
  switch (meaning) {
    case Operator::kAdd:
    case Operator::kSubtract:
    case Operator::kMultiply: {
      if (integers) {
        std::int64_t value = 0;
        if (!arithmetic(meaning, left.integer(), right.integer(), value)) {
          return wrong("an integer overflows");
        }
        return Value{value};
      }
      const double a = left.number();
      const double b = right.number();
      return Value{meaning == Operator::kAdd        ? a + b
                   : meaning == Operator::kSubtract ? a - b
                                                    : a * b};
    }
    case Operator::kDivide:
      if (right.number() == 0) return wrong("division by zero");
      return Value{left.number() / right.number()};
    case Operator::kFloorDivide:
    case Operator::kModulo: {
      if (integers) return divide(meaning, left.integer(), right.integer());
      if (right.number() == 0) return wrong("division by zero");
      const double quotient = std::floor(left.number() / right.number());
      if (meaning == Operator::kFloorDivide) return Value{quotient};
      const double rest = std::fmod(left.number(), right.number());
      const bool down = rest != 0 && (rest < 0) != (right.number() < 0);
      return Value{down ? rest + right.number() : rest};
    }
    case Operator::kPower:
      return power(left, right);
    case Operator::kEqual:
    case Operator::kNotEqual:
    case Operator::kLess:
    case Operator::kLessEqual:
    case Operator::kGreater:
    case Operator::kGreaterEqual:
    case Operator::kIn:
    case Operator::kNotIn:
      break;
  }
  return wrong("no such operator");
}

Result<Value> joined(Heap& heap, const Value& left, const Value& right) {
  if (left.is_text()) {
    // The sum is paid for before it is made.
    SINEW_TRY(heap.charge(left.text().size() + right.text().size()));
    return Value{std::make_shared<const std::string>(left.text() + right.text())};
  }
  const std::vector<Value>& more = right.items()->items;
  SINEW_TRY(heap.charge((left.items()->items.size() + more.size()) * sizeof(Value)));
  std::vector<Value> items = left.items()->items;
  items.insert(items.end(), more.begin(), more.end());
  return left.is<Tuple>() ? heap.tuple(std::move(items)) : heap.list(std::move(items));
}

Result<Value> repeated(Heap& heap, const Value& value, std::int64_t times) {
  const auto count = static_cast<std::size_t>(std::max<std::int64_t>(times, 0));
  const std::size_t size =
      value.is_text() ? value.text().size() : value.items()->items.size() * sizeof(Value);
  std::size_t bytes = 0;
  if (__builtin_mul_overflow(count, size, &bytes)) return wrong("a repeated value is too large");
  SINEW_TRY(heap.charge(bytes));
  if (value.is_text()) {
    std::string text;
    for (std::size_t i = 0; size > 0 && i < count; ++i) text += value.text();
    return heap.text(std::move(text));
  }
  std::vector<Value> items;
  const std::vector<Value>& all = value.items()->items;
  for (std::size_t i = 0; size > 0 && i < count; ++i)
    items.insert(items.end(), all.begin(), all.end());
  return value.is<Tuple>() ? heap.tuple(std::move(items)) : heap.list(std::move(items));
}

std::string_view symbol(Operator meaning) {
  switch (meaning) {
    case Operator::kAdd:
      return "+";
    case Operator::kSubtract:
      return "-";
    case Operator::kMultiply:
      return "*";
    case Operator::kDivide:
      return "/";
    case Operator::kFloorDivide:
      return "//";
    case Operator::kModulo:
      return "%";
    case Operator::kPower:
      return "**";
    case Operator::kEqual:
      return "==";
    case Operator::kNotEqual:
      return "!=";
    case Operator::kLess:
      return "<";
    case Operator::kLessEqual:
      return "<=";
    case Operator::kGreater:
      return ">";
    case Operator::kGreaterEqual:
      return ">=";
    case Operator::kIn:
      return "in";
    case Operator::kNotIn:
      return "not in";
  }
  return "";
}

// Python's rule for slices: bounds count from the end if negative, and are clamped.
std::vector<std::size_t> slice_indices(std::int64_t size, const Value& start, const Value& stop,
                                       std::int64_t step) {
  const auto bound = [&](const Value& value, std::int64_t otherwise) {
    if (!value.is_integer()) return otherwise;
    std::int64_t at = value.integer();
    if (at < 0) at = at < -size ? -1 : at + size;
    if (value.integer() < -size) return step > 0 ? std::int64_t{0} : std::int64_t{-1};
    return std::min(at, step > 0 ? size : size - 1);
  };
  const std::int64_t first = bound(start, step > 0 ? 0 : size - 1);
  const std::int64_t last = bound(stop, step > 0 ? size : -1);
  std::vector<std::size_t> indices;
  for (std::int64_t i = first; step > 0 ? i < last : i > last;) {
    indices.push_back(static_cast<std::size_t>(i));
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  return indices;
}

}  // namespace

Result<Value> apply(Heap& heap, Operator meaning, const Value& left, const Value& right) {
  if (left.is_number() && right.is_number()) return on_numbers(meaning, left, right);
  const bool sequences =
      left.data.index() == right.data.index() && (left.is_text() || left.items() != nullptr);
  if (meaning == Operator::kAdd && sequences) return joined(heap, left, right);
  if (meaning == Operator::kMultiply) {
    const bool left_repeats = (left.is_text() || left.items() != nullptr) && right.is_integer();
    const bool right_repeats = (right.is_text() || right.items() != nullptr) && left.is_integer();
    if (left_repeats) return repeated(heap, left, right.integer());
    if (right_repeats) return repeated(heap, right, left.integer());
  }
  if (meaning == Operator::kModulo && left.is_text()) {
    return wrong("formatting a text with % is not supported");
  }
  return wrong(
      fmt::format("{} and {} have no '{}'", left.type_name(), right.type_name(), symbol(meaning)));
}

Result<bool> holds(Operator meaning, const Value& left, const Value& right) {
  switch (meaning) {
    case Operator::kEqual:
      return equal(left, right);
    case Operator::kNotEqual:
      return !equal(left, right);
    case Operator::kLess:
      return less(left, right);
    case Operator::kGreater:
      return less(right, left);
    case Operator::kLessEqual:
    case Operator::kGreaterEqual: {
      const bool turned = meaning == Operator::kGreaterEqual;
      SINEW_ASSIGN(const bool below, turned ? less(right, left) : less(left, right));
      return below || equal(left, right);
    }
    case Operator::kIn:
      return contains(right, left);
    case Operator::kNotIn: {
      SINEW_ASSIGN(const bool found, contains(right, left));
      return !found;
    }
    case Operator::kAdd:
    case Operator::kSubtract:
    case Operator::kMultiply:
    case Operator::kDivide:
    case Operator::kFloorDivide:
    case Operator::kModulo:
    case Operator::kPower:
      break;
  }
  return wrong("no such comparison");
}

Result<Value> slice(Heap& heap, const Value& object, const Value& start, const Value& stop,
                    const Value& step) {
  for (const Value* bound : {&start, &stop, &step}) {
    if (!bound->is_integer() && !bound->is_none() && !bound->is_undefined()) {
      return type_error("cannot bound a slice", *bound);
    }
  }
  const std::int64_t stride = step.is_integer() ? step.integer() : 1;
  if (stride == 0) return wrong("a slice with a step of 0");
  if (const List* list = object.items()) {
    std::vector<Value> items;
    const auto size = static_cast<std::int64_t>(list->items.size());
    for (const std::size_t i : slice_indices(size, start, stop, stride)) {
      items.push_back(list->items[i]);
    }
    return object.is<Tuple>() ? heap.tuple(std::move(items)) : heap.list(std::move(items));
  }
  if (object.is_undefined()) return type_error("cannot be sliced", object);
  // Of anything else Jinja makes an undefined value.
  if (!object.is_text()) return Value{};
  const std::string& text = object.text();
  const auto offsets = code_point_offsets(text);
  std::string out;
  for (const std::size_t i :
       slice_indices(static_cast<std::int64_t>(offsets.size()) - 1, start, stop, stride)) {
    out.append(text, offsets[i], offsets[i + 1] - offsets[i]);
  }
  return heap.text(std::move(out));
}

}  // namespace sinew::jinja
