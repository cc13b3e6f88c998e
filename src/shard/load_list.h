#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "plan/plan.h"

namespace sinew {

// One tensor of one rank: what to call it, its local shape, and which bytes of which file it is.
struct LoadItem {
  std::string name;
  TensorUse use = TensorUse::kMatrix;
  TensorType type = TensorType::kF32;
  std::array<std::int64_t, 4> shape{1, 1, 1, 1};  // of the slice
  std::uint32_t part = 0;                         // file of a split model
  std::uint64_t file_offset = 0;                  // of the whole tensor
  SliceBytes bytes;                               // relative to file_offset
};

// Everything that a rank reads, in the order of the file. Tensors of which it holds nothing are
// left out. A value: the engine executes it.
std::vector<LoadItem> make_load_list(const std::vector<BoundTensor>& tensors, const Plan& plan,
                                     Rank rank);

// Proves that the ranks of every stage together read every byte of each tensor that the stage needs
// as its rule says: split tensors exactly once, mirrored ones on every rank. The error names
// tensor, byte and the ranks concerned.
Status check_coverage(const std::vector<BoundTensor>& tensors, const Plan& plan,
                      const std::vector<std::vector<LoadItem>>& lists);

}  // namespace sinew
