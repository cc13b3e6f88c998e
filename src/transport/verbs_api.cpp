#include "transport/verbs_api.h"

#include <fmt/format.h>

#include <algorithm>

namespace sinew {

std::string_view verbs_qp_type_name(VerbsQpType type) {
  switch (type) {
    case VerbsQpType::kRc:
      return "RC";
    case VerbsQpType::kUc:
      return "UC";
  }
  return "unknown";
}

std::string_view verbs_layer_name(VerbsLayer layer) {
  switch (layer) {
    case VerbsLayer::kInfiniBand:
      return "InfiniBand";
    case VerbsLayer::kEthernet:
      return "Ethernet";
    case VerbsLayer::kThunderbolt:
      return "Thunderbolt";
  }
  return "unknown";
}

bool VerbsGid::is_ipv4_mapped() const {
  return std::all_of(bytes.begin(), bytes.begin() + 10, [](auto byte) { return byte == 0; }) &&
         bytes[10] == 0xff && bytes[11] == 0xff;
}

bool VerbsGid::shares_prefix(const VerbsGid& other, unsigned bits) const {
  for (unsigned bit = 0; bit < std::min(bits, 128u); ++bit) {
    const unsigned mask = 0x80u >> (bit % 8);
    if (((bytes[bit / 8] ^ other.bytes[bit / 8]) & mask) != 0) return false;
  }
  return true;
}

std::string to_string(const VerbsGid& gid) {
  const auto& b = gid.bytes;
  if (gid.is_ipv4_mapped()) return fmt::format("::ffff:{}.{}.{}.{}", b[12], b[13], b[14], b[15]);
  std::string text;
  for (std::size_t i = 0; i < b.size(); i += 2) {
    text += fmt::format("{}{:02x}{:02x}", i == 0 ? "" : ":", b[i], b[i + 1]);
  }
  return text;
}

}  // namespace sinew
