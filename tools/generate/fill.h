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
  Filler(std::uint64_t seed, unsigned threads) : seed_(seed), threads_(threads) {}

  // Rows `begin` .. `end` of `weight`, as the file stores them.
  test::Bytes rows(const Weight& weight, std::uint64_t begin, std::uint64_t end);

 private:
  // The quantised values of one type and deviation from which the rows of large tensors are taken.
  using PoolKey = std::pair<TensorType, float>;
  const test::Bytes& pool(TensorType type, float deviation);
  test::Bytes rows_of_pool(const Weight& weight, std::uint64_t begin, std::uint64_t end);

  test::Bytes rows_of_codes(const Weight& weight, std::uint64_t begin, std::uint64_t end);

  std::uint64_t seed_;
  unsigned threads_;
  std::mutex mutex_;  // guards both maps; a pool does not change once it is there
  std::map<PoolKey, std::unique_ptr<test::Bytes>> pools_;
  std::map<TensorType, float> deviations_of_codes_;
};

}  // namespace sinew::generate
