#include "transport/tcp_hello.h"

namespace sinew {
namespace {

constexpr std::uint32_t kHelloMagic = 0x54574e53;  // "SNWT"

template <typename T>
void put(HelloBytes& into, std::size_t offset, T value) {
  for (std::size_t i = 0; i < sizeof(T); ++i) {
    into[offset + i] =
        static_cast<std::byte>((static_cast<std::uint64_t>(value) >> (8 * i)) & 0xff);
  }
}

template <typename T>
T take(std::span<const std::byte, kHelloBytes> bytes, std::size_t offset) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < sizeof(T); ++i) {
    value |= static_cast<std::uint64_t>(bytes[offset + i]) << (8 * i);
  }
  return static_cast<T>(value);
}

}  // namespace

HelloBytes encode_hello(const GroupIdentity& identity) {
  HelloBytes bytes{};
  put(bytes, 0, kHelloMagic);
  put(bytes, 4, kHelloVersion);
  put(bytes, 6, static_cast<std::uint8_t>(identity.rank));
  put(bytes, 7, static_cast<std::uint8_t>(identity.size));
  put(bytes, 8, identity.job.words[0]);
  put(bytes, 16, identity.job.words[1]);
  put(bytes, 24, identity.epoch);
  return bytes;
}

Result<Rank> check_hello(std::span<const std::byte, kHelloBytes> bytes, const GroupIdentity& own) {
  const auto magic = take<std::uint32_t>(bytes, 0);
  if (magic != kHelloMagic) {
    return fail(ErrorCode::kProtocol, "not a hello: expected magic {:#010x}, came {:#010x}",
                kHelloMagic, magic);
  }
  const auto version = take<std::uint16_t>(bytes, 4);
  if (version != kHelloVersion) {
    return fail(ErrorCode::kProtocol,
                "expected hello version {}, came {}: run the same release on every rank",
                kHelloVersion, version);
  }
  const JobId job{{take<std::uint64_t>(bytes, 8), take<std::uint64_t>(bytes, 16)}};
  if (job != own.job) return fail(ErrorCode::kProtocol, "hello of another job");
  const auto epoch = take<std::uint64_t>(bytes, 24);
  if (epoch != own.epoch) {
    return fail(ErrorCode::kProtocol, "hello of epoch {}, expected epoch {}", epoch, own.epoch);
  }
  const int size = take<std::uint8_t>(bytes, 7);
  const Rank rank = take<std::uint8_t>(bytes, 6);
  if (size != own.size || rank >= size || rank == own.rank) {
    return fail(ErrorCode::kProtocol, "hello of rank {} of {}, expected another rank of {} than {}",
                rank, size, own.size, own.rank);
  }
  return rank;
}

}  // namespace sinew
