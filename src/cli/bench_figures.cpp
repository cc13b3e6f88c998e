#include "cli/bench_figures.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "host/process.h"

namespace sinew {
namespace {

constexpr std::size_t kBytesMax = 64u << 20;
constexpr std::size_t kMovedMax = 256u << 20;
// Short of this many repeats a percentile says nothing.
constexpr int kRepeatsMin = 5;
constexpr double kSlowFactor = 2;
// One core adds 16 KB in about a microsecond.
constexpr double kAddUsPerByte = 1.0 / (16u << 10);

}  // namespace

Percentiles percentiles_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const auto at = [&](double share) {
    const auto rank = static_cast<std::size_t>(std::ceil(share * double(values.size())));
    return values[std::max<std::size_t>(rank, 1) - 1];
  };
  return {at(0.5), at(0.9), at(0.99), values.back()};
}

LinkFigures expected_link(std::string_view kind) {
  if (kind == "shm") return {0.1, 9000};
  return {22, 2500};
}

FabricFigures expected_fabric(std::string_view kind, int ranks) {
  FabricFigures fabric;
  fabric.ranks = ranks;
  // Ranks beyond the cores take turns.
  const double turns = std::max(1.0, double(ranks) / std::max(1, usable_cores()));
  LinkFigures link = expected_link(kind);
  link.latency_us *= turns;
  link.bytes_per_us /= turns;
  for (int a = 0; a < ranks; ++a)
    for (int b = 0; b < ranks; ++b)
      if (a != b) fabric.links[std::size_t(a)][std::size_t(b)] = link;
  fabric.crowding = std::max(1, ranks - 1);
  fabric.add_us_per_byte = kAddUsPerByte * turns;
  return fabric;
}

std::string verdict(double measured_us, double expected_us) {
  const double factor = measured_us / expected_us;
  return factor < kSlowFactor ? "ok" : fmt::format("{:.1f}x slower", factor);
}

Result<std::vector<std::size_t>> parse_sizes(const std::string& text) {
  std::vector<std::size_t> sizes;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    std::size_t value = 0;
    const char* last = text.data() + end;
    const auto [stop, error] = std::from_chars(text.data() + begin, last, value);
    std::size_t unit = 1;
    if (stop != last && *stop == 'K') unit = 1u << 10;
    if (stop != last && *stop == 'M') unit = 1u << 20;
    const bool whole = stop + (unit > 1 ? 1 : 0) == last;
    if (error != std::errc() || !whole || value > kBytesMax / unit || value == 0 ||
        value * unit % 4 != 0)
      return fail(ErrorCode::kUsage, "--sizes {}: give multiples of 4 up to 64M, as in 8192,28K,4M",
                  text);
    sizes.push_back(value * unit);
    begin = end + 1;
  }
  return sizes;
}

std::vector<std::size_t> default_sizes() {
  std::vector<std::size_t> sizes;
  for (std::size_t bytes = 4; bytes <= kBytesMax; bytes *= 4) sizes.push_back(bytes);
  return sizes;
}

int repeats_for(std::size_t bytes, int most) {
  const auto affordable = static_cast<int>(std::min<std::size_t>(kMovedMax / bytes, 1u << 30));
  return std::max(std::min(kRepeatsMin, most), std::min(most, affordable));
}

}  // namespace sinew
