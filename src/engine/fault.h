#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "shard/load_list.h"

namespace sinew {

// Damage done on purpose to one rank, so that tests can prove that `sinew verify` finds it. Given
// to the rank's process by `--inject`, which says aloud what it does:
//   byte=TENSOR@OFFSET     one bit of the slice flips while it is loaded
//   rows=TENSOR@A,B        two rows of the slice are swapped after it was hashed
//   sum=STEP@PLACE,FACTOR  this rank's part of the PLACE-th sum is multiplied, in every step from
//                          number STEP on
//   noise=STEP@PLACE,SIZE  every element of this rank's part of every sum from that place and step
//                          on is off by a random part of relative size SIZE, as if another kernel
//                          had rounded
//   element=STEP@PLACE,I   element I of that part is wrong by 100, in that one step
struct Fault {
  enum class Kind : std::uint8_t { kByte, kRows, kSum, kNoise, kElement };
  Kind kind = Kind::kByte;
  std::string tensor;
  std::uint64_t step = 0;
  std::uint64_t first = 0;  // offset, row or place
  double second = 0;        // row, factor, size or element
};
Result<Fault> parse_fault(const std::string& text);

class Faults {
 public:
  // kUsage if one cannot be read.
  static Result<Faults> parse(const std::vector<std::string>& texts);

  // Errors if the slice has no such byte or row.
  Status damage_read(const LoadItem& item, std::span<std::byte> slice) const;
  Status damage_hashed(const LoadItem& item, std::span<std::byte> slice) const;
  void damage_sum(std::uint64_t step, std::uint64_t place, std::span<float> part) const;

 private:
  std::vector<Fault> faults_;
};

}  // namespace sinew
