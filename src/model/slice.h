#pragma once

#include <array>
#include <cstdint>

#include "gguf/reader.h"

namespace sinew {

// Half-open range of indices.
struct IndexRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t size() const { return end - begin; }
  friend bool operator==(const IndexRange&, const IndexRange&) = default;
};

// The bytes of a slice, relative to the tensor's start: `count` chunks of `chunk_bytes`, each
// `stride_bytes` after the one before. Packed one after another they are the slice as a tensor of
// its own.
struct SliceBytes {
  std::uint64_t offset = 0;
  std::uint64_t chunk_bytes = 0;
  std::uint64_t stride_bytes = 0;
  std::uint64_t count = 0;
  std::uint64_t total() const { return chunk_bytes * count; }
};

// Elements `range` along `axis` (0 .. 3) of a tensor. Along axis 0 the range must begin and end at
// block borders.
SliceBytes slice_bytes(const TensorInfo& tensor, int axis, IndexRange range);

}  // namespace sinew
