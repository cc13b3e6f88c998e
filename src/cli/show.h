#pragma once

#include <ostream>
#include <string>

#include "base/result.h"

namespace sinew {

// `sinew show`: what is in a model's file or files, without loading it. Writes the files, the
// metadata (long arrays and texts shortened), every tensor, and the totals of each tensor type, for
// people or as one JSON document. Nothing is written if the model cannot be read.
Status show_model(const std::string& path, bool json, std::ostream& out);

}  // namespace sinew
