#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "collective/link.h"
#include "host/process.h"
#include "transport/tcp_socket.h"

namespace sinew {

// Who has started the ranks, where that is not the supervisor: the same command runs once for each
// rank, and its environment says which one it is.
enum class Launcher : std::uint8_t {
  kMpi,    // mpirun or mpiexec of Open MPI, MPICH or Intel MPI
  kSlurm,  // srun
  kEnv,    // anything else: SINEW_RANK, SINEW_SIZE, SINEW_RENDEZVOUS
};
std::optional<Launcher> launcher_named(std::string_view name);

// One process of a launched job. The process of rank 0 is the supervisor: it answers, and starts
// rank 0 itself as a child; the others are ranks.
struct LaunchedRank {
  Rank rank = 0;
  int size = 1;
  // Where rank 0's process listens for the others.
  Endpoint rendezvous;
  // Tells jobs apart that meet at one port: the launcher's own id of the job.
  JobId job;
  // Ranks on rank 0's machine, where the launcher says so; else all.
  int on_first_machine = 1;
};

// Reads what `environment` (getenv, or a test's) says. kUsage names the missing or wrong variable.
//
// SINEW_RENDEZVOUS=ADDRESS:PORT is needed where ranks are on several machines. On one machine the
// loopback address serves, with a port drawn from the launcher's id of the job.
Result<LaunchedRank> read_launched_rank(Launcher launcher,
                                        const std::function<const char*(const char*)>& environment);

// The connection of rank 0's process to another, by which it is controlled.
struct JoinedRank {
  Descriptor socket;
  std::string host;  // the other's address
};

// Launchers start the processes of a job within seconds of each other.
inline constexpr std::chrono::seconds kJoinMax{60};

// Rank 0: waits for all others; by rank, the own entry is empty. kDeadline names who is missing.
Result<std::vector<JoinedRank>> await_ranks(const LaunchedRank& own, Deadline deadline);
// The others: connects to rank 0's process. kDeadline says where it was looked for.
Result<Descriptor> join_rank_zero(const LaunchedRank& own, Deadline deadline);

}  // namespace sinew
