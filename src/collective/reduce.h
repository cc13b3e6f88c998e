#pragma once

#include <cstddef>
#include <span>

namespace sinew {

// out[i] = sources[0][i] + sources[1][i] + .. in that order, for i < count: the one place where
// ranks' vectors are added, so that every algorithm gives the same bits. `out` may be one of the
// sources.
void sum_in_order(std::span<const float* const> sources, float* out, std::size_t count);

}  // namespace sinew
