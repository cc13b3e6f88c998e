#include "host/tool.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <optional>
#include <thread>

#include "host/process.h"

extern char** environ;

namespace sinew {
namespace {

using Clock = std::chrono::steady_clock;
// A process inside an RDMA driver that is killed can wedge the port: it is asked first.
constexpr std::chrono::milliseconds kEndMax{500};
constexpr std::chrono::milliseconds kPollStep{5};

Result<pid_t> start(const std::vector<std::string>& command, int out) {
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
  ::posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  // A group of its own, so that what the tool starts ends with it.
  posix_spawnattr_t attributes;
  ::posix_spawnattr_init(&attributes);
  ::posix_spawnattr_setpgroup(&attributes, 0);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  std::vector<char*> argv;
  for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  pid_t child = -1;
  const int error = ::posix_spawnp(&child, argv[0], &actions, &attributes, argv.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  ::posix_spawnattr_destroy(&attributes);
  if (error == ENOENT) return fail(ErrorCode::kNotFound, "{} is not installed", command[0]);
  if (error != 0)
    return fail(ErrorCode::kIo, "{} cannot be started: {}", command[0], std::strerror(error));
  return child;
}

std::optional<ChildEvent> ended(pid_t child, Clock::time_point deadline) {
  while (true) {
    const auto event = poll_child(child);
    if (event &&
        (event->kind == ChildEvent::Kind::kExited || event->kind == ChildEvent::Kind::kKilled))
      return event;
    if (Clock::now() >= deadline) return std::nullopt;
    std::this_thread::sleep_for(kPollStep);
  }
}

void end(pid_t child) {
  ::kill(-child, SIGTERM);
  if (ended(child, Clock::now() + kEndMax)) return;
  ::kill(-child, SIGKILL);
  kill_child(child, Clock::now() + kEndMax);
}

Status read_all(int fd, Clock::time_point deadline, std::size_t bytes_max, std::string& into) {
  char piece[4096];
  while (true) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (left <= 0) return fail(ErrorCode::kDeadline, "no answer in time");
    pollfd waiting{fd, POLLIN, 0};
    if (::poll(&waiting, 1, static_cast<int>(left)) <= 0) continue;
    const ssize_t count = ::read(fd, piece, sizeof piece);
    if (count == 0) return {};
    if (count < 0 && errno != EINTR) return fail(ErrorCode::kIo, "{}", std::strerror(errno));
    if (count < 0) continue;
    into.append(piece, static_cast<std::size_t>(count));
    if (into.size() > bytes_max) return fail(ErrorCode::kIo, "more than {} bytes", bytes_max);
  }
}

}  // namespace

Result<ToolOutput> run_tool(const std::vector<std::string>& command,
                            std::chrono::milliseconds limit, std::size_t bytes_max) {
  const Clock::time_point deadline = Clock::now() + limit;
  int ends[2] = {-1, -1};
  if (::pipe(ends) != 0) return fail(ErrorCode::kIo, "no pipe: {}", std::strerror(errno));
  Descriptor reading(ends[0]);
  Descriptor writing(ends[1]);
  for (const int fd : ends)
    if (::fcntl(fd, F_SETFD, FD_CLOEXEC) != 0)
      return fail(ErrorCode::kIo, "a pipe cannot be marked: {}", std::strerror(errno));
  SINEW_ASSIGN(const pid_t child, start(command, writing.get()));
  writing.reset();
  ToolOutput output;
  const Status read = read_all(reading.get(), deadline, bytes_max, output.out);
  const auto event = read ? ended(child, deadline) : std::nullopt;
  if (!event) {
    end(child);
    if (!read) return fail(read.error().within(command[0]));
    return fail(ErrorCode::kDeadline, "{}: has not ended in time", command[0]);
  }
  output.exit_status = event->kind == ChildEvent::Kind::kExited ? event->value : 128 + event->value;
  return output;
}

}  // namespace sinew
