#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "support/process.h"

namespace sinew::test {

// A model with random weights, written by `sinew-generate` into `folder`: its path.
Result<std::string> generate_model(const std::string& generator, const TemporaryFolder& folder,
                                   std::string_view kind, std::string_view type, int context);

}  // namespace sinew::test
