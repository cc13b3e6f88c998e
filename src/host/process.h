#pragma once

#include <signal.h>
#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"

namespace sinew {

// A descriptor that is closed with its owner. Move-only.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(other.release()) {}
  Descriptor& operator=(Descriptor&& other) noexcept;
  ~Descriptor() { reset(); }
  int get() const { return fd_; }
  int release();
  void reset();

 private:
  int fd_ = -1;
};

// A connected pair of byte-stream sockets, closed on exec.
Result<std::pair<Descriptor, Descriptor>> socket_pair();

// Starts `program` with `arguments` (without argv[0]) in a process group of its own, so that a
// terminal's Ctrl-C reaches the parent alone. The child gets `descriptors` as 3, 4, .., the
// standard streams, and nothing else that is open here.
Result<pid_t> spawn(const std::string& program, const std::vector<std::string>& arguments,
                    const std::vector<int>& descriptors);

// What became of a child since the last look.
struct ChildEvent {
  enum class Kind : std::uint8_t { kExited, kKilled, kStopped, kContinued };
  Kind kind = Kind::kExited;
  int value = 0;  // exit status, or signal number
};
// Does not wait. A child that exited or was killed is reaped.
std::optional<ChildEvent> poll_child(pid_t child);
// Kills and reaps. False if it has not ended by `deadline`: a process that is inside a driver, as
// of an RDMA card, dies when the driver lets it.
bool kill_child(pid_t child, std::chrono::steady_clock::time_point deadline);
// "SIGKILL", "SIGSEGV", or "signal 42".
std::string signal_name(int signal);

// Asks the system to kill this process when the thread that started it ends (Linux; elsewhere
// nothing). A rank also sees its control socket close, but not while it is stopped.
// `signal`: a program that must tidy up asks for another than SIGKILL.
void die_with_parent(int signal = SIGKILL);

// Path of the running program.
Result<std::string> own_program();
// Physical memory that new allocations can use without swapping, bytes; 0 if the system does not
// say.
std::uint64_t available_memory();
// Largest resident size of this process so far, bytes.
std::uint64_t peak_resident_bytes();
// Cores this process may run on.
int usable_cores();

}  // namespace sinew
