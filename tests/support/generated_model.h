#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "support/process.h"

namespace sinew::test {

// A model with random weights, written by `sinew-generate` into `folder`: its path. `more`: further
// flags; models that differ in them have different paths.
Result<std::string> generate_model(const std::string& generator, const TemporaryFolder& folder,
                                   std::string_view kind, std::string_view type, int context,
                                   const std::vector<std::string>& more = {});

}  // namespace sinew::test
