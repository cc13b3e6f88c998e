#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "host/process.h"

namespace sinew {

// The bytes of a file that only its owner may touch. Nothing if it is not there; kUsage with the
// remedy if others may read it or it belongs to somebody else; kInvalidFile if it is longer than
// `bytes_max`.
Result<std::optional<std::string>> read_private_file(const std::string& path,
                                                     std::size_t bytes_max);

// The folder of what an agent must not forget: the cluster's secret, its own identity, the promises
// of its lease. Mode 0700, files 0600; each file is replaced as a whole.
class StateFolder {
 public:
  // $SINEW_STATE, else $XDG_STATE_HOME/sinew or ~/.local/state/sinew, on macOS
  // ~/Library/Application Support/sinew. kUsage if the environment names no home.
  static Result<std::string> default_path();
  // Makes the folder if it is not there. kUsage if others may enter it.
  static Result<StateFolder> open(const std::string& path);

  const std::string& path() const { return path_; }
  std::string file(std::string_view name) const;
  Result<std::optional<std::string>> read(std::string_view name, std::size_t bytes_max) const;
  // On the disk when it returns; after an error the old bytes or the new are there, no mixture.
  Status write(std::string_view name, std::string_view bytes) const;
  // Held until this object or the process ends. kUsage if another process holds it.
  Status lock();

 private:
  explicit StateFolder(std::string path) : path_(std::move(path)) {}

  std::string path_;
  Descriptor lock_;
};

}  // namespace sinew
