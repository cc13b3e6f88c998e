#include "transport/verbs_trailer.h"

#include <bit>
#include <cstddef>
#include <cstring>
#include <utility>

#include "base/assert.h"
#include "collective/frame.h"

namespace sinew {
namespace {

static_assert(std::endian::native == std::endian::little, "a trailer is copied as it lies");

constexpr std::uint32_t kTrailerMagic = 0x56574e53;  // "SNWV"
constexpr std::byte kPoison{0xdb};

std::byte* trailer_of(std::span<std::byte> slot) {
  SINEW_DEBUG_ASSERT(slot.size() > kVerbsTrailerBytes);
  return slot.data() + slot.size() - kVerbsTrailerBytes;
}

// Of the trailer with the payload's checksum in the place of its own.
std::uint64_t slot_checksum(std::span<const std::byte> payload, VerbsTrailer trailer) {
  trailer.checksum = payload_checksum(payload);
  return payload_checksum(std::as_bytes(std::span(&trailer, 1)));
}

tl::unexpected<Error> wrong(const VerbsTrailer& expected, std::string message) {
  const auto peer = static_cast<Rank>(expected.source);
  return fail(Error{ErrorCode::kProtocol,
                    fmt::format("rank {} over verbs, rail {}: {}", peer, expected.rail, message),
                    peer});
}

}  // namespace

void seal_slot(std::span<std::byte> slot, VerbsTrailer trailer) {
  SINEW_DEBUG_ASSERT(trailer.payload_bytes <= verbs_payload_max(slot.size()));
  trailer.magic = kTrailerMagic;
  trailer.checksum = slot_checksum(slot.first(trailer.payload_bytes), trailer);
  std::memcpy(trailer_of(slot), &trailer, sizeof(trailer));
}

void poison_slot(std::span<std::byte> slot) {
  std::memset(trailer_of(slot), std::to_integer<int>(kPoison), kVerbsTrailerBytes);
}

Result<SlotVerdict> check_slot(std::span<const std::byte> slot, const VerbsTrailer& expected,
                               VerbsTrailer& came) {
  VerbsTrailer trailer;
  std::memcpy(&trailer, slot.data() + slot.size() - kVerbsTrailerBytes, sizeof(trailer));
  const bool plausible =
      trailer.magic == kTrailerMagic && trailer.payload_bytes <= verbs_payload_max(slot.size());
  if (!plausible || trailer.checksum != slot_checksum(slot.first(trailer.payload_bytes), trailer)) {
    const auto peer = static_cast<Rank>(expected.source);
    return fail(Error{ErrorCode::kIntegrity,
                      fmt::format("message {} of rank {} over verbs, rail {}, is damaged",
                                  expected.number, peer, expected.rail),
                      peer});
  }
  const bool same_job = trailer.job[0] == expected.job[0] && trailer.job[1] == expected.job[1];
  if (!same_job || trailer.epoch < expected.epoch) return SlotVerdict::kOlder;
  if (trailer.epoch > expected.epoch) {
    return wrong(expected, fmt::format("a message of epoch {}, expected epoch {}", trailer.epoch,
                                       expected.epoch));
  }
  if (trailer.queue != expected.queue) return SlotVerdict::kOlder;
  if (trailer.source != expected.source || trailer.target != expected.target ||
      trailer.rail != expected.rail) {
    return wrong(
        expected,
        fmt::format("a message from rank {} to rank {} on rail {}, expected one to rank {}",
                    trailer.source, trailer.target, trailer.rail, expected.target));
  }
  if (trailer.number < expected.number) return SlotVerdict::kOlder;
  if (trailer.number > expected.number) {
    return wrong(expected, fmt::format("messages {} to {} were lost on the way", expected.number,
                                       trailer.number - 1));
  }
  if (trailer.kind < VerbsTrailer::Kind::kData || trailer.kind > VerbsTrailer::Kind::kWarmUp) {
    return wrong(expected, "a message of unknown kind: run the same release on every rank");
  }
  came = trailer;
  return SlotVerdict::kExpected;
}

}  // namespace sinew
