// Time of one all-reduce between forked ranks of this machine, in the format of mpi_all_reduce.cpp:
//   all_reduce_bench TRANSPORT RANKS [THRESHOLD_BYTES]     TRANSPORT: shm, tcp
// One line a size: "ranks bytes median_us p99_us gb_per_s". Time is that of rank 0; every repeat
// follows the last at once, as the segments of a decode step do. Bandwidth is the vector's bytes
// over the median.
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <string_view>
#include <vector>

#include "collective/mesh_group.h"
#include "transport/shm_link.h"
#include "transport/tcp_link.h"

namespace {

using namespace sinew;
using std::chrono::steady_clock;

int repeats_of(std::size_t bytes) {
  return static_cast<int>(std::clamp<std::size_t>((64u << 20) / bytes, 20, 3000));
}

Status measure(Group& group) {
  for (std::size_t bytes = 4u << 10; bytes <= 16u << 20; bytes *= 2) {
    std::vector<float> data(bytes / sizeof(float), 1.0f);
    const int repeats = repeats_of(bytes);
    std::vector<double> times;
    for (int i = 0; i < repeats + repeats / 10 + 1; ++i) {
      const auto start = steady_clock::now();
      SINEW_TRY(group.all_reduce_sum(data));
      const std::chrono::duration<double, std::micro> time = steady_clock::now() - start;
      if (i > repeats / 10) times.push_back(time.count());
    }
    if (group.rank() != 0) continue;
    std::sort(times.begin(), times.end());
    const double median = times[times.size() / 2];
    const double late = times[times.size() * 99 / 100];
    std::printf("%d %zu %.2f %.2f %.3f\n", group.size(), bytes, median, late,
                static_cast<double>(bytes) / median * 1e-3);
    std::fflush(stdout);
  }
  return {};
}

struct Setup {
  std::vector<ShmSegment> segment;  // for shm: one
  std::vector<TcpListener> listeners;
  std::vector<Endpoint> endpoints;
};

Result<Setup> set_up(std::string_view transport, int ranks) {
  Setup setup;
  if (transport == "shm") {
    SINEW_ASSIGN(ShmSegment segment, ShmSegment::create(ranks));
    setup.segment.push_back(std::move(segment));
    return setup;
  }
  for (int rank = 0; rank < ranks; ++rank) {
    SINEW_ASSIGN(TcpListener listener, TcpListener::bind("127.0.0.1", 0));
    setup.endpoints.push_back({"127.0.0.1", listener.port()});
    setup.listeners.push_back(std::move(listener));
  }
  return setup;
}

// As mpirun does where every rank has a core: two ranks that share one measure the scheduler.
void keep_to_core([[maybe_unused]] const GroupIdentity& identity) {
#ifdef __linux__
  cpu_set_t usable;
  if (sched_getaffinity(0, sizeof(usable), &usable) != 0) return;
  if (CPU_COUNT(&usable) < identity.size) return;
  int core = -1;
  for (int left = identity.rank; left >= 0; --left) {
    do {
      ++core;
    } while (!CPU_ISSET(core, &usable));
  }
  cpu_set_t own;
  CPU_ZERO(&own);
  CPU_SET(core, &own);
  if (sched_setaffinity(0, sizeof(own), &own) != 0) std::fprintf(stderr, "cannot keep to a core\n");
#endif
}

Status run_rank(Setup& setup, const GroupIdentity& identity, const GroupOptions& options) {
  const Deadline deadline = steady_clock::now() + std::chrono::seconds{10};
  SINEW_ASSIGN(Links links,
               setup.segment.empty()
                   ? connect_tcp_links(identity, setup.listeners[std::size_t(identity.rank)],
                                       setup.endpoints, deadline)
                   : make_shm_links(setup.segment.front(), identity));
  const auto group = make_group(identity, std::move(links), options);
  keep_to_core(identity);
  return measure(*group);
}

int report(const Status& status) {
  if (status) return 0;
  std::fprintf(stderr, "%s\n", status.error().message.c_str());
  return exit_status(status.error().code);
}

bool parse(std::string_view text, std::size_t& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

}  // namespace

int main(int argc, char** argv) {
  std::size_t ranks = 0;
  GroupOptions options;
  const std::string_view transport = argc > 1 ? argv[1] : "";
  if ((transport != "shm" && transport != "tcp") || argc < 3 || argc > 4 ||
      !parse(argv[2], ranks) || ranks < 1 || ranks > 8 ||
      (argc == 4 && !parse(argv[3], options.threshold_bytes))) {
    std::fprintf(stderr, "usage: all_reduce_bench shm|tcp RANKS [THRESHOLD_BYTES]\n");
    return 2;
  }
  const int size = static_cast<int>(ranks);
  auto setup = set_up(transport, size);
  if (!setup) return report(fail(setup.error()));
  for (int rank = 1; rank < size; ++rank) {
    const pid_t child = fork();
    if (child == 0) _exit(report(run_rank(*setup, {JobId{{1, 2}}, 1, rank, size}, options)));
    if (child < 0) return report(fail(ErrorCode::kIo, "fork failed"));
  }
  int result = report(run_rank(*setup, {JobId{{1, 2}}, 1, 0, size}, options));
  for (int status = 0; wait(&status) > 0;) {
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) result = 70;
  }
  return result;
}
