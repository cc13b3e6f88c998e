#include "server/answer_buffer.h"

#include <fmt/format.h>

#include <iterator>

namespace sinew {
namespace {

using Headers = std::vector<std::pair<std::string, std::string>>;

const char* reason_of(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 204:
      return "No Content";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 413:
      return "Content Too Large";
    case 429:
      return "Too Many Requests";
    case 431:
      return "Request Header Fields Too Large";
    case 501:
      return "Not Implemented";
    case 503:
      return "Service Unavailable";
    default:
      return status < 500 ? "Refused" : "Server Error";
  }
}

std::string header_text(int status, unsigned version, const Headers& headers) {
  std::string text = fmt::format("HTTP/1.{} {} {}\r\nServer: sinew\r\n", version >= 11 ? 1 : 0,
                                 status, reason_of(status));
  for (const auto& [name, value] : headers) {
    fmt::format_to(std::back_inserter(text), "{}: {}\r\n", name, value);
  }
  return text + "\r\n";
}

}  // namespace

AnswerBuffer::AnswerBuffer(AnswerForm form, std::function<void()> changed)
    : form_(std::move(form)), sse_(form_.version >= 11), changed_(std::move(changed)) {}

template <typename Change>
void AnswerBuffer::with_output(Change change) {
  {
    const std::lock_guard lock(mutex_);
    if (complete_ || gone_) return;
    change();
    quiet_ = false;
  }
  changed_();
}

void AnswerBuffer::begin_stream() {
  if (std::exchange(stream_begun_, true)) return;
  Headers headers = form_.cors;
  headers.emplace_back("Content-Type", "text/event-stream");
  headers.emplace_back("Cache-Control", "no-cache");
  headers.emplace_back("X-Accel-Buffering", "no");  // nginx would hold events back
  headers.emplace_back("Connection", "close");
  if (form_.version >= 11) headers.emplace_back("Transfer-Encoding", "chunked");
  output_ += header_text(200, form_.version, headers);
}

void AnswerBuffer::put_reply(const HttpReply& reply) {
  Headers headers = form_.cors;
  headers.insert(headers.end(), reply.headers.begin(), reply.headers.end());
  if (!reply.body.empty()) headers.emplace_back("Content-Type", "application/json");
  if (reply.status != 204)
    headers.emplace_back("Content-Length", std::to_string(reply.body.size()));
  headers.emplace_back("Connection", form_.keep_alive ? "keep-alive" : "close");
  output_ += header_text(reply.status, form_.version, headers);
  if (!form_.head) output_ += reply.body;
  complete_ = true;
}

void AnswerBuffer::event(std::string_view json) {
  with_output([&] {
    begin_stream();
    output_ += sse_.event(json);
    if (output_.size() > form_.pending_bytes_max) gone_ = true;
  });
}

void AnswerBuffer::finish_stream() {
  with_output([&] {
    begin_stream();
    output_ += sse_.finish();
    complete_ = true;
  });
}

void AnswerBuffer::reply(HttpReply reply) {
  with_output([&] { put_reply(reply); });
}

void AnswerBuffer::fail(const ApiError& error) {
  with_output([&] {
    if (!stream_begun_) return put_reply(reply_of(error));
    output_ += sse_.fail(error);
    complete_ = true;
  });
}

AnswerBuffer::Output AnswerBuffer::take() {
  const std::lock_guard lock(mutex_);
  return {std::exchange(output_, {}), complete_};
}

bool AnswerBuffer::keep_alive() {
  const std::lock_guard lock(mutex_);
  if (complete_) return false;
  if (std::exchange(quiet_, true)) {
    begin_stream();
    output_ += sse_.keep_alive();
  }
  return true;
}

}  // namespace sinew
