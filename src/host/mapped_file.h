#pragma once

#include <string>

#include "base/bytes.h"
#include "base/result.h"

namespace sinew {

// A file mapped read-only for the life of the object. Move-only.
class MappedFile {
 public:
  static Result<MappedFile> open(const std::string& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  ByteSpan bytes() const { return bytes_; }
  const std::string& path() const { return path_; }
  // For reads that should not fill the page cache's mapping of this process; owned by this object.
  int descriptor() const { return descriptor_; }

 private:
  MappedFile() = default;
  void reset();
  std::string path_;
  ByteSpan bytes_;
  int descriptor_ = -1;
};

}  // namespace sinew
