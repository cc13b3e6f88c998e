#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "recipe.h"

namespace sinew::generate {

// Draws weights. The bytes depend on seed, tensor name and place only, not on the number of
// threads. Threads may call `rows` at the same time.
class Filler {
 public:
  explicit Filler(std::uint64_t seed) : seed_(seed) {}

  // Rows `begin` .. `end` of `weight`, as the file stores them.
  test::Bytes rows(const Weight& weight, std::uint64_t begin, std::uint64_t end);

 private:
  // Quantising takes far longer than drawing, above all to blocks of 256 (Q4_K: 2 million elements
  // a second). The rows of tensors above these sizes are therefore taken, at random block borders,
  // from one pool for each type and deviation.
  static constexpr std::uint64_t kPooledElementsMin = 8u << 20;
  static constexpr std::uint64_t kPooledElementsMinSlow = 1u << 20;
  static constexpr std::uint64_t kPoolElements = 1u << 20;

  using PoolKey = std::pair<TensorType, float>;
  const test::Bytes& pool(TensorType type, float deviation);

  std::uint64_t seed_;
  std::mutex mutex_;  // guards `pools_`; a pool does not change once it is there
  std::map<PoolKey, std::unique_ptr<test::Bytes>> pools_;
};

}  // namespace sinew::generate
