#include "model/slice.h"

#include "base/assert.h"

namespace sinew {

SliceBytes slice_bytes(const TensorInfo& tensor, int axis, IndexRange range) {
  SINEW_ASSERT(axis >= 0 && axis < 4);
  const auto at = static_cast<std::size_t>(axis);
  SINEW_ASSERT(range.begin >= 0 && range.begin <= range.end &&
               static_cast<std::uint64_t>(range.end) <= tensor.shape[at]);

  // Bytes between neighbours along `axis`; along axis 0 neighbours are blocks.
  std::uint64_t step = tensor.traits().block_bytes;
  std::uint64_t length = tensor.shape[0] / tensor.traits().block_length;
  auto begin = static_cast<std::uint64_t>(range.begin);
  auto size = static_cast<std::uint64_t>(range.size());
  if (axis == 0) {
    const std::uint64_t block = tensor.traits().block_length;
    SINEW_ASSERT(begin % block == 0 && size % block == 0);
    begin /= block;
    size /= block;
  } else {
    for (std::size_t d = 1; d <= at; ++d) {
      step *= length;
      length = tensor.shape[d];
    }
  }
  SliceBytes slice;
  slice.offset = begin * step;
  slice.chunk_bytes = size * step;
  slice.stride_bytes = length * step;
  slice.count = slice.chunk_bytes == 0 ? 0 : tensor.bytes / slice.stride_bytes;
  if (slice.chunk_bytes == slice.stride_bytes) {  // contiguous
    slice.chunk_bytes *= slice.count;
    slice.stride_bytes = slice.chunk_bytes;
    slice.count = slice.count == 0 ? 0 : 1;
  }
  return slice;
}

}  // namespace sinew
