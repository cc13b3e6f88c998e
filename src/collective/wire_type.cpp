#include "collective/wire_type.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "collective/half.h"

namespace sinew {
namespace {

// Blocks have a constant length and lie in arrays of their own, so that compilers turn the loops
// into vector code.
constexpr std::size_t kBlock = 128;

template <typename Half>
bool round_all(std::span<const float> values, std::byte* wire) {
  std::uint32_t too_large = 0;
  std::uint32_t in[kBlock] = {};
  std::uint16_t out[kBlock];
  for (std::size_t begin = 0; begin < values.size(); begin += kBlock) {
    const std::size_t count = std::min(kBlock, values.size() - begin);
    std::memcpy(in, values.data() + begin, count * sizeof(float));
    for (std::size_t i = 0; i < kBlock; ++i) {
      const std::uint32_t half = Half::round(in[i]);
      // All exponent bits set in the half and not in the float it came from.
      const bool infinite = (half & Half::kInfinity) == Half::kInfinity;
      const bool finite_before = (in[i] & 0x7fffffffU) < 0x7f800000U;
      too_large |= static_cast<std::uint32_t>(infinite & finite_before);
      out[i] = static_cast<std::uint16_t>(half);
    }
    std::memcpy(wire + begin * sizeof(std::uint16_t), out, count * sizeof(std::uint16_t));
  }
  return too_large == 0;
}

template <typename Half>
void widen_all(const std::byte* wire, std::span<float> values) {
  std::uint16_t in[kBlock] = {};
  std::uint32_t out[kBlock];
  for (std::size_t begin = 0; begin < values.size(); begin += kBlock) {
    const std::size_t count = std::min(kBlock, values.size() - begin);
    std::memcpy(in, wire + begin * sizeof(std::uint16_t), count * sizeof(std::uint16_t));
    for (std::size_t i = 0; i < kBlock; ++i) out[i] = Half::widen(in[i]);
    std::memcpy(values.data() + begin, out, count * sizeof(float));
  }
}

}  // namespace

std::string_view wire_type_name(WireType type) {
  switch (type) {
    case WireType::kF32:
      return "f32";
    case WireType::kBf16:
      return "bf16";
    case WireType::kF16:
      return "f16";
  }
  return "unknown";
}

std::optional<WireType> wire_type_named(std::string_view name) {
  for (const WireType type : {WireType::kF32, WireType::kBf16, WireType::kF16})
    if (wire_type_name(type) == name) return type;
  return std::nullopt;
}

bool to_wire(std::span<const float> values, WireType type, std::byte* wire) {
  switch (type) {
    case WireType::kF32:
      if (!values.empty()) std::memcpy(wire, values.data(), values.size_bytes());
      return true;
    case WireType::kBf16:
      return round_all<Bf16>(values, wire);
    case WireType::kF16:
      return round_all<F16>(values, wire);
  }
  return false;
}

void from_wire(const std::byte* wire, WireType type, std::span<float> values) {
  switch (type) {
    case WireType::kF32:
      if (!values.empty()) std::memcpy(values.data(), wire, values.size_bytes());
      return;
    case WireType::kBf16:
      return widen_all<Bf16>(wire, values);
    case WireType::kF16:
      return widen_all<F16>(wire, values);
  }
}

}  // namespace sinew
