#include "collective/frame.h"

// Where the library can choose its vector instructions at run time, this header redirects the XXH3
// functions to those that do.
#ifdef SINEW_XXHASH_DISPATCHES
#include <xxh_x86dispatch.h>
#endif
#include <xxhash.h>

#include "base/assert.h"
#include "base/limits.h"

namespace sinew {
namespace {

constexpr std::uint8_t kFlagChecksum = 1;
constexpr int kWireShift = 1;  // two bits

template <typename T>
void put(std::span<std::byte, kFrameBytes> into, std::size_t offset, T value) {
  for (std::size_t i = 0; i < sizeof(T); ++i) {
    into[offset + i] =
        static_cast<std::byte>((static_cast<std::uint64_t>(value) >> (8 * i)) & 0xff);
  }
}

template <typename T>
T take(std::span<const std::byte, kFrameBytes> bytes, std::size_t offset) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < sizeof(T); ++i) {
    value |= static_cast<std::uint64_t>(bytes[offset + i]) << (8 * i);
  }
  return static_cast<T>(value);
}

tl::unexpected<Error> wrong(Rank source, std::string message) {
  return fail(Error{ErrorCode::kProtocol, std::move(message), source});
}

}  // namespace

std::string_view operation_name(Operation operation) {
  switch (operation) {
    case Operation::kAllReduce:
      return "all-reduce";
    case Operation::kReduceScatter:
      return "two-phase all-reduce";
    case Operation::kReducedGather:
      return "second phase of all-reduce";
    case Operation::kAllGather:
      return "all-gather";
    case Operation::kGather:
      return "gather";
    case Operation::kBroadcast:
      return "broadcast";
    case Operation::kFault:
      return "fault";
    case Operation::kRingAllReduce:
      return "ring all-reduce";
    case Operation::kPartialSum:
      return "partial sum";
    case Operation::kChainSum:
      return "sum of the chain";
    case Operation::kProbe:
      return "probe";
    case Operation::kPlan:
      return "plan";
  }
  return "unknown";
}

void encode_frame(const FrameHeader& header, std::span<std::byte, kFrameBytes> into) {
  put(into, 0, kFrameMagic);
  put(into, 4, kFrameVersion);
  put(into, 6, static_cast<std::uint8_t>(header.operation));
  put(into, 7,
      static_cast<std::uint8_t>((header.checksummed ? kFlagChecksum : 0) |
                                static_cast<int>(header.wire) << kWireShift));
  put(into, 8, static_cast<std::uint16_t>(header.source));
  put(into, 10, static_cast<std::uint16_t>(header.subject));
  put(into, 12, header.piece);
  put(into, 16, header.job.words[0]);
  put(into, 24, header.job.words[1]);
  put(into, 32, header.epoch);
  put(into, 40, header.step);
  put(into, 48, header.sequence);
  put(into, 56, header.length);
  put(into, 64, header.checksum);
}

Result<FrameHeader> decode_frame(std::span<const std::byte, kFrameBytes> bytes) {
  const auto magic = take<std::uint32_t>(bytes, 0);
  if (magic != kFrameMagic) {
    return fail(ErrorCode::kProtocol, "not a frame: expected magic {:#010x}, came {:#010x}",
                kFrameMagic, magic);
  }
  const auto version = take<std::uint16_t>(bytes, 4);
  if (version != kFrameVersion) {
    return fail(ErrorCode::kProtocol,
                "expected frame version {}, came {}: run the same release on every rank",
                kFrameVersion, version);
  }
  const auto operation = take<std::uint8_t>(bytes, 6);
  if (operation < static_cast<std::uint8_t>(Operation::kAllReduce) ||
      operation > static_cast<std::uint8_t>(Operation::kPlan)) {
    return fail(ErrorCode::kProtocol, "unknown operation {} in a frame", operation);
  }
  const auto flags = take<std::uint8_t>(bytes, 7);
  const int wire = flags >> kWireShift;
  if (wire >= kWireTypeCount) {
    return fail(ErrorCode::kProtocol, "unknown bits in a frame: flags {:#04x}", flags);
  }
  FrameHeader header;
  header.operation = static_cast<Operation>(operation);
  header.checksummed = (flags & kFlagChecksum) != 0;
  header.wire = static_cast<WireType>(wire);
  header.piece = take<std::uint32_t>(bytes, 12);
  header.source = take<std::uint16_t>(bytes, 8);
  header.subject = take<std::uint16_t>(bytes, 10);
  if (header.source >= kRankCountMax || header.subject >= kRankCountMax) {
    return fail(ErrorCode::kProtocol, "frame of rank {} about rank {}: there are at most {} ranks",
                header.source, header.subject, kRankCountMax);
  }
  header.job.words = {take<std::uint64_t>(bytes, 16), take<std::uint64_t>(bytes, 24)};
  header.epoch = take<std::uint64_t>(bytes, 32);
  header.step = take<std::uint64_t>(bytes, 40);
  header.sequence = take<std::uint64_t>(bytes, 48);
  header.length = take<std::uint64_t>(bytes, 56);
  header.checksum = take<std::uint64_t>(bytes, 64);
  if (!header.checksummed && header.checksum != 0) {
    return fail(ErrorCode::kProtocol, "frame without checksum flag carries checksum {:#018x}",
                header.checksum);
  }
  return header;
}

Status check_frame(const FrameHeader& came, const FrameHeader& expected) {
  const Rank source = expected.source;
  if (came.job != expected.job) {
    return wrong(source, fmt::format("rank {} sent a frame of job {:016x}{:016x}, expected job "
                                     "{:016x}{:016x}",
                                     source, came.job.words[0], came.job.words[1],
                                     expected.job.words[0], expected.job.words[1]));
  }
  if (came.epoch != expected.epoch) {
    return wrong(source, fmt::format("rank {} sent a frame of epoch {}, expected epoch {}", source,
                                     came.epoch, expected.epoch));
  }
  if (came.source != source) {
    return wrong(
        source, fmt::format("the link to rank {} brought a frame of rank {}", source, came.source));
  }
  if (came.sequence != expected.sequence || came.operation != expected.operation) {
    return wrong(source,
                 fmt::format("rank {} is at {} #{} of step {}, expected {} #{} of step {}", source,
                             operation_name(came.operation), came.sequence, came.step,
                             operation_name(expected.operation), expected.sequence, expected.step));
  }
  if (came.step != expected.step) {
    return wrong(source, fmt::format("rank {} is at step {}, expected step {}", source, came.step,
                                     expected.step));
  }
  if (came.subject != expected.subject) {
    return wrong(source, fmt::format("rank {} takes rank {} for the root, expected rank {}", source,
                                     came.subject, expected.subject));
  }
  if (came.piece != expected.piece) {
    return wrong(source, fmt::format("rank {} sent piece {}, expected piece {}", source, came.piece,
                                     expected.piece));
  }
  if (came.wire != expected.wire) {
    return wrong(source,
                 fmt::format("rank {} sent values as {}, expected {}: give every rank the "
                             "same wire type",
                             source, wire_type_name(came.wire), wire_type_name(expected.wire)));
  }
  if (came.length != expected.length) {
    return wrong(source, fmt::format("rank {} sent {} bytes, expected {}", source, came.length,
                                     expected.length));
  }
  if (came.checksummed != expected.checksummed) {
    return wrong(source, fmt::format("rank {} sent {} bytes {} a checksum, expected them {} one: "
                                     "give every rank the same options",
                                     source, came.length, came.checksummed ? "with" : "without",
                                     expected.checksummed ? "with" : "without"));
  }
  return {};
}

std::uint64_t payload_checksum(std::span<const std::byte> payload) {
  return XXH3_64bits(payload.data(), payload.size());
}

Status check_payload(const FrameHeader& header, std::uint64_t computed) {
  if (!header.checksummed || header.checksum == computed) return {};
  return fail(Error{ErrorCode::kIntegrity,
                    fmt::format("{} bytes from rank {} are damaged: expected checksum {:#018x}, "
                                "came {:#018x}",
                                header.length, header.source, header.checksum, computed),
                    header.source});
}

struct RunningChecksum::State {
  XXH3_state_t* xxh = XXH3_createState();
  State() { SINEW_ASSERT(xxh != nullptr); }
  ~State() { XXH3_freeState(xxh); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
};

RunningChecksum::RunningChecksum() : state_(std::make_unique<State>()) {
  restart();
}
RunningChecksum::~RunningChecksum() = default;
RunningChecksum::RunningChecksum(RunningChecksum&&) noexcept = default;
RunningChecksum& RunningChecksum::operator=(RunningChecksum&&) noexcept = default;

void RunningChecksum::restart() {
  const XXH_errorcode status = XXH3_64bits_reset(state_->xxh);
  SINEW_ASSERT(status == XXH_OK);
}

void RunningChecksum::add(std::span<const std::byte> piece) {
  const XXH_errorcode status = XXH3_64bits_update(state_->xxh, piece.data(), piece.size());
  SINEW_ASSERT(status == XXH_OK);
}

std::uint64_t RunningChecksum::value() const {
  return XXH3_64bits_digest(state_->xxh);
}

}  // namespace sinew
