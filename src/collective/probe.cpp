#include "collective/probe.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "collective/reduce.h"

namespace sinew {
namespace {

using Micros = std::chrono::duration<double, std::micro>;

// Round trips for the latency of a link, where there is time.
constexpr int kRoundTrips = 16;
// Lengths of long probes. They grow while there is time and a probe does not take so many times as
// long as a small one that its length, not latency, is what was measured.
constexpr std::array<std::size_t, 3> kLongBytes{64u << 10, 256u << 10, 1u << 20};
constexpr double kClearFactor = 20;
constexpr std::size_t kCrowdBytes = 64u << 10;
constexpr int kCrowdRepeats = 3;
constexpr std::size_t kAddBytes = 32u << 10;
// Figures outside are a fault of a clock or a peer, not a link.
constexpr double kLatencyMaxUs = 60e6;
constexpr double kBytesPerUsMin = 1e-3;
constexpr double kBytesPerUsMax = 1e9;
// All messages of all ranks through one wire and one core.
constexpr double kCrowdingMax = kRankCountMax * kRankCountMax;

// What a small probe announces, in the field `piece` of its frame: the end, another small probe, or
// a long one of kLongBytes[n - kLong].
constexpr std::uint32_t kEnd = 0;
constexpr std::uint32_t kSmall = 1;
constexpr std::uint32_t kLong = 2;
constexpr std::uint32_t kAnnouncements = kLong + kLongBytes.size();

// Everybody's figures as they travel: latency and bandwidth of each pair (0: no link), crowding,
// time to add.
constexpr std::size_t kPairs = kRankCountMax * kRankCountMax;
using FigureValues = std::array<double, 2 * kPairs + 2>;
// The plan as it travels: links, limits of one shot, limits of the ring.
using PlanValues = std::array<std::uint64_t, kRankCountMax + 2 * (kRankCountMax + 1)>;

FigureValues values_of(const FabricFigures& fabric) {
  FigureValues values{};
  for (std::size_t a = 0; a < kRankCountMax; ++a) {
    for (std::size_t b = 0; b < kRankCountMax; ++b) {
      if (!fabric.links[a][b]) continue;
      values[2 * (a * kRankCountMax + b)] = fabric.links[a][b]->latency_us;
      values[2 * (a * kRankCountMax + b) + 1] = fabric.links[a][b]->bytes_per_us;
    }
  }
  values[2 * kPairs] = fabric.crowding;
  values[2 * kPairs + 1] = fabric.add_us_per_byte;
  return values;
}

// Adds what another rank measured; its own word counts where both did.
Status merge(const FigureValues& values, Rank from, FabricFigures& fabric) {
  const auto wrong = [&] {
    return fail(Error{ErrorCode::kProtocol,
                      fmt::format("rank {} reports impossible figures of links", from), from});
  };
  for (std::size_t a = 0; a < kRankCountMax; ++a) {
    for (std::size_t b = 0; b < kRankCountMax; ++b) {
      const double latency = values[2 * (a * kRankCountMax + b)];
      const double rate = values[2 * (a * kRankCountMax + b) + 1];
      if (latency == 0 && rate == 0) continue;
      const auto ranks = static_cast<std::size_t>(fabric.ranks);
      // Written so that a NaN is wrong, too.
      if (!(latency > 0 && latency < kLatencyMaxUs && rate > kBytesPerUsMin &&
            rate < kBytesPerUsMax && a < ranks && b < ranks && a != b))
        return wrong();
      fabric.links[a][b] = fabric.links[b][a] = LinkFigures{latency, rate};
    }
  }
  const double crowding = values[2 * kPairs];
  const double adding = values[2 * kPairs + 1];
  if (!(crowding >= 1 && crowding <= kCrowdingMax && adding >= 0 && adding < 1)) return wrong();
  fabric.crowding = std::max(fabric.crowding, crowding);
  fabric.add_us_per_byte = std::max(fabric.add_us_per_byte, adding);
  return {};
}

PlanValues values_of(const CollectivePlan& plan) {
  PlanValues values{};
  std::size_t at = 0;
  for (const RankSet& set : plan.linked) values[at++] = set.bits;
  for (const std::uint64_t limit : plan.one_shot_max) values[at++] = limit;
  for (const std::uint64_t limit : plan.ring_max) values[at++] = limit;
  return values;
}

CollectivePlan plan_of(const PlanValues& values) {
  CollectivePlan plan;
  std::size_t at = 0;
  for (RankSet& set : plan.linked) set.bits = static_cast<std::uint32_t>(values[at++]);
  for (std::uint64_t& limit : plan.one_shot_max) limit = values[at++];
  for (std::uint64_t& limit : plan.ring_max) limit = values[at++];
  return plan;
}

class Prober {
 public:
  Prober(Messenger& messenger, std::chrono::nanoseconds budget)
      : messenger_(messenger), budget_(budget), buffer_(kLongBytes.back()) {
    figures_.ranks = messenger.size();
  }

  Status check_neighbours() const;
  // Each pair of ranks in one of the rounds of a tournament, so that no rank measures two links at
  // once.
  Status measure_pairs();
  Status measure_crowding();
  void measure_adding();
  // From the last rank to rank 0, each adding its own.
  Status gather();
  // From rank 0 to the last.
  Result<CollectivePlan> agree();
  const FabricFigures& figures() const { return figures_; }

 private:
  Status lead(Rank peer, std::chrono::nanoseconds time);
  Status answer(Rank peer);
  Status send(Rank peer, std::span<const std::byte> payload, Operation operation,
              std::uint32_t piece = 0);
  Result<std::uint32_t> receive(Rank peer, std::span<std::byte> into, Operation operation,
                                std::uint32_t choices = 0);
  Result<double> small_trip_us(Rank peer, std::uint32_t announcement);
  Result<double> long_trip_us(Rank peer, std::size_t index);
  std::span<std::byte> long_probe(std::size_t index) {
    return std::span(buffer_).first(kLongBytes[index]);
  }
  Deadline deadline() const { return messenger_.deadline(0, 1); }
  double us_since(Deadline start) const { return Micros(messenger_.now() - start).count(); }

  Messenger& messenger_;  // outlives this
  std::chrono::nanoseconds budget_;
  std::vector<std::byte> buffer_;
  FabricFigures figures_;
};

Status Prober::check_neighbours() const {
  const Rank rank = messenger_.rank();
  for (const Rank next : {rank - 1, rank + 1}) {
    if (next < 0 || next >= messenger_.size() || messenger_.linked().contains(next)) continue;
    return fail(
        Error{ErrorCode::kUnsupported,
              fmt::format("rank {} has no link to rank {}: cable machines to all others, or "
                          "in the order of their ranks",
                          rank, next),
              rank});
  }
  return {};
}

Status Prober::send(Rank peer, std::span<const std::byte> payload, Operation operation,
                    std::uint32_t piece) {
  FrameHeader header = messenger_.sealed(operation, 0, payload);
  header.piece = piece;
  SINEW_TRY(messenger_.start_send(peer, header, payload));
  return messenger_.link(peer).finish_send(deadline());
}

Result<std::uint32_t> Prober::receive(Rank peer, std::span<std::byte> into, Operation operation,
                                      std::uint32_t choices) {
  const FrameHeader expected = messenger_.frame(operation, peer, 0, into.size());
  SINEW_ASSIGN(const FrameHeader header, messenger_.receive_header(expected, deadline(), choices));
  SINEW_TRY(messenger_.link(peer).receive(into, deadline()));
  if (header.checksummed) SINEW_TRY(check_payload(header, payload_checksum(into)));
  return header.piece;
}

Result<double> Prober::small_trip_us(Rank peer, std::uint32_t announcement) {
  const Deadline start = messenger_.now();
  SINEW_TRY(send(peer, {}, Operation::kProbe, announcement));
  SINEW_TRY(receive(peer, {}, Operation::kProbe));
  return us_since(start);
}

Result<double> Prober::long_trip_us(Rank peer, std::size_t index) {
  SINEW_TRY(small_trip_us(peer, kLong + static_cast<std::uint32_t>(index)));
  const Deadline start = messenger_.now();
  SINEW_TRY(send(peer, long_probe(index), Operation::kProbe));
  SINEW_TRY(receive(peer, {}, Operation::kProbe));
  return us_since(start);
}

Status Prober::lead(Rank peer, std::chrono::nanoseconds time) {
  // The first wakes both sides up, or waits for a rank that starts later.
  SINEW_TRY(small_trip_us(peer, kSmall));
  const Deadline start = messenger_.now();
  const double whole_us = Micros(time).count();
  std::vector<double> trips;
  for (int i = 0; i < kRoundTrips && (i == 0 || us_since(start) < whole_us / 4); ++i) {
    SINEW_ASSIGN(const double one, small_trip_us(peer, kSmall));
    trips.push_back(one);
  }
  std::sort(trips.begin(), trips.end());
  // The lower quartile: other work on the machine makes trips longer, nothing makes them shorter.
  const double trip = std::max(trips[trips.size() / 4], 1e-3);
  LinkFigures link{trip / 2, 0};
  for (std::size_t index = 0; index < kLongBytes.size(); ++index) {
    SINEW_ASSIGN(double longer, long_trip_us(peer, index));
    if (us_since(start) + longer < whole_us) {
      SINEW_ASSIGN(const double second, long_trip_us(peer, index));
      longer = std::min(longer, second);
    }
    // On a link so fast that the difference drowns in the noise, a tenth of the trip is believed.
    const double net = std::max({longer - trip, longer / 10, 1e-3});
    link.bytes_per_us = static_cast<double>(kLongBytes[index]) / net;
    if (longer > kClearFactor * trip || us_since(start) + 8 * longer > whole_us) break;
  }
  SINEW_TRY(small_trip_us(peer, kEnd));
  const auto a = static_cast<std::size_t>(messenger_.rank());
  const auto b = static_cast<std::size_t>(peer);
  figures_.links[a][b] = figures_.links[b][a] = link;
  return {};
}

Status Prober::answer(Rank peer) {
  while (messenger_.now() < deadline()) {
    SINEW_ASSIGN(const std::uint32_t next, receive(peer, {}, Operation::kProbe, kAnnouncements));
    SINEW_TRY(send(peer, {}, Operation::kProbe));
    if (next == kEnd) return {};
    if (next < kLong) continue;
    SINEW_TRY(receive(peer, long_probe(next - kLong), Operation::kProbe));
    SINEW_TRY(send(peer, {}, Operation::kProbe));
  }
  return fail(Error{ErrorCode::kDeadline, fmt::format("rank {} probes without end", peer), peer});
}

Status Prober::measure_pairs() {
  const int size = messenger_.size();
  // The circle method: in round k the ranks whose sum is k, modulo the rounds, meet; the one that
  // would meet itself meets the last. With an odd number the last place is empty.
  const int places = size + size % 2;
  const int rounds = places - 1;
  for (int round = 0; round < rounds; ++round) {
    const auto partner = [&](int rank) {
      if (rank == places - 1) return round * (places / 2) % rounds;
      const int other = (round - rank + rounds) % rounds;
      return other == rank ? places - 1 : other;
    };
    const Rank peer = partner(messenger_.rank());
    if (peer >= size || !messenger_.linked().contains(peer)) continue;
    if (messenger_.rank() < peer)
      SINEW_TRY(lead(peer, budget_ * 3 / 4 / rounds));
    else
      SINEW_TRY(answer(peer));
  }
  return {};
}

// As in an all-reduce of one hop; every rank of a pair compares with what the leader of the pair
// measured, so ranks that led no pair have nothing to say.
Status Prober::measure_crowding() {
  const auto payload = std::span<const std::byte>(buffer_).first(kCrowdBytes);
  std::vector<std::byte> into(kCrowdBytes);
  const auto each_peer = [&](const auto& visit) -> Status {
    for (Rank peer = 0; peer < messenger_.size(); ++peer)
      if (messenger_.linked().contains(peer)) SINEW_TRY(visit(peer));
    return {};
  };
  double shortest_us = INFINITY;
  for (int repeat = 0; repeat < kCrowdRepeats; ++repeat) {
    const Deadline start = messenger_.now();
    const FrameHeader header = messenger_.sealed(Operation::kProbe, 0, payload);
    SINEW_TRY(each_peer([&](Rank peer) { return messenger_.start_send(peer, header, payload); }));
    SINEW_TRY(each_peer([&](Rank peer) {
      return messenger_.receive(messenger_.frame(Operation::kProbe, peer, 0, into.size()), into,
                                deadline());
    }));
    SINEW_TRY(each_peer([&](Rank peer) { return messenger_.link(peer).finish_send(deadline()); }));
    shortest_us = std::min(shortest_us, us_since(start));
  }
  const auto& own = figures_.links[static_cast<std::size_t>(messenger_.rank())];
  double crowding = INFINITY;
  for (const auto& link : own) {
    if (!link) continue;
    const double alone_us = static_cast<double>(kCrowdBytes) / link->bytes_per_us;
    crowding = std::min(crowding, (shortest_us - link->latency_us) / alone_us);
  }
  if (std::isfinite(crowding)) figures_.crowding = std::clamp(crowding, 1.0, kCrowdingMax);
  return {};
}

void Prober::measure_adding() {
  std::vector<float> a(kAddBytes / sizeof(float), 1.0f);
  const std::vector<float> b(a.size(), 2.0f);
  const std::array<const std::byte*, 2> sources{std::as_bytes(std::span(a)).data(),
                                                std::as_bytes(std::span(b)).data()};
  double shortest_us = INFINITY;
  for (int repeat = 0; repeat < 8; ++repeat) {
    const Deadline start = messenger_.now();
    sum_in_order(sources, WireType::kF32, a.data(), a.size());
    shortest_us = std::min(shortest_us, us_since(start));
  }
  figures_.add_us_per_byte = shortest_us / kAddBytes;
}

Status Prober::gather() {
  if (messenger_.rank() + 1 < messenger_.size()) {
    FigureValues values{};
    const Rank from = messenger_.rank() + 1;
    SINEW_TRY(receive(from, std::as_writable_bytes(std::span(values)), Operation::kPlan));
    SINEW_TRY(merge(values, from, figures_));
  }
  if (messenger_.rank() == 0) return {};
  const FigureValues values = values_of(figures_);
  return send(messenger_.rank() - 1, std::as_bytes(std::span(values)), Operation::kPlan);
}

Result<CollectivePlan> Prober::agree() {
  PlanValues values{};
  const Rank from = messenger_.rank() - 1;
  if (messenger_.rank() == 0) {
    values = values_of(choose_collectives(figures_));
  } else {
    SINEW_TRY(receive(from, std::as_writable_bytes(std::span(values)), Operation::kPlan));
  }
  const CollectivePlan plan = plan_of(values);
  if (plan.linked[static_cast<std::size_t>(messenger_.rank())].bits != messenger_.linked().bits)
    return fail(Error{ErrorCode::kProtocol,
                      fmt::format("the plan of rank 0 knows other links of rank {} than it has",
                                  messenger_.rank()),
                      messenger_.rank() == 0 ? 0 : from});
  if (messenger_.rank() + 1 < messenger_.size())
    SINEW_TRY(send(messenger_.rank() + 1, std::as_bytes(std::span(values)), Operation::kPlan));
  return plan;
}

}  // namespace

Result<Agreement> agree_on_plan(Messenger& messenger, std::chrono::nanoseconds budget) {
  messenger.begin(RankSet::range(0, messenger.size()));
  Prober prober(messenger, budget);
  const auto run = [&]() -> Result<Agreement> {
    SINEW_TRY(prober.check_neighbours());
    SINEW_TRY(prober.measure_pairs());
    SINEW_TRY(prober.measure_crowding());
    prober.measure_adding();
    SINEW_TRY(prober.gather());
    SINEW_ASSIGN(const CollectivePlan plan, prober.agree());
    return Agreement{plan, prober.figures()};
  };
  auto agreed = run();
  if (!agreed) return fail(messenger.conclude(std::move(agreed).error(), Operation::kProbe));
  return agreed;
}

}  // namespace sinew
