#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "collective/collective_plan.h"

namespace sinew {

// Percentiles (nearest rank) of measured times, microseconds.
struct Percentiles {
  double p50 = 0;
  double p90 = 0;
  double p99 = 0;
  double max = 0;
};
// Of at least one value.
Percentiles percentiles_of(std::vector<double> values);

// What links of a kind are known to do elsewhere ("shm", "tcp" over the loopback): what others
// measured on two cores. A measured figure beside it says whether a machine is out of order.
LinkFigures expected_link(std::string_view kind);
// The fabric of `ranks` on one machine with such links: a rank's messages are all copied by its
// core.
FabricFigures expected_fabric(std::string_view kind, int ranks);

// "ok", or by what factor a time is slower than expected, from 2 on.
std::string verdict(double measured_us, double expected_us);

// "8192,28672,4M": sizes in bytes, with K and M for powers of 1024; all multiples of 4, up to
// 64 MB. kUsage otherwise.
Result<std::vector<std::size_t>> parse_sizes(const std::string& text);
// 4 B to 64 MB, each four times the one before.
std::vector<std::size_t> default_sizes();
// How often a size is measured: `most` times, fewer where that would move more than 256 MB.
int repeats_for(std::size_t bytes, int most);

}  // namespace sinew
