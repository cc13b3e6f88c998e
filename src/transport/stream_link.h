#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <vector>

#include "collective/group.h"
#include "collective/link.h"
#include "transport/spin.h"

namespace sinew {

class StreamLink;

// What one attempt to move bytes has come to.
enum class Progress : std::uint8_t {
  kNone,  // nothing moved
  kSome,  // something moved, more is left
  kDone,  // nothing is left, or an error was kept
};

enum class Direction : std::uint8_t { kSend, kReceive };

// How a rank sleeps while it waits for a link of one kind; one object a kind and rank, which the
// links of that kind share.
class LinkSleeper {
 public:
  virtual ~LinkSleeper() = default;

  // Asks to be woken by news of `awaited` from now on. The caller looks once more before it sleeps,
  // because news may have come just before.
  virtual void arm(const StreamLink& awaited) = 0;
  // Takes that back: the caller will not sleep after all, or has slept.
  virtual void disarm() = 0;
  // Sleeps until `awaited` may have moved on in `direction`, a pending send of the same kind may,
  // or `until` has passed; or without cause. May end earlier than `until` by a bound of its own.
  virtual void sleep(const StreamLink& awaited, Direction direction, Deadline until) = 0;
};

// A rank that may be told to stop waiting looks this often whether it was: nothing wakes it for
// that.
inline constexpr std::chrono::milliseconds kStopLookInterval{20};

// What the links of one rank share, whatever their kind: a wait for one of them moves the pending
// sends of all. A kind wakes the rank only while a link of that kind is awaited, so a sleep is
// short while a link of another kind has something pending.
//
// Threads: one, as for the links.
class LinkHub {
 public:
  // `ranks`: how many of the group may run on this host.
  explicit LinkHub(int ranks) : spin_(ranks) {}
  LinkHub(const LinkHub&) = delete;
  LinkHub& operator=(const LinkHub&) = delete;

  // Every wait ends with kCancelled once `flag`, which outlives the hub, is true: a signal handler
  // or another thread may set it.
  void stop_when(const std::atomic<bool>& flag) { stop_ = &flag; }

 private:
  friend class StreamLink;
  // Calls `attempt` until it is done, or `deadline` passes: kDeadline.
  template <typename Attempt>
  Status wait(StreamLink& link, Direction direction, Deadline deadline, const Attempt& attempt);
  Deadline sleep_end(const LinkSleeper& sleeper, Deadline now, Deadline deadline) const;

  Spin spin_;
  std::vector<StreamLink*> links_;  // the living ones
  const std::atomic<bool>* stop_ = nullptr;
};

// A link that moves bytes whenever it can and never waits by itself: what is pending, which errors
// are kept, and waiting are the same for every kind. A kind implements `push`, `pull` and its
// sleeper.
class StreamLink : public Link {
 public:
  ~StreamLink() override;

  Rank peer() const final { return peer_; }
  bool sending() const final { return !head_left_.empty() || !body_left_.empty(); }
  Status start_send(std::span<const std::byte> head, std::span<const std::byte> body) final;
  Status finish_send(Deadline deadline) final;
  Status receive(std::span<std::byte> into, Deadline deadline) final;

 protected:
  StreamLink(std::shared_ptr<LinkHub> hub, Rank peer);

  // Moves what goes of the pending send without waiting. Called only while `pending()`.
  virtual Progress push() = 0;
  // Moves what has come into the front of `left`, which is not empty, and takes it off.
  virtual Progress pull(std::span<std::byte>& left) = 0;
  virtual LinkSleeper& sleeper() = 0;
  // Whether `push` may have something to do: more than `sending()` for a kind that owes its peer
  // messages of its own.
  virtual bool pending() const { return sending(); }
  // Before a sleep: gives the peer what it may be waiting for.
  virtual void settle() {}

  // What is left of the pending send.
  std::span<const std::byte> head_left() const { return head_left_; }
  std::span<const std::byte> body_left() const { return body_left_; }
  // Takes bytes off its front: they have left the caller's buffers.
  void take(std::size_t count);

  // Keep an error for this and every later call of that direction; always kDone.
  Progress stop_sending(Error error);
  Progress stop_receiving(Error error);
  Error lost(std::string_view why) const;

 private:
  friend class LinkHub;

  // Shared by the links of a rank, which are destroyed one by one.
  std::shared_ptr<LinkHub> hub_;
  Rank peer_;
  std::span<const std::byte> head_left_;
  std::span<const std::byte> body_left_;
  std::optional<Error> send_error_;
  std::optional<Error> receive_error_;
};

// The peers to which a rank makes links of one kind, and the hub that they share with its links of
// other kinds.
struct LinkShare {
  std::shared_ptr<LinkHub> hub;
  RankSet peers;

  // Links of one kind to every other rank.
  static LinkShare everyone(const GroupIdentity& identity);
};

// Moves the links of `more` into the empty places of `into`, which no link may want twice.
void add_links(Links& into, Links more);

}  // namespace sinew
