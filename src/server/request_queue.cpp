#include "server/request_queue.h"

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

namespace sinew {

RequestQueue::RequestQueue(std::size_t waiting_max, Serve serve)
    : waiting_max_(waiting_max), serve_(std::move(serve)), thread_([this] { run(); }) {}

RequestQueue::~RequestQueue() {
  close();
}

bool RequestQueue::push(Entry entry) {
  std::vector<Entry> abandoned;  // destroyed after the lock is released
  const std::lock_guard lock(mutex_);
  if (closed_) return false;
  const auto gone =
      std::stable_partition(entries_.begin(), entries_.end(),
                            [](const Entry& waiting) { return waiting.sink->wanted(); });
  std::move(gone, entries_.end(), std::back_inserter(abandoned));
  entries_.erase(gone, entries_.end());
  if (entries_.size() >= waiting_max_) return false;
  entries_.push_back(std::move(entry));
  changed_.notify_one();
  return true;
}

std::size_t RequestQueue::waiting() const {
  const std::lock_guard lock(mutex_);
  return entries_.size();
}

void RequestQueue::close() {
  std::deque<Entry> refused;
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    refused.swap(entries_);
  }
  changed_.notify_one();
  for (const Entry& entry : refused) {
    entry.sink->fail(to_api_error(Error{ErrorCode::kCancelled, "the server is stopping", {}}));
  }
  if (thread_.joinable()) thread_.join();
}

void RequestQueue::run() {
  for (;;) {
    Entry entry;
    {
      std::unique_lock lock(mutex_);
      // Without a deadline: an idle server waits for its next request or for close().
      changed_.wait(lock, [this] { return closed_ || !entries_.empty(); });
      if (closed_) return;
      entry = std::move(entries_.front());
      entries_.pop_front();
    }
    if (entry.sink->wanted()) serve_(entry.job, *entry.sink);
  }
}

}  // namespace sinew
