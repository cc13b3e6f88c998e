#pragma once

#include <cstdint>

namespace sinew {

// Random numbers by position: the same (seed, draw) gives the same number on every machine and in
// any order of calls. The numbers of one seed are those of SplitMix64 (Steele, Lea, Flood 2014)
// started at the scrambled seed, so that seeds 1, 2, 3, .. have unrelated sequences.
constexpr std::uint64_t scramble64(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9U;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBU;
  return x ^ (x >> 31);
}
constexpr std::uint64_t random_bits(std::uint64_t seed, std::uint64_t draw) {
  constexpr std::uint64_t kGolden = 0x9E3779B97F4A7C15U;
  return scramble64(scramble64(seed + kGolden) + (draw + 1) * kGolden);
}

// In [0, 1), a multiple of 2^-53.
constexpr double random_unit(std::uint64_t seed, std::uint64_t draw) {
  return static_cast<double>(random_bits(seed, draw) >> 11) * 0x1p-53;
}

}  // namespace sinew
