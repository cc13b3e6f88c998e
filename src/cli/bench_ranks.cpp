#include "cli/bench_ranks.h"

#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/limits.h"
#include "host/process.h"
#include "transport/shm_link.h"
#include "transport/tcp_link.h"

#ifdef __linux__
#include <sched.h>
#endif

namespace sinew {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kConnectMax{20};
constexpr std::size_t kReportBytesMax = 4u << 20;

// What every rank needs before it is forked.
struct Meeting {
  std::optional<ShmSegment> segment;
  std::vector<TcpListener> listeners;
  std::vector<Endpoint> endpoints;

  Result<Links> links(const GroupIdentity& identity) {
    if (segment) return make_shm_links(*segment, identity);
    return connect_tcp_links(identity, listeners[static_cast<std::size_t>(identity.rank)],
                             endpoints, Clock::now() + kConnectMax);
  }
};

Result<Meeting> prepare(const std::string& transport, int ranks) {
  Meeting meeting;
  if (transport == "shm") {
    SINEW_ASSIGN(meeting.segment, ShmSegment::create(ranks));
    return meeting;
  }
  if (transport != "tcp")
    return fail(ErrorCode::kUsage, "--transport {} is not known; there are shm and tcp", transport);
  for (int rank = 0; rank < ranks; ++rank) {
    SINEW_ASSIGN(TcpListener listener, TcpListener::bind("127.0.0.1", 0));
    meeting.endpoints.push_back({"127.0.0.1", listener.port()});
    meeting.listeners.push_back(std::move(listener));
  }
  return meeting;
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
  // Where the system refuses, the figures are less even, nothing else.
  static_cast<void>(sched_setaffinity(0, sizeof(own), &own));
#endif
}

void write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t count = ::write(fd, text.data(), text.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return;  // the parent sees a report that is too short
    text.remove_prefix(static_cast<std::size_t>(count));
  }
}

// The first byte says what follows: the report, or an error's code and message.
constexpr char kOk = 'R';

[[noreturn]] void be_rank(Meeting& meeting, const GroupIdentity& identity, const BenchRank& body,
                          int report) {
  die_with_parent();
  auto result = [&]() -> Result<std::string> {
    SINEW_ASSIGN(Links links, meeting.links(identity));
    keep_to_core(identity);
    return body(identity, std::move(links));
  }();
  if (result)
    write_all(report, kOk + *result);
  else
    write_all(report,
              static_cast<char>(static_cast<int>(result.error().code)) + result.error().message);
  std::_Exit(0);
}

struct Child {
  pid_t process = -1;
  Descriptor report;
  std::string text;
};

// Ends whatever is left of the ranks, however this function's caller returns.
struct Children {
  std::vector<Child> all;
  ~Children() {
    for (const Child& child : all)
      kill_child(child.process, std::chrono::steady_clock::now() + std::chrono::seconds(1));
  }
};

// Reads until every rank has closed its pipe.
Status read_reports(std::vector<Child>& children, Clock::time_point deadline) {
  while (true) {
    std::vector<pollfd> waits;
    for (const Child& child : children)
      if (child.report.get() >= 0) waits.push_back({child.report.get(), POLLIN, 0});
    if (waits.empty()) return {};
    if (Clock::now() >= deadline)
      return fail(ErrorCode::kDeadline, "the benchmark took too long; try fewer --repeats");
    ::poll(waits.data(), static_cast<nfds_t>(waits.size()), 100);
    std::size_t next = 0;
    for (Child& child : children) {
      if (child.report.get() < 0 || waits[next++].revents == 0) continue;
      char buffer[4096];
      const ssize_t count = ::read(child.report.get(), buffer, sizeof(buffer));
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0 || child.text.size() > kReportBytesMax)
        child.report.reset();
      else
        child.text.append(buffer, static_cast<std::size_t>(count));
    }
  }
}

}  // namespace

Result<std::vector<std::string>> run_bench_ranks(const std::string& transport, int ranks,
                                                 std::chrono::seconds longest,
                                                 const BenchRank& body) {
  if (ranks < 1 || ranks > kRankCountMax)
    return fail(ErrorCode::kUsage, "--ranks {} is not possible; 1 to {} are", ranks, kRankCountMax);
  SINEW_ASSIGN(Meeting meeting, prepare(transport, ranks));
  Children children;
  for (Rank rank = 0; rank < ranks; ++rank) {
    int ends[2];
    if (::pipe(ends) != 0) return fail(ErrorCode::kIo, "pipe: {}", std::strerror(errno));
    Descriptor reads(ends[0]);
    Descriptor writes(ends[1]);
    const pid_t process = ::fork();
    if (process < 0) return fail(ErrorCode::kIo, "fork: {}", std::strerror(errno));
    if (process == 0) {
      const GroupIdentity identity{JobId{{0x62656e6368, 1}}, 1, rank, ranks};
      be_rank(meeting, identity, body, writes.get());
    }
    children.all.push_back({process, std::move(reads), {}});
  }
  SINEW_TRY(read_reports(children.all, Clock::now() + longest));
  std::vector<std::string> reports;
  std::optional<Error> error;
  for (std::size_t rank = 0; rank < children.all.size(); ++rank) {
    const std::string& text = children.all[rank].text;
    if (!text.empty() && text[0] == kOk) {
      reports.push_back(text.substr(1));
      continue;
    }
    // A rank that died says nothing; those that waited for it do.
    if (text.empty() || !error)
      error = text.empty() ? Error{ErrorCode::kPeerLost, fmt::format("rank {} died", rank),
                                   static_cast<Rank>(rank)}
                           : Error{static_cast<ErrorCode>(text[0]), text.substr(1), {}};
  }
  if (error) return fail(std::move(*error));
  return reports;
}

}  // namespace sinew
