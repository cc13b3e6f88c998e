#include "gguf/metadata.h"

#include <fmt/format.h>

#include <limits>
#include <utility>

#include "gguf/printable.h"

namespace sinew {
namespace {

constexpr auto kIntegerMax = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());

tl::unexpected<Error> missing(const std::string& file, std::string_view key) {
  return fail(ErrorCode::kInvalidFile,
              "{}: the key '{}' is missing; convert the model again with a current converter", file,
              printable(key));
}

tl::unexpected<Error> wrong_kind(const std::string& file, std::string_view key,
                                 std::string_view wanted, const MetaValue& value) {
  return fail(ErrorCode::kInvalidFile,
              "{}: the key '{}' must hold {}, and holds {}; convert the model again with a current "
              "converter",
              file, printable(key), wanted, meta_kind_name(value));
}

tl::unexpected<Error> out_of_range(const std::string& file, std::string_view key,
                                   std::uint64_t value) {
  return fail(ErrorCode::kInvalidFile,
              "{}: the key '{}' holds {}, more than a signed 64-bit integer; the file is damaged: "
              "download it again",
              file, printable(key), value);
}

template <typename T>
const T* scalar(const MetaValue& value) {
  const auto* holder = std::get_if<MetaScalar>(&value);
  return holder == nullptr ? nullptr : std::get_if<T>(holder);
}

// An array of numbers may be read as any kind when it has no element at all: converters write empty
// arrays with whatever element type they like.
bool empty_array(const MetaValue& value) {
  const auto* array = std::get_if<MetaArray>(&value);
  return array != nullptr && array->size == 0;
}

}  // namespace

std::string meta_kind_name(const MetaValue& value) {
  if (const auto* array = std::get_if<MetaArray>(&value)) {
    return fmt::format("an array of {} elements of type {}", array->size, array->element_type);
  }
  if (scalar<std::string>(value) != nullptr) return "a string";
  if (scalar<bool>(value) != nullptr) return "a boolean";
  if (scalar<double>(value) != nullptr) return "a real number";
  return "an integer";
}

const MetaValue* Metadata::find(std::string_view key) const {
  const auto place = values_.find(key);
  return place == values_.end() ? nullptr : &place->second;
}

bool Metadata::insert(std::string key, MetaValue value) {
  const auto [place, inserted] = values_.try_emplace(std::move(key), std::move(value));
  if (inserted) order_.push_back(place->first);
  return inserted;
}

Result<std::int64_t> Metadata::integer(std::string_view key) const {
  const MetaValue* value = find(key);
  if (value == nullptr) return missing(file_, key);
  if (const auto* number = scalar<std::int64_t>(*value)) return *number;
  if (const auto* number = scalar<std::uint64_t>(*value)) {
    if (*number > kIntegerMax) return out_of_range(file_, key, *number);
    return static_cast<std::int64_t>(*number);
  }
  return wrong_kind(file_, key, "an integer", *value);
}

Result<double> Metadata::real(std::string_view key) const {
  const MetaValue* value = find(key);
  if (value == nullptr) return missing(file_, key);
  if (const auto* number = scalar<double>(*value)) return *number;
  return wrong_kind(file_, key, "a real number", *value);
}

Result<bool> Metadata::boolean(std::string_view key) const {
  const MetaValue* value = find(key);
  if (value == nullptr) return missing(file_, key);
  if (const auto* flag = scalar<bool>(*value)) return *flag;
  return wrong_kind(file_, key, "a boolean", *value);
}

Result<std::string> Metadata::string(std::string_view key) const {
  const MetaValue* value = find(key);
  if (value == nullptr) return missing(file_, key);
  if (const auto* text = scalar<std::string>(*value)) return *text;
  return wrong_kind(file_, key, "a string", *value);
}

Result<std::vector<std::string>> Metadata::strings(std::string_view key) const {
  const MetaValue* value = find(key);
  if (value == nullptr) return missing(file_, key);
  const auto* array = std::get_if<MetaArray>(value);
  if (array == nullptr || (array->strings.empty() && array->size != 0))
    return wrong_kind(file_, key, "an array of strings", *value);
  return array->strings;
}

Result<std::vector<std::int64_t>> Metadata::integers(std::string_view key) const {
  const MetaValue* value = find(key);
  if (value == nullptr) return missing(file_, key);
  if (empty_array(*value)) return std::vector<std::int64_t>();
  const auto* array = std::get_if<MetaArray>(value);
  if (array != nullptr && !array->signed_integers.empty()) return array->signed_integers;
  if (array == nullptr || array->unsigned_integers.empty())
    return wrong_kind(file_, key, "an array of integers", *value);
  std::vector<std::int64_t> numbers;
  numbers.reserve(array->unsigned_integers.size());
  for (const std::uint64_t number : array->unsigned_integers) {
    if (number > kIntegerMax) return out_of_range(file_, key, number);
    numbers.push_back(static_cast<std::int64_t>(number));
  }
  return numbers;
}

Result<std::vector<double>> Metadata::reals(std::string_view key) const {
  const MetaValue* value = find(key);
  if (value == nullptr) return missing(file_, key);
  if (empty_array(*value)) return std::vector<double>();
  const auto* array = std::get_if<MetaArray>(value);
  if (array == nullptr || array->reals.empty())
    return wrong_kind(file_, key, "an array of real numbers", *value);
  return array->reals;
}

Result<std::int64_t> Metadata::integer_or(std::string_view key, std::int64_t fallback) const {
  return has(key) ? integer(key) : Result<std::int64_t>(fallback);
}

Result<double> Metadata::real_or(std::string_view key, double fallback) const {
  return has(key) ? real(key) : Result<double>(fallback);
}

Result<bool> Metadata::boolean_or(std::string_view key, bool fallback) const {
  return has(key) ? boolean(key) : Result<bool>(fallback);
}

Result<std::string> Metadata::string_or(std::string_view key, std::string fallback) const {
  return has(key) ? string(key) : Result<std::string>(std::move(fallback));
}

}  // namespace sinew
