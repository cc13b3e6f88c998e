#include "engine/fault.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "sample/random.h"

namespace sinew {
namespace {

constexpr float kElementError = 100.0F;
constexpr std::uint64_t kPlacesMax = 4096;  // sums of a step

// Uniform, of standard deviation `size`.
void add_noise(std::uint64_t seed, double size, std::span<float> values) {
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] *=
        static_cast<float>(1.0 + size * std::sqrt(3.0) * (2.0 * random_unit(seed, i) - 1.0));
}

template <typename T>
bool read_number(std::string_view text, T& number) {
  const auto result = std::from_chars(text.data(), text.data() + text.size(), number);
  return result.ec == std::errc() && result.ptr == text.data() + text.size();
}

}  // namespace

Result<Fault> parse_fault(const std::string& text) {
  const auto bad = [&] {
    return fail(ErrorCode::kUsage,
                "--inject {}: must be byte=TENSOR@OFFSET, rows=TENSOR@A,B, sum=STEP@PLACE,FACTOR, "
                "noise=STEP@PLACE,SIZE or element=STEP@PLACE,I",
                text);
  };
  const std::size_t equals = text.find('=');
  const std::size_t at = text.rfind('@');
  if (equals == std::string::npos || at == std::string::npos || at < equals) return bad();
  const std::string_view kind = std::string_view(text).substr(0, equals);
  const std::string_view target = std::string_view(text).substr(equals + 1, at - equals - 1);
  const std::string_view numbers = std::string_view(text).substr(at + 1);
  const std::size_t comma = std::min(numbers.find(','), numbers.size());
  Fault fault;
  if (!read_number(numbers.substr(0, comma), fault.first)) return bad();
  const bool has_second =
      comma < numbers.size() && read_number(numbers.substr(comma + 1), fault.second);
  if (kind == "byte") {
    fault.tensor = target;
    return fault;
  }
  if (!has_second) return bad();
  if (kind == "rows") {
    fault.kind = Fault::Kind::kRows;
    fault.tensor = target;
    return fault;
  }
  if (!read_number(target, fault.step)) return bad();
  if (kind == "sum")
    fault.kind = Fault::Kind::kSum;
  else if (kind == "noise")
    fault.kind = Fault::Kind::kNoise;
  else if (kind == "element")
    fault.kind = Fault::Kind::kElement;
  else
    return bad();
  return fault;
}

Result<Faults> Faults::parse(const std::vector<std::string>& texts) {
  Faults faults;
  for (const std::string& text : texts) {
    SINEW_ASSIGN(const Fault fault, parse_fault(text));
    faults.faults_.push_back(fault);
  }
  return faults;
}

Status Faults::damage_read(const LoadItem& item, std::span<std::byte> slice) const {
  for (const Fault& fault : faults_) {
    if (fault.kind != Fault::Kind::kByte || fault.tensor != item.name) continue;
    if (fault.first >= slice.size())
      return fail(ErrorCode::kUsage, "--inject: the slice of '{}' has {} bytes", item.name,
                  slice.size());
    slice[fault.first] ^= std::byte{0x10};
  }
  return {};
}

Status Faults::damage_hashed(const LoadItem& item, std::span<std::byte> slice) const {
  for (const Fault& fault : faults_) {
    if (fault.kind != Fault::Kind::kRows || fault.tensor != item.name) continue;
    const auto rows = static_cast<std::uint64_t>(item.shape[1] * item.shape[2] * item.shape[3]);
    const auto other = static_cast<std::uint64_t>(fault.second);
    if (fault.first >= rows || other >= rows)
      return fail(ErrorCode::kUsage, "--inject: the slice of '{}' has {} rows", item.name, rows);
    const std::size_t row_bytes = slice.size() / rows;
    const auto first = slice.subspan(fault.first * row_bytes, row_bytes);
    std::swap_ranges(first.begin(), first.end(),
                     slice.subspan(other * row_bytes, row_bytes).begin());
  }
  return {};
}

void Faults::damage_sum(std::uint64_t step, std::uint64_t place, std::span<float> part) const {
  for (const Fault& fault : faults_) {
    if (fault.kind == Fault::Kind::kNoise && step >= fault.step && place >= fault.first)
      add_noise(step * kPlacesMax + place, fault.second, part);
    if (fault.first != place) continue;
    if (fault.kind == Fault::Kind::kSum && step >= fault.step) {
      for (float& value : part) value *= static_cast<float>(fault.second);
    } else if (fault.kind == Fault::Kind::kElement && step == fault.step && !part.empty()) {
      part[static_cast<std::size_t>(fault.second) % part.size()] += kElementError;
    }
  }
}

}  // namespace sinew
