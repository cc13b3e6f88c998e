#pragma once

#include <array>
#include <optional>
#include <vector>

#include "collective/collective_plan.h"
#include "collective/mesh_group.h"
#include "collective/messenger.h"

namespace sinew {

// The group that mesh_group.h makes; not for other folders. Its operations are in three files:
// mesh_group.cpp (common to all, and those of one hop), all_reduce.cpp, ring.cpp (for groups in
// which links are missing).
class LinkGroup final : public Group {
 public:
  LinkGroup(Messenger messenger, CollectivePlan plan, const GroupOptions& options);

  Rank rank() const override { return messenger_.rank(); }
  int size() const override { return messenger_.size(); }
  std::string_view kind() const override { return kind_; }
  void set_step(std::uint64_t step) override { messenger_.set_step(step); }
  Totals totals() const override;
  const CollectivePlan& plan() const override { return plan_; }

  Status all_reduce_sum(std::span<float> data, RankSet among) override;
  Status all_gather(std::span<const std::byte> mine, std::span<const std::size_t> counts,
                    std::span<std::byte> gathered) override;
  Status gather(Rank root, std::span<const std::byte> mine, std::span<const std::size_t> counts,
                std::span<std::byte> gathered) override;
  Status broadcast(Rank root, std::span<std::byte> data, RankSet among) override;

 private:
  // The payload of each rank, by rank.
  using Parts = std::array<std::span<std::byte>, kRankCountMax>;

  // Runs `body` as the next operation of the ranks `among`: sequence, deadline, totals, and what to
  // do on an error.
  template <typename Body>
  Status run(Operation operation, RankSet among, const Body& body);
  // The route for an operation among ranks that lack links; kUnsupported if there is none.
  Result<RingRoute> route() const;

  // all_reduce.cpp. Each leaves the same bits in `data`: the sum of the vectors as they travel,
  // rounded once more to the wire type.
  Status one_shot(std::span<float> data);
  Status two_phase(std::span<float> data);
  Status reduce_scatter(std::span<float> data, std::span<std::byte> wire);
  Status gather_reduced(std::span<float> data, std::span<std::byte> wire);
  // Where the values of `data` stand as they travel: `data` itself for kF32, else a buffer of this
  // group, not yet filled.
  std::span<std::byte> wire_space(std::span<float> data);
  // Rounds to the wire type. An error, this rank's own fault, if a value does not fit it.
  Status to_wire_space(std::span<const float> values, std::span<std::byte> wire) const;
  // Makes `values` what the others will read of them, and leaves that in `wire`.
  Status settle(std::span<float> values, std::span<std::byte> wire) const;
  void add_up(std::span<const std::byte* const> sources, std::span<float> out) const;

  // ring.cpp
  Status ring(std::span<float> data, const RingRoute& route);
  Status chain(std::span<float> data, const RingRoute& route);
  // Brings every rank's part to every rank of the route.
  Status pass_round(Operation operation, const RingRoute& route, const Parts& parts, WireType wire);
  // `parts` is used on the root alone.
  Status ring_gather(const RingRoute& route, Rank root, std::span<const std::byte> mine,
                     const Parts& parts, std::span<const std::size_t> counts);
  Status ring_broadcast(const RingRoute& route, Rank root, std::span<std::byte> data);

  template <typename Visit>
  Status for_each_peer(const Visit& visit);
  Status finish_sends(Deadline deadline);
  Deadline last_deadline() const { return messenger_.deadline(0, 1); }
  FrameHeader value_frame(Operation operation, Rank source, Rank subject, std::size_t bytes) const;
  FrameHeader sealed_values(Operation operation, Rank subject,
                            std::span<const std::byte> payload) const;
  RankSet among() const { return messenger_.among(); }
  Link& link(Rank peer) { return messenger_.link(peer); }
  std::size_t width() const { return wire_width(options_.wire); }
  // Holds floats or bytes received for or from a rank; grows to the largest needed, then stays.
  std::span<std::byte> scratch(Rank rank, std::size_t bytes);

  Messenger messenger_;
  CollectivePlan plan_;
  GroupOptions options_;
  std::string kind_;
  std::uint64_t operations_ = 0;
  std::chrono::nanoseconds time_{0};
  std::optional<Error> fault_;
  std::array<std::vector<float>, kRankCountMax> scratch_;
  std::array<RunningChecksum, kRankCountMax> checksums_;
};

template <typename Body>
Status LinkGroup::run(Operation operation, RankSet ranks, const Body& body) {
  if (fault_) return fail(*fault_);
  messenger_.begin(ranks);
  const Deadline start = messenger_.now();
  Status status;
  if (ranks.count() > 1) status = body();
  operations_ += 1;
  time_ += messenger_.now() - start;
  if (status) return {};
  fault_ = messenger_.conclude(std::move(status).error(), operation);
  return fail(*fault_);
}

template <typename Visit>
Status LinkGroup::for_each_peer(const Visit& visit) {
  for (Rank peer = 0; peer < size(); ++peer)
    if (peer != rank() && among().contains(peer)) SINEW_TRY(visit(peer));
  return {};
}

}  // namespace sinew
