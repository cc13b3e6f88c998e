#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace sinew::test {

// The kinds of link that this build has, as --link names them.
inline std::vector<std::string> link_kinds() {
#ifdef SINEW_HAS_UCX
  return {"shm", "tcp", "ucx"};
#else
  return {"shm", "tcp"};
#endif
}

// What a program holds of the machine at one moment. By the identities of the things themselves, so
// that another program on the machine is not taken for this one.
struct Footprint {
  std::set<pid_t> processes;            // without the program's own
  std::map<std::string, int> ports;     // inode of a listening TCP socket: its port
  std::set<std::string> shared_memory;  // paths of files in /dev/shm

  // What of it is there when the limit has passed, in words; "" for nothing.
  std::string left_after(std::chrono::milliseconds limit) const;
};

// A running program whose output can be watched while it runs, with every process that it started.
// All waits have limits; whatever is left at the end is killed, so no test leaks a rank.
class LiveProgram {
 public:
  // Asserts in the test that the program could be started.
  explicit LiveProgram(const std::vector<std::string>& arguments);
  LiveProgram(const LiveProgram&) = delete;
  LiveProgram& operator=(const LiveProgram&) = delete;
  ~LiveProgram();

  pid_t pid() const { return pid_; }
  const std::string& out() const { return out_; }
  const std::string& err() const { return err_; }

  // Reads output until `done` holds: false when the limit passed or the program ended before that.
  bool wait_until(const std::function<bool()>& done, std::chrono::milliseconds limit);
  // 128 + signal where a signal ended it; nothing when the limit passed.
  std::optional<int> wait_for_exit(std::chrono::milliseconds limit);

  // From the lines "rank R: pid P" that --verbose prints.
  std::map<int, pid_t> ranks() const;
  // All processes below this one at this moment, read from /proc.
  std::set<pid_t> descendants() const;
  // Of this program and all processes below it.
  Footprint footprint() const;

 private:
  void read_output(std::chrono::milliseconds limit);
  bool reap();

  pid_t pid_ = -1;
  int out_pipe_ = -1;
  int err_pipe_ = -1;
  std::string out_;
  std::string err_;
  std::optional<int> status_;
};

// Not gone means running, sleeping or stopped; a zombie that nobody has collected counts as gone.
bool is_gone(pid_t process);
// Of `processes`, those not gone when the limit has passed.
std::set<pid_t> left_after(const std::set<pid_t>& processes, std::chrono::milliseconds limit);

}  // namespace sinew::test
