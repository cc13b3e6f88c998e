#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace sinew {

// What is known of one machine, as values: probes (doctor/probe.h) gather them, judges
// (doctor/judge.h) look at nothing else. A fact that the machine does not tell is empty.

struct NetworkInterface {
  std::string name;
  bool up = false;
  std::int64_t mtu = 0;
  std::vector<std::string> addresses;  // IPv4
  std::vector<std::string> members;    // of a bridge
};

struct RdmaDevice {
  std::string name;
  bool active = false;
  std::string trouble;  // why it could not be opened; empty: device, domain and region were made
};

// A socket of a Mac. `domain` names this end of a cable, `peer_domain` the other one.
struct ThunderboltPort {
  std::string receptacle;
  std::string domain;
  std::string peer_domain;  // empty unless another Mac is there
  std::string peer_name;
  std::int64_t gbps = 0;
  bool connected = false;
};

struct RankProcess {
  std::int64_t pid = 0;
  std::int64_t parent = 0;
};

struct ModelFacts {
  std::string path;
  std::string trouble;  // why it cannot be used; empty: whole and of a known family
  std::string architecture;
  std::string fingerprint;  // of sizes, beginnings and ends of its files
  std::uint64_t weight_bytes = 0;
  std::uint64_t cache_bytes = 0;  // for the context that a run takes by itself
};

struct MachineFacts {
  std::string host;
  std::string system;    // "Linux", "macOS"
  std::string os_build;  // "Linux 6.1.0-13-amd64", "26.2 (25C56)"
  std::string version;   // ours
  std::string ggml;
  std::int64_t wire = 0;  // version of frames between ranks
  std::int64_t cores = 0;
  std::uint64_t memory_bytes = 0;
  std::uint64_t available_bytes = 0;
  std::optional<std::uint64_t> memory_limit_bytes;  // of this control group
  std::optional<std::uint64_t> wired_limit_bytes;   // macOS; 0: the system's own
  std::optional<std::uint64_t> locked_limit_bytes;  // empty: unlimited
  std::optional<std::uint64_t> open_files;          // empty: unlimited
  std::optional<std::uint64_t> shm_bytes;           // free in /dev/shm
  std::string disk_path;
  std::optional<std::uint64_t> disk_bytes;    // free where caches are kept
  std::optional<std::int64_t> overcommit;     // vm.overcommit_memory
  std::optional<std::int64_t> sleep_minutes;  // 0: never
  std::optional<bool> firewall;               // rules that drop are there
  std::optional<bool> rdma_enabled;           // as rdma_ctl says
  std::string rdma_trouble;                   // why no device could be asked for
  std::vector<RdmaDevice> rdma;
  std::vector<ThunderboltPort> thunderbolt;
  std::vector<NetworkInterface> interfaces;
  std::vector<RankProcess> leftovers;  // ranks whose supervisor is gone
  std::optional<ModelFacts> model;
};

}  // namespace sinew
