#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/api_error.h"
#include "server/http_message.h"

namespace sinew {

// Who may talk to the server. A web page in the user's browser can reach a loopback port too: by a
// name that it rebinds to 127.0.0.1 (the Host header gives it away), or by a plain cross-origin
// request (the Origin header does).
struct AccessRules {
  bool loopback_only = true;                      // the server listens on loopback
  std::string api_key = {};                       // empty: none is asked for
  std::vector<std::string> allowed_hosts = {};    // names beside localhost and loopback addresses
  std::vector<std::string> allowed_origins = {};  // like "https://chat.example"; "*" for any
};

// "name:port", "[::1]:port", "name" -> the name in lower case, without brackets.
std::string host_name(std::string_view host_and_port);
bool is_loopback_name(std::string_view name);

// Whether a page of this origin may use the API: local pages, pages of the server's own name, and
// those allowed.
bool origin_allowed(const AccessRules& rules, const HttpRequest& request);

// The refusal, if there is one: 403 for host and origin, 401 for the key.
std::optional<ApiError> refuse_access(const AccessRules& rules, const HttpRequest& request);

}  // namespace sinew
