#include "transport/ucx_piece.h"

#include <array>
#include <bit>
#include <cstring>

#include "collective/frame.h"

namespace sinew {
namespace {

static_assert(std::endian::native == std::endian::little, "pieces travel in the machine's order");

constexpr std::uint32_t kMagic = 0x58574e53;  // "SNWX"
constexpr std::uint16_t kVersion = 1;

}  // namespace

UcxPiece make_ucx_piece(const GroupIdentity& identity, Rank source, Rank target,
                        UcxPiece::Kind kind) {
  UcxPiece piece;
  piece.magic = kMagic;
  piece.version = kVersion;
  piece.source = static_cast<std::uint8_t>(source);
  piece.target = static_cast<std::uint8_t>(target);
  piece.job[0] = identity.job.words[0];
  piece.job[1] = identity.job.words[1];
  piece.epoch = identity.epoch;
  piece.kind = kind;
  return piece;
}

std::uint64_t ucx_tag(const GroupIdentity& identity, Rank source, UcxPiece::Kind kind) {
  const std::array<std::uint64_t, 3> life{identity.job.words[0], identity.job.words[1],
                                          identity.epoch};
  const std::uint64_t mixed = payload_checksum(std::as_bytes(std::span(life)));
  return mixed << 16 | static_cast<std::uint64_t>(kind) << 8 | static_cast<std::uint64_t>(source);
}

Result<UcxPiece> check_ucx_piece(std::span<const std::byte> message, const UcxPiece& expected,
                                 std::uint64_t sent) {
  const auto broken = [&](std::string_view what) {
    return fail(Error{ErrorCode::kProtocol,
                      fmt::format("rank {} sent a message over ucx that {}", expected.source, what),
                      expected.source});
  };
  UcxPiece came;
  if (message.size() < kUcxPieceBytes) return broken("is shorter than its header");
  std::memcpy(&came, message.data(), kUcxPieceBytes);
  if (came.magic != kMagic || came.version != kVersion) return broken("is none of this version");
  UcxPiece fixed = came;
  fixed.taken = expected.taken;
  fixed.length = expected.length;
  if (std::memcmp(&fixed, &expected, kUcxPieceBytes) != 0) {
    return broken(
        fmt::format("says epoch {}, number {}, rank {} to {}; expected epoch {}, number {}"
                    ", rank {} to {}",
                    came.epoch, came.number, came.source, came.target, expected.epoch,
                    expected.number, expected.source, expected.target));
  }
  if (came.length != message.size() - kUcxPieceBytes) return broken("has not the length it says");
  if (came.taken > sent) return broken("takes more than was sent");
  return came;
}

}  // namespace sinew
