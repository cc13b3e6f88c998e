#include "engine/weight_loader.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace sinew {
namespace {

constexpr std::uint64_t kPageBytes = 4096;

Status read_exactly(const MappedFile& file, std::uint64_t offset, std::span<std::byte> into) {
  while (!into.empty()) {
    const ssize_t got =
        ::pread(file.descriptor(), into.data(), into.size(), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0)
      return fail(ErrorCode::kIo, "{}: byte {} cannot be read: {}", file.path(), offset,
                  std::strerror(errno));
    if (got == 0)
      return fail(ErrorCode::kIo, "{}: ends at byte {} although it was longer when it was opened",
                  file.path(), offset);
    into = into.subspan(static_cast<std::size_t>(got));
    offset += static_cast<std::uint64_t>(got);
  }
  return {};
}

// Chunks and their gaps in one read, then the chunks moved together.
Status read_with_gaps(const MappedFile& file, std::uint64_t offset, const SliceBytes& slice,
                      std::span<std::byte> into) {
  const std::uint64_t per_window =
      std::max<std::uint64_t>(1, kReadWindowBytes / slice.stride_bytes);
  std::vector<std::byte> window;
  for (std::uint64_t first = 0; first < slice.count; first += per_window) {
    const std::uint64_t chunks = std::min(per_window, slice.count - first);
    window.resize((chunks - 1) * slice.stride_bytes + slice.chunk_bytes);
    SINEW_TRY(read_exactly(file, offset + first * slice.stride_bytes, window));
    for (std::uint64_t i = 0; i < chunks; ++i)
      std::memcpy(into.data() + (first + i) * slice.chunk_bytes,
                  window.data() + i * slice.stride_bytes, slice.chunk_bytes);
  }
  return {};
}

}  // namespace

Status read_slice(const ModelFile& file, const LoadItem& item, std::span<std::byte> into) {
  const MappedFile& part = file.parts[item.part];
  const SliceBytes& slice = item.bytes;
  const std::uint64_t offset = item.file_offset + slice.offset;
  if (slice.count > 1 && slice.chunk_bytes < kPageBytes)
    return read_with_gaps(part, offset, slice, into);
  for (std::uint64_t i = 0; i < slice.count; ++i)
    SINEW_TRY(read_exactly(part, offset + i * slice.stride_bytes,
                           into.subspan(i * slice.chunk_bytes, slice.chunk_bytes)));
  return {};
}

Status load_weights(const ModelFile& file, const std::vector<LoadItem>& items,
                    const Weights& weights, const std::function<void(std::uint64_t)>& progress,
                    const SliceInspector& inspect) {
  std::uint64_t largest = 0;
  for (const LoadItem& item : items) largest = std::max(largest, item.bytes.total());
  std::vector<std::byte> slice;
  slice.reserve(largest);  // growing would hold two slices for a moment
  std::uint64_t loaded = 0;
  for (const LoadItem& item : items) {
    slice.resize(item.bytes.total());
    SINEW_TRY(read_slice(file, item, slice));
    if (inspect) SINEW_TRY(inspect(item, slice));
    weights.set(weights.find(item.name), slice);
    loaded += slice.size();
    progress(loaded);
  }
  return {};
}

}  // namespace sinew
