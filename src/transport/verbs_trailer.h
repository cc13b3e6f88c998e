#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "collective/link.h"

namespace sinew {

// The last 64 bytes of every slot that travels over verbs, little-endian. A receiver knows job,
// epoch, queue, source, target, rail and number beforehand and compares all of them; the checksum
// covers the payload and the rest of the trailer. Queue pair numbers are used again after a crash
// and an unreliable connection accepts any packet number, so only this tells a message of an
// earlier life from one of this.
struct VerbsTrailer {
  enum class Kind : std::uint8_t {
    kData = 1,  // the next bytes of the stream
    kNote,      // only says what has been taken
    kWarmUp,    // the first message of a queue pair: proves that it delivers
  };

  std::uint32_t magic = 0;
  std::uint32_t payload_bytes = 0;
  std::uint64_t job[2] = {};
  std::uint64_t epoch = 0;
  std::uint64_t number = 0;       // of this message on its queue pair, from 0
  std::uint32_t data_taken = 0;   // data messages of the receiver whose slots are posted again, and
  std::uint32_t notes_taken = 0;  // its notes: both count up, modulo 2^32
  std::uint32_t queue = 0;        // drawn for each queue pair by the sender
  std::uint8_t source = 0;
  std::uint8_t target = 0;
  std::uint8_t rail = 0;
  Kind kind = Kind::kData;
  std::uint64_t checksum = 0;
};
inline constexpr std::size_t kVerbsTrailerBytes = 64;
static_assert(sizeof(VerbsTrailer) == kVerbsTrailerBytes);

// Payload bytes that fit a slot.
constexpr std::size_t verbs_payload_max(std::size_t slot_bytes) {
  return slot_bytes - kVerbsTrailerBytes;
}

// Writes `trailer` to the end of `slot`, whose payload is in place, with magic and checksum.
void seal_slot(std::span<std::byte> slot, VerbsTrailer trailer);

// What a slot holds before its receive is posted: nothing that could be taken for a message.
void poison_slot(std::span<std::byte> slot);

enum class SlotVerdict : std::uint8_t {
  kExpected,
  kOlder,  // whole, but of an earlier life of the connection, or a repetition: to be dropped
};

// What has come in `slot`, compared with `expected` (identity and number); `came` is set for
// kExpected. kIntegrity: damaged. kProtocol: whole, but newer than expected or of somebody else.
Result<SlotVerdict> check_slot(std::span<const std::byte> slot, const VerbsTrailer& expected,
                               VerbsTrailer& came);

}  // namespace sinew
