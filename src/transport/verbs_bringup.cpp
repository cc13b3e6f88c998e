#include "transport/verbs_bringup.h"

#include <algorithm>
#include <bit>
#include <map>
#include <thread>
#include <utility>

#include "base/assert.h"
#include "base/log.h"
#include "transport/side_channel.h"
#include "transport/tcp_link.h"

namespace sinew {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

static_assert(std::endian::native == std::endian::little, "messages are written as they lie");

constexpr std::uint32_t kBringUpMagic = 0x42574e53;  // "SNWB"
// Failed attempts are known to wedge ports until the machine restarts: few, and slower each time.
constexpr int kAttemptsMax = 3;
constexpr milliseconds kBackOffFirst{100};
constexpr milliseconds kWarmUpMax{1000};
constexpr std::size_t kReasonMax = 800;

// UC is what Thunderbolt has, where few messages in flight are known to work.
VerbsGeometry geometry_of(VerbsQpType type, std::uint32_t slot_bytes) {
  switch (type) {
    case VerbsQpType::kRc:
      return {slot_bytes, 32, 16};
    case VerbsQpType::kUc:
      return {slot_bytes, 8, 2};
  }
  return {};
}

// The steps in which both sides of a pair say how they got on, in this order in every attempt.
enum class Step : std::uint8_t { kOffer = 1, kQueues, kPosted, kWarmedUp, kVerdict };
// The later ones weigh more: who merely waited in vain is not the cause.
enum class Outcome : std::uint8_t { kOk = 1, kLate, kAgain, kRefused };

// One message of bring-up: where the sender is and how it got on.
struct Report {
  Step step = Step::kOffer;
  std::uint8_t attempt = 0;
  Outcome outcome = Outcome::kOk;
  std::string reason;
  bool fall_back = false;               // kVerdict
  VerbsOffer offer;                     // kOffer
  std::vector<VerbsQueueOffer> queues;  // kQueues

  std::vector<std::byte> encode() const;
  static Result<Report> decode(std::span<const std::byte> bytes, Rank peer);
};

std::vector<std::byte> Report::encode() const {
  WireWriter writer;
  writer.put(kBringUpMagic).put(step).put(attempt).put(outcome);
  writer.put(std::string_view(reason).substr(0, kReasonMax)).put(fall_back);
  offer.put(writer);
  writer.put(static_cast<std::uint32_t>(queues.size()));
  for (const VerbsQueueOffer& queue : queues)
    writer.put(queue.number).put(queue.nonce).put(queue.receive_slots);
  return {writer.bytes().begin(), writer.bytes().end()};
}

Result<Report> Report::decode(std::span<const std::byte> bytes, Rank peer) {
  WireReader reader(bytes);
  Report report;
  const auto magic = reader.get<std::uint32_t>();
  report.step = reader.get<Step>();
  report.attempt = reader.get<std::uint8_t>();
  report.outcome = reader.get<Outcome>();
  report.reason = reader.get_string();
  report.fall_back = reader.get<std::uint8_t>() != 0;
  report.offer = VerbsOffer::get(reader);
  const std::size_t count = std::min<std::size_t>(reader.get<std::uint32_t>(), kVerbsRailsMax);
  for (std::size_t i = 0; i < count; ++i) {
    VerbsQueueOffer queue;
    queue.number = reader.get<std::uint32_t>();
    queue.nonce = reader.get<std::uint32_t>();
    queue.receive_slots = reader.get<std::uint32_t>();
    report.queues.push_back(queue);
  }
  Status whole = reader.status("verbs bring-up");
  if (whole && magic != kBringUpMagic) {
    whole = fail(ErrorCode::kProtocol, "expected a message of verbs bring-up, magic {:#010x} came",
                 magic);
  }
  if (whole) return report;
  Error error = std::move(whole).error().within(fmt::format("rank {}", peer));
  error.rank = peer;
  return fail(std::move(error));
}

// How an attempt, or a pair's bring-up, ended short of success.
struct Refusal {
  std::string reason;
  bool final = false;
};

// The devices of this rank that are in use, by name: opened once, whatever the number of peers.
class OpenDevices {
 public:
  OpenDevices(std::shared_ptr<VerbsProvider> provider, std::size_t arena_bytes)
      : provider_(std::move(provider)), arena_bytes_(arena_bytes) {}

  Result<std::shared_ptr<VerbsDevice>> get(const std::string& name) {
    auto& device = devices_[name];
    if (!device) {
      auto opened = VerbsDevice::open(provider_, name, arena_bytes_);
      if (!opened) return fail(std::move(opened).error());
      device = std::move(*opened);
    }
    return device;
  }

 private:
  std::shared_ptr<VerbsProvider> provider_;
  std::size_t arena_bytes_;
  std::map<std::string, std::shared_ptr<VerbsDevice>> devices_;
};

// One pair's bring-up. Both sides run the same steps; an error of the side channel ends the group,
// everything else is told to the peer and becomes a refusal on both sides.
class PairBringUp {
 public:
  PairBringUp(const GroupIdentity& identity, Rank peer, const Socket& side, Deadline deadline)
      : identity_(identity), peer_(peer), side_(side), deadline_(deadline) {}

  // `open` is null where this rank cannot use verbs at all, for `obstacle`.
  Result<std::optional<Refusal>> run(VerbsProvider* provider, OpenDevices* open,
                                     const VerbsOptions& options, const std::string& obstacle);
  std::vector<std::unique_ptr<VerbsRail>> take_rails() { return std::move(rails_); }

 private:
  // Sends `own`, receives the peer's report of the same step; a refusal if either failed.
  Result<std::optional<Refusal>> exchange(Report own, Report& theirs);
  Status prepare(OpenDevices& open);
  Result<std::optional<Refusal>> attempt(std::uint8_t number);
  Status create_queues(Report& own);
  Status connect(const Report& theirs);
  Status warm_up();
  Report report(Step step, const Status& status) const;

  GroupIdentity identity_;
  Rank peer_;
  const Socket& side_;  // outlives the bring-up
  Deadline deadline_;
  std::uint8_t attempt_ = 0;
  VerbsOffer own_;
  VerbsOffer theirs_;
  std::vector<std::pair<std::size_t, std::size_t>> cables_;  // own port, the peer's
  std::vector<std::unique_ptr<VerbsRail>> rails_;
};

Report PairBringUp::report(Step step, const Status& status) const {
  Report own;
  own.step = step;
  own.attempt = attempt_;
  if (status) return own;
  const ErrorCode code = status.error().code;
  own.outcome = code == ErrorCode::kUnsupported ? Outcome::kRefused
                : code == ErrorCode::kDeadline  ? Outcome::kLate
                                                : Outcome::kAgain;
  own.reason = status.error().message;
  return own;
}

Result<std::optional<Refusal>> PairBringUp::exchange(Report own, Report& theirs) {
  SINEW_TRY(send_side(side_, peer_, own.encode(), deadline_));
  SINEW_ASSIGN(const std::vector<std::byte> bytes, receive_side(side_, peer_, deadline_));
  SINEW_ASSIGN(theirs, Report::decode(bytes, peer_));
  if (theirs.step != own.step || theirs.attempt != own.attempt) {
    return fail(Error{ErrorCode::kProtocol,
                      fmt::format("rank {} is at step {} of attempt {} of verbs bring-up, expected "
                                  "step {} of attempt {}",
                                  peer_, static_cast<int>(theirs.step), theirs.attempt,
                                  static_cast<int>(own.step), own.attempt),
                      peer_});
  }
  if (own.outcome == Outcome::kOk && theirs.outcome == Outcome::kOk) {
    return std::optional<Refusal>();
  }
  // Both sides choose the same reason.
  const bool lower = identity_.rank < peer_;
  const bool mine = own.outcome > theirs.outcome || (own.outcome == theirs.outcome && lower);
  const bool final = std::max(own.outcome, theirs.outcome) >= Outcome::kRefused;
  return std::optional(Refusal{
      fmt::format("rank {}: {}", mine ? identity_.rank : peer_, mine ? own.reason : theirs.reason),
      final});
}

Result<std::optional<Refusal>> PairBringUp::run(VerbsProvider* provider, OpenDevices* open,
                                                const VerbsOptions& options,
                                                const std::string& obstacle) {
  Status usable;
  if (provider == nullptr || !obstacle.empty()) {
    usable = fail(Error{ErrorCode::kUnsupported, obstacle, {}});
  } else {
    own_.qp_type = options.qp_type.value_or(provider->usual_type());
    own_.slot_bytes = options.slot_bytes;
    own_.named_devices = !options.devices.empty();
    auto ports = find_verbs_ports(*provider, options, local_gid(side_));
    if (ports) {
      own_.ports = std::move(*ports);
    } else {
      usable = fail(Error{ErrorCode::kUnsupported, ports.error().message, {}});
    }
  }
  Report first = report(Step::kOffer, usable);
  first.offer = own_;
  Report theirs;
  SINEW_ASSIGN(std::optional<Refusal> refusal, exchange(std::move(first), theirs));
  if (refusal) return refusal;
  theirs_ = std::move(theirs.offer);
  const bool lower = identity_.rank < peer_;
  auto pairs = lower ? pair_verbs_ports(own_, theirs_) : pair_verbs_ports(theirs_, own_);
  if (!pairs) {
    return std::optional(
        Refusal{fmt::format("ranks {} and {}: {}", std::min(identity_.rank, peer_),
                            std::max(identity_.rank, peer_), pairs.error().message),
                true});
  }
  for (const auto& [a, b] : *pairs) cables_.emplace_back(lower ? a : b, lower ? b : a);

  const Status prepared = prepare(*open);
  milliseconds pause = kBackOffFirst;
  for (attempt_ = 1;; ++attempt_) {
    Report ready;
    SINEW_ASSIGN(refusal, exchange(report(Step::kOffer, prepared), ready));
    if (!refusal) {
      SINEW_ASSIGN(refusal, attempt(attempt_));
    }
    if (!refusal) return refusal;
    for (const auto& rail : rails_) rail->drop_queue();
    if (refusal->final || attempt_ == kAttemptsMax) return refusal;
    spdlog::warn("verbs: attempt {} with rank {} failed: {}", attempt_, peer_, refusal->reason);
    std::this_thread::sleep_until(std::min(deadline_, steady_clock::now() + pause));
    pause *= 4;
  }
}

Status PairBringUp::prepare(OpenDevices& open) {
  const VerbsGeometry geometry = geometry_of(own_.qp_type, own_.slot_bytes);
  for (std::size_t i = 0; i < cables_.size(); ++i) {
    SINEW_ASSIGN(const std::shared_ptr<VerbsDevice> device,
                 open.get(own_.ports[cables_[i].first].device));
    SINEW_ASSIGN(auto rail,
                 VerbsRail::make(device, {identity_, peer_, static_cast<int>(i)}, geometry));
    rails_.push_back(std::move(rail));
  }
  return {};
}

Status PairBringUp::create_queues(Report& own) {
  for (const auto& rail : rails_) {
    SINEW_TRY(rail->device().check_port());
    SINEW_ASSIGN(const VerbsQueueOffer offer, rail->create_queue(own_.qp_type));
    own.queues.push_back(offer);
  }
  return {};
}

Status PairBringUp::connect(const Report& theirs) {
  if (theirs.queues.size() != rails_.size()) {
    return fail(ErrorCode::kUnsupported, "verbs: rank {} offers {} queue pairs for {} cables",
                peer_, theirs.queues.size(), rails_.size());
  }
  for (std::size_t i = 0; i < rails_.size(); ++i) {
    const VerbsPortOffer& own = own_.ports[cables_[i].first];
    const VerbsPortOffer& peer = theirs_.ports[cables_[i].second];
    VerbsRoute route;
    route.layer = own.port.layer;
    route.peer_lid = peer.port.lid;
    route.peer_gid = peer.gid.gid;
    route.own_gid_index = own.gid.index;
    route.mtu_bytes = std::min(own.port.mtu_bytes, peer.port.mtu_bytes);
    SINEW_TRY(rails_[i]->connect(theirs.queues[i], route));
  }
  return {};
}

Status PairBringUp::warm_up() {
  for (const auto& rail : rails_) SINEW_TRY(rail->send_warm_up());
  const Deadline end = std::min(deadline_, steady_clock::now() + kWarmUpMax);
  for (const auto& rail : rails_) {
    while (!rail->warmed_up() || !rail->sends_done()) {
      SINEW_TRY(rail->poll());
      if (steady_clock::now() >= end) {
        return fail(ErrorCode::kDeadline, "verbs: {} {} within {} s over {}",
                    rail->warmed_up() ? "the warm-up message to" : "no warm-up message came from",
                    fmt::format("rank {}{}", peer_, rail->warmed_up() ? " did not leave" : ""),
                    kWarmUpMax.count() / 1000, rail->device().name());
      }
      std::this_thread::yield();
    }
  }
  return {};
}

Result<std::optional<Refusal>> PairBringUp::attempt(std::uint8_t number) {
  SINEW_ASSERT(number == attempt_);
  Report queues;
  const Status created = create_queues(queues);
  Report own = report(Step::kQueues, created);
  own.queues = std::move(queues.queues);
  Report theirs;
  SINEW_ASSIGN(std::optional<Refusal> refusal, exchange(std::move(own), theirs));
  if (refusal) return refusal;
  const Status connected = connect(theirs);
  SINEW_ASSIGN(refusal, exchange(report(Step::kPosted, connected), theirs));
  if (refusal) return refusal;
  return exchange(report(Step::kWarmedUp, warm_up()), theirs);
}

// Every rank tells every other how it got on; all come to the same refusal: that of the lowest
// rank that has one.
Result<std::optional<Refusal>> agree(const GroupIdentity& identity,
                                     const std::vector<Socket>& sockets,
                                     const std::optional<Refusal>& own, bool& fall_back,
                                     Deadline deadline) {
  Report verdict;
  verdict.step = Step::kVerdict;
  verdict.fall_back = fall_back;
  if (own) {
    verdict.outcome = Outcome::kRefused;
    verdict.reason = own->reason.substr(0, kReasonMax);
  }
  const std::vector<std::byte> bytes = verdict.encode();
  for (Rank peer = 0; peer < identity.size; ++peer) {
    const Socket& socket = sockets[static_cast<std::size_t>(peer)];
    if (socket) SINEW_TRY(send_side(socket, peer, bytes, deadline));
  }
  std::optional<Refusal> first;
  for (Rank rank = 0; rank < identity.size; ++rank) {
    Report theirs = verdict;
    if (rank != identity.rank) {
      const Socket& socket = sockets[static_cast<std::size_t>(rank)];
      if (!socket) continue;
      SINEW_ASSIGN(const std::vector<std::byte> came, receive_side(socket, rank, deadline));
      SINEW_ASSIGN(theirs, Report::decode(came, rank));
      if (theirs.step != Step::kVerdict) {
        return fail(Error{ErrorCode::kProtocol,
                          fmt::format("rank {} brings verbs up with other peers than this rank "
                                      "expects: give all ranks the same options",
                                      rank),
                          rank});
      }
    }
    fall_back = fall_back && theirs.fall_back;
    if (theirs.outcome != Outcome::kOk && !first) first = Refusal{theirs.reason, true};
  }
  return first;
}

Status check_options(const VerbsOptions& options) {
  if (options.slot_bytes % kVerbsFrameBytes == 0 && options.slot_bytes >= kVerbsFrameBytes &&
      options.slot_bytes <= kVerbsSlotBytesMax)
    return {};
  return fail(ErrorCode::kUsage, "verbs slots of {} bytes: a multiple of {} up to {}",
              options.slot_bytes, kVerbsFrameBytes, kVerbsSlotBytesMax);
}

}  // namespace

Result<VerbsBringUp> bring_up_verbs(const GroupIdentity& identity,
                                    const Result<std::shared_ptr<VerbsProvider>>& provider,
                                    const VerbsOptions& options, RankSet peers,
                                    std::vector<Socket> sockets, Deadline deadline) {
  SINEW_TRY(check_options(options));
  SINEW_ASSERT(sockets.size() == static_cast<std::size_t>(identity.size));
  std::string obstacle = provider ? "" : provider.error().message;
  std::optional<OpenDevices> open;
  if (provider) {
    const VerbsQpType type = options.qp_type.value_or((*provider)->usual_type());
    open.emplace(*provider, VerbsRail::arena_bytes(geometry_of(type, options.slot_bytes)) *
                                static_cast<std::size_t>(peers.count()));
  }
  VerbsBringUp result;
  std::optional<Refusal> refusal;
  // In the order of the peers' ranks: the lowest pair that is not done has both its ranks free.
  for (Rank peer = 0; peer < identity.size; ++peer) {
    if (peer == identity.rank || !peers.contains(peer)) continue;
    PairBringUp pair(identity, peer, sockets[static_cast<std::size_t>(peer)], deadline);
    SINEW_ASSIGN(
        const std::optional<Refusal> refused,
        pair.run(provider ? provider->get() : nullptr, open ? &*open : nullptr, options, obstacle));
    if (refused) {
      if (!refusal) refusal = refused;
      obstacle = refusal->reason;
      continue;
    }
    result.connections.push_back({peer, pair.take_rails(), Socket()});
  }
  bool fall_back = options.fall_back_to_tcp;
  SINEW_ASSIGN(refusal, agree(identity, sockets, refusal, fall_back, deadline));
  if (refusal) {
    result.connections.clear();
    const std::string_view end =
        options.fall_back_to_tcp && !fall_back ? " (not every rank allows TCP instead)" : "";
    result.refusal = Error{fall_back ? ErrorCode::kIo : ErrorCode::kUnsupported,
                           refusal->reason + std::string(end),
                           {}};
  }
  for (VerbsConnection& connection : result.connections) {
    connection.side = std::move(sockets[static_cast<std::size_t>(connection.peer)]);
    for (const auto& rail : connection.rails) {
      spdlog::info("verbs: rank {} is joined over {}", connection.peer, rail->device().name());
    }
  }
  result.sockets = std::move(sockets);
  return result;
}

Result<Links> connect_verbs_links(const GroupIdentity& identity,
                                  const Result<std::shared_ptr<VerbsProvider>>& provider,
                                  const VerbsOptions& options, TcpListener& listener,
                                  std::span<const Endpoint> peers, Deadline deadline,
                                  const std::atomic<bool>* stop) {
  SINEW_ASSIGN(std::vector<Socket> sockets,
               connect_tcp_sockets(identity, listener, peers, deadline, stop));
  const LinkShare share = LinkShare::everyone(identity);
  if (stop != nullptr) share.hub->stop_when(*stop);
  SINEW_ASSIGN(VerbsBringUp up, bring_up_verbs(identity, provider, options, share.peers,
                                               std::move(sockets), deadline));
  if (!up.refusal) return make_verbs_links(identity.size, std::move(up.connections), share.hub);
  if (up.refusal->code == ErrorCode::kUnsupported) return fail(*up.refusal);
  // All ranks know the same; one says it.
  if (identity.rank == 0) {
    spdlog::warn("VERBS IS NOT USED, all ranks talk over TCP instead: {}", up.refusal->message);
  }
  return make_tcp_links(std::move(up.sockets), share);
}

}  // namespace sinew
