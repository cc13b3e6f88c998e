// Sums and the formats in which values travel.
#include "collective/reduce.h"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "collective/half.h"

namespace sinew {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::vector<std::byte> on_the_wire(const std::vector<float>& values, WireType type) {
  std::vector<std::byte> wire(values.size() * wire_width(type));
  EXPECT_TRUE(to_wire(values, type, wire.data()));
  return wire;
}

float rounded(float value, WireType type) {
  const auto wire = on_the_wire({value}, type);
  float back = 0;
  from_wire(wire.data(), type, {&back, 1});
  return back;
}

const std::byte* bytes(const std::vector<float>& values) {
  return reinterpret_cast<const std::byte*>(values.data());
}

TEST(Reduce, Sum_IsInRankOrderForEveryLengthAndType) {
  for (const WireType type : {WireType::kF32, WireType::kBf16, WireType::kF16}) {
    for (const std::size_t count : {0u, 1u, 3u, 255u, 256u, 257u, 1000u}) {
      // (2^14 - 2^14) + 1/4, not 2^14 + (-2^14 + 1/4): exact in every type, sums in float32.
      const auto a = on_the_wire(std::vector<float>(count, std::ldexp(1.0f, 15)), type);
      const auto b = on_the_wire(std::vector<float>(count, -std::ldexp(1.0f, 15)), type);
      const auto c = on_the_wire(std::vector<float>(count, std::ldexp(1.0f, -12)), type);
      const std::array<const std::byte*, 3> sources{a.data(), b.data(), c.data()};
      std::vector<float> sum(count);
      sum_in_order(sources, type, sum.data(), count);
      EXPECT_EQ(sum, std::vector<float>(count, std::ldexp(1.0f, -12)));
    }
  }
}

TEST(Reduce, Sum_MayTakeThePlaceOfASource) {
  std::vector<float> a(300, 1.0f);
  const std::vector<float> b(300, 2.0f);
  const std::array<const std::byte*, 2> sources{bytes(b), bytes(a)};
  sum_in_order(sources, WireType::kF32, a.data(), a.size());
  EXPECT_EQ(a, std::vector<float>(300, 3.0f));
}

TEST(Reduce, InfinitiesAndNans_ReachTheSum) {
  std::vector<float> a{kInfinity, kInfinity, 1.0f};
  const std::vector<float> b{1.0f, -kInfinity, std::nanf("")};
  for (const WireType type : {WireType::kF32, WireType::kBf16, WireType::kF16}) {
    const auto first = on_the_wire(a, type);
    const auto second = on_the_wire(b, type);
    const std::array<const std::byte*, 2> sources{first.data(), second.data()};
    std::vector<float> sum(3);
    sum_in_order(sources, type, sum.data(), 3);
    EXPECT_EQ(sum[0], kInfinity);
    EXPECT_TRUE(std::isnan(sum[1]));
    EXPECT_TRUE(std::isnan(sum[2]));
  }
}

TEST(WireTypeTest, Names_AreThoseOfTheCommandLine) {
  for (const WireType type : {WireType::kF32, WireType::kBf16, WireType::kF16})
    EXPECT_EQ(wire_type_named(wire_type_name(type)), type);
  EXPECT_EQ(wire_type_named("fp8"), std::nullopt);
}

// All 65536 patterns survive the way to float32 and back; the value is that of the format's own
// definition: sign, exponent, fraction.
TEST(WireTypeTest, EveryF16_IsWidenedByDefinitionAndComesBack) {
  for (std::uint32_t half = 0; half < 65536; ++half) {
    const auto value = std::bit_cast<float>(F16::widen(half));
    const auto exponent = static_cast<int>((half >> 10) & 31);
    const auto fraction = static_cast<float>(half & 1023);
    const float sign = (half & 0x8000) != 0 ? -1.0f : 1.0f;
    if (exponent == 31) {
      EXPECT_TRUE((half & 1023) == 0 ? value == sign * kInfinity : std::isnan(value)) << half;
      if ((half & 1023) != 0) continue;  // NaNs become one quiet NaN
    } else {
      const float size =
          exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
      EXPECT_EQ(value, sign * size) << half;
    }
    EXPECT_EQ(F16::round(std::bit_cast<std::uint32_t>(value)), half);
  }
}

TEST(WireTypeTest, EveryBf16_ComesBack) {
  for (std::uint32_t half = 0; half < 65536; ++half) {
    const std::uint32_t back = Bf16::round(Bf16::widen(half));
    const bool is_nan = (half & 0x7fff) > 0x7f80;
    EXPECT_EQ(back, is_nan ? half | 0x40 : half);
  }
}

// The nearest of the two neighbours, an even last bit at a tie: against exact arithmetic in double.
TEST(WireTypeTest, Rounding_IsToTheNearestEvenNeighbour) {
  std::mt19937 random(7);
  std::uniform_real_distribution<float> exponents(-27.0f, 15.9f);
  for (int i = 0; i < 100000; ++i) {
    float value = std::exp2(exponents(random)) * (i % 2 == 0 ? 1.0f : -1.0f);
    // Every third is a tie, exactly between two halves.
    if (i % 3 == 0) {
      const std::uint32_t below = random() & 0x7bfe;
      const auto low = std::bit_cast<float>(F16::widen(below));
      value = low + (std::bit_cast<float>(F16::widen(below + 1)) - low) / 2;
    }
    const double size = std::fabs(static_cast<double>(value));
    const int exponent = std::max(std::ilogb(size), -14);
    const double unit = std::ldexp(1.0, exponent - 10);
    const double expected = std::nearbyint(size / unit) * unit;  // ties to even by default
    if (expected > 65504) continue;
    EXPECT_EQ(std::fabs(rounded(value, WireType::kF16)), expected) << value;
    const double unit_bf16 = std::ldexp(1.0, std::ilogb(size) - 7);
    EXPECT_EQ(std::fabs(rounded(value, WireType::kBf16)),
              std::nearbyint(size / unit_bf16) * unit_bf16)
        << value;
  }
}

TEST(WireTypeTest, TooLargeValue_IsSaidAndInfinityIsNot) {
  std::vector<std::byte> wire(4);
  EXPECT_TRUE(to_wire(std::vector<float>{65519.0f, -65504.0f}, WireType::kF16, wire.data()));
  EXPECT_FALSE(to_wire(std::vector<float>{1.0f, -65520.0f}, WireType::kF16, wire.data()));
  EXPECT_TRUE(to_wire(std::vector<float>{kInfinity, std::nanf("")}, WireType::kF16, wire.data()));
  const float largest = std::numeric_limits<float>::max();
  EXPECT_FALSE(to_wire(std::vector<float>{largest, 1.0f}, WireType::kBf16, wire.data()));
  EXPECT_TRUE(
      to_wire(std::vector<float>{largest, 1.0f}, WireType::kF32, std::vector<std::byte>(8).data()));
}

}  // namespace
}  // namespace sinew
