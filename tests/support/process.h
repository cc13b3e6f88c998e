#pragma once

#include <chrono>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace sinew::test {

struct ProcessOutput {
  int exit_status = 0;  // 128 + signal if a signal ended it
  std::string out;
  std::string err;
};

// Runs a program to its end. kDeadline after `limit`: the program's process group is then killed,
// so that no rank outlives its test. kIo if it cannot be started. A failing exit status is not an
// error here.
Result<ProcessOutput> run_process(const std::vector<std::string>& arguments, std::string_view input,
                                  std::chrono::seconds limit);

// As above; a failing exit status becomes kInternal with the end of the standard error.
Result<ProcessOutput> run_checked(const std::vector<std::string>& arguments, std::string_view input,
                                  std::chrono::seconds limit);

// A folder for one test's files, removed with this object.
class TemporaryFolder {
 public:
  TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder();
  std::string file(std::string_view name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

Result<std::string> read_file(const std::string& path);
Status write_file(const std::string& path, std::string_view bytes);

}  // namespace sinew::test
