#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/ids.h"
#include "base/result.h"
#include "collective/wire_type.h"

namespace sinew {

// The header in front of every message of a group, little-endian:
//   0 magic u32 | 4 version u16 | 6 operation u8 | 7 flags u8 | 8 source u16 | 10 subject u16 |
//   12 piece u32 | 16 job u64 x 2 | 32 epoch u64 | 40 step u64 | 48 sequence u64 | 56 length u64 |
//   64 checksum u64
// A receiver knows every field but the checksum beforehand and compares all of them, so no bit of a
// header can change unnoticed.
inline constexpr std::size_t kFrameBytes = 72;
inline constexpr std::uint32_t kFrameMagic = 0x46574e53;  // "SNWF"
inline constexpr std::uint16_t kFrameVersion = 2;

// Payloads up to this size carry a checksum unless their link vouches for them: it costs little
// beside the latency of a hop between machines.
inline constexpr std::size_t kAlwaysChecksumBytes = 64u << 10;

enum class Operation : std::uint8_t {
  kAllReduce = 1,  // one-shot: the sender's whole vector
  kReduceScatter,  // first half of a long all-reduce: the receiver's chunk of the sender's vector
  kReducedGather,  // second half: the sender's chunk of the sum
  kAllGather,
  kGather,
  kBroadcast,
  kFault,  // the sender gives up the group and blames `subject`; step and sequence say where
  kRingAllReduce,  // the whole vector of `subject`, on its way round the ring
  kPartialSum,     // a piece of the sum of the sender's vector and those before it in the chain
  kChainSum,       // a piece of the finished sum, on its way back
  kProbe,          // measures a link at the start of a group
  kPlan,           // what was measured, towards rank 0; what follows from it, away from it
};

// For people.
std::string_view operation_name(Operation operation);

struct FrameHeader {
  Operation operation = Operation::kAllReduce;
  bool checksummed = false;
  WireType wire = WireType::kF32;  // of the payload of an all-reduce
  Rank source = 0;
  // Root of a gather or broadcast; blamed rank of a fault; of a message that ranks hand on, the one
  // that it began with; else 0.
  Rank subject = 0;
  std::uint32_t piece = 0;  // of a message that travels in pieces, from 0
  JobId job;
  Epoch epoch = 0;
  std::uint64_t step = 0;
  std::uint64_t sequence = 0;
  std::uint64_t length = 0;    // of the payload, bytes
  std::uint64_t checksum = 0;  // 0 unless `checksummed`
};

using FrameBytes = std::array<std::byte, kFrameBytes>;

void encode_frame(const FrameHeader& header, std::span<std::byte, kFrameBytes> into);

// Checks what holds for every frame; `check_frame` checks the rest. kProtocol.
Result<FrameHeader> decode_frame(std::span<const std::byte, kFrameBytes> bytes);

// Whether `came` is the frame that this rank waits for: every field but the checksum. kProtocol,
// saying what was expected and what came; Error::rank is the expected source.
Status check_frame(const FrameHeader& came, const FrameHeader& expected);

std::uint64_t payload_checksum(std::span<const std::byte> payload);

// kIntegrity unless `computed` is the checksum that the header announces.
Status check_payload(const FrameHeader& header, std::uint64_t computed);

// payload_checksum of a payload that arrives in pieces. Reusable; allocates at construction only.
class RunningChecksum {
 public:
  RunningChecksum();
  ~RunningChecksum();
  RunningChecksum(RunningChecksum&&) noexcept;
  RunningChecksum& operator=(RunningChecksum&&) noexcept;

  void restart();
  void add(std::span<const std::byte> piece);
  std::uint64_t value() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace sinew
