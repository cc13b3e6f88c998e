#pragma once

#include <string>
#include <utility>
#include <vector>

#include "api/api_error.h"

namespace sinew {

// What the routes see of a request, and what they answer: nothing of the HTTP library.
struct HttpRequest {
  std::string method;  // as sent: "GET"
  std::string target;  // path and query, as sent
  std::string host;    // headers; empty if absent
  std::string origin;
  std::string authorization;
  std::string body;
};

struct HttpReply {
  int status = 200;
  std::vector<std::pair<std::string, std::string>> headers = {};
  std::string body = {};  // JSON, or empty
};

HttpReply reply_of(const ApiError& error);

}  // namespace sinew
