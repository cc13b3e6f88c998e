#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.h"

namespace sinew {

// An array of one element type. Integers of every width are widened; nested arrays are kept.
struct MetaArray;
using MetaScalar = std::variant<std::uint64_t, std::int64_t, double, bool, std::string>;
struct MetaArray {
  std::vector<std::uint64_t> unsigned_integers;
  std::vector<std::int64_t> signed_integers;
  std::vector<double> reals;
  std::vector<bool> booleans;
  std::vector<std::string> strings;
  std::vector<MetaArray> arrays;
  std::uint32_t element_type = 0;  // GGUF's id of the elements' type
  std::size_t size = 0;
};
using MetaValue = std::variant<MetaScalar, MetaArray>;

// "a string", "an array of 3 elements of type 8": for messages.
std::string meta_kind_name(const MetaValue& value);

// The key-value part of a GGUF file. Getters convert between integer widths, check ranges, and name
// the file and key in their errors.
class Metadata {
 public:
  Metadata() = default;
  explicit Metadata(std::string file) : file_(std::move(file)) {}

  const std::string& file() const { return file_; }
  bool has(std::string_view key) const { return values_.contains(key); }
  const MetaValue* find(std::string_view key) const;
  // In the order of the file.
  const std::vector<std::string>& keys() const { return order_; }
  // False if the key exists already.
  bool insert(std::string key, MetaValue value);

  // Required keys: kInvalidFile if missing or of another kind.
  Result<std::int64_t> integer(std::string_view key) const;
  Result<double> real(std::string_view key) const;
  Result<bool> boolean(std::string_view key) const;
  Result<std::string> string(std::string_view key) const;
  Result<std::vector<std::string>> strings(std::string_view key) const;
  Result<std::vector<std::int64_t>> integers(std::string_view key) const;
  Result<std::vector<double>> reals(std::string_view key) const;

  // Optional keys: the default if missing, an error if of another kind.
  Result<std::int64_t> integer_or(std::string_view key, std::int64_t fallback) const;
  Result<double> real_or(std::string_view key, double fallback) const;
  Result<bool> boolean_or(std::string_view key, bool fallback) const;
  Result<std::string> string_or(std::string_view key, std::string fallback) const;

 private:
  std::string file_;
  std::map<std::string, MetaValue, std::less<>> values_;
  std::vector<std::string> order_;
};

}  // namespace sinew
