#pragma once

#include <cstdint>
#include <string>

#include "recipe.h"

namespace sinew::generate {

// Draws the weights and writes the file, a piece of a tensor at a time, so that memory stays far
// below the size of the model. The file appears under `path` only when it is whole. Returns its
// size.
Result<std::uint64_t> write_model(const std::string& path, Recipe recipe, std::uint64_t seed,
                                  unsigned threads);

}  // namespace sinew::generate
