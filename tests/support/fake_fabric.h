#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "support/fake_verbs.h"

namespace sinew::testing {

inline constexpr int kFakeMachinesMax = 8;
inline constexpr int kFakeCablesMax = 4;
inline constexpr std::uint32_t kFakeQueues = 240;
inline constexpr std::uint32_t kFakeFirstNumber = 17;  // of a queue pair: a small range, used again
// More than any window: what is posted is on its way, as with hardware.
inline constexpr std::size_t kFakeCells = 64;
inline constexpr std::size_t kFakeMessageMax = 32u << 10;
inline constexpr std::size_t kFakeCalls = static_cast<std::size_t>(VerbsCall::kPostSend) + 1;

// What FakeFabric keeps in shared memory. One side writes each word: the owner of a queue pair all
// but `tail` and the cells, which the sender writes; dice and settings belong to the test.
struct FakeFabric::Shared {
  struct Cell {
    std::uint32_t bytes = 0;
    std::int64_t ready_at = 0;  // ns of the steady clock
    std::byte data[kFakeMessageMax];
  };
  enum State : std::uint32_t { kFree, kMade, kInit, kReceives, kSends };
  // One end of a connection: what is on its way to it.
  struct Queue {
    std::atomic<std::uint32_t> state;
    std::atomic<std::uint32_t> machine;
    std::atomic<std::uint32_t> cable;
    std::atomic<std::uint32_t> peer;    // number of the other end
    std::atomic<std::uint64_t> posted;  // receives, but for those an injected message has taken
    std::atomic<std::uint64_t> tail;    // messages ever written by the other end
    std::atomic<std::uint64_t> head;    // and taken
    std::atomic<std::uint32_t> injected;
    std::uint32_t injected_bytes;
    Cell cells[kFakeCells];
    std::byte injected_data[kFakeMessageMax];
  };

  FakeStack stack;
  int machines;
  int cables;
  bool crossed;
  std::atomic<bool> no_devices;
  std::atomic<std::uint32_t> gid_index;
  std::atomic<std::uint32_t> seed, loss, duplicate, corrupt, late, late_by_us;
  std::atomic<std::uint32_t> failures[kFakeMachinesMax][kFakeCalls];       // errno << 16 | times
  std::atomic<std::int64_t> down_since[kFakeMachinesMax][kFakeCablesMax];  // 0: up
  std::atomic<bool> silent[kFakeMachinesMax];
  std::atomic<std::uint64_t> sent, lost, duplicated, corrupted, delayed, met_no_receive;
  std::atomic<std::uint32_t> violations;
  char first_violation[200];
  std::atomic<int> objects;
  std::atomic<int> capture_from;  // -1: nobody
  std::uint32_t captured_bytes;
  std::byte captured[kFakeMessageMax];
  Queue queues[kFakeQueues];
};

}  // namespace sinew::testing
