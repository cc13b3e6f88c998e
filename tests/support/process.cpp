#include "support/process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <system_error>
#include <thread>

#include "base/assert.h"

extern char** environ;

namespace sinew::test {
namespace {

using Clock = std::chrono::steady_clock;

struct Pipe {
  int read = -1;
  int write = -1;

  bool open() {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) return false;
    read = ends[0];
    write = ends[1];
    return true;
  }
  static void close_end(int& end) {
    if (end >= 0) ::close(end);
    end = -1;
  }
  ~Pipe() {
    close_end(read);
    close_end(write);
  }
};

// Moves bytes until both outputs are at their end or the deadline passes (false).
bool pump(Pipe& in, Pipe& out, Pipe& err, std::string_view input, ProcessOutput& output,
          Clock::time_point deadline) {
  std::array<char, 65536> buffer;
  while (out.read >= 0 || err.read >= 0) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
    if (left.count() <= 0) return false;
    if (input.empty()) Pipe::close_end(in.write);
    // poll ignores negative descriptors.
    std::array<pollfd, 3> ends{
        {{in.write, POLLOUT, 0}, {out.read, POLLIN, 0}, {err.read, POLLIN, 0}}};
    if (::poll(ends.data(), ends.size(), static_cast<int>(left.count())) < 0 && errno != EINTR)
      return false;
    if (in.write >= 0 && ends[0].revents != 0) {
      const ssize_t n = ::write(in.write, input.data(), input.size());
      if (n > 0) input.remove_prefix(static_cast<std::size_t>(n));
      if (n < 0 && errno != EAGAIN && errno != EINTR)
        Pipe::close_end(in.write);  // it reads no more
    }
    const auto drain = [&buffer](int& end, short events, std::string& text) {
      if (end < 0 || events == 0) return;
      const ssize_t n = ::read(end, buffer.data(), buffer.size());
      if (n > 0) text.append(buffer.data(), static_cast<std::size_t>(n));
      if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) Pipe::close_end(end);
    };
    drain(out.read, ends[1].revents, output.out);
    drain(err.read, ends[2].revents, output.err);
  }
  return true;
}

bool wait_for_exit(pid_t child, Clock::time_point deadline, int& status) {
  while (Clock::now() < deadline) {
    const pid_t ended = ::waitpid(child, &status, WNOHANG);
    if (ended == child || (ended < 0 && errno != EINTR)) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return false;
}

}  // namespace

Result<ProcessOutput> run_process(const std::vector<std::string>& arguments, std::string_view input,
                                  std::chrono::seconds limit) {
  SINEW_ASSERT(!arguments.empty());
  const auto deadline = Clock::now() + limit;
  Pipe in;
  Pipe out;
  Pipe err;
  if (!in.open() || !out.open() || !err.open())
    return fail(ErrorCode::kIo, "pipe: {}", std::strerror(errno));
  ::fcntl(in.write, F_SETFL, O_NONBLOCK);

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, in.read, STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, out.write, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, err.write, STDERR_FILENO);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  std::vector<char*> argv;
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  pid_t child = -1;
  const int refused = ::posix_spawn(&child, argv[0], &actions, &attributes, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  if (refused != 0)
    return fail(ErrorCode::kIo, "{} cannot be started: {}", arguments[0], std::strerror(refused));
  Pipe::close_end(in.read);
  Pipe::close_end(out.write);
  Pipe::close_end(err.write);

  // A child that ends without reading its input must not end the test.
  struct sigaction ignore {};
  struct sigaction before {};
  ignore.sa_handler = SIG_IGN;
  ::sigaction(SIGPIPE, &ignore, &before);
  ProcessOutput output;
  int status = 0;
  const bool ended =
      pump(in, out, err, input, output, deadline) && wait_for_exit(child, deadline, status);
  ::sigaction(SIGPIPE, &before, nullptr);
  if (!ended) {
    ::kill(-child, SIGKILL);
    ::waitpid(child, &status, 0);
    return fail(ErrorCode::kDeadline, "{} {} did not end within {} s; its standard error: {}",
                arguments[0], arguments.size() > 1 ? arguments[1] : "", limit.count(), output.err);
  }
  output.exit_status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return output;
}

Result<ProcessOutput> run_checked(const std::vector<std::string>& arguments, std::string_view input,
                                  std::chrono::seconds limit) {
  SINEW_ASSIGN(ProcessOutput output, run_process(arguments, input, limit));
  if (output.exit_status == 0) return output;
  constexpr std::size_t kShown = 2000;
  const std::size_t from = output.err.size() > kShown ? output.err.size() - kShown : 0;
  std::string command;
  for (const std::string& argument : arguments) command += argument + " ";
  return fail(ErrorCode::kInternal, "{}ended with status {}: {}", command, output.exit_status,
              output.err.substr(from));
}

TemporaryFolder::TemporaryFolder() {
  std::string name = (std::filesystem::temp_directory_path() / "sinew-test-XXXXXX").string();
  const char* made = ::mkdtemp(name.data());
  SINEW_ASSERT(made != nullptr);
  path_ = name;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

Result<std::string> read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return fail(ErrorCode::kNotFound, "{} cannot be read", path);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

Status write_file(const std::string& path, std::string_view bytes) {
  std::ofstream file(path, std::ios::binary);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  file.close();
  if (!file) return fail(ErrorCode::kIo, "{} cannot be written", path);
  return {};
}

}  // namespace sinew::test
