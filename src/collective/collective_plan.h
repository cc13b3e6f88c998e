#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "base/limits.h"
#include "collective/group.h"

namespace sinew {

// How the ranks of a group add their vectors. All give the same bits.
enum class Algorithm : std::uint8_t {
  kOneShot,   // everyone sends its vector to everyone: one hop
  kTwoPhase,  // everyone sums one chunk and hands it to everyone: two hops, fewer bytes
  // Where ranks have links to their neighbours only:
  kRing,   // everyone's vector goes round both ways: half as many hops as there are ranks
  kChain,  // partial sums go from the first rank to the last and the sum comes back, in pieces
};
inline constexpr int kAlgorithmCount = 4;
// "one-shot", "two-phase", "ring", "chain".
std::string_view algorithm_name(Algorithm algorithm);

// What a link was measured to do.
struct LinkFigures {
  double latency_us = 0;    // one way, of a small message, posting and polling included
  double bytes_per_us = 0;  // one way, of long messages (1000 is 1 GB/s)
};

// What the ranks of a group measured, as rank 0 gathers it.
struct FabricFigures {
  int ranks = 1;
  // By both ranks, symmetric; empty where there is no link.
  std::array<std::array<std::optional<LinkFigures>, kRankCountMax>, kRankCountMax> links;
  // How much longer a message takes while every rank sends to all its peers at once: 1 if every
  // link is a wire of its own, up to size - 1 if a rank's links share one, more if ranks share
  // cores.
  double crowding = 1;
  // Time to add one byte of one vector to another, microseconds.
  double add_us_per_byte = 0;
};

// Ranks in the order in which they stand along the cables: each has a link to the next and, if
// `closed`, the last to the first.
struct RingRoute {
  std::array<Rank, kRankCountMax> order{};
  int count = 0;
  bool closed = false;

  int position(Rank rank) const;
  // `steps` further along, which may be negative: wraps if closed, else must stay inside.
  Rank at(int position, int steps) const;
  // How many ranks a message from here passes to the right and to the left to reach everyone.
  int reach_right(int position) const { return closed ? count / 2 : count - 1 - position; }
  int reach_left(int position) const { return closed ? (count - 1) / 2 : position; }
};

// Which algorithm adds vectors of which length: one value on all ranks of a group.
struct CollectivePlan {
  // By rank: the peers that it has a link to.
  std::array<RankSet, kRankCountMax> linked{};
  // By the number of ranks that take part, from 2: the longest vectors, in bytes on the wire, that
  // go in one shot, or round the ring where a link is missing among them. Longer ones go in two
  // phases, or by the chain.
  std::array<std::uint64_t, kRankCountMax + 1> one_shot_max{};
  std::array<std::uint64_t, kRankCountMax + 1> ring_max{};

  // All ranks have links to each other; the limits are given.
  static CollectivePlan direct(int ranks, std::uint64_t one_shot_max);

  // Whether all of these ranks have links to each other.
  bool complete(RankSet among) const;
  // How ranks that are not `complete` hand messages on; nothing if no route joins them.
  std::optional<RingRoute> route(RankSet among, int size) const;
  // Of ranks that are complete or have a route.
  Algorithm algorithm(RankSet among, std::uint64_t wire_bytes) const;
};

// Pieces in which a chain moves vectors, bytes of float32.
inline constexpr std::size_t kChainPieceBytes = 32u << 10;

// Microseconds that an all-reduce of `bytes` among `ranks` is expected to take: hops times latency
// plus bytes over bandwidth plus additions, on the slowest link that the algorithm uses among any
// so many ranks that follow each other. Infinite if no such ranks have the links that it needs.
double expected_us(const FabricFigures& fabric, Algorithm algorithm, int ranks, double bytes);

// The plan with the least expected time. A pure function: rank 0 computes it for all, because
// another processor might round a figure at the border to the other side.
CollectivePlan choose_collectives(const FabricFigures& fabric);

}  // namespace sinew
