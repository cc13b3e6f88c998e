#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "agent/secret.h"
#include "base/result.h"
#include "transport/tcp_socket.h"

namespace sinew {

inline constexpr std::uint16_t kAgentPort = 7463;
inline constexpr std::string_view kControlSocketName = "agent.sock";

struct AgentOptions {
  std::string state;                // folder; empty: StateFolder::default_path
  std::vector<std::string> listen;  // numeric addresses; empty: all of this machine
  std::uint16_t port = kAgentPort;
  std::vector<Endpoint> peers;  // dialled for ever
  bool discovers = true;        // by dns_sd, where it is there
  // Joining: its secret, kept in the folder once a peer has accepted it.
  std::optional<ClusterSecret> joins;
  std::string version;  // of the program
};

// One machine's part in the cluster: carries messages between the cluster's core and the peers'
// agents, keeps identity and promises on the disk, and answers the commands of its user. One
// thread, which never waits but in poll().
class Agent {
 public:
  // Takes the state folder's lock and a new incarnation. kUsage if this machine is in no cluster,
  // kIo if the port is taken.
  static Result<std::unique_ptr<Agent>> create(AgentOptions options);
  ~Agent();
  Agent(const Agent&) = delete;
  Agent& operator=(const Agent&) = delete;

  // Until `stopping` says so, looked at 4 times a second or when a signal comes; then takes leave
  // of the others. While it joins: kUnauthorised or kProtocol as soon as a peer has refused.
  Status run(const std::function<bool()>& stopping);

 private:
  struct Parts;
  explicit Agent(std::unique_ptr<Parts> parts);
  std::unique_ptr<Parts> parts_;
};

// "HOST", "HOST:PORT", "[IPV6]:PORT". Names are looked up; kDeadline after five seconds.
Result<Endpoint> resolve_endpoint(const std::string& text);

}  // namespace sinew
