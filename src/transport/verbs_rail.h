#pragma once

#include <memory>
#include <span>
#include <vector>

#include "transport/verbs_device.h"
#include "transport/verbs_side.h"
#include "transport/verbs_trailer.h"

namespace sinew {

// The slots of one queue pair; both sides use the same slot size.
struct VerbsGeometry {
  std::uint32_t slot_bytes = 16u << 10;
  std::uint32_t receive_slots = 8;
  std::uint32_t send_slots = 2;  // messages in flight
};
// A receive slot for the peer's note and one for a message of an earlier life that may take one.
inline constexpr std::uint32_t kVerbsSpareSlots = 2;
inline constexpr std::uint32_t kVerbsReceiveSlotsMin = kVerbsSpareSlots + 2;

// Whom a rail joins: one of the cables between this rank and a peer.
struct VerbsPlace {
  GroupIdentity identity;
  Rank peer = 0;
  int rail = 0;
};

// What a side tells the other about its end of a queue pair.
struct VerbsQueueOffer {
  std::uint32_t number = 0;
  std::uint32_t nonce = 0;  // its low 24 bits are the first packet number
  std::uint32_t receive_slots = 0;

  std::uint32_t psn() const { return nonce & 0xffffff; }
};

// One cable between this rank and a peer: whole slots through one queue pair, in order.
//
// Flow control. A side may have `receive_slots - kVerbsSpareSlots` data messages on the way and one
// note; every message says how many of each its sender has taken and posted receives for again, so
// no SEND can meet an empty queue. A side that only receives owes its peer a note once half of the
// data window is taken but not told. That cannot stop: let A have data to send and a full window of
// D, all of it taken by B. If B has not told of u of them, u >= D/2 (else A's window would not be
// full), so B owes a note, and can send it unless its last note is not known to be taken. But A,
// which has taken that note, could send data afterwards: the note told of at least D/2 more taken
// than before, and A had at most D on the way when it took it, so its window was open. A's next
// message then tells B that the note was taken.
class VerbsRail {
 public:
  // Takes its slots from the device's arena; geometry.receive_slots may be lowered to what the
  // device grants.
  static Result<std::unique_ptr<VerbsRail>> make(std::shared_ptr<VerbsDevice> device,
                                                 const VerbsPlace& place,
                                                 const VerbsGeometry& geometry);
  // Arena bytes of one rail.
  static std::size_t arena_bytes(const VerbsGeometry& geometry);

  // A fresh queue pair and what the peer must know of it.
  Result<VerbsQueueOffer> create_queue(VerbsQpType type);
  // Joins it to the peer's, poisons all slots, then posts all receives.
  Status connect(const VerbsQueueOffer& peer, VerbsRoute route);
  // One full slot each way: a fresh queue pair is known to deliver nothing now and then.
  Status send_warm_up();
  bool warmed_up() const { return warmed_up_; }
  // Gives the queue pair up; another may be created.
  void drop_queue() { queue_.reset(); }

  // The payload of a slot to fill and send, or nothing while the peer has no room or all slots are
  // on the way.
  std::span<std::byte> free_slot();
  // Sends the first `payload_bytes` of it.
  Status send(std::size_t payload_bytes);
  // Whether the peer should be told what was taken, and may be.
  bool note_due() const;
  // Tells it, if a slot is free.
  Status send_note();

  // Takes completions: kPeerLost, kIntegrity, kProtocol once the queue pair or the peer is at
  // fault. True if there were any.
  Result<bool> poll();
  // The payload of the oldest data message, or nothing.
  std::span<const std::byte> front() const;
  // Posts the slot of `front` again.
  Status take_front();
  // Only goes on to the next one: after a fault nothing is posted.
  void drop_front();

  bool sends_done() const { return free_sends_.size() == geometry_.send_slots; }
  // Messages of this queue pair so far.
  std::uint64_t sent() const { return sent_; }
  std::uint64_t arrived() const { return arrived_; }
  // Messages of earlier lives that came and were dropped.
  std::uint64_t dropped() const { return dropped_; }

  const VerbsDevice& device() const { return *device_; }
  VerbsCqHandle* cq() const { return queue_->cq(); }

 private:
  VerbsRail(std::shared_ptr<VerbsDevice> device, const VerbsPlace& place,
            const VerbsGeometry& geometry, std::span<std::byte> memory);

  std::span<std::byte> receive_slot(std::uint32_t slot) const;
  std::span<std::byte> send_slot(std::uint32_t slot) const;
  VerbsBuffer buffer(std::span<std::byte> slot) const;
  Status post_receive(std::uint32_t slot);
  Status send_slot_as(VerbsTrailer::Kind kind, std::size_t payload_bytes);
  Status receive(std::uint32_t slot, std::uint32_t bytes);
  Status accept(std::uint32_t slot, const VerbsTrailer& came);
  std::uint32_t window() const { return peer_slots_ - kVerbsSpareSlots; }
  Error fault(ErrorCode code, std::string_view what) const;

  std::shared_ptr<VerbsDevice> device_;  // shared by the rails on it
  VerbsPlace place_;
  VerbsGeometry geometry_;
  std::span<std::byte> memory_;  // receive slots, then send slots
  std::unique_ptr<VerbsQueue> queue_;
  std::uint32_t peer_slots_ = kVerbsReceiveSlotsMin;

  VerbsTrailer outgoing_;  // identity of what this side sends
  VerbsTrailer incoming_;  // and of what it expects
  bool warmed_up_ = false;

  std::vector<std::uint32_t> free_sends_;
  std::uint64_t sent_ = 0;
  std::uint32_t data_sent_ = 0, data_acked_ = 0;  // acked: the peer said that it took them
  std::uint32_t notes_sent_ = 0, notes_acked_ = 0;

  // Data that came and is not taken: a ring of slots, as many as there are.
  struct Arrival {
    std::uint32_t slot = 0;
    std::uint32_t bytes = 0;
  };
  std::vector<Arrival> arrivals_;
  std::size_t first_arrival_ = 0;
  std::size_t arrival_count_ = 0;
  std::uint64_t arrived_ = 0;
  std::uint64_t dropped_ = 0;
  std::uint32_t data_taken_ = 0, data_told_ = 0;
  std::uint32_t notes_taken_ = 0;
};

}  // namespace sinew
