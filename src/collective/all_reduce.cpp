// The all-reduces of ranks that all have links to each other, and what every all-reduce shares.
#include <algorithm>

#include "base/assert.h"
#include "collective/link_group.h"
#include "collective/reduce.h"

namespace sinew {
namespace {

// Long vectors are received and added in pieces that stay in the cache.
constexpr std::size_t kPieceFloats = 8192;
// Chunks begin at whole cache lines of the vector.
constexpr std::size_t kChunkUnitFloats = 16;

struct Chunk {
  std::size_t begin = 0;
  std::size_t count = 0;

  // Where its values stand in the vector as it travels.
  std::span<std::byte> of(std::span<std::byte> wire, std::size_t width) const {
    return wire.subspan(begin * width, count * width);
  }
};

// The part of a vector of `count` floats that `rank` sums in a long all-reduce `among` ranks.
Chunk chunk_of(std::size_t count, Rank rank, RankSet among) {
  const std::size_t units = (count + kChunkUnitFloats - 1) / kChunkUnitFloats;
  const auto ranks = static_cast<std::size_t>(among.count());
  const auto index = static_cast<std::size_t>(among.index(rank));
  const std::size_t begin = std::min(count, units * index / ranks * kChunkUnitFloats);
  const std::size_t end = std::min(count, units * (index + 1) / ranks * kChunkUnitFloats);
  return {begin, end - begin};
}

}  // namespace

FrameHeader LinkGroup::value_frame(Operation operation, Rank source, Rank subject,
                                   std::size_t bytes) const {
  FrameHeader header = messenger_.frame(operation, source, subject, bytes);
  header.wire = options_.wire;
  return header;
}

FrameHeader LinkGroup::sealed_values(Operation operation, Rank subject,
                                     std::span<const std::byte> payload) const {
  FrameHeader header = messenger_.sealed(operation, subject, payload);
  header.wire = options_.wire;
  return header;
}

std::span<std::byte> LinkGroup::wire_space(std::span<float> data) {
  if (options_.wire == WireType::kF32) return std::as_writable_bytes(data);
  return scratch(rank(), data.size() * width());
}

Status LinkGroup::to_wire_space(std::span<const float> values, std::span<std::byte> wire) const {
  if (options_.wire == WireType::kF32) return {};  // they stand there
  if (to_wire(values, options_.wire, wire.data())) return {};
  return fail(Error{ErrorCode::kUnsupported,
                    fmt::format("rank {} has a value too large for the wire type {}; use bf16 or "
                                "f32",
                                rank(), wire_type_name(options_.wire)),
                    rank()});
}

Status LinkGroup::settle(std::span<float> values, std::span<std::byte> wire) const {
  if (options_.wire == WireType::kF32) return {};
  SINEW_TRY(to_wire_space(values, wire));
  from_wire(wire.data(), options_.wire, values);
  return {};
}

void LinkGroup::add_up(std::span<const std::byte* const> sources, std::span<float> out) const {
  sum_in_order(sources, options_.wire, out.data(), out.size());
}

Status LinkGroup::all_reduce_sum(std::span<float> data, RankSet ranks) {
  return run(Operation::kAllReduce, ranks, [&]() -> Status {
    switch (plan_.algorithm(ranks, data.size() * width())) {
      case Algorithm::kOneShot:
        return one_shot(data);
      case Algorithm::kTwoPhase:
        return two_phase(data);
      case Algorithm::kRing: {
        SINEW_ASSIGN(const RingRoute around, route());
        return ring(data, around);
      }
      case Algorithm::kChain: {
        SINEW_ASSIGN(const RingRoute around, route());
        return chain(data, around);
      }
    }
    return {};
  });
}

Status LinkGroup::one_shot(std::span<float> data) {
  const std::span<std::byte> wire = wire_space(data);
  SINEW_TRY(to_wire_space(data, wire));
  const FrameHeader mine = sealed_values(Operation::kAllReduce, 0, wire);
  SINEW_TRY(for_each_peer([&](Rank peer) { return messenger_.start_send(peer, mine, wire); }));
  std::array<const std::byte*, kRankCountMax> sources{};
  sources[static_cast<std::size_t>(among().index(rank()))] = wire.data();
  SINEW_TRY(for_each_peer([&](Rank peer) -> Status {
    const std::span<std::byte> vector = scratch(peer, wire.size());
    sources[static_cast<std::size_t>(among().index(peer))] = vector.data();
    return messenger_.receive(value_frame(Operation::kAllReduce, peer, 0, vector.size()), vector,
                              last_deadline());
  }));
  SINEW_TRY(finish_sends(last_deadline()));
  add_up({sources.data(), static_cast<std::size_t>(among().count())}, data);
  return settle(data, wire);
}

Status LinkGroup::two_phase(std::span<float> data) {
  const std::span<std::byte> wire = wire_space(data);
  SINEW_TRY(to_wire_space(data, wire));
  SINEW_TRY(reduce_scatter(data, wire));
  return gather_reduced(data, wire);
}

Status LinkGroup::reduce_scatter(std::span<float> data, std::span<std::byte> wire) {
  const Deadline deadline = messenger_.deadline(0, 2);
  SINEW_TRY(for_each_peer([&](Rank peer) {
    const auto payload = chunk_of(data.size(), peer, among()).of(wire, width());
    return messenger_.start_send(peer, sealed_values(Operation::kReduceScatter, 0, payload),
                                 payload);
  }));

  const Chunk mine = chunk_of(data.size(), rank(), among());
  const std::span<float> out = data.subspan(mine.begin, mine.count);
  const std::span<std::byte> own = mine.of(wire, width());
  std::array<FrameHeader, kRankCountMax> headers;
  SINEW_TRY(for_each_peer([&](Rank peer) -> Status {
    const auto index = static_cast<std::size_t>(peer);
    const FrameHeader expected = value_frame(Operation::kReduceScatter, peer, 0, own.size());
    SINEW_ASSIGN(headers[index], messenger_.receive_header(expected, deadline));
    if (expected.checksummed) checksums_[index].restart();
    return {};
  }));

  for (std::size_t begin = 0; begin < out.size(); begin += kPieceFloats) {
    const std::span<float> piece = out.subspan(begin, std::min(kPieceFloats, out.size() - begin));
    std::array<const std::byte*, kRankCountMax> sources{};
    sources[static_cast<std::size_t>(among().index(rank()))] = own.data() + begin * width();
    const auto receive_piece = [&](Rank peer) -> Status {
      const auto index = static_cast<std::size_t>(peer);
      const std::span<std::byte> vector = scratch(peer, piece.size() * width());
      sources[static_cast<std::size_t>(among().index(peer))] = vector.data();
      SINEW_TRY(link(peer).receive(vector, deadline));
      if (headers[index].checksummed) checksums_[index].add(vector);
      return {};
    };
    SINEW_TRY(for_each_peer(receive_piece));
    add_up({sources.data(), static_cast<std::size_t>(among().count())}, piece);
  }
  SINEW_TRY(for_each_peer([&](Rank peer) -> Status {
    const auto index = static_cast<std::size_t>(peer);
    if (!headers[index].checksummed) return {};
    return check_payload(headers[index], checksums_[index].value());
  }));
  SINEW_TRY(finish_sends(deadline));
  return settle(out, own);
}

Status LinkGroup::gather_reduced(std::span<float> data, std::span<std::byte> wire) {
  const auto payload = chunk_of(data.size(), rank(), among()).of(wire, width());
  const FrameHeader header = sealed_values(Operation::kReducedGather, 0, payload);
  SINEW_TRY(for_each_peer([&](Rank peer) { return messenger_.start_send(peer, header, payload); }));
  const auto receive_chunk = [&](Rank peer) -> Status {
    const Chunk chunk = chunk_of(data.size(), peer, among());
    const auto into = chunk.of(wire, width());
    SINEW_TRY(messenger_.receive(value_frame(Operation::kReducedGather, peer, 0, into.size()), into,
                                 last_deadline()));
    if (options_.wire != WireType::kF32)
      from_wire(into.data(), options_.wire, data.subspan(chunk.begin, chunk.count));
    return {};
  };
  SINEW_TRY(for_each_peer(receive_chunk));
  return finish_sends(last_deadline());
}

}  // namespace sinew
