#include "host/process.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstring>
#include <fstream>
#include <string_view>
#include <thread>
#include <utility>

#include "base/assert.h"

#ifdef __APPLE__
#include <mach-o/dyld.h>
#include <mach/mach.h>
#include <sys/sysctl.h>
#else
#include <sched.h>
#include <sys/prctl.h>
#endif

extern char** environ;

namespace sinew {
namespace {

// Descriptors handed to a child are first moved above those they become in it.
constexpr int kFirstChildDescriptor = 3;
constexpr int kDescriptorsAbove = 64;

#ifndef __APPLE__
// The number behind `key` in a file of lines "Key:   123 kB", in bytes; 0 if it is not there.
std::uint64_t proc_bytes(const char* path, std::string_view key) {
  std::ifstream file(path);
  std::string word;
  std::string rest;
  while (file >> word) {
    std::uint64_t kib = 0;
    if (word == key && file >> kib) return kib * 1024;
    std::getline(file, rest);
  }
  return 0;
}
#endif

}  // namespace

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  if (this != &other) {
    reset();
    fd_ = other.release();
  }
  return *this;
}

int Descriptor::release() {
  return std::exchange(fd_, -1);
}

void Descriptor::reset() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

Result<std::pair<Descriptor, Descriptor>> socket_pair() {
  int fds[2] = {-1, -1};
  if (::socketpair(AF_UNIX, SOCK_STREAM, 0, fds) != 0)
    return fail(ErrorCode::kIo, "no socket pair: {}", std::strerror(errno));
  std::pair<Descriptor, Descriptor> pair{Descriptor(fds[0]), Descriptor(fds[1])};
  for (const int fd : fds)
    if (::fcntl(fd, F_SETFD, FD_CLOEXEC) != 0)
      return fail(ErrorCode::kIo, "a socket cannot be marked: {}", std::strerror(errno));
  return pair;
}

Result<pid_t> spawn(const std::string& program, const std::vector<std::string>& arguments,
                    const std::vector<int>& descriptors) {
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawnattr_init(&attributes);
  std::vector<Descriptor> moved;
  int child_fd = kFirstChildDescriptor;
  for (const int fd : descriptors) {
    moved.emplace_back(::fcntl(fd, F_DUPFD_CLOEXEC, kDescriptorsAbove));
    ::posix_spawn_file_actions_adddup2(&actions, moved.back().get(), child_fd++);
  }
  short flags = POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK;
  // Libraries open descriptors that children would inherit. A client's connection that a rank holds
  // as well stays open when the server closes it.
#ifdef __APPLE__
  for (int fd = 0; fd < kFirstChildDescriptor; ++fd)
    ::posix_spawn_file_actions_addinherit_np(&actions, fd);
  flags |= POSIX_SPAWN_CLOEXEC_DEFAULT;
#else
  ::posix_spawn_file_actions_addclosefrom_np(&actions, child_fd);
#endif
  // The child starts with default signals: the parent's handlers and mask are its own affair.
  sigset_t all;
  sigset_t none;
  sigfillset(&all);
  sigemptyset(&none);
  ::posix_spawnattr_setsigdefault(&attributes, &all);
  ::posix_spawnattr_setsigmask(&attributes, &none);
  ::posix_spawnattr_setpgroup(&attributes, 0);
  ::posix_spawnattr_setflags(&attributes, flags);

  std::vector<char*> argv{const_cast<char*>(program.c_str())};
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  pid_t child = -1;
  const int error =
      ::posix_spawn(&child, program.c_str(), &actions, &attributes, argv.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  ::posix_spawnattr_destroy(&attributes);
  if (error != 0)
    return fail(ErrorCode::kIo, "{} cannot be started: {}", program, std::strerror(error));
  return child;
}

std::optional<ChildEvent> poll_child(pid_t child) {
  int status = 0;
  const pid_t which = ::waitpid(child, &status, WNOHANG | WUNTRACED | WCONTINUED);
  if (which != child) return std::nullopt;
  if (WIFEXITED(status)) return ChildEvent{ChildEvent::Kind::kExited, WEXITSTATUS(status)};
  if (WIFSIGNALED(status)) return ChildEvent{ChildEvent::Kind::kKilled, WTERMSIG(status)};
  if (WIFSTOPPED(status)) return ChildEvent{ChildEvent::Kind::kStopped, WSTOPSIG(status)};
  if (WIFCONTINUED(status)) return ChildEvent{ChildEvent::Kind::kContinued, SIGCONT};
  return std::nullopt;
}

bool kill_child(pid_t child, std::chrono::steady_clock::time_point deadline) {
  SINEW_ASSERT(child > 0);  // 0 and below mean many processes
  ::kill(child, SIGKILL);
  while (true) {
    const pid_t reaped = ::waitpid(child, nullptr, WNOHANG);
    if (reaped == child || (reaped < 0 && errno != EINTR)) return true;
    if (std::chrono::steady_clock::now() >= deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

std::string signal_name(int signal) {
  switch (signal) {
    case SIGKILL:
      return "SIGKILL";
    case SIGSEGV:
      return "SIGSEGV";
    case SIGABRT:
      return "SIGABRT";
    case SIGBUS:
      return "SIGBUS";
    case SIGILL:
      return "SIGILL";
    case SIGFPE:
      return "SIGFPE";
    case SIGTERM:
      return "SIGTERM";
    case SIGSTOP:
      return "SIGSTOP";
    case SIGTSTP:
      return "SIGTSTP";
    default:
      return "signal " + std::to_string(signal);
  }
}

void die_with_parent([[maybe_unused]] int signal) {
#ifdef __linux__
  ::prctl(PR_SET_PDEATHSIG, signal);
#endif
}

Result<std::string> own_program() {
  char path[PATH_MAX];
#ifdef __APPLE__
  std::uint32_t size = sizeof(path);
  if (::_NSGetExecutablePath(path, &size) != 0)
    return fail(ErrorCode::kIo, "the path of this program is too long");
  return std::string(path);
#else
  const ssize_t length = ::readlink("/proc/self/exe", path, sizeof(path));
  if (length <= 0)
    return fail(ErrorCode::kIo, "the path of this program is not known: {}", std::strerror(errno));
  return std::string(path, static_cast<std::size_t>(length));
#endif
}

std::uint64_t available_memory() {
#ifdef __APPLE__
  vm_statistics64_data_t pages;
  mach_msg_type_number_t count = HOST_VM_INFO64_COUNT;
  if (::host_statistics64(::mach_host_self(), HOST_VM_INFO64,
                          reinterpret_cast<host_info64_t>(&pages), &count) != KERN_SUCCESS)
    return 0;
  return static_cast<std::uint64_t>(pages.free_count + pages.inactive_count +
                                    pages.purgeable_count) *
         static_cast<std::uint64_t>(::getpagesize());
#else
  return proc_bytes("/proc/meminfo", "MemAvailable:");
#endif
}

std::uint64_t peak_resident_bytes() {
#ifndef __APPLE__
  // getrusage counts as well what the parent had in memory when it started this program.
  if (const std::uint64_t own = proc_bytes("/proc/self/status", "VmHWM:"); own > 0) return own;
#endif
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
#ifdef __APPLE__
  return static_cast<std::uint64_t>(usage.ru_maxrss);
#else
  return static_cast<std::uint64_t>(usage.ru_maxrss) * 1024;
#endif
}

int usable_cores() {
#ifndef __APPLE__
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof(set), &set) == 0) return std::max(1, CPU_COUNT(&set));
#endif
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

}  // namespace sinew
