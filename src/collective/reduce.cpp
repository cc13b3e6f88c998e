#include "collective/reduce.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>

#include "collective/half.h"

namespace sinew {
namespace {

// A block stays in the first-level cache and has a constant length, so that compilers turn its
// loops into vector code; the local sum cannot overlap the sources, so no run-time overlap test is
// needed.
constexpr std::size_t kBlock = 256;

struct PlainFloats {
  static void load(const std::byte* from, float* into) { std::memcpy(into, from, kBlock * 4); }
  static void add(const std::byte* from, float* sum) {
    const auto* source = reinterpret_cast<const float*>(from);
    for (std::size_t i = 0; i < kBlock; ++i) sum[i] += source[i];
  }
};

template <typename Half>
struct Halves {
  static void load(const std::byte* from, float* into) {
    std::uint16_t source[kBlock];
    std::memcpy(source, from, sizeof(source));
    for (std::size_t i = 0; i < kBlock; ++i) into[i] = std::bit_cast<float>(Half::widen(source[i]));
  }
  static void add(const std::byte* from, float* sum) {
    std::uint16_t source[kBlock];
    std::memcpy(source, from, sizeof(source));
    for (std::size_t i = 0; i < kBlock; ++i) sum[i] += std::bit_cast<float>(Half::widen(source[i]));
  }
};

template <typename Values>
void sum_block(std::span<const std::byte* const> sources, std::size_t begin_bytes, float* out) {
  float sum[kBlock];
  Values::load(sources[0] + begin_bytes, sum);
  for (std::size_t r = 1; r < sources.size(); ++r) Values::add(sources[r] + begin_bytes, sum);
  std::memcpy(out, sum, sizeof(sum));
}

template <typename Values>
void sum_blocks(std::span<const std::byte* const> sources, std::size_t width, float* out,
                std::size_t blocks) {
  for (std::size_t block = 0; block < blocks; ++block)
    sum_block<Values>(sources, block * kBlock * width, out + block * kBlock);
}

}  // namespace

void sum_in_order(std::span<const std::byte* const> sources, WireType type, float* out,
                  std::size_t count) {
  const std::size_t width = wire_width(type);
  const std::size_t blocks = count / kBlock;
  switch (type) {
    case WireType::kF32:
      sum_blocks<PlainFloats>(sources, width, out, blocks);
      break;
    case WireType::kBf16:
      sum_blocks<Halves<Bf16>>(sources, width, out, blocks);
      break;
    case WireType::kF16:
      sum_blocks<Halves<F16>>(sources, width, out, blocks);
      break;
  }
  // The rest, at most one block.
  const std::size_t begin = blocks * kBlock;
  float sum[kBlock];
  float next[kBlock];
  const std::size_t rest = count - begin;
  if (rest == 0) return;
  from_wire(sources[0] + begin * width, type, {sum, rest});
  for (std::size_t r = 1; r < sources.size(); ++r) {
    from_wire(sources[r] + begin * width, type, {next, rest});
    for (std::size_t i = 0; i < rest; ++i) sum[i] += next[i];
  }
  std::memcpy(out + begin, sum, rest * sizeof(float));
}

}  // namespace sinew
