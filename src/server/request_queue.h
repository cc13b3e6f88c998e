#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "server/answer_sink.h"
#include "server/chat_answer.h"

namespace sinew {

// The engine's thread and the bounded line in front of it: one request is answered at a time, in
// order.
class RequestQueue {
 public:
  struct Entry {
    ChatAnswerer::Job job;
    std::shared_ptr<AnswerSink> sink;  // shared with the connection that sends what it is given
  };
  using Serve = std::function<void(const ChatAnswerer::Job&, AnswerSink&)>;

  // `serve` runs on the queue's own thread.
  RequestQueue(std::size_t waiting_max, Serve serve);
  ~RequestQueue();

  // False if the line is full or closed. Entries whose clients left make room.
  bool push(Entry entry);
  // Refuses new entries, fails those that wait, and waits for the running one, which must end by
  // itself (the engine keeps deadlines for all it waits for).
  void close();
  std::size_t waiting() const;

 private:
  void run();

  const std::size_t waiting_max_;
  const Serve serve_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Entry> entries_;
  bool closed_ = false;
  std::thread thread_;
};

}  // namespace sinew
