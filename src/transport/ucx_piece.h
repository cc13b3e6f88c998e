#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "collective/link.h"

namespace sinew {

// The first 64 bytes of every message over ucx, little-endian. A receiver knows all but `taken` and
// `length` beforehand and compares every field, so nothing of another job, epoch or place in the
// stream is taken for what it waits for.
struct UcxPiece {
  enum class Kind : std::uint32_t {
    kData = 1,  // the next bytes of the stream follow
    kNote,      // only says what has been taken
  };

  std::uint32_t magic = 0;
  std::uint16_t version = 0;
  std::uint8_t source = 0;
  std::uint8_t target = 0;
  std::uint64_t job[2] = {};
  std::uint64_t epoch = 0;
  std::uint64_t number = 0;  // of this message of its kind, from 0
  std::uint64_t taken = 0;   // data messages of the receiver that the sender has room for again
  std::uint32_t length = 0;  // bytes that follow
  Kind kind = Kind::kData;
  std::uint64_t zero = 0;
};
inline constexpr std::size_t kUcxPieceBytes = 64;
static_assert(sizeof(UcxPiece) == kUcxPieceBytes);

// What every piece from one rank to the other says in one epoch; number, taken and length are left.
UcxPiece make_ucx_piece(const GroupIdentity& identity, Rank source, Rank target,
                        UcxPiece::Kind kind);

// The tag under which UCX delivers the pieces of one kind from `source`. It differs between jobs
// and epochs, so UCX does not even match a stale message with a receive.
std::uint64_t ucx_tag(const GroupIdentity& identity, Rank source, UcxPiece::Kind kind);

// Reads what has come in `message` and compares it with `expected`: kProtocol, naming the peer.
// `sent`: how many data messages this rank has sent to the peer, which bounds `taken`.
Result<UcxPiece> check_ucx_piece(std::span<const std::byte> message, const UcxPiece& expected,
                                 std::uint64_t sent);

}  // namespace sinew
