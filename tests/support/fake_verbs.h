#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "transport/verbs_api.h"
#include "transport/verbs_explain.h"

namespace sinew::testing {

// Whose rules a fabric follows. kApple: UC alone, 10 queue pairs and 100 regions a device, depth in
// frames, SEND and RECV of the same number of frames, no receive before RTS, a SEND waits for its
// RECV, a dead peer is silence. kLinux: RC (a dead peer is an error after a while) and UC (a SEND
// without RECV is lost).
enum class FakeStack { kApple, kLinux };

// How often what happens to a message, in millionths; the same seed gives the same dice to the same
// queue pair.
struct FakeFaults {
  std::uint32_t seed = 1;
  std::uint32_t loss = 0;
  std::uint32_t duplicate = 0;
  std::uint32_t corrupt = 0;  // one to three bits flip
  std::uint32_t late = 0;     // up to `late_by`; other rails overtake
  std::chrono::microseconds late_by{500};
};

struct FakeCounts {
  std::uint64_t sent = 0;
  std::uint64_t lost = 0;
  std::uint64_t duplicated = 0;
  std::uint64_t corrupted = 0;
  std::uint64_t late = 0;
  std::uint64_t met_no_receive = 0;  // SENDs
};

// The cables and machines of one test. Lies in memory that forked processes share, and is without
// locks, so that a rank can be a thread or a process that is stopped or killed at any point.
//
// Machine m has a device for each cable; all devices of one cable reach each other. The address of
// cable 0 is 127.0.0.1, as that of the side channel in tests; of cable c, 10.77.c.(m + 1).
class FakeFabric {
 public:
  // `crossed`: odd machines list their devices in reverse order.
  FakeFabric(FakeStack stack, int machines, int cables = 1, bool crossed = false);
  ~FakeFabric();
  FakeFabric(const FakeFabric&) = delete;
  FakeFabric& operator=(const FakeFabric&) = delete;

  // The stack of one machine. The fabric outlives it.
  std::shared_ptr<VerbsProvider> provider(int machine);

  void set_faults(const FakeFaults& faults);
  // The next `times` calls of that kind on that machine fail.
  void fail(int machine, VerbsCall call, int error_number, int times = 1);
  void set_port(int machine, int cable, bool up);
  // From now on nothing leaves or reaches the machine.
  void silence(int machine);
  // Every machine has no device: a Mac with Thunderbolt 4.
  void remove_devices();
  // On which GID index the IPv4 address lies (1 unless told).
  void set_gid_index(std::uint32_t index);

  // Keeps what `machine` sends from now on; the last message of it.
  void capture(int machine);
  std::vector<std::byte> captured() const;
  // Puts a message into all queue pairs of `machine`: one from an earlier life.
  void inject(int machine, std::span<const std::byte> message);

  FakeCounts counts() const;
  // Rules of the stack that the code under test has broken: how many, and the first one.
  std::uint32_t violations() const;
  std::string first_violation() const;
  // Queue pairs, regions, queues, domains and devices that are not given back.
  int leaks() const;

  struct Shared;

 private:
  Shared* shared_;
};

}  // namespace sinew::testing
