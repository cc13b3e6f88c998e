#include "cluster/request_log.h"

namespace sinew {

RequestLog::Begin RequestLog::begin(Time now, RequestId id, Request& request) const {
  request.asked = now;
  return {id, newest_, request.prompt, request.tokens, request.tokens_max};
}

Result<std::optional<RequestLog::Begin>> RequestLog::submit(Time now, RequestId id,
                                                            std::vector<TokenId> prompt,
                                                            std::uint32_t tokens_max) {
  if (tokens_max == 0 || requests_.contains(id))
    return fail(ErrorCode::kInvalidRequest, "request {} is there already or asks for nothing", id);
  if (requests_.size() >= settings_.requests_max)
    return fail(ErrorCode::kInvalidRequest, "{} requests are running: try again later",
                requests_.size());
  Request& request = requests_[id];
  request = {std::move(prompt), {}, tokens_max, now, now};
  if (!running_) return std::optional<Begin>{};
  return std::optional(begin(now, id, request));
}

std::vector<RequestLog::Begin> RequestLog::epoch_started(Time now, Epoch epoch) {
  std::vector<Begin> begins;
  if (epoch <= newest_) return begins;
  newest_ = epoch;
  running_ = true;
  for (auto& [id, request] : requests_) begins.push_back(begin(now, id, request));
  return begins;
}

void RequestLog::epoch_ended(Epoch epoch) {
  if (epoch == newest_) running_ = false;
}

std::optional<RequestLog::Delivery> RequestLog::token(Time now, Epoch epoch, RequestId id,
                                                      std::uint32_t index, TokenId token,
                                                      bool last) {
  const auto it = requests_.find(id);
  if (it == requests_.end() || !running_ || epoch != newest_ || index != it->second.tokens.size())
    return std::nullopt;
  Request& request = it->second;
  request.tokens.push_back(token);
  request.progressed = request.asked = now;
  Delivery delivery{id, token, last || request.tokens.size() >= request.tokens_max, {}};
  if (delivery.ended) requests_.erase(it);
  return delivery;
}

RequestLog::Due RequestLog::tick(Time now) {
  Due due;
  for (auto it = requests_.begin(); it != requests_.end();) {
    Request& request = it->second;
    if (now - request.progressed >= settings_.recover_max) {
      due.failed.push_back(
          {it->first, std::nullopt, true,
           fail(ErrorCode::kDeadline, "no token for {} s: the model could not be served again",
                std::chrono::duration_cast<std::chrono::seconds>(settings_.recover_max).count())});
      it = requests_.erase(it);
      continue;
    }
    if (running_ && now - request.asked >= settings_.resend_after)
      due.again.push_back(begin(now, it->first, request));
    ++it;
  }
  return due;
}

}  // namespace sinew
