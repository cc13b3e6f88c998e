#include "engine/launcher.h"

#include <netdb.h>
#include <sys/socket.h>

#include <fmt/ranges.h>

#include <array>
#include <charconv>
#include <cstring>

#include "base/limits.h"
#include "collective/frame.h"
#include "transport/tcp_link.h"

namespace sinew {
namespace {

// Ports for jobs on one machine: below those that systems give to connections.
constexpr std::uint16_t kPortFirst = 20000;
constexpr std::uint16_t kPortCount = 12000;

using Environment = std::function<const char*(const char*)>;

struct Variable {
  const char* name = nullptr;  // the first of the list that is set
  std::string_view value;
};
Variable first_of(const Environment& environment, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    const char* value = environment(name);
    if (value != nullptr && *value != '\0') return {name, value};
  }
  return {};
}

Result<int> number(const Variable& variable, int least, int most) {
  int value = 0;
  const std::string_view text = variable.value;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
  if (parsed.ec != std::errc() || parsed.ptr != text.data() + text.size() || value < least ||
      value > most)
    return fail(ErrorCode::kUsage, "{}={} is no number from {} to {}", variable.name, text, least,
                most);
  return value;
}

// The names of one launcher's variables.
struct Names {
  const char* launcher = nullptr;
  std::initializer_list<const char*> rank;
  std::initializer_list<const char*> size;
  std::initializer_list<const char*> on_first_machine;
  std::initializer_list<const char*> job;
};
const Names& names_of(Launcher launcher) {
  static const Names mpi{"mpi",
                         {"OMPI_COMM_WORLD_RANK", "PMI_RANK"},
                         {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"},
                         {"OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"},
                         {"SINEW_JOB", "PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "PMI_JOBID"}};
  static const Names slurm{"slurm",
                           {"SLURM_PROCID"},
                           {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"},
                           {"SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"},
                           {"SINEW_JOB", "SLURM_JOB_ID"}};
  static const Names env{
      "env", {"SINEW_RANK"}, {"SINEW_SIZE"}, {"SINEW_LOCAL_SIZE"}, {"SINEW_JOB"}};
  switch (launcher) {
    case Launcher::kMpi:
      return mpi;
    case Launcher::kSlurm:
      return slurm;
    case Launcher::kEnv:
      return env;
  }
  return env;
}

// "10.0.0.1:7000" or "[fd00::1]:7000".
Result<Endpoint> parse_rendezvous(std::string_view text) {
  const std::size_t colon = text.rfind(':');
  Endpoint endpoint;
  if (colon != std::string_view::npos) {
    std::string_view host = text.substr(0, colon);
    if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
    const std::string_view port = text.substr(colon + 1);
    const auto parsed = std::from_chars(port.data(), port.data() + port.size(), endpoint.port);
    if (parsed.ec == std::errc() && parsed.ptr == port.data() + port.size() && endpoint.port != 0)
      endpoint.host = host;
  }
  if (endpoint.host.empty())
    return fail(ErrorCode::kUsage,
                "SINEW_RENDEZVOUS={} is no ADDRESS:PORT of rank 0's machine, as 10.0.0.1:7000",
                text);
  return endpoint;
}

JobId job_of(std::string_view text, int size) {
  const std::uint64_t mixed = payload_checksum(std::as_bytes(std::span(text)));
  return JobId{{mixed, static_cast<std::uint64_t>(size)}};
}

Result<std::string> peer_host(const Socket& socket) {
  sockaddr_storage address{};
  socklen_t length = sizeof(address);
  std::array<char, NI_MAXHOST> host{};
  if (getpeername(socket.fd(), reinterpret_cast<sockaddr*>(&address), &length) != 0 ||
      getnameinfo(reinterpret_cast<const sockaddr*>(&address), length, host.data(), host.size(),
                  nullptr, 0, NI_NUMERICHOST) != 0)
    return fail(ErrorCode::kPeerLost, "it closed its connection while the ranks joined");
  return std::string(host.data());
}

GroupIdentity identity_of(const LaunchedRank& own) {
  return {own.job, 0, own.rank, own.size};
}

}  // namespace

std::optional<Launcher> launcher_named(std::string_view name) {
  for (const Launcher launcher : {Launcher::kMpi, Launcher::kSlurm, Launcher::kEnv})
    if (name == names_of(launcher).launcher) return launcher;
  return std::nullopt;
}

Result<LaunchedRank> read_launched_rank(Launcher launcher, const Environment& environment) {
  const Names& names = names_of(launcher);
  const Variable rank = first_of(environment, names.rank);
  const Variable size = first_of(environment, names.size);
  if (rank.name == nullptr || size.name == nullptr)
    return fail(
        ErrorCode::kUsage,
        "--launcher {}: the environment has no {}; start the command by the launcher",
        names.launcher,
        rank.name == nullptr ? fmt::join(names.rank, " or ") : fmt::join(names.size, " or "));
  LaunchedRank own;
  SINEW_ASSIGN(own.size, number(size, 1, kRankCountMax));
  SINEW_ASSIGN(own.rank, number(rank, 0, own.size - 1));
  Variable local = first_of(environment, names.on_first_machine);
  // Slurm counts each machine's, as in "2(x3),1".
  local.value = local.value.substr(0, local.value.find_first_of("(,"));
  own.on_first_machine = own.size;
  if (local.name != nullptr) {
    SINEW_ASSIGN(own.on_first_machine, number(local, 1, own.size));
  }
  const Variable job = first_of(environment, names.job);
  const Variable step = first_of(environment, {"SLURM_STEP_ID"});
  own.job = job_of(fmt::format("{} {} {}", names.launcher, job.value, step.value), own.size);

  const Variable rendezvous = first_of(environment, {"SINEW_RENDEZVOUS"});
  if (rendezvous.name != nullptr) {
    SINEW_ASSIGN(own.rendezvous, parse_rendezvous(rendezvous.value));
    return own;
  }
  const bool one_machine = local.name != nullptr && own.on_first_machine == own.size;
  if (!one_machine || job.name == nullptr)
    return fail(ErrorCode::kUsage,
                "--launcher {}: set SINEW_RENDEZVOUS=ADDRESS:PORT, an address of rank 0's machine "
                "that the others reach and a free port there",
                names.launcher);
  own.rendezvous = {"127.0.0.1",
                    static_cast<std::uint16_t>(kPortFirst + own.job.words[0] % kPortCount)};
  return own;
}

Result<std::vector<JoinedRank>> await_ranks(const LaunchedRank& own, Deadline deadline) {
  std::vector<JoinedRank> ranks(static_cast<std::size_t>(own.size));
  if (own.size == 1) return ranks;
  auto listener = TcpListener::bind(own.rendezvous.host, own.rendezvous.port);
  if (!listener)
    return fail(ErrorCode::kIo,
                "rank 0 cannot wait for the others: {}; set SINEW_RENDEZVOUS=ADDRESS:PORT, an "
                "address of this machine and a free port",
                listener.error().message);
  SINEW_ASSIGN(std::vector<Socket> sockets, await_tcp_star(identity_of(own), *listener, deadline));
  for (std::size_t rank = 1; rank < ranks.size(); ++rank) {
    auto host = peer_host(sockets[rank]);
    if (!host) return fail(host.error().within(fmt::format("rank {}", rank)));
    ranks[rank] = {Descriptor(sockets[rank].release()), std::move(*host)};
  }
  return ranks;
}

Result<Descriptor> join_rank_zero(const LaunchedRank& own, Deadline deadline) {
  SINEW_ASSIGN(Socket socket, join_tcp_star(identity_of(own), own.rendezvous, deadline));
  return Descriptor(socket.release());
}

}  // namespace sinew
