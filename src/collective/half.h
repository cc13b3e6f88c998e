#pragma once

#include <bit>
#include <cstdint>

namespace sinew {

// The two 16-bit formats of the wire, as functions on bit patterns without branches, so that loops
// over them become vector code on every processor. Rounding is to nearest, ties to even.

// yes or no by a mask: as a branch, compilers keep the two sides apart because one of them adds
// floats, which might trap, and leave the loop as it is.
constexpr std::uint32_t pick(bool condition, std::uint32_t yes, std::uint32_t no) {
  const std::uint32_t mask = -static_cast<std::uint32_t>(condition);
  return (yes & mask) | (no & ~mask);
}

struct Bf16 {
  static constexpr std::uint32_t kInfinity = 0x7f80;

  static constexpr std::uint32_t round(std::uint32_t bits) {
    const std::uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
    const std::uint32_t quiet_nan = (bits >> 16) | 0x40;
    return pick((bits & 0x7fffffffU) > 0x7f800000U, quiet_nan, rounded);
  }
  static constexpr std::uint32_t widen(std::uint32_t half) { return half << 16; }
};

struct F16 {
  static constexpr std::uint32_t kInfinity = 0x7c00;

  static constexpr std::uint32_t round(std::uint32_t bits) {
    const std::uint32_t sign = (bits >> 16) & 0x8000;
    const std::uint32_t size = bits & 0x7fffffffU;
    // Exponents differ by 112; 13 bits of the fraction go.
    const std::uint32_t normal = (size - (112U << 23) + 0xfff + ((size >> 13) & 1)) >> 13;
    // Below 2^-14 the last bit of an f16 is worth 2^-24, as is that of a float near 1/2: the
    // addition does the rounding.
    const std::uint32_t small = std::bit_cast<std::uint32_t>(std::bit_cast<float>(size) + 0.5f) -
                                std::bit_cast<std::uint32_t>(0.5f);
    const std::uint32_t finite = pick(size < (113U << 23), small, normal);
    const std::uint32_t special = pick(size > 0x7f800000U, 0x7e00U, kInfinity);
    return sign | pick(size >= 0x477ff000U, special, finite);  // 65520 rounds to infinity
  }
  static constexpr std::uint32_t widen(std::uint32_t half) {
    const std::uint32_t sign = (half & 0x8000) << 16;
    const std::uint32_t size = (half & 0x7fff) << 13;
    const std::uint32_t normal = size + (112U << 23);
    const std::uint32_t special = size + (224U << 23);
    const std::uint32_t small = std::bit_cast<std::uint32_t>(
        std::bit_cast<float>(size + (113U << 23)) - std::bit_cast<float>(113U << 23));
    const std::uint32_t finite = pick(size < (1U << 23), small, normal);
    return sign | pick(size >= (0x7c00U << 13), special, finite);
  }
};

}  // namespace sinew
