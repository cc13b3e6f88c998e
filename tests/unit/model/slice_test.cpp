#include "model/slice.h"

#include <gtest/gtest.h>

namespace sinew {
namespace {

TensorInfo tensor(TensorType type, std::array<std::uint64_t, 4> shape) {
  TensorInfo info;
  info.type = type;
  info.shape = shape;
  info.bytes = info.row_bytes() * info.rows();
  return info;
}

// Whether the byte at `offset` belongs to the slice, from its element's index.
bool belongs(const TensorInfo& info, int axis, IndexRange range, std::uint64_t offset) {
  const std::uint64_t row = offset / info.row_bytes();
  const std::uint64_t block = offset % info.row_bytes() / info.traits().block_bytes;
  const std::array<std::uint64_t, 4> index{block * info.traits().block_length, row % info.shape[1],
                                           row / info.shape[1] % info.shape[2],
                                           row / info.shape[1] / info.shape[2]};
  const auto at = static_cast<std::int64_t>(index[static_cast<std::size_t>(axis)]);
  return at >= range.begin && at < range.end;
}

std::vector<bool> bytes_of(const TensorInfo& info, const SliceBytes& slice) {
  std::vector<bool> held(info.bytes, false);
  for (std::uint64_t i = 0; i < slice.count; ++i)
    for (std::uint64_t j = 0; j < slice.chunk_bytes; ++j)
      held.at(slice.offset + i * slice.stride_bytes + j) = true;
  return held;
}

void expect_exact(const TensorInfo& info, int axis, IndexRange range) {
  const SliceBytes slice = slice_bytes(info, axis, range);
  const std::vector<bool> held = bytes_of(info, slice);
  std::uint64_t expected = 0;
  for (std::uint64_t offset = 0; offset < info.bytes; ++offset) {
    ASSERT_EQ(held[offset], belongs(info, axis, range, offset))
        << "axis " << axis << ", " << range.begin << " .. " << range.end << ", byte " << offset;
    expected += held[offset] ? 1u : 0u;
  }
  EXPECT_EQ(slice.total(), expected);
}

TEST(SliceBytes, EveryAxisGivesExactlyItsElements) {
  for (const TensorType type : {TensorType::kF32, TensorType::kF16, TensorType::kQ8_0}) {
    const auto block = static_cast<std::int64_t>(tensor_type_traits(type)->block_length);
    const TensorInfo info = tensor(type, {static_cast<std::uint64_t>(4 * block), 5, 3, 2});
    for (int axis = 0; axis < 4; ++axis) {
      const std::int64_t unit = axis == 0 ? block : 1;
      const auto units =
          static_cast<std::int64_t>(info.shape[static_cast<std::size_t>(axis)]) / unit;
      for (std::int64_t begin = 0; begin <= units; ++begin)
        for (std::int64_t end = begin; end <= units; ++end)
          expect_exact(info, axis, {begin * unit, end * unit});
    }
  }
}

TEST(SliceBytes, RowsAreOneChunk) {
  const SliceBytes slice = slice_bytes(tensor(TensorType::kQ4_0, {64, 10, 1, 1}), 1, {2, 5});
  EXPECT_EQ(slice.offset, 2u * 36);
  EXPECT_EQ(slice.count, 1u);
  EXPECT_EQ(slice.chunk_bytes, 3u * 36);
}

TEST(SliceBytes, ColumnsAreOneChunkARow) {
  const SliceBytes slice = slice_bytes(tensor(TensorType::kQ4_0, {128, 10, 2, 1}), 0, {32, 96});
  EXPECT_EQ(slice.offset, 18u);
  EXPECT_EQ(slice.chunk_bytes, 36u);
  EXPECT_EQ(slice.stride_bytes, 72u);
  EXPECT_EQ(slice.count, 20u);
}

TEST(SliceBytes, WholeTensorIsOneChunkAlongEveryAxis) {
  const TensorInfo info = tensor(TensorType::kF16, {8, 3, 5, 2});
  for (int axis = 0; axis < 4; ++axis) {
    const auto size = static_cast<std::int64_t>(info.shape[static_cast<std::size_t>(axis)]);
    const SliceBytes slice = slice_bytes(info, axis, {0, size});
    EXPECT_EQ(slice.offset, 0u);
    EXPECT_EQ(slice.count, 1u);
    EXPECT_EQ(slice.total(), info.bytes);
  }
}

TEST(SliceBytes, EmptyRangeHasNoBytes) {
  const TensorInfo info = tensor(TensorType::kF16, {8, 3, 5, 2});
  for (int axis = 0; axis < 4; ++axis)
    EXPECT_EQ(slice_bytes(info, axis, {1, 1}).total(), 0u) << axis;
}

TEST(SliceBytesDeathTest, BrokenBlocksAndRangesOutsideAreOurMistakes) {
  const TensorInfo info = tensor(TensorType::kQ8_0, {64, 4, 1, 1});
  EXPECT_DEATH(slice_bytes(info, 0, {16, 32}), "block");
  EXPECT_DEATH(slice_bytes(info, 1, {0, 5}), "range");
  EXPECT_DEATH(slice_bytes(info, 1, {3, 2}), "range");
  EXPECT_DEATH(slice_bytes(info, 4, {0, 1}), "axis");
}

}  // namespace
}  // namespace sinew
