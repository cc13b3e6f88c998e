#pragma once

#include <string_view>

#include "api/api_error.h"
#include "server/http_message.h"

namespace sinew {

// Where the answer of one chat request goes. The engine's thread calls it; no call waits for the
// client. Every answer ends with exactly one of finish_stream, reply, fail.
class AnswerSink {
 public:
  virtual ~AnswerSink() = default;

  // False once nobody reads the answer any more: the client left, or reads too slowly.
  virtual bool wanted() const = 0;
  // One event of a stream; the first one sends the HTTP header.
  virtual void event(std::string_view json) = 0;
  virtual void finish_stream() = 0;
  virtual void reply(HttpReply reply) = 0;
  // An HTTP error if nothing was sent yet, else an error event and the end of the stream.
  virtual void fail(const ApiError& error) = 0;
};

}  // namespace sinew
