#include "fill.h"

#include <ggml.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <span>
#include <string_view>
#include <thread>

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

// The types whose quantiser first sorts, for many seconds, how far the points of its lattice are
// from each other. Any bits are a block of theirs, so their bits are drawn, and then the scale is
// set.
bool drawn_as_codes(TensorType type) {
  return type == TensorType::kIQ1_S || type == TensorType::kIQ1_M || type == TensorType::kIQ2_XXS ||
         type == TensorType::kIQ2_XS || type == TensorType::kIQ2_S;
}

// The scale of a block of such a type is a number of 16 bits at its beginning; IQ1_M has it in the
// upper four bits of each of its last four words.
void set_scale(TensorType type, std::span<std::byte> block, float scale) {
  const ggml_fp16_t half = ggml_fp32_to_fp16(scale);
  if (type != TensorType::kIQ1_M) {
    std::memcpy(block.data(), &half, sizeof half);
    return;
  }
  for (std::size_t i = 0; i < 4; ++i) {
    std::byte& upper = block[block.size() - 8 + 2 * i + 1];
    upper = (upper & std::byte{0x0F}) | static_cast<std::byte>(((half >> (4 * i)) & 0xF) << 4);
  }
}

void draw_codes(Random& random, std::span<std::byte> block) {
  for (std::byte& code : block) code = static_cast<std::byte>(random.next() >> 56);
}

// Standard deviation of the elements of random blocks with the scale 1.
float deviation_of_codes(TensorType type) {
  const TensorTypeTraits& traits = *tensor_type_traits(type);
  constexpr std::size_t kBlocks = 1024;
  Random random(0);
  test::Bytes blocks(kBlocks * traits.block_bytes);
  for (std::size_t i = 0; i < kBlocks; ++i) {
    const auto block = std::span(blocks).subspan(i * traits.block_bytes, traits.block_bytes);
    draw_codes(random, block);
    set_scale(type, block, 1.0F);
  }
  std::vector<float> values(kBlocks * traits.block_length);
  ggml_get_type_traits(static_cast<ggml_type>(type))
      ->to_float(blocks.data(), values.data(), static_cast<std::int64_t>(values.size()));
  double squares = 0;
  for (const float value : values) squares += double{value} * double{value};
  return static_cast<float>(std::sqrt(squares / static_cast<double>(values.size())));
}

// Quantising takes far longer than drawing, above all to blocks of 256 (a thread makes 2 million
// elements of Q4_K a second, 0.7 million of IQ4_XS, 0.3 million of IQ3_XXS). The rows of tensors
// above a size are therefore taken from one pool for each type and deviation.
struct Pooling {
  std::uint64_t tensor_elements_min;
  std::uint64_t pool_elements;
};

Pooling pooling_of(TensorType type) {
  if (type == TensorType::kIQ4_NL || type == TensorType::kIQ4_XS) return {1u << 18, 1u << 18};
  if (tensor_type_traits(type)->name.starts_with("iq")) return {1u << 17, 1u << 16};
  if (tensor_type_traits(type)->block_length == 256) return {1u << 20, 1u << 20};
  return {8u << 20, 1u << 20};
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
  constexpr std::uint64_t kRow = 4096;
  const std::lock_guard lock(mutex_);
  std::unique_ptr<test::Bytes>& entry = pools_[{type, deviation}];
  if (entry != nullptr) return *entry;
  // Of its own numbers for each deviation: else the rows of the output layer would be those of the
  // embedding, and each token would predict the one whose row is its own.
  Random random(
      seed_of(seed_, tensor_type_traits(type)->name, std::bit_cast<std::uint32_t>(deviation)));
  const std::uint64_t rows = pooling_of(type).pool_elements / kRow;
  std::vector<std::vector<float>> values(rows, std::vector<float>(kRow));
  for (std::vector<float>& row : values)
    for (float& value : row) value = deviation * random.normal();
  std::vector<test::Bytes> stored(rows);
  {
    // The other threads of the caller wait for this pool.
    std::vector<std::jthread> workers;
    for (unsigned i = 0; i < threads_; ++i)
      workers.emplace_back([&, i] {
        for (std::uint64_t row = i; row < rows; row += threads_)
          stored[row] = quantised(type, values[row], kRow);
      });
  }
  entry = std::make_unique<test::Bytes>();
  for (const test::Bytes& row : stored) entry->insert(entry->end(), row.begin(), row.end());
  return *entry;
}

test::Bytes Filler::rows_of_pool(const Weight& weight, std::uint64_t begin, std::uint64_t end) {
  const TensorTypeTraits& traits = *tensor_type_traits(weight.type);
  const test::Bytes& source = pool(weight.type, weight.deviation);
  const std::uint64_t row_blocks = weight.shape.front() / traits.block_length;
  const std::uint64_t places = source.size() / traits.block_bytes;
  test::Bytes stored;
  stored.reserve((end - begin) * row_blocks * traits.block_bytes);
  // Each block from anywhere, so that no two rows are equal.
  for (std::uint64_t i = begin; i < end; ++i) {
    Random random(seed_of(seed_, weight.name, i));
    for (std::uint64_t block = 0; block < row_blocks; ++block) {
      const auto place = static_cast<std::ptrdiff_t>(random.next() % places * traits.block_bytes);
      const auto from = source.begin() + place;
      stored.insert(stored.end(), from, from + static_cast<std::ptrdiff_t>(traits.block_bytes));
    }
  }
  return stored;
}

test::Bytes Filler::rows_of_codes(const Weight& weight, std::uint64_t begin, std::uint64_t end) {
  const TensorTypeTraits& traits = *tensor_type_traits(weight.type);
  float scale = 0.0F;
  {
    const std::lock_guard lock(mutex_);
    float& deviation = deviations_of_codes_[weight.type];
    if (deviation == 0.0F) deviation = deviation_of_codes(weight.type);
    scale = weight.deviation / deviation;
  }
  const std::uint64_t row_bytes = weight.shape.front() / traits.block_length * traits.block_bytes;
  test::Bytes stored((end - begin) * row_bytes);
  for (std::uint64_t i = begin; i < end; ++i) {
    Random random(seed_of(seed_, weight.name, i));
    const auto row = std::span(stored).subspan((i - begin) * row_bytes, row_bytes);
    for (std::uint64_t at = 0; at < row_bytes; at += traits.block_bytes) {
      const auto block = row.subspan(at, traits.block_bytes);
      draw_codes(random, block);
      // Unequal, so that a block with another block's scale shows.
      set_scale(weight.type, block, scale * (1.0F + 0.1F * random.normal()));
    }
  }
  return stored;
}

test::Bytes Filler::rows(const Weight& weight, std::uint64_t begin, std::uint64_t end) {
  const std::uint64_t row = weight.shape.front();
  if (weight.draw == Draw::kRopeFactors) return quantised(weight.type, rope_factors(row), row);
  if (drawn_as_codes(weight.type)) return rows_of_codes(weight, begin, end);
  std::uint64_t elements = 1;
  for (const std::uint64_t size : weight.shape) elements *= size;
  if (elements >= pooling_of(weight.type).tensor_elements_min)
    return rows_of_pool(weight, begin, end);
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
