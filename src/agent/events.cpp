#include "agent/events.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>

namespace sinew {
namespace {

constexpr std::string_view kFile = "events";
constexpr std::string_view kOlder = "events.old";
constexpr std::size_t kLineMax = 2048;

}  // namespace

Status EventRing::add(std::string_view kind, std::string_view node, std::string_view text) {
  const auto now = std::chrono::duration_cast<std::chrono::milliseconds>(
      std::chrono::system_clock::now().time_since_epoch());
  const nlohmann::json event{
      {"time_ms", now.count()}, {"kind", kind}, {"node", node}, {"text", text.substr(0, kLineMax)}};
  const std::string line =
      event.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace) + "\n";
  const std::string path = folder_.file(kFile);
  const Descriptor file(
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600));
  struct stat found {};
  if (file.get() < 0 || ::fstat(file.get(), &found) != 0 ||
      ::write(file.get(), line.data(), line.size()) != static_cast<ssize_t>(line.size()))
    return fail(ErrorCode::kIo, "cannot keep an event in {}: {}", path, std::strerror(errno));
  if (static_cast<std::size_t>(found.st_size) + line.size() + 2 * kLineMax > kEventBytesMax &&
      ::rename(path.c_str(), folder_.file(kOlder).c_str()) != 0)
    return fail(ErrorCode::kIo, "cannot put {} aside: {}", path, std::strerror(errno));
  return {};
}

Result<std::string> read_events(const StateFolder& folder) {
  std::string all;
  for (const std::string_view name : {kOlder, kFile}) {
    SINEW_ASSIGN(const auto part, folder.read(name, kEventBytesMax));
    if (part) all += *part;
  }
  return all;
}

}  // namespace sinew
