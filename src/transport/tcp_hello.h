#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/result.h"
#include "collective/link.h"

namespace sinew {

// The first bytes either way on a TCP connection between ranks, little-endian:
//   0 magic u32 | 4 version u16 | 6 rank u8 | 7 size u8 | 8 job u64 x 2 | 24 epoch u64
// The connecting rank speaks first; the listening one answers only a hello of its own job and
// epoch.
inline constexpr std::size_t kHelloBytes = 32;
inline constexpr std::uint16_t kHelloVersion = 1;

using HelloBytes = std::array<std::byte, kHelloBytes>;

HelloBytes encode_hello(const GroupIdentity& identity);

// kProtocol, saying what was expected and what came, unless `bytes` is the hello of another rank of
// the group of `own`.
Result<Rank> check_hello(std::span<const std::byte, kHelloBytes> bytes, const GroupIdentity& own);

}  // namespace sinew
