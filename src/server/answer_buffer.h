#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "server/answer_sink.h"
#include "server/sse.h"

namespace sinew {

// How the answer to one request is written.
struct AnswerForm {
  unsigned version = 11;    // of HTTP: 10 or 11
  bool head = false;        // the header only
  bool keep_alive = false;  // for whole answers; the end of a stream closes the connection
  std::vector<std::pair<std::string, std::string>> cors = {};
  std::size_t pending_bytes_max = 0;  // of a stream; a client that leaves more unread is given up
};

// The bytes of one HTTP answer between the thread that makes them and the one that owns the socket.
// Nobody waits: a client that reads too slowly fills the buffer, and is given up.
//
// Threads: any; `changed` is called without the lock held.
class AnswerBuffer final : public AnswerSink {
 public:
  AnswerBuffer(AnswerForm form, std::function<void()> changed);

  bool wanted() const override { return !gone_.load(); }
  void event(std::string_view json) override;
  void finish_stream() override;
  void reply(HttpReply reply) override;
  void fail(const ApiError& error) override;

  // For the socket's side.
  struct Output {
    std::string bytes;
    bool complete = false;  // nothing comes after these bytes
  };
  Output take();
  // A comment, if nothing was said since the last call. False once the answer is complete.
  bool keep_alive();
  // The client left.
  void abandon() { gone_ = true; }
  bool closes_connection() const { return !form_.keep_alive; }

 private:
  template <typename Change>
  void with_output(Change change);
  void begin_stream();
  void put_reply(const HttpReply& reply);

  const AnswerForm form_;
  const SseWriter sse_;
  const std::function<void()> changed_;
  std::atomic<bool> gone_{false};
  std::mutex mutex_;  // guards what follows
  std::string output_;
  bool stream_begun_ = false;
  bool complete_ = false;
  bool quiet_ = true;
};

}  // namespace sinew
