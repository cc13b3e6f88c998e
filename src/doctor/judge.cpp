#include "doctor/judge.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/bytes.h"
#include "base/limits.h"

namespace sinew {
namespace {

constexpr std::uint64_t kMib = 1u << 20;
constexpr std::uint64_t kGib = 1u << 30;
// Ten slots of 16 KiB for each of seven peers, in an arena of a power of two.
constexpr std::uint64_t kLockedBytesNeeded = 2 * kMib;
// Larger slots, and the queues of drivers that count them, want more.
constexpr std::uint64_t kLockedBytesMin = 64 * kMib;
// A rank holds sockets to all peers, the model's parts and the driver's files; a server its
// clients.
constexpr std::uint64_t kOpenFilesMin = 1024;
constexpr std::uint64_t kOpenFilesNeeded = 128;
// Rings of eight ranks, 64 pairs of 256 KiB each.
constexpr std::uint64_t kShmBytesMin = 16 * kMib;
constexpr std::uint64_t kDiskBytesMin = 10 * kGib;
constexpr std::uint64_t kDiskBytesNeeded = 256 * kMib;
constexpr std::int64_t kRoceMtu = 4200;  // for packets of 4096 bytes with their headers
constexpr std::int64_t kThunderbolt5Gbps = 80;

class Judge {
 public:
  explicit Judge(const MachineFacts& facts) : facts_(facts) {}

  std::vector<Check> run() {
    ok("version", fmt::format("sinew {}, ggml {}, wire protocol {}", facts_.version, facts_.ggml,
                              facts_.wire));
    system();
    memory();
    wired();
    locked();
    files();
    shared_memory();
    disk();
    network();
    bridge();
    thunderbolt();
    rdma();
    sleep();
    firewall();
    leftovers();
    model();
    return std::move(checks_);
  }

 private:
  bool mac() const { return facts_.system == "macOS"; }
  bool has_rdma() const { return !facts_.rdma.empty(); }
  std::uint64_t needed() const {
    return facts_.model ? facts_.model->weight_bytes + facts_.model->cache_bytes : 0;
  }

  void add(const char* id, CheckState state, std::string reason, std::string remedy = {}) {
    checks_.push_back({id, state, std::move(reason), std::move(remedy)});
  }
  void ok(const char* id, std::string reason) { add(id, CheckState::kOk, std::move(reason)); }
  void skip(const char* id, std::string reason) { add(id, CheckState::kSkip, std::move(reason)); }

  void system() {
    if (facts_.os_build.empty())
      return add("os", CheckState::kWarn, "the system does not say which build it is",
                 mac() ? "sw_vers" : "uname -r");
    ok("os",
       fmt::format("{}, {} core{}", facts_.os_build, facts_.cores, facts_.cores == 1 ? "" : "s"));
  }

  void memory() {
    std::uint64_t usable = facts_.available_bytes;
    const char* limit = "available";
    if (facts_.memory_limit_bytes && *facts_.memory_limit_bytes < usable) {
      usable = *facts_.memory_limit_bytes;
      limit = "allowed by the control group";
    }
    const std::string have =
        fmt::format("{} of {} {}", format_bytes(usable), format_bytes(facts_.memory_bytes), limit);
    if (needed() > usable)
      return add("memory", CheckState::kFail,
                 fmt::format("{}; the model takes {} of weights and {} of KV cache", have,
                             format_bytes(facts_.model->weight_bytes),
                             format_bytes(facts_.model->cache_bytes)),
                 "end other programs, or share the model with more machines");
    if (facts_.overcommit == 2)
      return add("memory", CheckState::kWarn,
                 have + "; the system refuses to map more than it has (overcommit 2)",
                 "sudo sysctl vm.overcommit_memory=0");
    ok("memory", have);
  }

  void wired() {
    if (!facts_.wired_limit_bytes) return skip("wired", "no such limit on this system");
    const std::uint64_t limit = *facts_.wired_limit_bytes;
    // The system's own limit is about three quarters of the memory.
    const std::uint64_t usable = limit > 0 ? limit : facts_.memory_bytes / 4 * 3;
    const std::string have = fmt::format("the GPU may wire {}{}", format_bytes(usable),
                                         limit > 0 ? "" : " (the system's own limit, estimated)");
    if (needed() <= usable) return ok("wired", have);
    add("wired", CheckState::kFail,
        fmt::format("{}; the model takes {}", have, format_bytes(needed())),
        fmt::format("sudo sysctl iogpu.wired_limit_mb={}", needed() / kMib + 1024));
  }

  void locked() {
    if (mac()) return skip("memlock", "no such limit on this system");
    if (!facts_.locked_limit_bytes) return ok("memlock", "unlimited");
    const std::uint64_t limit = *facts_.locked_limit_bytes;
    if (limit >= kLockedBytesMin) return ok("memlock", format_bytes(limit));
    const bool too_little = has_rdma() && limit < kLockedBytesNeeded;
    add("memlock", too_little ? CheckState::kFail : CheckState::kWarn,
        fmt::format("{} may be locked; RDMA needs {}, with larger slots {}", format_bytes(limit),
                    format_bytes(kLockedBytesNeeded), format_bytes(kLockedBytesMin)),
        "echo '* - memlock unlimited' | sudo tee /etc/security/limits.d/rdma.conf");
  }

  void files() {
    if (!facts_.open_files || *facts_.open_files >= kOpenFilesMin)
      return ok("open_files", facts_.open_files ? std::to_string(*facts_.open_files) : "unlimited");
    add("open_files", *facts_.open_files < kOpenFilesNeeded ? CheckState::kFail : CheckState::kWarn,
        fmt::format("{} files may be open, {} are wanted", *facts_.open_files, kOpenFilesMin),
        "ulimit -n 4096");
  }

  void shared_memory() {
    if (!facts_.shm_bytes) return skip("shm", "no /dev/shm on this system");
    if (*facts_.shm_bytes >= kShmBytesMin)
      return ok("shm", fmt::format("{} free in /dev/shm", format_bytes(*facts_.shm_bytes)));
    // Ranks share memory without a name; MPI and UCX, which may start them, need this folder.
    add("shm", CheckState::kWarn,
        fmt::format("{} free in /dev/shm: too little for UCX and MPI",
                    format_bytes(*facts_.shm_bytes)),
        "sudo mount -o remount,size=1G /dev/shm");
  }

  void disk() {
    if (!facts_.disk_bytes) return skip("disk", "the system does not say what is free");
    const std::string have =
        fmt::format("{} free at {}", format_bytes(*facts_.disk_bytes), facts_.disk_path);
    if (*facts_.disk_bytes >= kDiskBytesMin) return ok("disk", have);
    add("disk", *facts_.disk_bytes < kDiskBytesNeeded ? CheckState::kFail : CheckState::kWarn, have,
        fmt::format("du -xsh '{}'", facts_.disk_path));
  }

  void network() {
    std::vector<std::string> usable;
    std::string small;
    for (const NetworkInterface& interface : facts_.interfaces) {
      if (!interface.up || interface.addresses.empty() || interface.name.starts_with("lo"))
        continue;
      usable.push_back(fmt::format("{} {} mtu {}", interface.name,
                                   fmt::join(interface.addresses, " "), interface.mtu));
      if (interface.mtu < kRoceMtu && small.empty()) small = interface.name;
    }
    if (usable.empty())
      return add("network", CheckState::kWarn,
                 "no interface with an IPv4 address but loopback: ranks of this machine only",
                 mac() ? "networksetup -listallhardwareports" : "ip -br addr");
    const std::string all = fmt::format("{}", fmt::join(usable, "; "));
    if (has_rdma() && !mac() && !small.empty())
      return add("network", CheckState::kWarn,
                 fmt::format("{}; RDMA packets of 4096 bytes need an MTU of {}", all, kRoceMtu),
                 fmt::format("sudo ip link set {} mtu 9000", small));
    ok("network", all);
  }

  void bridge() {
    if (!mac()) return skip("bridge", "only on Macs");
    for (const NetworkInterface& interface : facts_.interfaces)
      if (interface.name.starts_with("bridge") && !interface.members.empty())
        return add("bridge", CheckState::kFail,
                   fmt::format("{} holds {}: RDMA does not reach ports inside a bridge",
                               interface.name, fmt::join(interface.members, ", ")),
                   "sudo networksetup -setnetworkserviceenabled 'Thunderbolt Bridge' off");
    ok("bridge", "no port is in a bridge");
  }

  void thunderbolt() {
    if (facts_.thunderbolt.empty())
      return skip("thunderbolt", mac() ? "no port was reported" : "only on Macs");
    std::int64_t cables = 0;
    for (const ThunderboltPort& port : facts_.thunderbolt) {
      if (port.peer_domain.empty()) continue;
      ++cables;
      if (port.gbps < kThunderbolt5Gbps)
        return add("thunderbolt", CheckState::kWarn,
                   fmt::format("port {} to {} runs at {} Gb/s, Thunderbolt 5 at {}",
                               port.receptacle, port.peer_name, port.gbps, kThunderbolt5Gbps),
                   "use a Thunderbolt 5 cable, without a hub, between ports of that kind");
    }
    if (cables == 0)
      return add("thunderbolt", CheckState::kWarn, "no cable to another Mac",
                 "connect a Thunderbolt 5 cable directly to each other Mac");
    ok("thunderbolt", fmt::format("{} cable{} to other Macs", cables, cables == 1 ? "" : "s"));
  }

  void rdma() {
    for (const RdmaDevice& device : facts_.rdma)
      if (!device.trouble.empty())
        return add("rdma", CheckState::kFail, fmt::format("{}: {}", device.name, device.trouble),
                   mac() ? "restart this Mac" : "ibv_devinfo -v -d " + device.name);
    if (facts_.rdma.empty()) {
      if (facts_.rdma_enabled == false)
        return add("rdma", CheckState::kWarn, "RDMA is disabled: links use TCP",
                   "in Recovery, Utilities, Terminal: rdma_ctl enable");
      if (facts_.rdma_enabled == true)
        return add("rdma", CheckState::kWarn,
                   "RDMA is enabled but there is no device: a Mac with Thunderbolt 4 stays so",
                   "use --link tcp");
      return skip("rdma", facts_.rdma_trouble.empty() ? "no device" : facts_.rdma_trouble);
    }
    const auto active = std::count_if(facts_.rdma.begin(), facts_.rdma.end(),
                                      [](const RdmaDevice& device) { return device.active; });
    if (active == 0)
      return add("rdma", CheckState::kWarn,
                 fmt::format("{} device(s) opened, no port is active", facts_.rdma.size()),
                 "connect a cable, and enable RDMA at its other end");
    ok("rdma",
       fmt::format("{} of {} device(s) opened with an active port", active, facts_.rdma.size()));
  }

  void sleep() {
    if (!facts_.sleep_minutes) return skip("sleep", "the system does not say");
    if (*facts_.sleep_minutes == 0) return ok("sleep", "never");
    add("sleep", CheckState::kWarn,
        fmt::format("this machine sleeps after {} min and does not wake over Thunderbolt",
                    *facts_.sleep_minutes),
        "sudo pmset -a sleep 0");
  }

  void firewall() {
    if (!facts_.firewall) return skip("firewall", "rules cannot be read here");
    if (!*facts_.firewall) return ok("firewall", "no rule drops or refuses");
    add("firewall", CheckState::kWarn, "rules drop or refuse packets: other ranks may not get in",
        mac() ? "/usr/libexec/ApplicationFirewall/socketfilterfw --listapps"
              : "sudo nft list ruleset");
  }

  void leftovers() {
    if (facts_.leftovers.empty()) return ok("leftovers", "no rank without a supervisor");
    std::vector<std::int64_t> pids;
    for (const RankProcess& rank : facts_.leftovers) pids.push_back(rank.pid);
    // TERM, as a rank that is killed inside an RDMA driver can wedge the port.
    add("leftovers", CheckState::kWarn,
        fmt::format("rank process{} {} without a supervisor", pids.size() == 1 ? "" : "es",
                    fmt::join(pids, ", ")),
        fmt::format("kill {}", fmt::join(pids, " ")));
  }

  void model() {
    if (!facts_.model) return skip("model", "none was named");
    const ModelFacts& model = *facts_.model;
    if (!model.trouble.empty())
      return add("model", CheckState::kFail, model.trouble,
                 fmt::format("ls -l '{}', then copy or download it again", model.path));
    ok("model",
       fmt::format("{}: whole, {}, {} of weights, fingerprint {}", model.path, model.architecture,
                   format_bytes(model.weight_bytes), model.fingerprint));
  }

  const MachineFacts& facts_;  // outlives this
  std::vector<Check> checks_;
};

}  // namespace

std::string_view check_state_name(CheckState state) {
  switch (state) {
    case CheckState::kOk:
      return "OK";
    case CheckState::kWarn:
      return "WARN";
    case CheckState::kFail:
      return "FAIL";
    case CheckState::kSkip:
      return "SKIP";
  }
  return "?";
}

bool healthy(const std::vector<Check>& checks) {
  return std::none_of(checks.begin(), checks.end(),
                      [](const Check& check) { return check.state == CheckState::kFail; });
}

std::vector<Check> judge_machine(const MachineFacts& facts) {
  return Judge(facts).run();
}

std::string draw_cables(const MachineFacts& facts) {
  std::vector<ThunderboltPort> ports = facts.thunderbolt;
  std::sort(ports.begin(), ports.end(), [](const ThunderboltPort& a, const ThunderboltPort& b) {
    return a.receptacle < b.receptacle;
  });
  std::string text;
  for (const ThunderboltPort& port : ports) {
    const std::string end = !port.peer_domain.empty()
                                ? fmt::format("=== {} Gb/s === {}", port.gbps, port.peer_name)
                            : port.connected ? std::string("--- a device that is no Mac")
                                             : std::string("    free");
    text += fmt::format("port {} {}\n", port.receptacle, end);
  }
  return text;
}

}  // namespace sinew
