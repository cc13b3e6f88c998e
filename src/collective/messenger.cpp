#include "collective/messenger.h"

#include <utility>

#include "base/assert.h"

namespace sinew {
namespace {

double seconds(std::chrono::nanoseconds time) {
  return std::chrono::duration<double>(time).count();
}

// The share of an operation's timeout that is divided among waits that depend on each other.
constexpr int kStaggeredParts = 4;

}  // namespace

Messenger::Messenger(const GroupIdentity& identity, Links links, const Options& options)
    : identity_(identity), links_(std::move(links)), options_(options), start_(options.now()) {
  SINEW_ASSERT(identity.size >= 1 && identity.size <= kRankCountMax);
  SINEW_ASSERT(identity.rank >= 0 && identity.rank < identity.size);
  links_.resize(static_cast<std::size_t>(identity.size));
  SINEW_ASSERT(!linked().contains(rank()));
  for (Rank peer = 0; peer < size(); ++peer)
    SINEW_ASSERT(!linked().contains(peer) || link(peer).peer() == peer);
}

RankSet Messenger::linked() const {
  RankSet set;
  for (std::size_t peer = 0; peer < links_.size(); ++peer)
    if (links_[peer] != nullptr) set = set.with(static_cast<Rank>(peer));
  return set;
}

std::string Messenger::kind() const {
  std::string kinds;
  for (const auto& each : links_) {
    if (each == nullptr || kinds.find(each->kind()) != std::string::npos) continue;
    if (!kinds.empty()) kinds += '+';
    kinds += each->kind();
  }
  return kinds.empty() ? "-" : kinds;
}

void Messenger::begin(RankSet among) {
  SINEW_ASSERT(among.contains(rank()) && (among.bits & ~RankSet::range(0, size()).bits) == 0);
  among_ = among;
  for (Rank peer = 0; peer < size(); ++peer)
    if (among.contains(peer)) ++sequence_[static_cast<std::size_t>(peer)];
  start_ = options_.now();
}

Deadline Messenger::deadline(int turn, int turns) const {
  const auto whole = std::chrono::duration_cast<Deadline::duration>(options_.timeout);
  return start_ + whole - whole / kStaggeredParts * (turns - 1 - turn) / turns;
}

Error Messenger::conclude(Error error, Operation operation) {
  error = explain(last_words(std::move(error)), operation);
  tell_peers(error);
  return error;
}

// A peer that left may have said why just before: then another rank is to blame.
Error Messenger::last_words(Error error) {
  if (error.code != ErrorCode::kPeerLost || !error.rank || !linked().contains(*error.rank))
    return error;
  FrameBytes bytes;
  // Has passed: one attempt, no wait.
  if (!link(*error.rank).receive(bytes, Deadline{})) return error;
  const auto header = decode_frame(bytes);
  if (!header || header->operation != Operation::kFault) return error;
  const Status told = check_fault(*header, *error.rank);
  return told.error();
}

std::string Messenger::last_heard(Rank peer) const {
  const auto& heard = heard_[static_cast<std::size_t>(peer)];
  if (!heard) return "never heard";
  return fmt::format("last heard: {} #{} of step {}, {:.1f} s ago",
                     operation_name(heard->operation), heard->sequence, heard->step,
                     seconds(options_.now() - heard->when));
}

Error Messenger::explain(Error error, Operation operation) const {
  const auto number = sequence_[static_cast<std::size_t>(rank())];
  const auto place = fmt::format("{} #{} of step {}", operation_name(operation), number, step_);
  // What is known of a rank without a link came from others.
  const bool direct = error.rank && linked().contains(*error.rank);
  const std::string over(direct ? links_[static_cast<std::size_t>(*error.rank)]->kind()
                                : std::string_view());
  if (error.code == ErrorCode::kDeadline && direct) {
    error.message =
        fmt::format("rank {} is late for {} (waited {:.1f} s over {}; {})", *error.rank, place,
                    seconds(options_.now() - start_), over, last_heard(*error.rank));
  } else if (direct) {
    error.message =
        fmt::format("{} ({} over {}; {})", error.message, place, over, last_heard(*error.rank));
  } else {
    error.message = fmt::format("{} ({} over {})", error.message, place, kind());
  }
  return error;
}

// Best effort: a peer whose stream is in the middle of a frame, or full, learns it by its own
// deadline.
void Messenger::tell_peers(const Error& error) {
  const FrameHeader header = frame(Operation::kFault, rank(), error.rank.value_or(rank()), 0);
  FrameBytes bytes;
  encode_frame(header, bytes);
  for (Rank peer = 0; peer < size(); ++peer) {
    if (!linked().contains(peer) || peer == error.rank || link(peer).sending()) continue;
    if (!link(peer).start_send(bytes, {})) continue;
    // Has passed: one attempt, no wait. What it could not send is lost with the link.
    static_cast<void>(link(peer).finish_send(Deadline{}).has_value());
  }
}

bool Messenger::needs_checksum(Rank peer, std::size_t length) const {
  if (options_.checksum_all) return true;
  if (length > kAlwaysChecksumBytes) return false;
  for (const auto& each : links_)
    if (each != nullptr && (peer == rank() || peer == each->peer()) && !each->vouches())
      return true;
  return false;
}

FrameHeader Messenger::frame(Operation operation, Rank source, Rank subject,
                             std::size_t length) const {
  FrameHeader header;
  header.operation = operation;
  header.checksummed = operation != Operation::kFault && needs_checksum(source, length);
  header.source = source;
  header.subject = subject;
  header.job = identity_.job;
  header.epoch = identity_.epoch;
  header.step = step_;
  header.sequence = sequence_[static_cast<std::size_t>(source)];
  header.length = length;
  return header;
}

FrameHeader Messenger::sealed(Operation operation, Rank subject,
                              std::span<const std::byte> payload) const {
  FrameHeader header = frame(operation, rank(), subject, payload.size());
  if (header.checksummed) header.checksum = payload_checksum(payload);
  return header;
}

Status Messenger::start_send(Rank peer, FrameHeader header, std::span<const std::byte> payload) {
  const bool needed = header.operation != Operation::kFault && needs_checksum(peer, payload.size());
  if (needed && !header.checksummed) header.checksum = payload_checksum(payload);
  if (!needed) header.checksum = 0;
  header.checksummed = needed;
  header.source = rank();
  header.sequence = sequence_[static_cast<std::size_t>(peer)];
  FrameBytes& bytes = headers_[static_cast<std::size_t>(peer)];
  encode_frame(header, bytes);
  bytes_sent_ += bytes.size() + payload.size();
  return link(peer).start_send(bytes, payload);
}

Status Messenger::check_fault(const FrameHeader& header, Rank source) const {
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

Result<FrameHeader> Messenger::receive_header(FrameHeader expected, Deadline deadline,
                                              std::uint32_t choices) {
  FrameBytes bytes;
  SINEW_TRY(link(expected.source).receive(bytes, deadline));
  auto header = decode_frame(bytes);
  if (!header) {
    Error error = std::move(header).error().within(fmt::format("from rank {}", expected.source));
    error.rank = expected.source;
    return fail(std::move(error));
  }
  if (header->operation == Operation::kFault) SINEW_TRY(check_fault(*header, expected.source));
  if (header->piece < choices) expected.piece = header->piece;
  SINEW_TRY(check_frame(*header, expected));
  heard_[static_cast<std::size_t>(expected.source)] =
      Heard{header->operation, header->step, header->sequence, options_.now()};
  return header;
}

Status Messenger::receive(const FrameHeader& expected, std::span<std::byte> into,
                          Deadline deadline) {
  SINEW_TRY(receive_to_pass_on(expected, into, deadline));
  return {};
}

Result<FrameHeader> Messenger::receive_to_pass_on(const FrameHeader& expected,
                                                  std::span<std::byte> into, Deadline deadline) {
  SINEW_ASSIGN(const FrameHeader header, receive_header(expected, deadline));
  SINEW_TRY(link(expected.source).receive(into, deadline));
  if (header.checksummed) SINEW_TRY(check_payload(header, payload_checksum(into)));
  return header;
}

}  // namespace sinew
