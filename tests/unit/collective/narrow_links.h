#pragma once

#include <algorithm>
#include <array>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "base/limits.h"
#include "collective/mesh_group.h"

namespace sinew::testing {

// Pipes between threads that hold few bytes, so that whoever waits for the wrong thing waits for
// ever, which a deadline ends.
class NarrowLinks {
 public:
  NarrowLinks(int size, std::size_t capacity) : size_(size), capacity_(capacity) {}

  int size() const { return size_; }
  // The links of `rank` to the ranks that `joined` says it has one to.
  template <typename Joined>
  Links links(Rank rank, const Joined& joined) {
    Links own(static_cast<std::size_t>(size_));
    for (Rank peer = 0; peer < size_; ++peer)
      if (peer != rank && joined(rank, peer))
        own[static_cast<std::size_t>(peer)] = std::make_unique<End>(*this, rank, peer);
    return own;
  }

 private:
  class End final : public Link {
   public:
    End(NarrowLinks& net, Rank own, Rank peer) : net_(net), own_(own), peer_(peer) {
      const std::lock_guard lock(net_.mutex_);
      net_.ends_[index(own_)].push_back(this);
    }
    ~End() override {
      const std::lock_guard lock(net_.mutex_);
      std::erase(net_.ends_[index(own_)], this);
      net_.pipe(own_, peer_).closed = true;
      net_.changed_.notify_all();
    }
    Rank peer() const override { return peer_; }
    std::string_view kind() const override { return "narrow"; }
    // Some of them, so that messages are handed on from links with checksums to links without.
    bool vouches() const override { return std::min(own_, peer_) % 2 == 0; }
    bool sending() const override { return !head_.empty() || !body_.empty(); }
    Status start_send(std::span<const std::byte> head, std::span<const std::byte> body) override {
      const std::lock_guard lock(net_.mutex_);
      EXPECT_FALSE(sending()) << "one send at a time";
      head_ = head;
      body_ = body;
      pump();
      return {};
    }
    Status finish_send(Deadline deadline) override {
      return wait(deadline, [&] { return !sending(); });
    }
    Status receive(std::span<std::byte> into, Deadline deadline) override {
      auto& pipe = net_.pipe(peer_, own_);
      return wait(deadline, [&] {
        const std::size_t count = std::min(into.size(), pipe.bytes.size());
        const auto end = pipe.bytes.begin() + static_cast<std::ptrdiff_t>(count);
        std::copy(pipe.bytes.begin(), end, into.begin());
        pipe.bytes.erase(pipe.bytes.begin(), end);
        into = into.subspan(count);
        if (count > 0) net_.changed_.notify_all();
        return into.empty();
      });
    }

   private:
    static std::size_t index(Rank rank) { return static_cast<std::size_t>(rank); }
    void pump() {
      auto& pipe = net_.pipe(own_, peer_);
      for (auto* part : {&head_, &body_}) {
        const std::size_t count = std::min(part->size(), net_.capacity_ - pipe.bytes.size());
        pipe.bytes.insert(pipe.bytes.end(), part->begin(),
                          part->begin() + static_cast<std::ptrdiff_t>(count));
        *part = part->subspan(count);
        if (count > 0) net_.changed_.notify_all();
      }
    }
    template <typename Done>
    Status wait(Deadline deadline, const Done& done) {
      std::unique_lock lock(net_.mutex_);
      while (true) {
        for (End* end : net_.ends_[index(own_)]) end->pump();
        if (done()) return {};
        if (net_.pipe(peer_, own_).closed)
          return fail(
              Error{ErrorCode::kPeerLost, fmt::format("rank {} closed its link", peer_), peer_});
        if (net_.changed_.wait_until(lock, deadline) == std::cv_status::timeout)
          return fail(Error{ErrorCode::kDeadline, "late", peer_});
      }
    }

    NarrowLinks& net_;
    Rank own_;
    Rank peer_;
    std::span<const std::byte> head_;
    std::span<const std::byte> body_;
  };
  struct Pipe {
    std::deque<std::byte> bytes;
    bool closed = false;
  };
  Pipe& pipe(Rank from, Rank to) {
    return pipes_[static_cast<std::size_t>(from)][static_cast<std::size_t>(to)];
  }

  int size_;
  std::size_t capacity_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::array<std::array<Pipe, kRankCountMax>, kRankCountMax> pipes_;
  std::array<std::vector<End*>, kRankCountMax> ends_;
};

// How the ranks of a test are joined.
enum class Cabling { kMesh, kRing, kLine };

inline bool joined(Cabling cabling, int size, Rank a, Rank b) {
  const int apart = a < b ? b - a : a - b;
  return cabling == Cabling::kMesh || apart == 1 ||
         (cabling == Cabling::kRing && apart == size - 1);
}

// The plan that makes ranks with such cables use one algorithm for all lengths.
inline CollectivePlan plan_for(Cabling cabling, int size, Algorithm algorithm) {
  CollectivePlan plan;
  for (Rank a = 0; a < size; ++a)
    for (Rank b = 0; b < size; ++b)
      if (a != b && joined(cabling, size, a, b))
        plan.linked[static_cast<std::size_t>(a)] = plan.linked[static_cast<std::size_t>(a)].with(b);
  if (algorithm == Algorithm::kOneShot) plan.one_shot_max.fill(~std::uint64_t{0});
  if (algorithm == Algorithm::kRing) plan.ring_max.fill(~std::uint64_t{0});
  return plan;
}

template <typename Body>
void run_as_ranks(int size, const Body& body) {
  std::vector<std::thread> threads;
  for (Rank rank = 0; rank < size; ++rank) threads.emplace_back([&body, rank] { body(rank); });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace sinew::testing
