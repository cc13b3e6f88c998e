#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "gguf/tensor_type.h"

namespace sinew::test {

using Bytes = std::vector<std::byte>;

template <typename T>
void append(Bytes& target, T value) {
  static_assert(std::is_arithmetic_v<T>);
  const auto* begin = reinterpret_cast<const std::byte*>(&value);
  target.insert(target.end(), begin, begin + sizeof(T));
}
inline void append(Bytes& target, std::string_view text) {
  append(target, static_cast<std::uint64_t>(text.size()));
  const auto* begin = reinterpret_cast<const std::byte*>(text.data());
  target.insert(target.end(), begin, begin + text.size());
}

// GGUF's id of the value type that a C++ type is stored as.
template <typename T>
constexpr std::uint32_t meta_type_id() {
  if constexpr (std::is_same_v<T, std::uint8_t>) return 0;
  if constexpr (std::is_same_v<T, std::int8_t>) return 1;
  if constexpr (std::is_same_v<T, std::uint16_t>) return 2;
  if constexpr (std::is_same_v<T, std::int16_t>) return 3;
  if constexpr (std::is_same_v<T, std::uint32_t>) return 4;
  if constexpr (std::is_same_v<T, std::int32_t>) return 5;
  if constexpr (std::is_same_v<T, float>) return 6;
  if constexpr (std::is_same_v<T, bool>) return 7;
  if constexpr (std::is_convertible_v<T, std::string_view>) return 8;
  if constexpr (std::is_same_v<T, std::uint64_t>) return 10;
  if constexpr (std::is_same_v<T, std::int64_t>) return 11;
  if constexpr (std::is_same_v<T, double>) return 12;
}
inline constexpr std::uint32_t kMetaArrayId = 9;

// Writes a GGUF file in memory, in the order of the calls. It checks nothing, so that tests can
// break every rule:
//   GgufWriter writer;
//   writer.add("general.architecture", "llama").add("llama.block_count", std::uint32_t{2});
//   writer.tensor("output_norm.weight", TensorType::kF32, {256}, data);
//   Bytes file = writer.bytes();
class GgufWriter {
 public:
  explicit GgufWriter(std::uint32_t version = 3) : version_(version) {}

  // A number, a boolean or a text, stored as exactly its C++ type.
  template <typename T>
  GgufWriter& add(std::string_view key, const T& value) {
    Bytes encoded;
    encode(encoded, value);
    return raw(key, meta_type_id<std::decay_t<const T>>(), encoded);
  }
  template <typename T>
  GgufWriter& add(std::string_view key, const std::vector<T>& values) {
    Bytes encoded;
    append(encoded, meta_type_id<T>());
    append(encoded, static_cast<std::uint64_t>(values.size()));
    for (const T& value : values) encode(encoded, value);
    return raw(key, kMetaArrayId, encoded);
  }
  // Any value type, with its bytes as given.
  GgufWriter& raw(std::string_view key, std::uint32_t type_id, std::span<const std::byte> value) {
    append(pairs_, key);
    append(pairs_, type_id);
    pairs_.insert(pairs_.end(), value.begin(), value.end());
    ++pair_count_;
    return *this;
  }

  // Also to be told to the reader, with add("general.alignment", ..).
  GgufWriter& alignment(std::uint64_t bytes) {
    alignment_ = bytes;
    return *this;
  }

  // A tensor whose data is `data`, or as many zeros as its type and shape need.
  GgufWriter& tensor(std::string_view name, TensorType type,
                     const std::vector<std::uint64_t>& shape, const Bytes& data) {
    data_.resize(padded(data_.size()));
    tensor_info(name, type, shape, data_.size());
    data_.insert(data_.end(), data.begin(), data.end());
    return *this;
  }
  GgufWriter& tensor(std::string_view name, TensorType type,
                     const std::vector<std::uint64_t>& shape) {
    return tensor(name, type, shape, Bytes(tensor_bytes(type, shape)));
  }
  // The directory entry alone; `offset` from the start of the data section.
  GgufWriter& tensor_info(std::string_view name, TensorType type,
                          const std::vector<std::uint64_t>& shape, std::uint64_t offset) {
    append(infos_, name);
    append(infos_, static_cast<std::uint32_t>(shape.size()));
    for (const std::uint64_t size : shape) append(infos_, size);
    append(infos_, static_cast<std::uint32_t>(type));
    append(infos_, offset);
    ++tensor_count_;
    return *this;
  }

  // Up to the first byte of the data section.
  Bytes header() const {
    Bytes file;
    for (const char letter : {'G', 'G', 'U', 'F'}) file.push_back(static_cast<std::byte>(letter));
    append(file, version_);
    append(file, tensor_count_);
    append(file, pair_count_);
    file.insert(file.end(), pairs_.begin(), pairs_.end());
    file.insert(file.end(), infos_.begin(), infos_.end());
    file.resize(padded(file.size()));
    return file;
  }
  // The whole file, with padding behind the last tensor as converters write it.
  Bytes bytes() const {
    Bytes file = header();
    file.insert(file.end(), data_.begin(), data_.end());
    file.resize(padded(file.size()));
    return file;
  }

  std::uint64_t padded(std::uint64_t size) const {
    return (size + alignment_ - 1) / alignment_ * alignment_;
  }
  static std::uint64_t tensor_bytes(TensorType type, const std::vector<std::uint64_t>& shape) {
    const TensorTypeTraits& traits = *tensor_type_traits(type);
    std::uint64_t bytes = shape.front() / traits.block_length * traits.block_bytes;
    for (std::size_t i = 1; i < shape.size(); ++i) bytes *= shape[i];
    return bytes;
  }

 private:
  template <typename T>
  static void encode(Bytes& target, const T& value) {
    if constexpr (std::is_convertible_v<T, std::string_view>) {
      append(target, std::string_view(value));
    } else {
      append(target, value);
    }
  }

  std::uint32_t version_;
  std::uint64_t alignment_ = 32;
  std::uint64_t pair_count_ = 0;
  std::uint64_t tensor_count_ = 0;
  Bytes pairs_;
  Bytes infos_;
  Bytes data_;
};

}  // namespace sinew::test
