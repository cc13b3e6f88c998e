// The operations of ranks some of which have no link to each other: messages are handed on along
// the route of links. A message that is handed on keeps the checksum that its first sender gave it.
#include <algorithm>

#include "base/assert.h"
#include "collective/link_group.h"
#include "collective/reduce.h"

namespace sinew {
namespace {

constexpr std::size_t kPieceFloats = kChainPieceBytes / sizeof(float);

std::size_t pieces_of(std::size_t length, std::size_t piece) {
  return std::max<std::size_t>(1, (length + piece - 1) / piece);
}

template <typename T>
std::span<T> piece_of(std::span<T> whole, std::size_t index, std::size_t piece) {
  const std::size_t begin = std::min(whole.size(), index * piece);
  return whole.subspan(begin, std::min(piece, whole.size() - begin));
}

// Where a rank stands, seen from a rank to or from which a message goes.
struct Distance {
  int step = 0;   // +1 to the right of it, -1 to the left
  int hops = 0;   // 0: it is that rank
  int reach = 0;  // hops of the last rank on this side
};

Distance distance_from(const RingRoute& route, int origin, int position) {
  int right = position - origin;
  if (route.closed) right = (right + route.count) % route.count;
  if (right >= 0 && right <= route.reach_right(origin))
    return {1, right, route.reach_right(origin)};
  const int left = route.closed ? route.count - right : -right;
  return {-1, left, route.reach_left(origin)};
}

}  // namespace

// In round h every rank hands on, both ways, what began h-1 ranks away.
Status LinkGroup::pass_round(Operation operation, const RingRoute& route, const Parts& parts,
                             WireType wire) {
  const int here = route.position(rank());
  const int from_left = route.closed ? route.reach_right(here) : here;
  const int from_right = route.closed ? route.reach_left(here) : route.count - 1 - here;
  // Whether what this rank has after h-1 rounds goes on to that side.
  const int to_right = route.closed ? from_left : (from_right > 0 ? from_left + 1 : 0);
  const int to_left = route.closed ? from_right : (from_left > 0 ? from_right + 1 : 0);
  const int rounds = std::max({from_left, from_right, to_right, to_left});
  std::array<std::uint64_t, kRankCountMax> checksums{};
  const auto own = parts[static_cast<std::size_t>(rank())];
  checksums[static_cast<std::size_t>(rank())] = messenger_.sealed(operation, rank(), own).checksum;

  const auto send = [&](int step, int round) {
    const Rank origin = route.at(here, -step * (round - 1));
    const auto payload = parts[static_cast<std::size_t>(origin)];
    FrameHeader header = messenger_.frame(operation, rank(), origin, payload.size());
    header.wire = wire;
    // Without one, start_send makes one where it is needed.
    header.checksum = checksums[static_cast<std::size_t>(origin)];
    header.checksummed = header.checksum != 0;
    return messenger_.start_send(route.at(here, step), header, payload);
  };
  const auto receive = [&](int step, int round) -> Status {
    const Rank origin = route.at(here, -step * round);
    const auto into = parts[static_cast<std::size_t>(origin)];
    FrameHeader expected = messenger_.frame(operation, route.at(here, -step), origin, into.size());
    expected.wire = wire;
    SINEW_ASSIGN(
        const FrameHeader header,
        messenger_.receive_to_pass_on(expected, into, messenger_.deadline(round - 1, rounds)));
    checksums[static_cast<std::size_t>(origin)] = header.checksum;
    return {};
  };
  for (int round = 1; round <= rounds; ++round) {
    if (round <= to_right) SINEW_TRY(send(1, round));
    if (round <= to_left) SINEW_TRY(send(-1, round));
    if (round <= from_left) SINEW_TRY(receive(1, round));
    if (round <= from_right) SINEW_TRY(receive(-1, round));
    if (round <= to_right) SINEW_TRY(link(route.at(here, 1)).finish_send(last_deadline()));
    if (round <= to_left) SINEW_TRY(link(route.at(here, -1)).finish_send(last_deadline()));
  }
  return {};
}

Status LinkGroup::ring(std::span<float> data, const RingRoute& route) {
  const std::span<std::byte> wire = wire_space(data);
  SINEW_TRY(to_wire_space(data, wire));
  Parts parts{};
  std::array<const std::byte*, kRankCountMax> sources{};
  for (Rank each = 0; each < size(); ++each) {
    if (!among().contains(each)) continue;
    const auto part = each == rank() ? wire : scratch(each, wire.size());
    parts[static_cast<std::size_t>(each)] = part;
    sources[static_cast<std::size_t>(among().index(each))] = part.data();
  }
  SINEW_TRY(pass_round(Operation::kRingAllReduce, route, parts, options_.wire));
  add_up({sources.data(), static_cast<std::size_t>(among().count())}, data);
  return settle(data, wire);
}

// Piece by piece: the sum so far comes from the left, the own vector is added, and the new sum goes
// to the right; from the last rank the finished sum comes back the other way. Sums so far travel in
// float32, so that the result has the bits that other algorithms give.
//
// While piece t goes up, piece t - lag comes down. The lag is one piece longer than that of the
// rank to the right, so each rank takes what the other has already sent: however little the links
// hold, nobody waits in a circle.
Status LinkGroup::chain(std::span<float> data, const RingRoute& route) {
  const int here = route.position(rank());
  const int last = route.count - 1;
  const bool has_left = here > 0;
  const bool has_right = here < last;
  const Rank left = has_left ? route.at(here, -1) : rank();
  const Rank right = has_right ? route.at(here, 1) : rank();
  const Deadline up_deadline = messenger_.deadline(std::max(here - 1, 0), 2 * last);
  const Deadline down_deadline = messenger_.deadline(2 * last - 1 - here, 2 * last);

  const std::span<std::byte> wire = wire_space(data);
  SINEW_TRY(to_wire_space(data, wire));
  if (options_.wire != WireType::kF32) from_wire(wire.data(), options_.wire, data);

  const auto send = [&](Rank peer, FrameHeader header, std::span<const std::byte> payload,
                        std::size_t index) -> Status {
    SINEW_TRY(link(peer).finish_send(last_deadline()));
    header.piece = static_cast<std::uint32_t>(index);
    return messenger_.start_send(peer, header, payload);
  };
  const auto wire_piece = [&](std::size_t index) {
    return piece_of(wire, index, kPieceFloats * width());
  };
  const auto send_down = [&](std::size_t index) {
    const auto payload = wire_piece(index);
    return send(left, sealed_values(Operation::kChainSum, 0, payload), payload, index);
  };
  const auto up = [&](std::size_t index) -> Status {
    const std::span<float> piece = piece_of(data, index, kPieceFloats);
    if (has_left) {
      const std::span<std::byte> sum = scratch(left, piece.size_bytes());
      FrameHeader expected = messenger_.frame(Operation::kPartialSum, left, 0, sum.size());
      expected.piece = static_cast<std::uint32_t>(index);
      SINEW_TRY(messenger_.receive(expected, sum, up_deadline));
      const std::array<const std::byte*, 2> sources{sum.data(), std::as_bytes(piece).data()};
      sum_in_order(sources, WireType::kF32, piece.data(), piece.size());
    }
    if (has_right) {
      const auto payload = std::as_bytes(piece);
      return send(right, messenger_.sealed(Operation::kPartialSum, 0, payload), payload, index);
    }
    SINEW_TRY(settle(piece, wire_piece(index)));
    return send_down(index);
  };
  const auto down = [&](std::size_t index) -> Status {
    const std::span<std::byte> into = wire_piece(index);
    FrameHeader expected = value_frame(Operation::kChainSum, right, 0, into.size());
    expected.piece = static_cast<std::uint32_t>(index);
    SINEW_TRY(messenger_.receive(expected, into, down_deadline));
    if (options_.wire != WireType::kF32)
      from_wire(into.data(), options_.wire, piece_of(data, index, kPieceFloats));
    return has_left ? send_down(index) : Status{};
  };

  const std::size_t pieces = pieces_of(data.size(), kPieceFloats);
  const auto lag = static_cast<std::size_t>(last - here);
  for (std::size_t turn = 0; turn < pieces + lag; ++turn) {
    if (turn < pieces) SINEW_TRY(up(turn));
    // What comes down takes the place of what went up.
    if (has_right && turn == pieces) SINEW_TRY(link(right).finish_send(last_deadline()));
    if (has_right && turn >= lag) SINEW_TRY(down(turn - lag));
  }
  return has_left ? link(left).finish_send(last_deadline()) : Status{};
}

Status LinkGroup::ring_gather(const RingRoute& route, Rank root, std::span<const std::byte> mine,
                              const Parts& parts, std::span<const std::size_t> counts) {
  const int target = route.position(root);
  const int here = route.position(rank());
  const auto expect = [&](Rank from, Rank origin) {
    return messenger_.frame(Operation::kGather, from, origin,
                            counts[static_cast<std::size_t>(origin)]);
  };
  if (rank() == root) {
    for (const int step : {1, -1}) {
      const int reach = step > 0 ? route.reach_right(target) : route.reach_left(target);
      for (int hops = 1; hops <= reach; ++hops) {
        const Rank origin = route.at(target, step * hops);
        SINEW_TRY(messenger_.receive(expect(route.at(target, step), origin),
                                     parts[static_cast<std::size_t>(origin)],
                                     messenger_.deadline(hops, route.count)));
      }
    }
    return {};
  }
  const Distance own = distance_from(route, target, here);
  const Rank towards = route.at(here, -own.step);
  SINEW_TRY(
      messenger_.start_send(towards, messenger_.sealed(Operation::kGather, rank(), mine), mine));
  for (int hops = own.hops + 1; hops <= own.reach; ++hops) {
    const Rank origin = route.at(target, own.step * hops);
    // Two buffers in turn: one is still on its way while the other is filled.
    const auto part = scratch(hops % 2, counts[static_cast<std::size_t>(origin)]);
    SINEW_ASSIGN(FrameHeader header, messenger_.receive_to_pass_on(
                                         expect(route.at(here, own.step), origin), part,
                                         messenger_.deadline(hops - own.hops - 1, route.count)));
    SINEW_TRY(link(towards).finish_send(last_deadline()));
    SINEW_TRY(messenger_.start_send(towards, header, part));
  }
  return link(towards).finish_send(last_deadline());
}

Status LinkGroup::ring_broadcast(const RingRoute& route, Rank root, std::span<std::byte> data) {
  const int origin = route.position(root);
  const int here = route.position(rank());
  const Distance own = distance_from(route, origin, here);
  const Rank from = own.hops == 0 ? root : route.at(here, -own.step);
  // The ranks that this one hands the pieces to.
  std::array<Rank, 2> next{};
  std::size_t receivers = 0;
  if (own.hops == 0) {
    if (route.reach_right(origin) > 0) next[receivers++] = route.at(here, 1);
    if (route.reach_left(origin) > 0) next[receivers++] = route.at(here, -1);
  } else if (own.hops < own.reach) {
    next[receivers++] = route.at(here, own.step);
  }
  const std::size_t pieces = pieces_of(data.size(), kChainPieceBytes);
  for (std::size_t index = 0; index < pieces; ++index) {
    const std::span<std::byte> piece = piece_of(data, index, kChainPieceBytes);
    FrameHeader header = messenger_.frame(Operation::kBroadcast, from, root, piece.size());
    header.piece = static_cast<std::uint32_t>(index);
    if (own.hops == 0) {
      header = messenger_.sealed(Operation::kBroadcast, root, piece);
      header.piece = static_cast<std::uint32_t>(index);
    } else {
      SINEW_ASSIGN(header, messenger_.receive_to_pass_on(
                               header, piece, messenger_.deadline(own.hops - 1, route.count)));
    }
    for (std::size_t i = 0; i < receivers; ++i) {
      SINEW_TRY(link(next[i]).finish_send(last_deadline()));
      SINEW_TRY(messenger_.start_send(next[i], header, piece));
    }
  }
  for (std::size_t i = 0; i < receivers; ++i) SINEW_TRY(link(next[i]).finish_send(last_deadline()));
  return {};
}

}  // namespace sinew
