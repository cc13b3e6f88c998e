#include "server/access.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>

namespace sinew {
namespace {

// Takes the same time wherever the texts differ.
bool equal_secrets(std::string_view given, std::string_view key) {
  unsigned difference = given.size() == key.size() ? 0U : 1U;
  for (std::size_t i = 0; i < given.size(); ++i) {
    difference |= static_cast<unsigned char>(given[i]) ^
                  static_cast<unsigned>(static_cast<unsigned char>(key[i % key.size()]));
  }
  return difference == 0;
}

bool key_matches(std::string_view authorization, std::string_view key) {
  constexpr std::string_view kScheme = "bearer ";
  if (authorization.size() < kScheme.size()) return false;
  const bool scheme = std::equal(kScheme.begin(), kScheme.end(), authorization.begin(),
                                 [](char a, char b) { return a == (b | 0x20); });
  return scheme && equal_secrets(authorization.substr(kScheme.size()), key);
}

ApiError forbid(std::string message, const char* code) {
  return {
      .status = 403, .message = std::move(message), .type = "invalid_request_error", .code = code};
}

bool contains(const std::vector<std::string>& list, std::string_view item) {
  return std::find(list.begin(), list.end(), item) != list.end();
}

}  // namespace

std::string host_name(std::string_view host_and_port) {
  std::string_view name = host_and_port;
  if (name.starts_with('[')) {
    name = name.substr(1, std::min(name.find(']'), name.size()) - 1);
  } else {
    name = name.substr(0, name.find(':'));
  }
  std::string lower(name);
  for (char& c : lower) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c + ('a' - 'A'));
  }
  return lower;
}

bool is_loopback_name(std::string_view name) {
  if (name == "localhost" || name.ends_with(".localhost") || name == "::1") return true;
  if (!name.starts_with("127.")) return false;
  return name.find_first_not_of("0123456789.") == std::string_view::npos;
}

bool origin_allowed(const AccessRules& rules, const HttpRequest& request) {
  if (contains(rules.allowed_origins, "*") || contains(rules.allowed_origins, request.origin))
    return true;
  const auto scheme_end = request.origin.find("://");
  if (scheme_end == std::string::npos) return false;  // "null": a page without an origin
  const std::string name = host_name(std::string_view(request.origin).substr(scheme_end + 3));
  if (rules.loopback_only && is_loopback_name(name)) return true;
  return !name.empty() && name == host_name(request.host);
}

std::optional<ApiError> refuse_access(const AccessRules& rules, const HttpRequest& request) {
  const std::string name = host_name(request.host);
  if (rules.loopback_only && !request.host.empty() && !is_loopback_name(name) &&
      !contains(rules.allowed_hosts, name))
    return forbid(fmt::format("the server listens on loopback and is not known as '{}': call it "
                              "localhost, or allow that name",
                              name),
                  "host_not_allowed");
  if (!request.origin.empty() && !origin_allowed(rules, request))
    return forbid(fmt::format("web pages of '{}' may not use this server unless that origin is "
                              "allowed",
                              request.origin),
                  "origin_not_allowed");
  if (!rules.api_key.empty() && !key_matches(request.authorization, rules.api_key))
    return ApiError{.status = 401,
                    .message =
                        "the API key is missing or wrong: send it as 'Authorization: "
                        "Bearer KEY'",
                    .type = "authentication_error",
                    .code = "invalid_api_key"};
  return std::nullopt;
}

}  // namespace sinew
