#include "server/sse.h"

#include <fmt/format.h>

namespace sinew {

std::string SseWriter::frame(std::string_view payload) const {
  if (!chunked_) return std::string(payload);
  return fmt::format("{:x}\r\n{}\r\n", payload.size(), payload);
}

std::string SseWriter::event(std::string_view json) const {
  return frame(fmt::format("data: {}\n\n", json));
}

std::string SseWriter::keep_alive() const {
  return frame(": keep-alive\n\n");
}

std::string SseWriter::finish() const {
  std::string bytes = event("[DONE]");
  if (chunked_) bytes += "0\r\n\r\n";
  return bytes;
}

std::string SseWriter::fail(const ApiError& error) const {
  return event(error_body(error)) + finish();
}

}  // namespace sinew
