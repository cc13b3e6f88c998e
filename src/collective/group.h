#pragma once

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

// The ranks of one epoch, and the operations in which all of them take part in the same order.
//
// Every operation carries job, epoch, step and a running sequence number; a rank that is at another
// one is an error, not a wrong sum. Every operation ends by `timeout` after its start, with an
// error that names the late rank. After an error the group is finished (all later calls return that
// error); a new epoch needs a new group.
//
// Sums are taken in rank order 0, 1, .., p-1 for every element whatever the algorithm, so all ranks
// hold bit-identical results and one-shot and two-phase agree bit for bit.
//
// Threads: one thread at a time.
class Group {
 public:
  virtual ~Group() = default;

  virtual Rank rank() const = 0;
  virtual int size() const = 0;
  // Transport of the links, for people: "shm", "tcp", or "-" for a group of one.
  virtual std::string_view kind() const = 0;

  // The step that the next operations belong to; peers must agree on it.
  virtual void set_step(std::uint64_t step) = 0;

  // In place: data[i] becomes the sum over ranks of data[i]. All ranks pass the same length.
  virtual Status all_reduce_sum(std::span<float> data) = 0;
  // `gathered` is split by `counts` (bytes of each rank, known to all); rank r's part holds its
  // `mine`.
  virtual Status all_gather(std::span<const std::byte> mine, std::span<const std::size_t> counts,
                            std::span<std::byte> gathered) = 0;
  // `gathered` is used on `root` only and may be empty elsewhere.
  virtual Status gather(Rank root, std::span<const std::byte> mine,
                        std::span<const std::size_t> counts, std::span<std::byte> gathered) = 0;
  // Root's bytes reach everyone. All ranks pass the same length.
  virtual Status broadcast(Rank root, std::span<std::byte> data) = 0;

  // Time spent in operations since the start, and their count: for the per-rank report.
  struct Totals {
    std::uint64_t operations = 0;
    std::uint64_t bytes_sent = 0;
    std::chrono::nanoseconds time{0};
  };
  virtual Totals totals() const = 0;
};

}  // namespace sinew
