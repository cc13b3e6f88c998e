#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "gguf/metadata.h"
#include "gguf/tensor_type.h"

namespace sinew {

// One tensor as the file stores it. shape[0] is the fastest dimension (a row), as in ggml; unused
// dimensions are 1.
struct TensorInfo {
  std::string name;
  TensorType type = TensorType::kF32;
  std::array<std::uint64_t, 4> shape{1, 1, 1, 1};
  int dimensions = 1;        // as written in the file, 1 .. 4
  std::uint32_t part = 0;    // index of the file of a split model
  std::uint64_t offset = 0;  // from the start of that file, bytes
  std::uint64_t bytes = 0;

  const TensorTypeTraits& traits() const { return *tensor_type_traits(type); }
  std::uint64_t row_bytes() const {
    return shape[0] / traits().block_length * traits().block_bytes;
  }
  std::uint64_t rows() const { return shape[1] * shape[2] * shape[3]; }
};

// One file of a model, mapped by the caller; `bytes` must outlive parsing only.
struct GgufPart {
  std::string path;  // for messages
  ByteSpan bytes;
};

// The directory of a model: metadata and tensors of all its parts. Holds no tensor data.
//
// Parsing trusts nothing: every count, length, offset, product and alignment is checked against the
// bytes that are there before anything is allocated for it. Errors name file, byte offset, key or
// tensor, and the rule (kInvalidFile), or what is not supported (kUnsupported: version 1,
// big-endian, unknown type).
class GgufModel {
 public:
  // All parts of the model in order (one for a model that is not split). Split metadata (split.no,
  // split.count, split.tensors.count) must agree with the parts given.
  static Result<GgufModel> parse(std::span<const GgufPart> parts);

  const std::string& path() const { return paths_.front(); }
  const std::vector<std::string>& paths() const { return paths_; }
  std::uint32_t version() const { return version_; }
  const Metadata& metadata() const { return metadata_; }
  std::span<const TensorInfo> tensors() const { return tensors_; }
  // Null if there is none of that name.
  const TensorInfo* find(std::string_view name) const;

 private:
  std::vector<std::string> paths_;
  std::uint32_t version_ = 0;
  Metadata metadata_;
  std::vector<TensorInfo> tensors_;
  std::map<std::string, std::size_t, std::less<>> by_name_;
};

// For a path that ends in "-00001-of-00004.gguf" (any number): the paths of all parts, in order.
// For any other path: the path alone.
Result<std::vector<std::string>> split_paths(const std::string& path);

}  // namespace sinew
