#include "gguf/tensor_type.h"

#include <algorithm>
#include <array>

namespace sinew {
namespace {

// Indexed by id. A row without a name is an id that was never released or was removed: 4 and 5
// (q4_2, q4_3), 31 to 33 and 36 to 38 (repacked forms of q4_0 and iq4_nl).
constexpr std::array<TensorTypeTraits, kTensorTypeIdEnd> kTraits{{
    {"f32", 1, 4},        {"f16", 1, 2},       {"q4_0", 32, 18},     {"q4_1", 32, 20},
    {"", 0, 0},           {"", 0, 0},          {"q5_0", 32, 22},     {"q5_1", 32, 24},
    {"q8_0", 32, 34},     {"q8_1", 32, 36},    {"q2_K", 256, 84},    {"q3_K", 256, 110},
    {"q4_K", 256, 144},   {"q5_K", 256, 176},  {"q6_K", 256, 210},   {"q8_K", 256, 292},
    {"iq2_xxs", 256, 66}, {"iq2_xs", 256, 74}, {"iq3_xxs", 256, 98}, {"iq1_s", 256, 50},
    {"iq4_nl", 32, 18},   {"iq3_s", 256, 110}, {"iq2_s", 256, 82},   {"iq4_xs", 256, 136},
    {"i8", 1, 1},         {"i16", 1, 2},       {"i32", 1, 4},        {"i64", 1, 8},
    {"f64", 1, 8},        {"iq1_m", 256, 56},  {"bf16", 1, 2},       {"", 0, 0},
    {"", 0, 0},           {"", 0, 0},          {"tq1_0", 256, 54},   {"tq2_0", 256, 66},
    {"", 0, 0},           {"", 0, 0},          {"", 0, 0},           {"mxfp4", 32, 17},
    {"nvfp4", 64, 36},    {"q1_0", 128, 18},   {"q2_0", 64, 18},
}};

char to_lower(char letter) {
  return letter >= 'A' && letter <= 'Z' ? static_cast<char>(letter - 'A' + 'a') : letter;
}

}  // namespace

const TensorTypeTraits* tensor_type_traits(TensorType type) {
  const auto id = static_cast<std::uint32_t>(type);
  if (id >= kTraits.size() || kTraits[id].block_length == 0) return nullptr;
  return &kTraits[id];
}

std::optional<TensorType> tensor_type_named(std::string_view name) {
  for (std::uint32_t id = 0; id < kTensorTypeIdEnd; ++id) {
    const auto type = static_cast<TensorType>(id);
    const TensorTypeTraits* traits = tensor_type_traits(type);
    if (traits != nullptr &&
        std::equal(name.begin(), name.end(), traits->name.begin(), traits->name.end(),
                   [](char a, char b) { return to_lower(a) == to_lower(b); }))
      return type;
  }
  return std::nullopt;
}

}  // namespace sinew
