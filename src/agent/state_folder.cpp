#include "agent/state_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

namespace sinew {
namespace {

constexpr mode_t kFolderMode = 0700;
constexpr mode_t kFileMode = 0600;
constexpr mode_t kOthers = 0077;

tl::unexpected<Error> system_failure(std::string_view what, const std::string& path) {
  return fail(ErrorCode::kIo, "{} {}: {}", what, path, std::strerror(errno));
}

Status check_private(const struct stat& found, const std::string& path, mode_t wanted) {
  if (found.st_uid != ::geteuid())
    return fail(ErrorCode::kUsage, "{} belongs to another user: chown it, or run as that user",
                path);
  if ((found.st_mode & kOthers) != 0)
    return fail(ErrorCode::kUsage,
                "{} has mode {:04o}, so others may see what is secret: chmod {:o} '{}'", path,
                static_cast<unsigned>(found.st_mode & 07777), static_cast<unsigned>(wanted), path);
  return {};
}

Status write_whole(int file, std::string_view bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(file, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return system_failure("cannot write", path);
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
  if (::fsync(file) != 0) return system_failure("cannot sync", path);
  return {};
}

}  // namespace

Result<std::optional<std::string>> read_private_file(const std::string& path,
                                                     std::size_t bytes_max) {
  // Without O_NONBLOCK, a pipe of that name would be waited for.
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.get() < 0 && errno == ENOENT) return std::optional<std::string>();
  if (file.get() < 0) return system_failure("cannot open", path);
  struct stat found {};
  if (::fstat(file.get(), &found) != 0) return system_failure("cannot look at", path);
  if (!S_ISREG(found.st_mode)) return fail(ErrorCode::kUsage, "{} is not a file", path);
  SINEW_TRY(check_private(found, path, kFileMode));
  std::string bytes(bytes_max + 1, '\0');
  std::size_t size = 0;
  while (size < bytes.size()) {
    const ssize_t got = ::read(file.get(), bytes.data() + size, bytes.size() - size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return system_failure("cannot read", path);
    if (got == 0) break;
    size += static_cast<std::size_t>(got);
  }
  if (size > bytes_max)
    return fail(ErrorCode::kInvalidFile, "{} is longer than {} bytes", path, bytes_max);
  bytes.resize(size);
  return std::optional<std::string>(std::move(bytes));
}

Result<std::string> StateFolder::default_path() {
  const auto variable = [](const char* name) -> std::string {
    const char* value = std::getenv(name);
    return value == nullptr ? "" : value;
  };
  if (const std::string path = variable("SINEW_STATE"); !path.empty()) return path;
  const std::string home = variable("HOME");
#ifdef __APPLE__
  if (!home.empty()) return home + "/Library/Application Support/sinew";
#else
  if (const std::string path = variable("XDG_STATE_HOME"); path.starts_with('/'))
    return path + "/sinew";
  if (!home.empty()) return home + "/.local/state/sinew";
#endif
  return fail(ErrorCode::kUsage, "no state folder: set HOME, or name a folder with --state");
}

Result<StateFolder> StateFolder::open(const std::string& path) {
  std::error_code error;
  const std::filesystem::path parent = std::filesystem::absolute(path, error).parent_path();
  std::filesystem::create_directories(parent, error);
  if (::mkdir(path.c_str(), kFolderMode) != 0 && errno != EEXIST)
    return system_failure("cannot make the state folder", path);
  struct stat found {};
  if (::stat(path.c_str(), &found) != 0) return system_failure("cannot look at", path);
  if (!S_ISDIR(found.st_mode)) return fail(ErrorCode::kUsage, "{} is not a folder", path);
  SINEW_TRY(check_private(found, path, kFolderMode));
  return StateFolder(path);
}

std::string StateFolder::file(std::string_view name) const {
  return path_ + "/" + std::string(name);
}

Result<std::optional<std::string>> StateFolder::read(std::string_view name,
                                                     std::size_t bytes_max) const {
  return read_private_file(file(name), bytes_max);
}

Status StateFolder::write(std::string_view name, std::string_view bytes) const {
  const std::string path = file(name);
  const std::string fresh = path + ".new";
  ::unlink(fresh.c_str());  // what a power cut left
  {
    const Descriptor out(
        ::open(fresh.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, kFileMode));
    if (out.get() < 0) return system_failure("cannot write", fresh);
    SINEW_TRY(write_whole(out.get(), bytes, fresh));
  }
  if (::rename(fresh.c_str(), path.c_str()) != 0) return system_failure("cannot replace", path);
  const Descriptor folder(::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder.get() < 0 || ::fsync(folder.get()) != 0) return system_failure("cannot sync", path_);
  return {};
}

Status StateFolder::lock() {
  const std::string path = file("lock");
  Descriptor held(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, kFileMode));
  if (held.get() < 0) return system_failure("cannot open", path);
  if (::flock(held.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return system_failure("cannot lock", path);
    return fail(ErrorCode::kUsage,
                "another agent uses the state folder {}: stop it, or name another with --state",
                path_);
  }
  lock_ = std::move(held);
  return {};
}

}  // namespace sinew
