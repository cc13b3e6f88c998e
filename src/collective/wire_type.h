#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace sinew {

// How the values of an all-reduce travel. Vectors are float32 on every rank; the wire may carry
// them in half the bytes.
enum class WireType : std::uint8_t {
  kF32,   // as they are
  kBf16,  // 8 significant bits, the range of float32
  kF16,   // 11 significant bits, up to 65504
};
inline constexpr int kWireTypeCount = 3;

// "f32", "bf16", "f16".
std::string_view wire_type_name(WireType type);
std::optional<WireType> wire_type_named(std::string_view name);

constexpr std::size_t wire_width(WireType type) {
  return type == WireType::kF32 ? 4 : 2;
}

// Writes the values rounded to the nearest of the wire type (ties to even), little-endian, to
// `wire`, which holds values.size() * wire_width(type) bytes. Infinities and NaNs stay what they
// are. False if a finite value is too large for the type; its place then holds an infinity.
bool to_wire(std::span<const float> values, WireType type, std::byte* wire);

// The reverse, exact. `wire` and `values` do not overlap.
void from_wire(const std::byte* wire, WireType type, std::span<float> values);

}  // namespace sinew
