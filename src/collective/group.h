#pragma once

#include <bit>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/result.h"

namespace sinew {

struct CollectivePlan;

// Some of the ranks of a group.
struct RankSet {
  std::uint32_t bits = 0;

  static RankSet range(Rank first, int count) {
    return {((std::uint32_t{1} << count) - 1) << first};
  }
  bool contains(Rank rank) const { return (bits >> rank & 1U) != 0; }
  int count() const { return std::popcount(bits); }
  // How many members come before `rank`.
  int index(Rank rank) const { return std::popcount(bits & ((std::uint32_t{1} << rank) - 1)); }
  RankSet with(Rank rank) const { return {bits | std::uint32_t{1} << rank}; }
};

// The ranks of one epoch, and the operations in which all of them, or those named, take part; any
// two ranks run the operations that both belong to in the same order.
//
// Every operation carries job, epoch, step and a sequence number running for each pair of ranks; a
// rank that is at another one is an error, not a wrong sum. Every operation ends by `timeout` after
// its start, with an error that names the late rank. After an error the group is finished (all
// later calls return that error); a new epoch needs a new group.
//
// Sums are taken in rank order 0, 1, .., p-1 for every element whatever the algorithm, so all ranks
// hold bit-identical results and all algorithms agree bit for bit
// (docs/decisions/15-collective-plan.md).
//
// Threads: one thread at a time.
class Group {
 public:
  virtual ~Group() = default;

  virtual Rank rank() const = 0;
  virtual int size() const = 0;
  // Transport of the links, for people: "shm", "tcp+shm", or "-" for a group of one.
  virtual std::string_view kind() const = 0;
  // Which algorithm adds vectors of which length.
  virtual const CollectivePlan& plan() const = 0;

  // The step that the next operations belong to; peers must agree on it.
  virtual void set_step(std::uint64_t step) = 0;

  // In place: data[i] becomes the sum over the ranks `among`, of which this is one, of data[i]. All
  // pass the same length.
  virtual Status all_reduce_sum(std::span<float> data, RankSet among) = 0;
  Status all_reduce_sum(std::span<float> data) { return all_reduce_sum(data, everyone()); }
  // `gathered` is split by `counts` (bytes of each rank, known to all); rank r's part holds its
  // `mine`.
  virtual Status all_gather(std::span<const std::byte> mine, std::span<const std::size_t> counts,
                            std::span<std::byte> gathered) = 0;
  // `gathered` is used on `root` only and may be empty elsewhere.
  virtual Status gather(Rank root, std::span<const std::byte> mine,
                        std::span<const std::size_t> counts, std::span<std::byte> gathered) = 0;
  // Root's bytes reach the ranks `among`, of which this and root are two. All pass the same length.
  virtual Status broadcast(Rank root, std::span<std::byte> data, RankSet among) = 0;
  Status broadcast(Rank root, std::span<std::byte> data) {
    return broadcast(root, data, everyone());
  }
  RankSet everyone() const { return RankSet::range(0, size()); }

  // Time spent in operations since the start, and their count: for the per-rank report.
  struct Totals {
    std::uint64_t operations = 0;
    std::uint64_t bytes_sent = 0;
    std::chrono::nanoseconds time{0};
  };
  virtual Totals totals() const = 0;
};

}  // namespace sinew
