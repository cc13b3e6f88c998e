#pragma once

#include <cstddef>
#include <functional>
#include <variant>

#include "server/access.h"
#include "server/chat_answer.h"
#include "server/http_message.h"
#include "server/served_model.h"

namespace sinew {

// What an edge knows and a route needs: passed in, so that routes are the same in tests.
struct RouteSources {
  std::function<std::int64_t()> now_seconds;  // since 1970, UTC
  std::function<std::uint64_t()> random;      // for ids, and seeds of requests without one
  std::function<std::size_t()> waiting;       // requests in the line
};

// From a request to an answer, or to a job for the engine. Reads nothing but its arguments.
//
// Threads: one at a time (the HTTP thread).
class Routes {
 public:
  Routes(const ServedModel& model, AccessRules rules, const SamplingParams& defaults,
         RouteSources sources);

  std::variant<HttpReply, ChatAnswerer::Job> handle(const HttpRequest& request) const;

  // The CORS headers that the answer to `request` carries; none for a page that may not read it.
  std::vector<std::pair<std::string, std::string>> cors_headers(const HttpRequest& request) const;

 private:
  std::variant<HttpReply, ChatAnswerer::Job> chat(const HttpRequest& request) const;
  HttpReply health() const;
  HttpReply model(std::string_view escaped_id) const;
  ModelCard card() const;

  const ServedModel model_;
  const AccessRules rules_;
  const SamplingParams defaults_;
  const RouteSources sources_;
};

}  // namespace sinew
