#include <fmt/format.h>
#include <poll.h>

#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>

#include "doctor/probe.h"
#include "transport/tcp_socket.h"

namespace sinew {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kConnectMax{2000};
constexpr std::uint16_t kPortUsual = 22;

// One colon separates a port; an IPv6 address has more of them and takes the usual port.
Result<Endpoint> endpoint_of(const std::string& peer) {
  const std::size_t colon = peer.find(':');
  if (colon == std::string::npos || peer.find(':', colon + 1) != std::string::npos)
    return Endpoint{peer, kPortUsual};
  Endpoint endpoint{peer.substr(0, colon), 0};
  const char* end = peer.data() + peer.size();
  const auto read = std::from_chars(peer.data() + colon + 1, end, endpoint.port);
  if (read.ec != std::errc() || read.ptr != end || endpoint.port == 0)
    return fail(ErrorCode::kUsage, "{}: must be ADDRESS or ADDRESS:PORT", peer);
  return endpoint;
}

// Seconds until the peer answered, with a connection or a refusal.
Result<double> answer_time(const std::string& peer) {
  SINEW_ASSIGN(const Endpoint endpoint, endpoint_of(peer));
  const Clock::time_point start = Clock::now();
  SINEW_ASSIGN(const Socket socket, start_connect(endpoint));
  pollfd waiting{socket.fd(), POLLOUT, 0};
  while (true) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(start + kConnectMax - Clock::now());
    if (left.count() <= 0)
      return fail(ErrorCode::kDeadline, "no answer within {} ms", kConnectMax.count());
    if (::poll(&waiting, 1, static_cast<int>(left.count())) > 0) break;
  }
  const std::chrono::duration<double> took = Clock::now() - start;
  const Status status = finish_connect(socket);
  if (!status && status.error().message.find(std::strerror(ECONNREFUSED)) == std::string::npos)
    return fail(status.error());
  return took.count();
}

}  // namespace

std::vector<Check> probe_peers(const std::vector<std::string>& peers) {
  std::vector<Check> checks;
  for (const std::string& peer : peers) {
    const auto seconds = answer_time(peer);
    if (seconds) {
      checks.push_back({"peer." + peer, CheckState::kOk,
                        fmt::format("reached over TCP in {:.2f} ms", *seconds * 1000), ""});
    } else {
      checks.push_back(
          {"peer." + peer, CheckState::kFail, seconds.error().message, "ping -c 3 " + peer});
    }
  }
  return checks;
}

}  // namespace sinew
