#include "fill.h"

#include <ggml.h>

#include <cmath>
#include <string_view>

#include "base/assert.h"

namespace sinew::generate {
namespace {

// SplitMix64 (Steele, Lea, Flood 2014): one addition and a mix for each number, the same
// everywhere.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}

  std::uint64_t next() {
    state_ += 0x9E3779B97F4A7C15;
    std::uint64_t word = state_;
    word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9;
    word = (word ^ (word >> 27)) * 0x94D049BB133111EB;
    return word ^ (word >> 31);
  }

  // Nearly normal, deviation 1: the sum of four uniform numbers of 16 bits, each of variance
  // 65536 * 65536 / 12. No libm, so that every machine draws the same.
  float normal() {
    const std::uint64_t word = next();
    const std::uint64_t sum =
        (word & 0xFFFF) + ((word >> 16) & 0xFFFF) + ((word >> 32) & 0xFFFF) + (word >> 48);
    constexpr float kScale = 1.7320508F / 65536.0F;  // sqrt(12 / 4)
    return (static_cast<float>(sum) - 2.0F * 65535.0F) * kScale;
  }

 private:
  std::uint64_t state_;
};

std::uint64_t seed_of(std::uint64_t seed, std::string_view name, std::uint64_t row) {
  std::uint64_t hash = 0xCBF29CE484222325 ^ seed;  // FNV-1a
  for (const char letter : name) {
    hash = (hash ^ static_cast<unsigned char>(letter)) * 0x100000001B3;
  }
  return Random(hash + row * 0xD1342543DE82EF95).next();
}

test::Bytes quantised(TensorType type, const std::vector<float>& values, std::uint64_t row) {
  const auto ggml = static_cast<ggml_type>(type);
  const auto rows = static_cast<std::int64_t>(values.size() / row);
  test::Bytes stored(ggml_row_size(ggml, static_cast<std::int64_t>(values.size())));
  const std::size_t written = ggml_quantize_chunk(ggml, values.data(), stored.data(), 0, rows,
                                                  static_cast<std::int64_t>(row), nullptr);
  SINEW_ASSERT(written == stored.size());
  return stored;
}

// Llama 3.1's division of the rotary frequencies by 8, 1, or between for those between: factor 8,
// low factor 1, high factor 4, original context 8192 (its config.json), base 500000.
std::vector<float> rope_factors(std::uint64_t count) {
  constexpr double kFactor = 8.0;
  constexpr double kLow = 1.0;
  constexpr double kHigh = 4.0;
  constexpr double kContext = 8192.0;
  constexpr double kBase = 500000.0;
  constexpr double kPi = 3.141592653589793;
  std::vector<float> factors;
  for (std::uint64_t i = 0; i < count; ++i) {
    const double wavelength =
        2.0 * kPi * std::pow(kBase, static_cast<double>(i) / static_cast<double>(count));
    double factor = 1.0;
    if (wavelength > kContext / kLow) {
      factor = kFactor;
    } else if (wavelength >= kContext / kHigh) {
      const double smooth = (kContext / wavelength - kLow) / (kHigh - kLow);
      factor = 1.0 / ((1.0 - smooth) / kFactor + smooth);
    }
    factors.push_back(static_cast<float>(factor));
  }
  return factors;
}

}  // namespace

const test::Bytes& Filler::pool(TensorType type, float deviation) {
  const std::lock_guard lock(mutex_);
  std::unique_ptr<test::Bytes>& entry = pools_[{type, deviation}];
  if (entry == nullptr) {
    Random random(seed_of(seed_, tensor_type_traits(type)->name, 0));
    std::vector<float> values(kPoolElements);
    for (float& value : values) value = deviation * random.normal();
    entry = std::make_unique<test::Bytes>(quantised(type, values, 4096));
  }
  return *entry;
}

test::Bytes Filler::rows(const Weight& weight, std::uint64_t begin, std::uint64_t end) {
  const std::uint64_t row = weight.shape.front();
  if (weight.draw == Draw::kRopeFactors) return quantised(weight.type, rope_factors(row), row);
  std::uint64_t elements = 1;
  for (const std::uint64_t size : weight.shape) elements *= size;
  const TensorTypeTraits& traits = *tensor_type_traits(weight.type);
  if (elements >= (traits.block_length == 256 ? kPooledElementsMinSlow : kPooledElementsMin)) {
    const test::Bytes& source = pool(weight.type, weight.deviation);
    const std::uint64_t row_blocks = row / traits.block_length;
    const std::uint64_t places = source.size() / traits.block_bytes - row_blocks + 1;
    test::Bytes stored;
    stored.reserve((end - begin) * row_blocks * traits.block_bytes);
    for (std::uint64_t i = begin; i < end; ++i) {
      const std::uint64_t place = seed_of(seed_, weight.name, i) % places;
      const auto from = source.begin() + static_cast<std::ptrdiff_t>(place * traits.block_bytes);
      stored.insert(stored.end(), from,
                    from + static_cast<std::ptrdiff_t>(row_blocks * traits.block_bytes));
    }
    return stored;
  }
  std::vector<float> values;
  values.reserve((end - begin) * row);
  for (std::uint64_t i = begin; i < end; ++i) {
    Random random(seed_of(seed_, weight.name, i));
    for (std::uint64_t j = 0; j < row; ++j)
      values.push_back(weight.mean + weight.deviation * random.normal());
  }
  return quantised(weight.type, values, row);
}

}  // namespace sinew::generate
