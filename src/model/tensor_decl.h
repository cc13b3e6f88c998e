#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "gguf/reader.h"
#include "model/spec.h"

namespace sinew {

// What ranks divide among themselves. Each dimension is handed out on its own, in whole units.
enum class Dimension : std::uint8_t {
  kHeads,          // attention heads; with grouped queries: key-value groups
  kFeedForward,    // columns of a dense layer
  kExpertColumns,  // columns of every expert, or
  kExperts,        // whole experts
  kSharedColumns,  // columns of the shared expert
  kVocabulary,     // rows of embedding and output layer
};
inline constexpr int kDimensionCount = 6;
std::string_view dimension_name(Dimension dimension);

// How one tensor is cut. The vocabulary is that of ggml's meta device: mirrored, or split along an
// axis. A matrix split along its rows (axis 1) is column-parallel in Megatron's terms
// (arXiv:1909.08053): each rank computes its own part of the result; one split along axis 0 is
// row-parallel: each rank computes a partial sum.
struct SplitRule {
  bool mirrored = true;
  Dimension dimension = Dimension::kHeads;
  int axis = 0;  // of the GGUF shape
  std::int64_t elements_per_index =
      1;  // elements along `axis` that belong to one index of the dimension
};

// What a tensor is for: devices may keep what is only multiplied in a layout of its own.
enum class TensorUse : std::uint8_t {
  kMatrix,   // multiplied with contiguous activations of [elements, tokens]
  kExperts,  // a matrix for each expert, multiplied by choice
  kOther,    // looked up by rows, multiplied head by head, a vector: kept as the file has it
};

// Which pipeline stages need a tensor.
enum class Place : std::uint8_t {
  kEveryStage,
  kFirstStage,
  kLastStage,
  kLayer,  // the stage of `TensorDecl::layer`
};

// One tensor that a family needs.
struct TensorDecl {
  std::string name;
  // What the file calls it, if not `name`: an embedding that is the output layer as well is two
  // tensors of one content, because devices keep what is multiplied in another layout than what is
  // looked up.
  std::string source;
  std::array<std::int64_t, 4> shape{1, 1, 1, 1};
  SplitRule split;
  // Axis along which experts are stacked, by which the tensor is cut instead where ranks hold whole
  // experts; -1 for what belongs to no expert.
  int expert_axis = -1;
  Place place = Place::kEveryStage;
  int layer = 0;
  TensorUse use = TensorUse::kMatrix;
  bool required = true;
  bool float_only = false;  // norms, biases and routers, which are used as F32
};

// The tensor table of a model.
std::vector<TensorDecl> declare_tensors(const ModelSpec& spec);

// Number of indices of a dimension (heads or groups, columns, rows); 0 if the model has none of it.
std::int64_t dimension_size(const ModelSpec& spec, Dimension dimension);

// A declared tensor and where the file has it.
struct BoundTensor {
  TensorDecl decl;
  const TensorInfo* info =
      nullptr;  // points into the GgufModel it was bound to, which must outlive it
};

// Matches the table against the file: every required tensor is there with the declared shape and a
// type that can be computed with, and the file holds no tensor that the family would silently
// ignore.
Result<std::vector<BoundTensor>> bind_tensors(const ModelSpec& spec, const GgufModel& model);

// Smallest step, in indices, in which each dimension can be cut: whole quantisation blocks where a
// tensor is split along its rows' direction. The last unit of a dimension may be smaller.
std::array<std::int64_t, kDimensionCount> split_units(const ModelSpec& spec,
                                                      const std::vector<BoundTensor>& tensors);

}  // namespace sinew
