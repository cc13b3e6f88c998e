// What a peer may send while verbs is brought up, and what may lie in a slot.
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "base/assert.h"
#include "transport/verbs_ports.h"
#include "transport/verbs_trailer.h"

namespace {

using namespace sinew;

constexpr std::size_t kSlotBytes = 4096;

VerbsOffer offer_of(std::span<const std::byte> bytes, bool& whole) {
  WireReader reader(bytes);
  VerbsOffer offer = VerbsOffer::get(reader);
  whole = reader.status("offer").has_value();
  SINEW_ASSERT(offer.ports.size() <= kVerbsPortsMax);
  return offer;
}

void check_pairing(std::span<const std::byte> bytes) {
  bool first_whole = false, second_whole = false;
  const VerbsOffer lower = offer_of(bytes.first(bytes.size() / 2), first_whole);
  const VerbsOffer higher = offer_of(bytes.subspan(bytes.size() / 2), second_whole);
  const auto pairs = pair_verbs_ports(lower, higher);
  if (!pairs) return;
  SINEW_ASSERT(!pairs->empty() && pairs->size() <= kVerbsRailsMax);
  for (const auto& [a, b] : *pairs) {
    SINEW_ASSERT(a < lower.ports.size() && b < higher.ports.size());
  }
}

void check_trailer(std::span<const std::byte> bytes) {
  std::vector<std::byte> slot(kSlotBytes);
  std::memcpy(slot.data() + kSlotBytes - std::min(kSlotBytes, bytes.size()), bytes.data(),
              std::min(kSlotBytes, bytes.size()));
  VerbsTrailer expected;
  expected.source = 1;
  VerbsTrailer came;
  const auto verdict = check_slot(slot, expected, came);
  if (verdict && *verdict == SlotVerdict::kExpected) {
    SINEW_ASSERT(came.payload_bytes <= verbs_payload_max(kSlotBytes));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  check_pairing(bytes);
  if (size > 0) check_trailer(bytes);
  return 0;
}
