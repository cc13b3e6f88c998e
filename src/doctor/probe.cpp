#include "doctor/probe.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <cctype>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <future>
#include <iterator>

#include "collective/frame.h"
#include "doctor/parse.h"
#include "engine/local_engine.h"
#include "host/model_file.h"
#include "host/process.h"
#include "host/tool.h"
#include "plan/plan.h"
#include "transport/verbs_bringup.h"
#include "transport/verbs_device.h"

namespace sinew {
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::seconds kToolMax{5};
constexpr std::size_t kToolBytesMax = 4u << 20;
constexpr std::size_t kFileBytesMax = 64u << 10;
constexpr std::size_t kProcessesMax = 65536;
constexpr std::size_t kFingerprintBytes = 1u << 20;  // of each end of a file
#ifdef __APPLE__
constexpr bool kMac = true;
#else
constexpr bool kMac = false;
#endif

// The front of a small file of the system; empty if it cannot be read.
std::string file_text(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text(kFileBytesMax, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(std::max<std::streamsize>(0, file.gcount())));
  return text;
}

// What a tool prints; empty where it is missing, late or fails.
std::string tool_text(const std::vector<std::string>& command) {
  const auto output = run_tool(command, kToolMax, kToolBytesMax);
  return output && output->exit_status == 0 ? output->out : std::string();
}

std::optional<std::uint64_t> soft_limit(int resource) {
  rlimit limit{};
  if (::getrlimit(static_cast<decltype(RLIMIT_NOFILE)>(resource), &limit) != 0 ||
      limit.rlim_cur == RLIM_INFINITY)
    return std::nullopt;
  return limit.rlim_cur;
}

std::optional<std::uint64_t> free_bytes(const std::string& path) {
  struct statvfs info {};
  if (::statvfs(path.c_str(), &info) != 0) return std::nullopt;
  return static_cast<std::uint64_t>(info.f_bavail) * info.f_frsize;
}

// Where caches are kept, or the nearest folder above it that is there.
std::string cache_folder() {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  const char* home = std::getenv("HOME");
  fs::path path = cache != nullptr  ? fs::path(cache)
                  : home != nullptr ? fs::path(home) / ".cache"
                                    : fs::path("/tmp");
  std::error_code ignored;
  while (!fs::exists(path, ignored) && path.has_relative_path()) path = path.parent_path();
  return path.string();
}

// "PID PARENT COMMAND" lines, as `ps` prints them on a Mac.
std::string process_text() {
  if (kMac) return tool_text({"ps", "-axo", "pid=,ppid=,command="});
  std::string text;
  std::size_t seen = 0;
  std::error_code error;
  for (fs::directory_iterator it("/proc", error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (std::isdigit(static_cast<unsigned char>(name.front())) == 0) continue;
    if (++seen > kProcessesMax) break;
    std::string command = file_text(it->path() / "cmdline");
    // The name of a program in "PID (NAME) STATE PARENT ..." may hold anything.
    const std::string stat = file_text(it->path() / "stat");
    const std::size_t close = stat.rfind(')');
    if (command.empty() || close == std::string::npos || stat.size() < close + 4) continue;
    for (char& c : command)
      if (c == '\0' || c == '\n') c = ' ';
    const auto parent = parse_number(std::string_view(stat).substr(close + 4));
    text += fmt::format("{} {} {}\n", name, parent.value_or(0), command);
  }
  return text;
}

void probe_linux(MachineFacts& facts) {
  utsname name{};
  if (::uname(&name) == 0) facts.os_build = fmt::format("{} {}", name.sysname, name.release);
  const std::string memory = file_text("/proc/meminfo");
  facts.memory_bytes = parse_meminfo(memory, "MemTotal").value_or(0);
  facts.memory_limit_bytes = parse_memory_limit(file_text("/sys/fs/cgroup/memory.max"));
  facts.locked_limit_bytes = soft_limit(RLIMIT_MEMLOCK);
  facts.overcommit = parse_number(file_text("/proc/sys/vm/overcommit_memory"));
  facts.shm_bytes = free_bytes("/dev/shm");
  facts.interfaces = parse_ip_addr(tool_text({"ip", "-j", "addr"}));
  const auto rules = run_tool({"nft", "list", "ruleset"}, kToolMax, kToolBytesMax);
  if (rules && rules->exit_status == 0) facts.firewall = parse_nft(rules->out);
}

void probe_mac(MachineFacts& facts) {
  auto ports = std::async(std::launch::async, [] {
    return tool_text({"system_profiler", "SPThunderboltDataType", "-json"});
  });
  facts.os_build = parse_sw_vers(tool_text({"sw_vers"}));
  const auto values = parse_sysctl(tool_text({"sysctl", "hw.memsize", "iogpu.wired_limit_mb"}));
  const auto value = [&](const char* key) -> std::uint64_t {
    const auto found = values.find(key);
    return found == values.end() || found->second < 0 ? 0
                                                      : static_cast<std::uint64_t>(found->second);
  };
  facts.memory_bytes = value("hw.memsize");
  facts.wired_limit_bytes = value("iogpu.wired_limit_mb") << 20;
  facts.interfaces = parse_ifconfig(tool_text({"ifconfig"}));
  facts.sleep_minutes = parse_pmset(tool_text({"pmset", "-g"}));
  facts.rdma_enabled = parse_rdma_ctl(tool_text({"rdma_ctl", "status"}));
  facts.thunderbolt = parse_thunderbolt(ports.get());
}

void probe_rdma(MachineFacts& facts) {
  const auto program = own_program();
  if (!program) {
    facts.rdma_trouble = program.error().message;
    return;
  }
  const auto report = run_tool({*program, "doctor", "--probe-rdma"}, kToolMax, kToolBytesMax);
  if (!report || report->exit_status != 0) {
    facts.rdma.push_back(
        {"RDMA", false,
         report ? fmt::format("the driver ended its process with status {}", report->exit_status)
                : report.error().message});
    return;
  }
  facts.rdma = parse_rdma_report(report->out);
  if (facts.rdma.empty()) facts.rdma_trouble = report->out.substr(0, report->out.find('\n'));
}

Status read_model(const std::string& path, ModelFacts& facts) {
  SINEW_ASSIGN(const ModelFile file, ModelFile::open(path));
  SINEW_ASSIGN(const ModelSpec spec, read_spec(file.directory));
  facts.architecture = spec.architecture;
  SINEW_ASSIGN(const std::vector<BoundTensor> bound, bind_tensors(spec, file.directory));
  SINEW_ASSIGN(const Plan plan, make_plan(spec, bound, Layout{{1.0}, {}, false}));
  const RankMemory memory = rank_memory(
      spec, bound, plan, 0, std::min(spec.context_trained, kContextDefault), TensorType::kF16);
  facts.weight_bytes = memory.weight_bytes;
  facts.cache_bytes = memory.cache_bytes;
  RunningChecksum checksum;
  for (const MappedFile& part : file.parts) {
    const ByteSpan bytes = part.bytes();
    const std::size_t end = std::min(bytes.size(), kFingerprintBytes);
    const std::uint64_t size = bytes.size();
    checksum.add(std::as_bytes(std::span(&size, 1)));
    checksum.add(bytes.first(end));
    checksum.add(bytes.last(end));
  }
  facts.fingerprint = fmt::format("{:016x}", checksum.value());
  return {};
}

}  // namespace

MachineFacts probe_machine(const ProbeOptions& options) {
  MachineFacts facts;
  // Beside the rest: a driver may take its time.
  auto rdma = std::async(std::launch::async, [] {
    MachineFacts found;
    probe_rdma(found);
    return found;
  });
  char name[256] = {};
  if (::gethostname(name, sizeof name - 1) == 0) facts.host = name;
  facts.system = kMac ? "macOS" : "Linux";
  facts.version = options.version;
  facts.ggml = options.ggml;
  facts.wire = kFrameVersion;
  facts.cores = usable_cores();
  facts.available_bytes = available_memory();
  facts.open_files = soft_limit(RLIMIT_NOFILE);
  facts.disk_path = cache_folder();
  facts.disk_bytes = free_bytes(facts.disk_path);
  if (kMac) {
    probe_mac(facts);
  } else {
    probe_linux(facts);
  }
  facts.leftovers = parse_processes(process_text());
  if (!options.model.empty()) {
    ModelFacts model;
    model.path = options.model;
    if (const Status read = read_model(options.model, model); !read)
      model.trouble = read.error().message;
    facts.model = std::move(model);
  }
  MachineFacts found = rdma.get();
  facts.rdma = std::move(found.rdma);
  facts.rdma_trouble = std::move(found.rdma_trouble);
  return facts;
}

std::string rdma_report() {
  constexpr std::size_t kArenaBytes = 16u << 10;
  const auto provider = load_system_verbs();
  if (!provider) return provider.error().message + "\n";
  const auto names = (*provider)->device_names();
  if (!names || names->empty()) return std::string((*provider)->no_device_hint()) + "\n";
  std::string report;
  for (const std::string& name : *names) {
    const auto device = VerbsDevice::open(*provider, name, kArenaBytes);
    if (!device) {
      report += fmt::format("{} trouble {}\n", name, device.error().message);
      continue;
    }
    const auto port = (*device)->port();
    if (!port) {
      report += fmt::format("{} trouble {}\n", name, port.error().message);
    } else {
      report += fmt::format("{} {}\n", name, port->active ? "active" : "down");
    }
  }
  return report;
}

}  // namespace sinew
