#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/limits.h"
#include "base/result.h"

namespace sinew {

// What the ranks of one host share: a byte ring for each ordered pair of ranks, and a bell a rank.
// Anything read from it may have been written by a corrupt peer and is checked before use.
namespace shm {

inline constexpr std::size_t kLine =
    64;  // keeps words of different writers in different cache lines
inline constexpr std::size_t kRingBytes = 256u << 10;
static_assert((kRingBytes & (kRingBytes - 1)) == 0,
              "offsets in a ring are counters modulo its size");

struct Ring {
  // Bytes ever written and ever read: they only grow, the difference is what the ring holds.
  alignas(kLine) std::atomic<std::uint64_t> tail;  // written by the sender
  std::atomic<std::uint32_t> closed;               // by the sender: nothing comes after `tail`
  alignas(kLine) std::atomic<std::uint64_t> head;  // written by the receiver
  alignas(kLine) std::byte data[kRingBytes];
};

struct RankState {
  alignas(kLine) std::atomic<std::uint32_t> attached;  // a rank takes its place once
  // The rank sleeps on `bell`; whoever changes one of its rings while `sleeping` changes and wakes
  // it.
  alignas(kLine) std::atomic<std::uint32_t> bell;
  std::atomic<std::uint32_t> sleeping;
};

struct Header {
  std::uint32_t magic;
  std::uint32_t ranks;
  std::uint64_t ring_bytes;
  RankState rank_states[kRankCountMax];
};

static_assert(std::atomic<std::uint64_t>::is_always_lock_free &&
                  std::atomic<std::uint32_t>::is_always_lock_free,
              "a lock of the standard library would not work across processes");

}  // namespace shm

// The memory of one group of ranks on this host, for one epoch at a time. The supervisor creates it
// and passes its descriptor to the ranks it starts; the memory goes when the last of them has
// closed it, however they end: nothing has a name in the file system.
class ShmSegment {
 public:
  static Result<ShmSegment> create(int ranks);
  // Takes over `fd`, which stays open across exec of a rank; closes it on failure too.
  static Result<ShmSegment> adopt(int fd, int ranks);

  // Back to the first state, for the next epoch of the same ranks. No process may use it meanwhile.
  void renew() const;

  int fd() const;
  int ranks() const;
  shm::Header& header() const;
  // The ring that carries bytes from one rank to the other.
  shm::Ring& ring(int from, int to) const;

 private:
  struct Mapping;
  explicit ShmSegment(std::shared_ptr<const Mapping> mapping);

  // Shared with copies in the links, which may outlive the segment they were made from.
  std::shared_ptr<const Mapping> mapping_;
};

}  // namespace sinew
