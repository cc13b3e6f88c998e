#include <netdb.h>
#include <sys/socket.h>

#include <arpa/inet.h>

#include <charconv>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>

#include "agent/agent.h"

namespace sinew {
namespace {

constexpr std::chrono::seconds kLookUpMax{5};

struct LookUp {
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
  std::string host;  // numeric; empty if there is none
};

std::string look_up(const std::string& name) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (::getaddrinfo(name.c_str(), nullptr, &hints, &found) != 0) return {};
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(found, &::freeaddrinfo);
  std::array<char, NI_MAXHOST> host{};
  if (::getnameinfo(found->ai_addr, found->ai_addrlen, host.data(), host.size(), nullptr, 0,
                    NI_NUMERICHOST) != 0)
    return {};
  return host.data();
}

bool numeric(const std::string& host) {
  std::array<std::uint8_t, 16> bytes{};
  return ::inet_pton(AF_INET, host.c_str(), bytes.data()) == 1 ||
         ::inet_pton(AF_INET6, host.c_str(), bytes.data()) == 1;
}

}  // namespace

Result<Endpoint> resolve_endpoint(const std::string& text) {
  Endpoint endpoint{text, kAgentPort};
  std::string port;
  if (text.starts_with('[')) {
    const std::size_t end = text.find(']');
    if (end == std::string::npos) return fail(ErrorCode::kUsage, "'{}': a ']' is missing", text);
    endpoint.host = text.substr(1, end - 1);
    if (end + 1 < text.size()) port = text.substr(end + 1);
  } else if (const std::size_t colon = text.find(':');
             colon != std::string::npos && colon == text.rfind(':')) {
    endpoint.host = text.substr(0, colon);
    port = text.substr(colon);
  }
  if (!port.empty()) {
    const char* begin = port.data() + 1;
    const char* end = port.data() + port.size();
    const auto [stop, error] = std::from_chars(begin, end, endpoint.port);
    if (port.front() != ':' || error != std::errc{} || stop != end || endpoint.port == 0)
      return fail(ErrorCode::kUsage, "'{}' is not HOST or HOST:PORT", text);
  }
  if (numeric(endpoint.host)) return endpoint;
  // The system's look-up has no deadline of its own; a thread that is still at it is left behind.
  const auto work = std::make_shared<LookUp>();
  std::thread([work, name = endpoint.host] {
    std::string host = look_up(name);
    const std::lock_guard lock(work->mutex);
    work->host = std::move(host);
    work->done = true;
    work->changed.notify_all();
  }).detach();
  std::unique_lock lock(work->mutex);
  if (!work->changed.wait_for(lock, kLookUpMax, [&] { return work->done; }))
    return fail(ErrorCode::kDeadline, "looking up '{}' took too long: use its IP address",
                endpoint.host);
  if (work->host.empty())
    return fail(ErrorCode::kNotFound,
                "there is no host '{}': check the name, or use its IP address", endpoint.host);
  endpoint.host = work->host;
  return endpoint;
}

}  // namespace sinew
