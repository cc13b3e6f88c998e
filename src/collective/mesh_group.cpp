#include "collective/mesh_group.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <utility>

#include "base/assert.h"
#include "base/limits.h"
#include "collective/frame.h"
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

class MeshGroup final : public Group {
 public:
  MeshGroup(const GroupIdentity& identity, Links links, const GroupOptions& options);

  Rank rank() const override { return identity_.rank; }
  int size() const override { return identity_.size; }
  std::string_view kind() const override { return kind_; }
  void set_step(std::uint64_t step) override { step_ = step; }
  Totals totals() const override { return totals_; }

  Status all_reduce_sum(std::span<float> data, RankSet among) override;
  Status all_gather(std::span<const std::byte> mine, std::span<const std::size_t> counts,
                    std::span<std::byte> gathered) override;
  Status gather(Rank root, std::span<const std::byte> mine, std::span<const std::size_t> counts,
                std::span<std::byte> gathered) override;
  Status broadcast(Rank root, std::span<std::byte> data, RankSet among) override;

 private:
  // Runs `body` as the next operation of the ranks `among`: sequence, deadline, totals, and what to
  // do on an error.
  template <typename Body>
  Status run(Operation operation, RankSet among, const Body& body);

  Status reduce_one_shot(std::span<float> data);
  Status reduce_scatter(std::span<float> data);
  Status gather_reduced(std::span<float> data);

  template <typename Visit>
  Status for_each_peer(const Visit& visit);
  FrameHeader frame(Operation operation, Rank source, Rank subject, std::size_t length) const;
  // A frame of this rank, with the payload's checksum where one is due; start_send puts in the
  // number that the operation has with the peer.
  FrameHeader sealed(Operation operation, Rank subject, std::span<const std::byte> payload) const;
  Status start_send(Rank peer, FrameHeader header, std::span<const std::byte> payload);
  Status finish_sends(Deadline deadline);
  // Always an error: the one that a fault frame tells of, or what is wrong with that frame.
  Status check_fault(const FrameHeader& header, Rank source) const;
  Result<FrameHeader> receive_header(const FrameHeader& expected, Deadline deadline);
  Status receive(const FrameHeader& expected, std::span<std::byte> into, Deadline deadline);

  Link& link(Rank peer) { return *links_[static_cast<std::size_t>(peer)]; }
  std::span<float> scratch(Rank peer, std::size_t count);
  Error last_words(Error error);
  Error explain(Error error, Operation operation, std::chrono::nanoseconds waited) const;
  void tell_peers(const Error& error);

  GroupIdentity identity_;
  Links links_;
  GroupOptions options_;
  std::string kind_ = "-";
  std::uint64_t step_ = 0;
  // The operation under way: who takes part, and its number among those shared with each peer, from
  // 1.
  RankSet among_;
  std::array<std::uint64_t, kRankCountMax> sequence_{};
  Deadline deadline_;
  // A wait that only ends once another rank's wait has ended has `deadline_`; that other one ends
  // earlier, so that the true culprit's name arrives before this rank blames the messenger.
  Deadline early_deadline_;
  Totals totals_;
  std::optional<Error> fault_;

  std::array<FrameBytes, kRankCountMax> headers_{};  // of the sends under way, by peer
  // Vectors received from peers, by rank; grows to the largest needed, then stays.
  std::array<std::vector<float>, kRankCountMax> scratch_;
  std::array<RunningChecksum, kRankCountMax> checksums_;
};

MeshGroup::MeshGroup(const GroupIdentity& identity, Links links, const GroupOptions& options)
    : identity_(identity), links_(std::move(links)), options_(options) {
  SINEW_ASSERT(identity.size >= 1 && identity.size <= kRankCountMax);
  SINEW_ASSERT(identity.rank >= 0 && identity.rank < identity.size);
  SINEW_ASSERT(identity.size == 1 || links_.size() == static_cast<std::size_t>(identity.size));
  for (Rank peer = 0; peer < identity.size; ++peer) {
    if (peer == identity.rank) continue;
    SINEW_ASSERT(links_[static_cast<std::size_t>(peer)] != nullptr && link(peer).peer() == peer);
    if (kind_ == "-") {
      kind_ = link(peer).kind();
    } else if (kind_.find(link(peer).kind()) == std::string::npos) {
      kind_ += fmt::format("+{}", link(peer).kind());
    }
  }
}

template <typename Body>
Status MeshGroup::run(Operation operation, RankSet among, const Body& body) {
  if (fault_) return fail(*fault_);
  SINEW_ASSERT(among.contains(rank()) && (among.bits & ~everyone().bits) == 0);
  among_ = among;
  for (Rank peer = 0; peer < size(); ++peer)
    if (among.contains(peer)) ++sequence_[static_cast<std::size_t>(peer)];
  const Deadline start = options_.now();
  deadline_ = start + options_.timeout;
  early_deadline_ = start + options_.timeout * 9 / 10;
  Status status;
  if (among.count() > 1) status = body();
  const std::chrono::nanoseconds spent = options_.now() - start;
  totals_.operations += 1;
  totals_.time += spent;
  if (status) return {};
  fault_ = explain(last_words(std::move(status).error()), operation, spent);
  tell_peers(*fault_);
  return fail(*fault_);
}

// A peer that left may have said why just before: then another rank is to blame.
Error MeshGroup::last_words(Error error) {
  if (error.code != ErrorCode::kPeerLost || !error.rank || *error.rank == rank()) return error;
  FrameBytes bytes;
  // Has passed: one attempt, no wait.
  if (!link(*error.rank).receive(bytes, Deadline{})) return error;
  const auto header = decode_frame(bytes);
  if (!header || header->operation != Operation::kFault) return error;
  const Status told = check_fault(*header, *error.rank);
  return told.error();
}

Error MeshGroup::explain(Error error, Operation operation, std::chrono::nanoseconds waited) const {
  const auto place = fmt::format("{} #{} of step {}", operation_name(operation),
                                 sequence_[static_cast<std::size_t>(rank())], step_);
  if (error.code == ErrorCode::kDeadline && error.rank) {
    const double seconds = std::chrono::duration<double>(waited).count();
    error.message = fmt::format("rank {} is late for {} (waited {:.1f} s over {})", *error.rank,
                                place, seconds, kind_);
  } else {
    error.message = fmt::format("{} ({} over {})", error.message, place, kind_);
  }
  return error;
}

// Best effort: a peer whose stream is in the middle of a frame, or full, learns it by its own
// deadline.
void MeshGroup::tell_peers(const Error& error) {
  FrameHeader header = frame(Operation::kFault, rank(), error.rank.value_or(rank()), 0);
  FrameBytes bytes;
  encode_frame(header, bytes);
  for (Rank peer = 0; peer < size(); ++peer) {
    if (peer == rank() || peer == error.rank || link(peer).sending()) continue;
    if (!link(peer).start_send(bytes, {})) continue;
    // Has passed: one attempt, no wait. What it could not send is lost with the link.
    static_cast<void>(link(peer).finish_send(Deadline{}).has_value());
  }
}

template <typename Visit>
Status MeshGroup::for_each_peer(const Visit& visit) {
  for (Rank peer = 0; peer < size(); ++peer) {
    if (peer != rank() && among_.contains(peer)) SINEW_TRY(visit(peer));
  }
  return {};
}

FrameHeader MeshGroup::frame(Operation operation, Rank source, Rank subject,
                             std::size_t length) const {
  FrameHeader header;
  header.operation = operation;
  header.checksummed =
      operation != Operation::kFault && (length <= kAlwaysChecksumBytes || options_.checksum_all);
  header.source = source;
  header.subject = subject;
  header.job = identity_.job;
  header.epoch = identity_.epoch;
  header.step = step_;
  header.sequence = sequence_[static_cast<std::size_t>(source)];
  header.length = length;
  return header;
}

FrameHeader MeshGroup::sealed(Operation operation, Rank subject,
                              std::span<const std::byte> payload) const {
  FrameHeader header = frame(operation, rank(), subject, payload.size());
  if (header.checksummed) header.checksum = payload_checksum(payload);
  return header;
}

Status MeshGroup::start_send(Rank peer, FrameHeader header, std::span<const std::byte> payload) {
  header.sequence = sequence_[static_cast<std::size_t>(peer)];
  FrameBytes& bytes = headers_[static_cast<std::size_t>(peer)];
  encode_frame(header, bytes);
  totals_.bytes_sent += bytes.size() + payload.size();
  return link(peer).start_send(bytes, payload);
}

Status MeshGroup::finish_sends(Deadline deadline) {
  return for_each_peer([&](Rank peer) { return link(peer).finish_send(deadline); });
}

Status MeshGroup::check_fault(const FrameHeader& header, Rank source) const {
  FrameHeader expected = frame(Operation::kFault, source, header.subject, 0);
  expected.sequence = header.sequence;
  expected.step = header.step;
  SINEW_TRY(check_frame(header, expected));
  if (header.subject >= size()) {
    return fail(Error{
        ErrorCode::kProtocol,
        fmt::format("rank {} blames rank {} in a group of {}", source, header.subject, size()),
        source});
  }
  return fail(Error{ErrorCode::kPeerLost,
                    fmt::format("rank {} gave up operation #{} of step {} because of rank {}",
                                source, header.sequence, header.step, header.subject),
                    header.subject});
}

Result<FrameHeader> MeshGroup::receive_header(const FrameHeader& expected, Deadline deadline) {
  FrameBytes bytes;
  SINEW_TRY(link(expected.source).receive(bytes, deadline));
  auto header = decode_frame(bytes);
  if (!header) {
    Error error = std::move(header).error().within(fmt::format("from rank {}", expected.source));
    error.rank = expected.source;
    return fail(std::move(error));
  }
  if (header->operation == Operation::kFault) SINEW_TRY(check_fault(*header, expected.source));
  SINEW_TRY(check_frame(*header, expected));
  return header;
}

Status MeshGroup::receive(const FrameHeader& expected, std::span<std::byte> into,
                          Deadline deadline) {
  SINEW_ASSIGN(const FrameHeader header, receive_header(expected, deadline));
  SINEW_TRY(link(expected.source).receive(into, deadline));
  return header.checksummed ? check_payload(header, payload_checksum(into)) : Status{};
}

std::span<float> MeshGroup::scratch(Rank peer, std::size_t count) {
  std::vector<float>& buffer = scratch_[static_cast<std::size_t>(peer)];
  if (buffer.size() < count) buffer.resize(count);
  return {buffer.data(), count};
}

Status MeshGroup::all_reduce_sum(std::span<float> data, RankSet among) {
  return run(Operation::kAllReduce, among, [&]() -> Status {
    if (data.size_bytes() <= options_.threshold_bytes) return reduce_one_shot(data);
    SINEW_TRY(reduce_scatter(data));
    return gather_reduced(data);
  });
}

Status MeshGroup::reduce_one_shot(std::span<float> data) {
  const auto payload = std::as_bytes(data);
  const FrameHeader mine = sealed(Operation::kAllReduce, 0, payload);
  SINEW_TRY(for_each_peer([&](Rank peer) { return start_send(peer, mine, payload); }));
  std::array<const float*, kRankCountMax> sources{};
  sources[static_cast<std::size_t>(among_.index(rank()))] = data.data();
  SINEW_TRY(for_each_peer([&](Rank peer) {
    const std::span<float> vector = scratch(peer, data.size());
    sources[static_cast<std::size_t>(among_.index(peer))] = vector.data();
    return receive(frame(Operation::kAllReduce, peer, 0, payload.size()),
                   std::as_writable_bytes(vector), deadline_);
  }));
  SINEW_TRY(finish_sends(deadline_));
  sum_in_order({sources.data(), static_cast<std::size_t>(among_.count())}, data.data(),
               data.size());
  return {};
}

Status MeshGroup::reduce_scatter(std::span<float> data) {
  SINEW_TRY(for_each_peer([&](Rank peer) {
    const Chunk chunk = chunk_of(data.size(), peer, among_);
    const auto payload = std::as_bytes(data.subspan(chunk.begin, chunk.count));
    return start_send(peer, sealed(Operation::kReduceScatter, 0, payload), payload);
  }));

  const Chunk mine = chunk_of(data.size(), rank(), among_);
  const std::span<float> out = data.subspan(mine.begin, mine.count);
  std::array<FrameHeader, kRankCountMax> headers;
  SINEW_TRY(for_each_peer([&](Rank peer) -> Status {
    const FrameHeader expected = frame(Operation::kReduceScatter, peer, 0, out.size_bytes());
    SINEW_ASSIGN(headers[static_cast<std::size_t>(peer)],
                 receive_header(expected, early_deadline_));
    if (expected.checksummed) checksums_[static_cast<std::size_t>(peer)].restart();
    return {};
  }));

  for (std::size_t begin = 0; begin < out.size(); begin += kPieceFloats) {
    const std::span<float> piece = out.subspan(begin, std::min(kPieceFloats, out.size() - begin));
    std::array<const float*, kRankCountMax> sources{};
    sources[static_cast<std::size_t>(among_.index(rank()))] = piece.data();
    const auto receive_piece = [&](Rank peer) -> Status {
      const auto index = static_cast<std::size_t>(peer);
      const std::span<float> vector = scratch(peer, piece.size());
      sources[static_cast<std::size_t>(among_.index(peer))] = vector.data();
      SINEW_TRY(link(peer).receive(std::as_writable_bytes(vector), early_deadline_));
      if (headers[index].checksummed) checksums_[index].add(std::as_bytes(vector));
      return {};
    };
    SINEW_TRY(for_each_peer(receive_piece));
    sum_in_order({sources.data(), static_cast<std::size_t>(among_.count())}, piece.data(),
                 piece.size());
  }
  SINEW_TRY(for_each_peer([&](Rank peer) -> Status {
    const auto index = static_cast<std::size_t>(peer);
    if (!headers[index].checksummed) return {};
    return check_payload(headers[index], checksums_[index].value());
  }));
  return finish_sends(early_deadline_);
}

Status MeshGroup::gather_reduced(std::span<float> data) {
  const Chunk mine = chunk_of(data.size(), rank(), among_);
  const auto payload = std::as_bytes(data.subspan(mine.begin, mine.count));
  const FrameHeader header = sealed(Operation::kReducedGather, 0, payload);
  SINEW_TRY(for_each_peer([&](Rank peer) { return start_send(peer, header, payload); }));
  SINEW_TRY(for_each_peer([&](Rank peer) {
    const Chunk chunk = chunk_of(data.size(), peer, among_);
    const auto into = std::as_writable_bytes(data.subspan(chunk.begin, chunk.count));
    return receive(frame(Operation::kReducedGather, peer, 0, into.size()), into, deadline_);
  }));
  return finish_sends(deadline_);
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

Status MeshGroup::all_gather(std::span<const std::byte> mine, std::span<const std::size_t> counts,
                             std::span<std::byte> gathered) {
  SINEW_ASSERT(counts.size() == static_cast<std::size_t>(size()));
  const auto parts = parts_of(counts, gathered);
  const std::span<std::byte> own = parts[static_cast<std::size_t>(rank())];
  place_own_part(mine, own);
  return run(Operation::kAllGather, everyone(), [&]() -> Status {
    const FrameHeader header = sealed(Operation::kAllGather, 0, own);
    SINEW_TRY(for_each_peer([&](Rank peer) { return start_send(peer, header, own); }));
    SINEW_TRY(for_each_peer([&](Rank peer) {
      const std::span<std::byte> into = parts[static_cast<std::size_t>(peer)];
      return receive(frame(Operation::kAllGather, peer, 0, into.size()), into, deadline_);
    }));
    return finish_sends(deadline_);
  });
}

Status MeshGroup::gather(Rank root, std::span<const std::byte> mine,
                         std::span<const std::size_t> counts, std::span<std::byte> gathered) {
  SINEW_ASSERT(root >= 0 && root < size());
  SINEW_ASSERT(counts.size() == static_cast<std::size_t>(size()));
  SINEW_ASSERT(mine.size() == counts[static_cast<std::size_t>(rank())]);
  if (rank() != root) {
    return run(Operation::kGather, everyone(), [&]() -> Status {
      SINEW_TRY(start_send(root, sealed(Operation::kGather, root, mine), mine));
      return link(root).finish_send(deadline_);
    });
  }
  const auto parts = parts_of(counts, gathered);
  place_own_part(mine, parts[static_cast<std::size_t>(rank())]);
  return run(Operation::kGather, everyone(), [&] {
    return for_each_peer([&](Rank peer) {
      const std::span<std::byte> into = parts[static_cast<std::size_t>(peer)];
      return receive(frame(Operation::kGather, peer, root, into.size()), into, deadline_);
    });
  });
}

Status MeshGroup::broadcast(Rank root, std::span<std::byte> data, RankSet among) {
  SINEW_ASSERT(root >= 0 && root < size() && among.contains(root));
  return run(Operation::kBroadcast, among, [&]() -> Status {
    if (rank() != root) {
      return receive(frame(Operation::kBroadcast, root, root, data.size()), data, deadline_);
    }
    const FrameHeader header = sealed(Operation::kBroadcast, root, data);
    SINEW_TRY(for_each_peer([&](Rank peer) { return start_send(peer, header, data); }));
    return finish_sends(deadline_);
  });
}

}  // namespace

std::unique_ptr<Group> make_group(const GroupIdentity& identity, Links links,
                                  const GroupOptions& options) {
  return std::make_unique<MeshGroup>(identity, std::move(links), options);
}

}  // namespace sinew
