#pragma once

#include <string>
#include <string_view>

#include "api/api_error.h"

namespace sinew {

// Server-sent events as bytes of an HTTP body. `chunked` wraps each in a chunk of HTTP/1.1, so that
// a client can tell the end of a stream from a broken connection; HTTP/1.0 has no chunks.
class SseWriter {
 public:
  explicit SseWriter(bool chunked) : chunked_(chunked) {}

  std::string event(std::string_view json) const;
  // A comment: keeps proxies and clients from giving up on a long prefill.
  std::string keep_alive() const;
  // "[DONE]" and the end of the body.
  std::string finish() const;
  // The error as an event, then as finish(): a stream never ends without either.
  std::string fail(const ApiError& error) const;

 private:
  std::string frame(std::string_view payload) const;
  bool chunked_;
};

}  // namespace sinew
