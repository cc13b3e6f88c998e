#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "transport/verbs_api.h"

namespace sinew {

// What the user may say about verbs; the same on all ranks but for the devices' names.
struct VerbsOptions {
  // In the order of the cables; empty: the device whose address is that of the side channel, and
  // those that share a subnet with another device of the peer.
  std::vector<std::string> devices = {};
  std::optional<std::uint32_t> gid_index = {};
  std::optional<VerbsQpType> qp_type = {};  // else what the stack does best
  std::uint32_t slot_bytes = 16u << 10;
  // TCP for the whole group where verbs cannot be brought up; else that is an error.
  bool fall_back_to_tcp = false;
};
inline constexpr std::uint32_t kVerbsSlotBytesMax = 128u << 10;
inline constexpr std::size_t kVerbsPortsMax = 8;  // of one machine

}  // namespace sinew
