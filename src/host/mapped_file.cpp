#include "host/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace sinew {

Result<MappedFile> MappedFile::open(const std::string& path) {
  MappedFile file;
  file.path_ = path;
  // O_NONBLOCK: to open a pipe that nobody writes to would wait for ever.
  file.descriptor_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file.descriptor_ < 0) {
    if (errno == ENOENT) return fail(ErrorCode::kNotFound, "{}: there is no such file", path);
    return fail(ErrorCode::kIo, "{}: cannot be opened: {}", path, std::strerror(errno));
  }
  struct stat status {};
  if (::fstat(file.descriptor_, &status) != 0)
    return fail(ErrorCode::kIo, "{}: cannot be examined: {}", path, std::strerror(errno));
  if (!S_ISREG(status.st_mode))
    return fail(ErrorCode::kIo, "{}: is not a regular file; name the GGUF file itself", path);
  const auto size = static_cast<std::size_t>(status.st_size);
  if (size == 0) return file;  // a mapping of nothing is not allowed
  void* start = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, file.descriptor_, 0);
  if (start == MAP_FAILED)
    return fail(ErrorCode::kIo, "{}: cannot be mapped: {}", path, std::strerror(errno));
  file.bytes_ = ByteSpan(static_cast<const std::byte*>(start), size);
  return file;
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      bytes_(std::exchange(other.bytes_, {})),
      descriptor_(std::exchange(other.descriptor_, -1)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  if (this != &other) {
    reset();
    path_ = std::move(other.path_);
    bytes_ = std::exchange(other.bytes_, {});
    descriptor_ = std::exchange(other.descriptor_, -1);
  }
  return *this;
}

MappedFile::~MappedFile() {
  reset();
}

void MappedFile::reset() {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
  bytes_ = {};
  if (descriptor_ >= 0) ::close(descriptor_);
  descriptor_ = -1;
}

}  // namespace sinew
