// One rank of a group as a program of its own, so that ranks can be on several machines and be
// killed and stopped from outside. Sums vectors, checks every sum, and prints a line
//   joined | step N (now and then) | done, the median sum took N us | error CODE rank=R
//   after=MILLISECONDS: MESSAGE
// where `after` counts from the start of the operation that failed. Status 0, 3 after an error, 4
// after a wrong sum.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "collective/mesh_group.h"
#include "transport/tcp_link.h"
#include "transport/verbs_bringup.h"

namespace sinew {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kJoinMax{20000};
constexpr milliseconds kReportInterval{500};

struct Flags {
  int rank = 0;
  std::vector<std::string> hosts;  // by rank
  int port = 7000;                 // of rank 0; the others follow
  std::string link = "tcp";
  std::string device;
  Epoch epoch = 1;
  int steps = 0;  // 0: until something breaks
  int floats = 4096;
  int timeout_ms = 3000;
};

Result<Links> join(const Flags& flags, const GroupIdentity& identity) {
  std::vector<Endpoint> peers;
  for (const std::string& host : flags.hosts)
    peers.push_back(
        {host, static_cast<std::uint16_t>(flags.port + static_cast<int>(peers.size()))});
  const Endpoint& own = peers[static_cast<std::size_t>(flags.rank)];
  SINEW_ASSIGN(TcpListener listener, TcpListener::bind(own.host, own.port));
  const Deadline deadline = steady_clock::now() + kJoinMax;
  if (flags.link == "tcp") return connect_tcp_links(identity, listener, peers, deadline);
  VerbsOptions options;
  if (!flags.device.empty()) options.devices = {flags.device};
  options.qp_type = flags.link == "uc" ? VerbsQpType::kUc : VerbsQpType::kRc;
  return connect_verbs_links(identity, load_system_verbs(), options, listener, peers, deadline);
}

// Small whole numbers, whose sum is exact in every order.
float value(Rank rank, int step, int index) {
  return static_cast<float>((rank + 1) * ((step + index) % 1000));
}

void say(const std::string& line) {
  std::puts(line.c_str());
  std::fflush(stdout);
}

int failed(const Error& error, steady_clock::time_point since) {
  const auto after = std::chrono::duration_cast<milliseconds>(steady_clock::now() - since);
  say(fmt::format("error {} rank={} after={}: {}", error_code_name(error.code),
                  error.rank.value_or(-1), after.count(), error.message));
  return 3;
}

int sum(Group& group, const Flags& flags) {
  const int weights = group.size() * (group.size() + 1) / 2;
  std::vector<float> data(static_cast<std::size_t>(flags.floats));
  std::vector<double> took_us;
  auto reported = steady_clock::now() - kReportInterval;
  for (int step = 0; flags.steps == 0 || step < flags.steps; ++step) {
    if (steady_clock::now() - reported >= kReportInterval) {
      say(fmt::format("step {}", step));
      reported = steady_clock::now();
    }
    for (int i = 0; i < flags.floats; ++i)
      data[static_cast<std::size_t>(i)] = value(group.rank(), step, i);
    group.set_step(static_cast<std::uint64_t>(step));
    const auto start = steady_clock::now();
    if (const Status status = group.all_reduce_sum(data); !status)
      return failed(status.error(), start);
    const std::chrono::duration<double, std::micro> took = steady_clock::now() - start;
    if (flags.steps > 0) took_us.push_back(took.count());
    for (int i = 0; i < flags.floats; ++i) {
      const float expected = static_cast<float>(weights) * value(0, step, i);
      if (data[static_cast<std::size_t>(i)] == expected) continue;
      say(fmt::format("wrong sum in step {} at {}: {}, expected {}", step, i,
                      data[static_cast<std::size_t>(i)], expected));
      return 4;
    }
  }
  std::nth_element(took_us.begin(), took_us.begin() + took_us.size() / 2, took_us.end());
  say(fmt::format("done, the median sum took {:.1f} us", took_us[took_us.size() / 2]));
  return 0;
}

int run(const Flags& flags) {
  const GroupIdentity identity{JobId{{0x67756573, 0x74}}, flags.epoch, flags.rank,
                               static_cast<int>(flags.hosts.size())};
  const auto start = steady_clock::now();
  auto links = join(flags, identity);
  if (!links) return failed(links.error(), start);
  GroupOptions options;
  options.timeout = milliseconds{flags.timeout_ms};
  const auto group = make_group(identity, std::move(*links), options);
  say("joined");
  return sum(*group, flags);
}

}  // namespace
}  // namespace sinew

int main(int argc, char** argv) {
  sinew::Flags flags;
  CLI::App app{"One rank of a group that sums vectors until something breaks."};
  app.add_option("--rank", flags.rank)->required();
  app.add_option("--hosts", flags.hosts, "Address of each rank")->delimiter(',')->required();
  app.add_option("--port", flags.port, "Of rank 0; the others follow");
  app.add_option("--link", flags.link)->check(CLI::IsMember({"tcp", "rc", "uc"}));
  app.add_option("--device", flags.device, "Of verbs (default: that of the rank's address)");
  app.add_option("--epoch", flags.epoch);
  app.add_option("--steps", flags.steps, "0: until something breaks");
  app.add_option("--floats", flags.floats, "Of a sum")->check(CLI::Range(1, 1 << 24));
  app.add_option("--timeout", flags.timeout_ms, "Of an operation, in milliseconds");
  CLI11_PARSE(app, argc, argv);
  if (flags.rank < 0 || flags.rank >= static_cast<int>(flags.hosts.size())) {
    std::fputs("link_peer: --rank is not one of --hosts\n", stderr);
    return 2;
  }
  return sinew::run(flags);
}
