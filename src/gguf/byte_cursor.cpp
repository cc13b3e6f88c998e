#include "gguf/byte_cursor.h"

#include <fmt/format.h>

namespace sinew {

Result<std::string_view> ByteCursor::string(std::uint64_t bytes_max) {
  SINEW_ASSIGN(const std::uint64_t length, number<std::uint64_t>());
  if (length > bytes_max && length <= remaining())
    return invalid(
        fmt::format("a string of {} bytes, where at most {} are allowed; the file is "
                    "damaged: download it again",
                    length, bytes_max));
  SINEW_ASSIGN(const ByteSpan source, take(length));
  return std::string_view(reinterpret_cast<const char*>(source.data()), source.size());
}

Status ByteCursor::expect(std::uint64_t count, std::uint64_t element_bytes_min) const {
  if (count <= remaining() / element_bytes_min) return {};
  return invalid(fmt::format(
      "{} elements of at least {} bytes cannot fit the {} bytes that the file still has; "
      "the file is truncated or damaged: download it again",
      count, element_bytes_min, remaining()));
}

tl::unexpected<Error> ByteCursor::truncated(std::uint64_t needed) const {
  return invalid(fmt::format(
      "{} bytes are needed and the file has {} more; the file is truncated: download it "
      "again",
      needed, remaining()));
}

tl::unexpected<Error> ByteCursor::invalid(std::string_view rule) const {
  return fail(ErrorCode::kInvalidFile, "{}: at byte {}, {}: {}", path_, offset_, subject_, rule);
}

tl::unexpected<Error> ByteCursor::unsupported(std::string_view rule) const {
  return fail(ErrorCode::kUnsupported, "{}: at byte {}, {}: {}", path_, offset_, subject_, rule);
}

}  // namespace sinew
