#include "collective/mesh_group.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/assert.h"
#include "collective/link_group.h"
#include "collective/probe.h"

namespace sinew {
namespace {

// Ranks start at different times: the first message may come later than any other.
constexpr std::chrono::milliseconds kFormTimeout{20000};
constexpr std::chrono::milliseconds kProbeBudget{100};

Messenger messenger_of(const GroupIdentity& identity, Links links, const GroupOptions& options) {
  return {identity, std::move(links), {options.timeout, options.checksum_all, options.now}};
}

// Where each rank's part lies in a gathered buffer.
std::array<std::span<std::byte>, kRankCountMax> parts_of(std::span<const std::size_t> counts,
                                                         std::span<std::byte> gathered) {
  std::array<std::span<std::byte>, kRankCountMax> parts;
  std::size_t begin = 0;
  for (std::size_t r = 0; r < counts.size(); ++r) {
    SINEW_ASSERT(counts[r] <= gathered.size() - begin);
    parts[r] = gathered.subspan(begin, counts[r]);
    begin += counts[r];
  }
  SINEW_ASSERT(begin == gathered.size());
  return parts;
}

void place_own_part(std::span<const std::byte> mine, std::span<std::byte> part) {
  SINEW_ASSERT(mine.size() == part.size());
  if (!mine.empty()) std::memmove(part.data(), mine.data(), mine.size());
}

}  // namespace

LinkGroup::LinkGroup(Messenger messenger, CollectivePlan plan, const GroupOptions& options)
    : messenger_(std::move(messenger)), plan_(plan), options_(options), kind_(messenger_.kind()) {
  SINEW_ASSERT(plan_.linked[static_cast<std::size_t>(rank())].bits == messenger_.linked().bits);
  if (options.threshold_bytes) plan_.one_shot_max.fill(*options.threshold_bytes);
}

Group::Totals LinkGroup::totals() const {
  return {operations_, messenger_.bytes_sent(), time_};
}

Status LinkGroup::finish_sends(Deadline deadline) {
  return for_each_peer([&](Rank peer) { return link(peer).finish_send(deadline); });
}

Result<RingRoute> LinkGroup::route() const {
  const std::optional<RingRoute> found = plan_.route(among(), size());
  if (found) return *found;
  return fail(Error{ErrorCode::kUnsupported,
                    fmt::format("ranks {:#b} of {} share no route of links: a message among them "
                                "would pass ranks that take no part",
                                among().bits, size()),
                    rank()});
}

std::span<std::byte> LinkGroup::scratch(Rank of, std::size_t bytes) {
  std::vector<float>& buffer = scratch_[static_cast<std::size_t>(of)];
  const std::size_t floats = (bytes + sizeof(float) - 1) / sizeof(float);
  if (buffer.size() < floats) buffer.resize(floats);
  return std::as_writable_bytes(std::span(buffer)).first(bytes);
}

Status LinkGroup::all_gather(std::span<const std::byte> mine, std::span<const std::size_t> counts,
                             std::span<std::byte> gathered) {
  SINEW_ASSERT(counts.size() == static_cast<std::size_t>(size()));
  const Parts parts = parts_of(counts, gathered);
  const std::span<std::byte> own = parts[static_cast<std::size_t>(rank())];
  place_own_part(mine, own);
  return run(Operation::kAllGather, everyone(), [&]() -> Status {
    if (!plan_.complete(among())) {
      SINEW_ASSIGN(const RingRoute around, route());
      return pass_round(Operation::kAllGather, around, parts, WireType::kF32);
    }
    const FrameHeader header = messenger_.sealed(Operation::kAllGather, 0, own);
    SINEW_TRY(for_each_peer([&](Rank peer) { return messenger_.start_send(peer, header, own); }));
    SINEW_TRY(for_each_peer([&](Rank peer) -> Status {
      const std::span<std::byte> into = parts[static_cast<std::size_t>(peer)];
      return messenger_.receive(messenger_.frame(Operation::kAllGather, peer, 0, into.size()), into,
                                last_deadline());
    }));
    return finish_sends(last_deadline());
  });
}

Status LinkGroup::gather(Rank root, std::span<const std::byte> mine,
                         std::span<const std::size_t> counts, std::span<std::byte> gathered) {
  SINEW_ASSERT(root >= 0 && root < size());
  SINEW_ASSERT(counts.size() == static_cast<std::size_t>(size()));
  SINEW_ASSERT(mine.size() == counts[static_cast<std::size_t>(rank())]);
  Parts parts{};
  if (rank() == root) {
    parts = parts_of(counts, gathered);
    place_own_part(mine, parts[static_cast<std::size_t>(rank())]);
  }
  return run(Operation::kGather, everyone(), [&]() -> Status {
    if (!plan_.complete(among())) {
      SINEW_ASSIGN(const RingRoute around, route());
      return ring_gather(around, root, mine, parts, counts);
    }
    if (rank() != root) {
      SINEW_TRY(
          messenger_.start_send(root, messenger_.sealed(Operation::kGather, root, mine), mine));
      return link(root).finish_send(last_deadline());
    }
    return for_each_peer([&](Rank peer) -> Status {
      const std::span<std::byte> into = parts[static_cast<std::size_t>(peer)];
      return messenger_.receive(messenger_.frame(Operation::kGather, peer, root, into.size()), into,
                                last_deadline());
    });
  });
}

Status LinkGroup::broadcast(Rank root, std::span<std::byte> data, RankSet ranks) {
  SINEW_ASSERT(root >= 0 && root < size() && ranks.contains(root));
  return run(Operation::kBroadcast, ranks, [&]() -> Status {
    if (!plan_.complete(among())) {
      SINEW_ASSIGN(const RingRoute around, route());
      return ring_broadcast(around, root, data);
    }
    if (rank() != root) {
      return messenger_.receive(messenger_.frame(Operation::kBroadcast, root, root, data.size()),
                                data, last_deadline());
    }
    const FrameHeader header = messenger_.sealed(Operation::kBroadcast, root, data);
    SINEW_TRY(for_each_peer([&](Rank peer) { return messenger_.start_send(peer, header, data); }));
    return finish_sends(last_deadline());
  });
}

Result<std::unique_ptr<Group>> form_group(const GroupIdentity& identity, Links links,
                                          const GroupOptions& options) {
  if (identity.size == 1) return make_group(identity, std::move(links), options);
  Messenger messenger = messenger_of(identity, std::move(links), options);
  messenger.set_timeout(std::max(options.timeout, kFormTimeout));
  SINEW_ASSIGN(const Agreement agreed, agree_on_plan(messenger, kProbeBudget));
  messenger.set_timeout(options.timeout);
  return std::make_unique<LinkGroup>(std::move(messenger), agreed.plan, options);
}

std::unique_ptr<Group> make_group(const GroupIdentity& identity, Links links,
                                  const GroupOptions& options, const CollectivePlan& plan) {
  return std::make_unique<LinkGroup>(messenger_of(identity, std::move(links), options), plan,
                                     options);
}

std::unique_ptr<Group> make_group(const GroupIdentity& identity, Links links,
                                  const GroupOptions& options) {
  return make_group(identity, std::move(links), options,
                    CollectivePlan::direct(identity.size, kAssumedOneShotMax));
}

}  // namespace sinew
