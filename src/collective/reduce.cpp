#include "collective/reduce.h"

#include <algorithm>
#include <cstring>

namespace sinew {
namespace {

// A block stays in the first-level cache and has a constant length, so that compilers turn its
// loops into vector code; the local sum cannot overlap the sources, so no run-time overlap test is
// needed.
constexpr std::size_t kBlockFloats = 256;

void sum_block(std::span<const float* const> sources, std::size_t begin, float* out) {
  float sum[kBlockFloats];
  std::memcpy(sum, sources[0] + begin, sizeof(sum));
  for (std::size_t r = 1; r < sources.size(); ++r) {
    const float* source = sources[r] + begin;
    for (std::size_t i = 0; i < kBlockFloats; ++i) sum[i] += source[i];
  }
  std::memcpy(out + begin, sum, sizeof(sum));
}

}  // namespace

void sum_in_order(std::span<const float* const> sources, float* out, std::size_t count) {
  std::size_t begin = 0;
  for (; begin + kBlockFloats <= count; begin += kBlockFloats) sum_block(sources, begin, out);
  for (; begin < count; ++begin) {
    float sum = sources[0][begin];
    for (std::size_t r = 1; r < sources.size(); ++r) sum += sources[r][begin];
    out[begin] = sum;
  }
}

}  // namespace sinew
