#pragma once

#include <cstddef>
#include <span>

#include "collective/wire_type.h"

namespace sinew {

// out[i] = sources[0][i] + sources[1][i] + .. in that order and in float32, for i < count: the one
// place where ranks' vectors are added, so that every algorithm gives the same bits. The sources
// hold `count` values of the wire type; of kF32, they are floats. `out` may be one of the sources
// of kF32.
void sum_in_order(std::span<const std::byte* const> sources, WireType type, float* out,
                  std::size_t count);

}  // namespace sinew
