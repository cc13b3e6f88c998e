#pragma once

#include <string>
#include <vector>

#include "gguf/reader.h"
#include "host/mapped_file.h"

namespace sinew {

// A model on disk: its directory, and its parts mapped.
struct ModelFile {
  // Finds and maps all parts of a split model when given any of them.
  static Result<ModelFile> open(const std::string& path);

  // The bytes of one tensor, inside the mapping.
  ByteSpan data(const TensorInfo& tensor) const {
    return parts[tensor.part].bytes().subspan(tensor.offset, tensor.bytes);
  }

  GgufModel directory;
  std::vector<MappedFile> parts;
};

}  // namespace sinew
