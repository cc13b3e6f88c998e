#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "gguf/byte_cursor.h"
#include "gguf/reader.h"

// The pieces of GgufModel::parse; nothing else includes this.
namespace sinew {

// What one file of a model says. Tensor offsets count from the start of the file.
struct PartDirectory {
  std::uint32_t version = 0;
  Metadata metadata;
  std::vector<TensorInfo> tensors;
};

// `index` becomes TensorInfo::part.
Result<PartDirectory> parse_part(const GgufPart& part, std::uint32_t index);

// Reads `count` key-value pairs into `metadata`.
Status read_metadata(ByteCursor& cursor, std::uint64_t count, Metadata& metadata);

// Fails unless the split metadata of all parts names exactly these parts in this order.
Status check_split(std::span<const GgufPart> parts, std::span<const PartDirectory> directories);

}  // namespace sinew
