#include "transport/verbs_rail.h"

#include <algorithm>
#include <array>
#include <random>
#include <utility>

#include "base/assert.h"
#include "transport/verbs_explain.h"

namespace sinew {
namespace {

// In the id of a work request: a send, not a receive.
constexpr std::uint64_t kSendId = std::uint64_t{1} << 63;
constexpr std::size_t kPollBatch = 16;

std::byte warm_up_byte(std::size_t at, std::uint32_t queue) {
  return static_cast<std::byte>((at * 31 + queue) & 0xff);
}

}  // namespace

std::size_t VerbsRail::arena_bytes(const VerbsGeometry& geometry) {
  return std::size_t{geometry.slot_bytes} * (geometry.receive_slots + geometry.send_slots);
}

Result<std::unique_ptr<VerbsRail>> VerbsRail::make(std::shared_ptr<VerbsDevice> device,
                                                   const VerbsPlace& place,
                                                   const VerbsGeometry& geometry) {
  SINEW_ASSERT(geometry.slot_bytes % kVerbsFrameBytes == 0 && geometry.send_slots > 0);
  SINEW_ASSERT(geometry.receive_slots >= kVerbsReceiveSlotsMin);
  SINEW_ASSIGN(const std::span<std::byte> memory, device->take_memory(arena_bytes(geometry)));
  return std::unique_ptr<VerbsRail>(new VerbsRail(std::move(device), place, geometry, memory));
}

VerbsRail::VerbsRail(std::shared_ptr<VerbsDevice> device, const VerbsPlace& place,
                     const VerbsGeometry& geometry, std::span<std::byte> memory)
    : device_(std::move(device)), place_(place), geometry_(geometry), memory_(memory) {
  const auto own = static_cast<std::uint8_t>(place.identity.rank);
  const auto peer = static_cast<std::uint8_t>(place.peer);
  for (VerbsTrailer* trailer : {&outgoing_, &incoming_}) {
    trailer->job[0] = place.identity.job.words[0];
    trailer->job[1] = place.identity.job.words[1];
    trailer->epoch = place.identity.epoch;
    trailer->rail = static_cast<std::uint8_t>(place.rail);
  }
  outgoing_.source = incoming_.target = own;
  outgoing_.target = incoming_.source = peer;
}

std::span<std::byte> VerbsRail::receive_slot(std::uint32_t slot) const {
  return memory_.subspan(std::size_t{slot} * geometry_.slot_bytes, geometry_.slot_bytes);
}

std::span<std::byte> VerbsRail::send_slot(std::uint32_t slot) const {
  // Behind the receive slots that were asked for, also if fewer are used.
  const std::size_t sends = std::size_t{geometry_.send_slots} * geometry_.slot_bytes;
  return memory_.last(sends).subspan(std::size_t{slot} * geometry_.slot_bytes,
                                     geometry_.slot_bytes);
}

VerbsBuffer VerbsRail::buffer(std::span<std::byte> slot) const {
  return {slot.data(), geometry_.slot_bytes, device_->region_key()};
}

Error VerbsRail::fault(ErrorCode code, std::string_view what) const {
  return Error{code,
               fmt::format("rank {} over verbs, rail {} ({}): {}", place_.peer, place_.rail,
                           device_->name(), what),
               place_.peer};
}

Result<VerbsQueueOffer> VerbsRail::create_queue(VerbsQpType type) {
  queue_.reset();
  const auto frames = static_cast<std::uint32_t>(geometry_.slot_bytes / kVerbsFrameBytes);
  SINEW_ASSIGN(queue_, VerbsQueue::create(
                           device_, type,
                           {geometry_.send_slots * frames, geometry_.receive_slots * frames}));
  const VerbsDepth budget = queue_->budget();
  const std::uint32_t receives = std::min(geometry_.receive_slots, budget.receive_frames / frames);
  const std::uint32_t sends = std::min(geometry_.send_slots, budget.send_frames / frames);
  if (receives < kVerbsReceiveSlotsMin || sends == 0) {
    return fail(ErrorCode::kUnsupported,
                "verbs: {} grants a quarter of {} receive and {} send frames, too few for slots of "
                "{} bytes: make them smaller (--verbs-slot)",
                device_->name(), budget.receive_frames * 4, budget.send_frames * 4,
                geometry_.slot_bytes);
  }
  geometry_.receive_slots = receives;
  geometry_.send_slots = sends;
  std::random_device random;
  outgoing_.queue = random();
  return VerbsQueueOffer{queue_->number(), outgoing_.queue, receives};
}

Status VerbsRail::connect(const VerbsQueueOffer& peer, VerbsRoute route) {
  if (peer.receive_slots < kVerbsReceiveSlotsMin) {
    return fail(
        fault(ErrorCode::kProtocol, fmt::format("it offers {} receive slots", peer.receive_slots)));
  }
  peer_slots_ = peer.receive_slots;
  incoming_.queue = peer.nonce;
  incoming_.number = outgoing_.number = 0;
  sent_ = arrived_ = 0;
  data_sent_ = data_acked_ = notes_sent_ = notes_acked_ = 0;
  data_taken_ = data_told_ = notes_taken_ = 0;
  warmed_up_ = false;
  first_arrival_ = arrival_count_ = 0;
  arrivals_.assign(geometry_.receive_slots, {});
  free_sends_.clear();
  for (std::uint32_t slot = 0; slot < geometry_.send_slots; ++slot) free_sends_.push_back(slot);

  route.peer_number = peer.number;
  route.peer_psn = peer.psn();
  route.own_psn = outgoing_.queue & 0xffffff;
  SINEW_TRY(queue_->connect(route));
  for (std::uint32_t slot = 0; slot < geometry_.receive_slots; ++slot) {
    SINEW_TRY(post_receive(slot));
  }
  return {};
}

Status VerbsRail::post_receive(std::uint32_t slot) {
  const std::span<std::byte> memory = receive_slot(slot);
  poison_slot(memory);
  const int error = device_->provider().post_receive(queue_->qp(), slot, buffer(memory));
  if (error == 0) return {};
  Error failed = explain_verbs(VerbsCall::kPostReceive, error, device_->name());
  failed.rank = place_.peer;
  return fail(std::move(failed));
}

Status VerbsRail::send_slot_as(VerbsTrailer::Kind kind, std::size_t payload_bytes) {
  SINEW_ASSERT(!free_sends_.empty());
  const std::uint32_t slot = free_sends_.back();
  outgoing_.kind = kind;
  outgoing_.payload_bytes = static_cast<std::uint32_t>(payload_bytes);
  outgoing_.data_taken = data_taken_;
  outgoing_.notes_taken = notes_taken_;
  const std::span<std::byte> memory = send_slot(slot);
  seal_slot(memory, outgoing_);
  const int error = device_->provider().post_send(queue_->qp(), kSendId | slot, buffer(memory));
  if (error != 0) {
    Error failed = explain_verbs(VerbsCall::kPostSend, error, device_->name());
    failed.rank = place_.peer;
    return fail(std::move(failed));
  }
  free_sends_.pop_back();
  ++outgoing_.number;
  ++sent_;
  data_told_ = data_taken_;
  return {};
}

Status VerbsRail::send_warm_up() {
  const std::size_t bytes = verbs_payload_max(geometry_.slot_bytes);
  const std::span<std::byte> memory = send_slot(free_sends_.back());
  for (std::size_t at = 0; at < bytes; ++at) memory[at] = warm_up_byte(at, outgoing_.queue);
  return send_slot_as(VerbsTrailer::Kind::kWarmUp, bytes);
}

std::span<std::byte> VerbsRail::free_slot() {
  if (free_sends_.empty() || data_sent_ - data_acked_ >= window()) return {};
  return send_slot(free_sends_.back()).first(verbs_payload_max(geometry_.slot_bytes));
}

Status VerbsRail::send(std::size_t payload_bytes) {
  SINEW_TRY(send_slot_as(VerbsTrailer::Kind::kData, payload_bytes));
  ++data_sent_;
  return {};
}

bool VerbsRail::note_due() const {
  const std::uint32_t own_window = geometry_.receive_slots - kVerbsSpareSlots;
  return data_taken_ - data_told_ >= std::max(own_window / 2, 1u) && notes_sent_ == notes_acked_;
}

Status VerbsRail::send_note() {
  if (free_sends_.empty()) return {};
  SINEW_TRY(send_slot_as(VerbsTrailer::Kind::kNote, 0));
  ++notes_sent_;
  return {};
}

Result<bool> VerbsRail::poll() {
  bool any = false;
  std::array<VerbsCompletion, kPollBatch> batch;
  // Bounded: there are no more completions than slots.
  for (std::uint32_t seen = 0; seen <= geometry_.receive_slots + geometry_.send_slots;) {
    const int count = device_->provider().poll_cq(queue_->cq(), batch);
    if (count < 0) return fail(fault(ErrorCode::kPeerLost, "the completion queue is broken"));
    if (count == 0) break;
    any = true;
    seen += static_cast<std::uint32_t>(count);
    for (const VerbsCompletion& done : std::span(batch).first(static_cast<std::size_t>(count))) {
      const auto slot = static_cast<std::uint32_t>(done.id & ~kSendId);
      if (done.status != 0) {
        return fail(fault(ErrorCode::kPeerLost, explain_completion(done.status)));
      }
      if ((done.id & kSendId) != 0) {
        SINEW_ASSERT(slot < geometry_.send_slots);
        free_sends_.push_back(slot);
      } else {
        SINEW_ASSERT(slot < geometry_.receive_slots);
        SINEW_TRY(receive(slot, done.bytes));
      }
    }
    if (count < static_cast<int>(kPollBatch)) break;
  }
  return any;
}

Status VerbsRail::receive(std::uint32_t slot, std::uint32_t bytes) {
  if (bytes != geometry_.slot_bytes) {
    return fail(fault(ErrorCode::kProtocol, fmt::format("a message of {} bytes, slots have {}",
                                                        bytes, geometry_.slot_bytes)));
  }
  VerbsTrailer came;
  SINEW_ASSIGN(const SlotVerdict verdict, check_slot(receive_slot(slot), incoming_, came));
  if (verdict == SlotVerdict::kExpected) return accept(slot, came);
  ++dropped_;
  return post_receive(slot);
}

Status VerbsRail::accept(std::uint32_t slot, const VerbsTrailer& came) {
  if (came.data_taken - data_acked_ > data_sent_ - data_acked_ ||
      came.notes_taken - notes_acked_ > notes_sent_ - notes_acked_) {
    return fail(fault(ErrorCode::kProtocol,
                      fmt::format("it says it took {} messages and {} notes of {} and {} sent",
                                  came.data_taken, came.notes_taken, data_sent_, notes_sent_)));
  }
  ++incoming_.number;
  ++arrived_;
  data_acked_ = came.data_taken;
  notes_acked_ = came.notes_taken;
  switch (came.kind) {
    case VerbsTrailer::Kind::kData: {
      if (came.payload_bytes == 0 || arrival_count_ == arrivals_.size()) {
        return fail(fault(ErrorCode::kProtocol, "it sent an empty message, or more than it may"));
      }
      const std::size_t last = (first_arrival_ + arrival_count_) % arrivals_.size();
      arrivals_[last] = {slot, came.payload_bytes};
      ++arrival_count_;
      return {};
    }
    case VerbsTrailer::Kind::kNote:
      SINEW_TRY(post_receive(slot));
      ++notes_taken_;
      return {};
    case VerbsTrailer::Kind::kWarmUp: {
      const std::span<const std::byte> payload = receive_slot(slot).first(came.payload_bytes);
      for (std::size_t at = 0; at < payload.size(); ++at) {
        if (payload[at] != warm_up_byte(at, came.queue)) {
          return fail(fault(ErrorCode::kIntegrity, "its warm-up message is damaged"));
        }
      }
      warmed_up_ = payload.size() == verbs_payload_max(geometry_.slot_bytes);
      return post_receive(slot);
    }
  }
  return {};
}

std::span<const std::byte> VerbsRail::front() const {
  if (arrival_count_ == 0) return {};
  const Arrival& arrival = arrivals_[first_arrival_];
  return receive_slot(arrival.slot).first(arrival.bytes);
}

Status VerbsRail::take_front() {
  SINEW_TRY(post_receive(arrivals_[first_arrival_].slot));
  drop_front();
  ++data_taken_;
  return {};
}

void VerbsRail::drop_front() {
  first_arrival_ = (first_arrival_ + 1) % arrivals_.size();
  --arrival_count_;
}

}  // namespace sinew
