#include "collective/collective_plan.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "base/assert.h"

namespace sinew {
namespace {

constexpr double kImpossible = std::numeric_limits<double>::infinity();
constexpr std::uint64_t kNoLimit = std::numeric_limits<std::uint64_t>::max();

// The slowest of some links.
struct Slowest {
  double latency_us = 0;
  double us_per_byte = 0;
  bool complete = true;

  void include(const std::optional<LinkFigures>& link) {
    complete = complete && link.has_value();
    if (!link) return;
    latency_us = std::max(latency_us, link->latency_us);
    us_per_byte = std::max(us_per_byte, 1 / link->bytes_per_us);
  }
};

const std::optional<LinkFigures>& between(const FabricFigures& fabric, int a, int b) {
  return fabric.links[static_cast<std::size_t>(a)][static_cast<std::size_t>(b)];
}

bool uses_ring(Algorithm algorithm) {
  return algorithm == Algorithm::kRing || algorithm == Algorithm::kChain;
}

bool is_closed(const FabricFigures& fabric, int count) {
  return count >= 3 && count == fabric.ranks && between(fabric, count - 1, 0).has_value();
}

// Over all ranges of `count` ranks that have the links, because a plan holds for each of them.
Slowest slowest_for(const FabricFigures& fabric, Algorithm algorithm, int count) {
  Slowest all;
  bool any = false;
  for (int first = 0; first + count <= fabric.ranks; ++first) {
    Slowest range;
    for (int a = first; a < first + count; ++a) {
      const int end = uses_ring(algorithm) ? std::min(a + 2, first + count) : first + count;
      for (int b = a + 1; b < end; ++b) range.include(between(fabric, a, b));
    }
    if (uses_ring(algorithm) && is_closed(fabric, count))
      range.include(between(fabric, count - 1, 0));
    if (!range.complete) continue;
    any = true;
    all.latency_us = std::max(all.latency_us, range.latency_us);
    all.us_per_byte = std::max(all.us_per_byte, range.us_per_byte);
  }
  all.complete = any;
  return all;
}

// How much longer messages take while a rank uses `links` of its links at once: between the one
// link of a measurement alone and all of them, in proportion.
double crowding_of(const FabricFigures& fabric, int links) {
  int most = 0;
  for (int a = 0; a < fabric.ranks; ++a) {
    int own = 0;
    for (int b = 0; b < fabric.ranks; ++b) own += between(fabric, a, b).has_value() ? 1 : 0;
    most = std::max(most, own);
  }
  if (most < 2) return 1;
  return 1 + (fabric.crowding - 1) * (links - 1) / (most - 1);
}

// Time as a line: what it costs whatever the length, and for each byte more.
struct Line {
  double fixed_us = kImpossible;
  double us_per_byte = 0;
};

Line line_of(const FabricFigures& fabric, Algorithm algorithm, int count) {
  const Slowest link = slowest_for(fabric, algorithm, count);
  if (!link.complete) return {};
  const double p = count;
  const double add = fabric.add_us_per_byte;
  const double all_links = link.us_per_byte * crowding_of(fabric, count - 1);
  const double two_links = link.us_per_byte * crowding_of(fabric, std::min(2, count - 1));
  const int hops = is_closed(fabric, count) ? count / 2 : count - 1;
  switch (algorithm) {
    case Algorithm::kOneShot:
      return {link.latency_us, all_links + (p - 1) * add};
    case Algorithm::kTwoPhase:
      return {2 * link.latency_us, 2 / p * all_links + (p - 1) / p * add};
    case Algorithm::kRing:
      return {hops * link.latency_us, hops * two_links + (p - 1) * add};
    case Algorithm::kChain:
      // There and back; one piece is under way on each hop before the stream flows.
      return {
          2 * (p - 1) * link.latency_us + (2 * (p - 1) - 1) * link.us_per_byte * kChainPieceBytes,
          two_links + add};
  }
  return {};
}

// Up to which length `shorter` is the better one.
std::uint64_t crossing(const Line& shorter, const Line& longer) {
  if (shorter.fixed_us == kImpossible) return 0;
  if (longer.fixed_us == kImpossible || longer.us_per_byte >= shorter.us_per_byte) return kNoLimit;
  const double bytes =
      (longer.fixed_us - shorter.fixed_us) / (shorter.us_per_byte - longer.us_per_byte);
  return bytes >= 1e18 ? kNoLimit : static_cast<std::uint64_t>(std::max(bytes, 0.0));
}

}  // namespace

std::string_view algorithm_name(Algorithm algorithm) {
  switch (algorithm) {
    case Algorithm::kOneShot:
      return "one-shot";
    case Algorithm::kTwoPhase:
      return "two-phase";
    case Algorithm::kRing:
      return "ring";
    case Algorithm::kChain:
      return "chain";
  }
  return "unknown";
}

int RingRoute::position(Rank rank) const {
  for (int i = 0; i < count; ++i)
    if (order[static_cast<std::size_t>(i)] == rank) return i;
  SINEW_ASSERT(false);
  return 0;
}

Rank RingRoute::at(int position, int steps) const {
  int index = position + steps;
  if (closed) index = (index + count) % count;
  SINEW_ASSERT(index >= 0 && index < count);
  return order[static_cast<std::size_t>(index)];
}

CollectivePlan CollectivePlan::direct(int ranks, std::uint64_t one_shot_max) {
  CollectivePlan plan;
  for (Rank rank = 0; rank < ranks; ++rank)
    plan.linked[static_cast<std::size_t>(rank)].bits =
        RankSet::range(0, ranks).bits & ~RankSet::range(rank, 1).bits;
  plan.one_shot_max.fill(one_shot_max);
  return plan;
}

bool CollectivePlan::complete(RankSet among) const {
  for (Rank rank = 0; rank < kRankCountMax; ++rank) {
    if (!among.contains(rank)) continue;
    const std::uint32_t others = among.bits & ~RankSet::range(rank, 1).bits;
    if ((others & ~linked[static_cast<std::size_t>(rank)].bits) != 0) return false;
  }
  return true;
}

std::optional<RingRoute> CollectivePlan::route(RankSet among, int size) const {
  const auto joined = [&](Rank a, Rank b) {
    return linked[static_cast<std::size_t>(a)].contains(b);
  };
  RingRoute route;
  route.count = among.count();
  // Begins at a rank whose predecessor takes no part; at 0 if all do.
  Rank rank = 0;
  for (int tries = 0; tries < size; ++tries) {
    rank = tries;
    if (among.contains(rank) && !among.contains((rank + size - 1) % size)) break;
    if (tries == size - 1) rank = 0;
  }
  for (int i = 0; i < route.count; ++i) {
    if (!among.contains(rank)) return std::nullopt;
    if (i > 0 && !joined(route.order[static_cast<std::size_t>(i - 1)], rank)) return std::nullopt;
    route.order[static_cast<std::size_t>(i)] = rank;
    rank = (rank + 1) % size;
  }
  route.closed = route.count == size && size >= 3 && joined(size - 1, 0);
  return route;
}

Algorithm CollectivePlan::algorithm(RankSet among, std::uint64_t wire_bytes) const {
  const auto count = static_cast<std::size_t>(among.count());
  if (complete(among))
    return wire_bytes <= one_shot_max[count] ? Algorithm::kOneShot : Algorithm::kTwoPhase;
  // A chain adds in the order of its ranks; along a route that passes the last and the first rank
  // of the group that is not the order of sums.
  const bool in_order =
      among.bits >> std::countr_zero(among.bits) == RankSet::range(0, among.count()).bits;
  return wire_bytes <= ring_max[count] || !in_order ? Algorithm::kRing : Algorithm::kChain;
}

double expected_us(const FabricFigures& fabric, Algorithm algorithm, int ranks, double bytes) {
  if (ranks < 2) return 0;
  const Line line = line_of(fabric, algorithm, ranks);
  double fixed = line.fixed_us;
  if (algorithm == Algorithm::kChain && bytes < kChainPieceBytes && fixed != kImpossible) {
    // The one piece is shorter.
    const Slowest link = slowest_for(fabric, algorithm, ranks);
    fixed -=
        (2 * (ranks - 1) - 1) * link.us_per_byte * (static_cast<double>(kChainPieceBytes) - bytes);
  }
  return fixed + line.us_per_byte * bytes;
}

CollectivePlan choose_collectives(const FabricFigures& fabric) {
  CollectivePlan plan;
  for (int a = 0; a < fabric.ranks; ++a)
    for (int b = 0; b < fabric.ranks; ++b)
      if (a != b && between(fabric, a, b)) {
        RankSet& own = plan.linked[static_cast<std::size_t>(a)];
        own = own.with(b);
      }
  for (int count = 2; count <= fabric.ranks; ++count) {
    const auto line = [&](Algorithm algorithm) { return line_of(fabric, algorithm, count); };
    const auto index = static_cast<std::size_t>(count);
    plan.one_shot_max[index] = crossing(line(Algorithm::kOneShot), line(Algorithm::kTwoPhase));
    // A vector of one piece gains nothing by a chain.
    plan.ring_max[index] = std::max<std::uint64_t>(
        crossing(line(Algorithm::kRing), line(Algorithm::kChain)), kChainPieceBytes);
  }
  return plan;
}

}  // namespace sinew
