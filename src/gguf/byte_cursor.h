#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "base/bytes.h"
#include "base/result.h"

namespace sinew {

static_assert(std::endian::native == std::endian::little,
              "GGUF is little-endian, and numbers are taken from it as they lie");

// Reads a file from front to back and never past its end. Borrows path and bytes. What is being
// read is named once by `set_subject`, so that the many reads of one key need no text of their own.
class ByteCursor {
 public:
  ByteCursor(std::string_view path, ByteSpan bytes) : path_(path), bytes_(bytes) {}

  void set_subject(std::string subject) { subject_ = std::move(subject); }
  std::uint64_t offset() const { return offset_; }
  std::uint64_t remaining() const { return bytes_.size() - offset_; }

  template <typename T>
  Result<T> number() {
    static_assert(std::is_arithmetic_v<T>);
    SINEW_ASSIGN(const ByteSpan source, take(sizeof(T)));
    T value;
    std::memcpy(&value, source.data(), sizeof(T));
    return value;
  }

  // A string of at most `bytes_max` bytes: its length in 64 bits, then its bytes.
  Result<std::string_view> string(std::uint64_t bytes_max);

  // The next `count` bytes, or an error if the file has fewer.
  Result<ByteSpan> take(std::uint64_t count) {
    if (count > remaining()) return truncated(count);
    const ByteSpan taken = bytes_.subspan(offset_, count);
    offset_ += count;
    return taken;
  }

  // Fails unless `count` elements of at least `element_bytes_min` each can still follow.
  Status expect(std::uint64_t count, std::uint64_t element_bytes_min) const;

  // kInvalidFile with file, byte offset and subject in front of the broken rule and its remedy.
  tl::unexpected<Error> invalid(std::string_view rule) const;
  tl::unexpected<Error> unsupported(std::string_view rule) const;

 private:
  tl::unexpected<Error> truncated(std::uint64_t needed) const;

  std::string_view path_;
  ByteSpan bytes_;
  std::uint64_t offset_ = 0;
  std::string subject_ = "the header";
};

}  // namespace sinew
