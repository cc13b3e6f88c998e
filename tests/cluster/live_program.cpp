#include "cluster/live_program.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>
#include <thread>

namespace sinew::test {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

milliseconds until(Clock::time_point end) {
  return std::max(milliseconds(0), std::chrono::duration_cast<milliseconds>(end - Clock::now()));
}

// Runs between fork and exec: only calls that are safe there.
[[noreturn]] void become(char* const* arguments, int out_pipe, int err_pipe) {
  setpgid(0, 0);
  const int nothing = open("/dev/null", O_RDONLY);
  dup2(nothing, STDIN_FILENO);
  dup2(out_pipe, STDOUT_FILENO);
  dup2(err_pipe, STDERR_FILENO);
  execv(arguments[0], arguments);
  _exit(127);
}

// False at the end of the stream.
bool append_available(int pipe, std::string& text) {
  char buffer[4096];
  const ssize_t got = read(pipe, buffer, sizeof buffer);
  if (got > 0) text.append(buffer, static_cast<std::size_t>(got));
  return got > 0 || (got < 0 && (errno == EAGAIN || errno == EINTR));
}

// Fields of /proc/net/tcp and tcp6: local address in hex at 1, state at 3, inode at 9.
std::map<std::string, int> listening_inodes() {
  std::map<std::string, int> found;
  for (const char* name : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    std::ifstream table(name);
    std::string line;
    std::getline(table, line);
    while (std::getline(table, line)) {
      std::istringstream fields(line);
      std::vector<std::string> field;
      for (std::string word; fields >> word;) field.push_back(word);
      if (field.size() < 10 || field[3] != "0A") continue;
      const auto colon = field[1].rfind(':');
      found[field[9]] = std::stoi(field[1].substr(colon + 1), nullptr, 16);
    }
  }
  return found;
}

// Where the links of a folder lead to; nothing if it may not be read.
std::vector<std::string> link_targets(const fs::path& folder) {
  std::vector<std::string> targets;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    std::error_code unreadable;
    const std::string target = fs::read_symlink(it->path(), unreadable).string();
    if (!unreadable) targets.push_back(target);
  }
  return targets;
}

void add_children(pid_t process, std::set<pid_t>& found) {
  std::error_code error;
  const fs::path tasks = "/proc/" + std::to_string(process) + "/task";
  for (fs::directory_iterator it(tasks, error), end; !error && it != end; it.increment(error)) {
    std::ifstream children(it->path() / "children");
    for (pid_t child = 0; children >> child;) {
      if (found.insert(child).second) add_children(child, found);
    }
  }
}

}  // namespace

LiveProgram::LiveProgram(const std::vector<std::string>& arguments) {
  // Ranks that lose their parent become children of the test, which then sees them end.
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  int out[2] = {-1, -1};
  int err[2] = {-1, -1};
  if (pipe2(out, O_CLOEXEC) != 0 || pipe2(err, O_CLOEXEC) != 0) {
    ADD_FAILURE() << "no pipe could be made";
    return;
  }
  std::vector<std::string> words = arguments;
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  pid_ = fork();
  if (pid_ == 0) become(pointers.data(), out[1], err[1]);
  close(out[1]);
  close(err[1]);
  out_pipe_ = out[0];
  err_pipe_ = err[0];
  fcntl(out_pipe_, F_SETFL, O_NONBLOCK);
  fcntl(err_pipe_, F_SETFL, O_NONBLOCK);
  EXPECT_GT(pid_, 0) << arguments.front() << " could not be started";
}

LiveProgram::~LiveProgram() {
  const std::set<pid_t> below = descendants();
  if (pid_ > 0 && !status_) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  for (const pid_t process : below) kill(process, SIGKILL);
  while (waitpid(-1, nullptr, WNOHANG) > 0) {
  }
  for (const int pipe : {out_pipe_, err_pipe_}) {
    if (pipe >= 0) close(pipe);
  }
}

void LiveProgram::read_output(milliseconds limit) {
  pollfd pipes[2] = {{out_pipe_, POLLIN, 0}, {err_pipe_, POLLIN, 0}};
  if (poll(pipes, 2, static_cast<int>(limit.count())) <= 0) return;
  std::string* texts[2] = {&out_, &err_};
  int* owners[2] = {&out_pipe_, &err_pipe_};
  for (int i = 0; i < 2; ++i) {
    if (pipes[i].revents == 0 || append_available(pipes[i].fd, *texts[i])) continue;
    close(*owners[i]);
    *owners[i] = -1;  // poll ignores negative descriptors
  }
}

bool LiveProgram::reap() {
  if (status_ || pid_ <= 0) return true;
  int raw = 0;
  if (waitpid(pid_, &raw, WNOHANG) != pid_) return false;
  status_ = WIFSIGNALED(raw) ? 128 + WTERMSIG(raw) : WEXITSTATUS(raw);
  return true;
}

bool LiveProgram::wait_until(const std::function<bool()>& done, milliseconds limit) {
  const auto end = Clock::now() + limit;
  while (!done()) {
    if (Clock::now() >= end || (reap() && out_pipe_ < 0 && err_pipe_ < 0)) return done();
    read_output(std::min(until(end), milliseconds(20)));
    if (out_pipe_ < 0 && err_pipe_ < 0) std::this_thread::sleep_for(milliseconds(5));
  }
  return true;
}

std::optional<int> LiveProgram::wait_for_exit(milliseconds limit) {
  const bool ended = wait_until([this] { return reap(); }, limit);
  // What the program wrote last may still be in the pipes.
  while (ended && (out_pipe_ >= 0 || err_pipe_ >= 0)) {
    const std::size_t before = out_.size() + err_.size();
    read_output(milliseconds(0));
    if (out_.size() + err_.size() == before) break;
  }
  return ended ? status_ : std::nullopt;
}

std::map<int, pid_t> LiveProgram::ranks() const {
  static const std::regex line(R"(rank (\d+): pid (\d+))");
  std::map<int, pid_t> found;
  for (std::sregex_iterator it(err_.begin(), err_.end(), line), end; it != end; ++it) {
    found[std::stoi((*it)[1])] = std::stoi((*it)[2]);
  }
  return found;
}

std::set<pid_t> LiveProgram::descendants() const {
  std::set<pid_t> found;
  if (pid_ > 0) add_children(pid_, found);
  return found;
}

Footprint LiveProgram::footprint() const {
  Footprint found;
  found.processes = descendants();
  const std::map<std::string, int> inodes = listening_inodes();
  std::set<pid_t> all = found.processes;
  all.insert(pid_);
  for (const pid_t process : all) {
    const fs::path folder = "/proc/" + std::to_string(process);
    for (const std::string& target : link_targets(folder / "fd")) {
      if (target.starts_with("/dev/shm/")) found.shared_memory.insert(target);
      if (!target.starts_with("socket:[")) continue;
      const auto socket = inodes.find(target.substr(8, target.size() - 9));
      if (socket != inodes.end()) found.ports.insert(*socket);
    }
    for (const std::string& target : link_targets(folder / "map_files"))
      if (target.starts_with("/dev/shm/")) found.shared_memory.insert(target);
  }
  return found;
}

std::string Footprint::left_after(milliseconds limit) const {
  std::string left;
  for (const pid_t process : test::left_after(processes, limit))
    left += "process " + std::to_string(process) + " is still there; ";
  const std::map<std::string, int> open = listening_inodes();
  for (const auto& [inode, port] : ports)
    if (open.contains(inode)) left += "port " + std::to_string(port) + " still listens; ";
  for (const std::string& name : shared_memory)
    if (fs::exists(name)) left += name + " is left; ";
  return left;
}

bool is_gone(pid_t process) {
  std::ifstream stat("/proc/" + std::to_string(process) + "/stat");
  std::string line;
  if (!std::getline(stat, line)) return true;
  const auto name_end = line.rfind(')');
  return name_end != std::string::npos && line.size() > name_end + 2 && line[name_end + 2] == 'Z';
}

std::set<pid_t> left_after(const std::set<pid_t>& processes, milliseconds limit) {
  const auto end = Clock::now() + limit;
  std::set<pid_t> left = processes;
  for (;;) {
    std::erase_if(left, is_gone);
    if (left.empty() || Clock::now() >= end) return left;
    std::this_thread::sleep_for(milliseconds(10));
  }
}

}  // namespace sinew::test
