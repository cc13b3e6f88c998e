#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/result.h"

namespace sinew {

// Messages between our own processes: little-endian numbers, and strings and arrays with a count in
// front.
static_assert(std::endian::native == std::endian::little,
              "messages are written in the machine's order");

class WireWriter {
 public:
  template <typename T>
  requires(std::is_arithmetic_v<T> || std::is_enum_v<T>) WireWriter& put(T value) {
    const auto* bytes = reinterpret_cast<const std::byte*>(&value);
    bytes_.insert(bytes_.end(), bytes, bytes + sizeof(T));
    return *this;
  }
  WireWriter& put(std::string_view text) { return put_array(std::span<const char>(text)); }
  template <typename T>
  WireWriter& put_array(std::span<const T> values) {
    put(static_cast<std::uint32_t>(values.size()));
    const auto bytes = std::as_bytes(values);
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
    return *this;
  }
  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

// Reads what a WireWriter wrote. The first read past the end, or count that the bytes cannot hold,
// is kept: later reads give zeros, and `status` says so. Nothing is allocated beyond the bytes that
// are there.
class WireReader {
 public:
  explicit WireReader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  template <typename T>
  requires(std::is_arithmetic_v<T> || std::is_enum_v<T>) T get() {
    T value{};
    if (take(sizeof(T))) std::memcpy(&value, bytes_.data() + at_ - sizeof(T), sizeof(T));
    return value;
  }
  std::string get_string() {
    const std::vector<char> characters = get_array<char>();
    return {characters.begin(), characters.end()};
  }
  template <typename T>
  std::vector<T> get_array() {
    const std::size_t size = get<std::uint32_t>() * sizeof(T);
    if (!take(size)) return {};
    std::vector<T> values(size / sizeof(T));
    if (size > 0) std::memcpy(values.data(), bytes_.data() + at_ - size, size);
    return values;
  }
  // kProtocol if a read failed or bytes are left over.
  Status status(std::string_view what) const {
    if (!good_ || at_ != bytes_.size())
      return fail(ErrorCode::kProtocol, "a {} message of {} bytes is malformed", what,
                  bytes_.size());
    return {};
  }

 private:
  bool take(std::size_t size) {
    if (!good_ || size > bytes_.size() - at_) {
      good_ = false;
      return false;
    }
    at_ += size;
    return true;
  }
  std::span<const std::byte> bytes_;
  std::size_t at_ = 0;
  bool good_ = true;
};

}  // namespace sinew
