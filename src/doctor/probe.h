#pragma once

#include <string>
#include <vector>

#include "doctor/judge.h"

namespace sinew {

struct ProbeOptions {
  std::string model;    // path; empty: none
  std::string version;  // ours
  std::string ggml;
};

// Reads this machine. Every wait has a limit, nothing is changed. What cannot be read stays empty.
// Takes below 15 s, usually below 1 s.
MachineFacts probe_machine(const ProbeOptions& options);

// A TCP connection to each "ADDRESS" or "ADDRESS:PORT" (else the port of ssh), by numeric address.
// A refusal is an answer as well: the machine is reached. 2 s each.
std::vector<Check> probe_peers(const std::vector<std::string>& peers);

// Opens every RDMA device as a rank does, device, domain and region, and says how that went: the
// text that parse_rdma_report reads. Run in a process of its own: drivers are known that crash or
// never return.
std::string rdma_report();

}  // namespace sinew
