#pragma once

#include <string>
#include <vector>

#include "agent/agent.h"
#include "base/result.h"

namespace sinew {

// Makes a secret and prints the join token, once.
struct ClusterCreateFlags {
  std::string state;
  std::string name = "sinew";
};
Status cluster_create_command(const ClusterCreateFlags& flags);

// This machine's agent, until it is interrupted.
struct NodeFlags {
  std::string state;
  std::string join;         // HOST[:PORT]
  std::string secret_file;  // "-": standard input; empty: $SINEW_SECRET, else standard input
  std::vector<std::string> peers;
  std::vector<std::string> listen;
  int port = kAgentPort;
  bool no_discovery = false;
};
Status node_command(const NodeFlags& flags);

// What this machine's agent knows.
struct ClusterShowFlags {
  std::string state;
  bool json = false;
};
Status nodes_command(const ClusterShowFlags& flags);
Status links_command(const ClusterShowFlags& flags);
// Needs no running agent.
Status events_command(const ClusterShowFlags& flags);

}  // namespace sinew
