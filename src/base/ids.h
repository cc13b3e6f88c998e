#pragma once

#include <array>
#include <cstdint>

namespace sinew {

using Rank = int;              // 0 .. rank count - 1; rank 0 is the head
using TokenId = std::int32_t;  // index into the vocabulary
using Epoch = std::uint64_t;   // grows whenever the group is formed anew; fences every message

// Random id of one loaded model on one set of ranks. Drawn by the supervisor, carried by every
// message.
struct JobId {
  std::array<std::uint64_t, 2> words{};
  friend bool operator==(const JobId&, const JobId&) = default;
};

}  // namespace sinew
