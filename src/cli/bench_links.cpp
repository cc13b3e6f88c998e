// `sinew bench links`: every pair of ranks in turn, alone, there and back.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "cli/bench_figures.h"
#include "cli/bench_ranks.h"
#include "cli/commands.h"

namespace sinew {
namespace {

using Clock = std::chrono::steady_clock;
using Json = nlohmann::ordered_json;

constexpr std::chrono::seconds kWaitMax{30};
constexpr std::chrono::seconds kBenchMax{900};

Status send(Link& link, std::span<const std::byte> bytes) {
  SINEW_TRY(link.start_send(bytes, {}));
  return link.finish_send(Clock::now() + kWaitMax);
}

Status receive(Link& link, std::span<std::byte> bytes) {
  return link.receive(bytes, Clock::now() + kWaitMax);
}

// Nobody goes on before all are here: no pair disturbs another. Those that only watch sleep in the
// kernel meanwhile.
Status wait_for_all(const GroupIdentity& identity, Links& links) {
  std::byte token{};
  const std::span<std::byte> one(&token, 1);
  if (identity.rank != 0) {
    SINEW_TRY(send(*links[0], one));
    return links[0]->receive(one, Clock::now() + kBenchMax);
  }
  for (Rank peer = 1; peer < identity.size; ++peer)
    SINEW_TRY(links[static_cast<std::size_t>(peer)]->receive(one, Clock::now() + kBenchMax));
  for (Rank peer = 1; peer < identity.size; ++peer)
    SINEW_TRY(send(*links[static_cast<std::size_t>(peer)], one));
  return {};
}

// Half of each round trip, on the side that speaks first.
Status trips(Link& link, bool first, std::span<std::byte> bytes, int repeats,
             std::vector<double>& half_trips_us) {
  const int warm_up = 1 + repeats / 10;
  for (int i = 0; i < warm_up + repeats; ++i) {
    const auto start = Clock::now();
    if (!first) SINEW_TRY(receive(link, bytes));
    SINEW_TRY(send(link, bytes));
    if (first) SINEW_TRY(receive(link, bytes));
    const std::chrono::duration<double, std::micro> trip = Clock::now() - start;
    if (i >= warm_up) half_trips_us.push_back(trip.count() / 2);
  }
  return {};
}

Result<Json> measure_pair(Link& link, Rank own, const BenchLinksFlags& flags,
                          const std::vector<std::size_t>& sizes) {
  Json rows = Json::array();
  for (const std::size_t bytes : sizes) {
    std::vector<std::byte> buffer(bytes, std::byte{1});
    std::vector<double> times;
    const int repeats = repeats_for(bytes, flags.repeats);
    SINEW_TRY(trips(link, own < link.peer(), buffer, repeats, times));
    if (own > link.peer()) continue;
    const Percentiles us = percentiles_of(std::move(times));
    const LinkFigures expected = expected_link(link.kind());
    const double expected_us = expected.latency_us + double(bytes) / expected.bytes_per_us;
    rows.push_back({{"from", own},
                    {"to", link.peer()},
                    {"kind", link.kind()},
                    {"bytes", bytes},
                    {"repeats", repeats},
                    {"p50_us", us.p50},
                    {"p90_us", us.p90},
                    {"p99_us", us.p99},
                    {"max_us", us.max},
                    {"gb_per_s", double(bytes) / us.p50 * 1e-3},
                    {"expected_us", expected_us},
                    {"verdict", verdict(us.p50, expected_us)}});
  }
  return rows;
}

Result<std::string> be_rank(const GroupIdentity& identity, Links links,
                            const BenchLinksFlags& flags, const std::vector<std::size_t>& sizes) {
  Json rows = Json::array();
  for (Rank a = 0; a < identity.size; ++a) {
    for (Rank b = a + 1; b < identity.size; ++b) {
      SINEW_TRY(wait_for_all(identity, links));
      if (identity.rank != a && identity.rank != b) continue;
      const Rank peer = identity.rank == a ? b : a;
      SINEW_ASSIGN(const Json pair, measure_pair(*links[static_cast<std::size_t>(peer)],
                                                 identity.rank, flags, sizes));
      rows.insert(rows.end(), pair.begin(), pair.end());
    }
  }
  SINEW_TRY(wait_for_all(identity, links));
  return rows.dump();
}

}  // namespace

Status bench_links_command(const BenchLinksFlags& flags) {
  if (flags.ranks < 2 || flags.repeats < 1)
    return fail(ErrorCode::kUsage, "--ranks and --repeats must be at least 2 and 1");
  std::vector<std::size_t> sizes = default_sizes();
  if (!flags.sizes.empty()) {
    SINEW_ASSIGN(sizes, parse_sizes(flags.sizes));
  }
  SINEW_ASSIGN(const std::vector<std::string> reports,
               run_bench_ranks(flags.transport, flags.ranks, kBenchMax,
                               [&](const GroupIdentity& identity, Links links) {
                                 return be_rank(identity, std::move(links), flags, sizes);
                               }));
  Json rows = Json::array();
  for (const std::string& report : reports) {
    const Json own = Json::parse(report, nullptr, false);
    rows.insert(rows.end(), own.begin(), own.end());
  }
  if (flags.json) {
    const Json all{{"schema", 1}, {"ranks", flags.ranks}, {"links", rows}};
    fmt::print("{}\n", all.dump());
    return {};
  }
  fmt::print("One way, microseconds; expected: figures of such links elsewhere\n");
  fmt::print("{:>6} {:>4} {:>9} {:>9} {:>9} {:>9} {:>9} {:>7} {:>9}  {}\n", "link", "kind", "bytes",
             "p50", "p90", "p99", "max", "GB/s", "expected", "verdict");
  for (const Json& row : rows)
    fmt::print("{:>6} {:>4} {:>9} {:>9.2f} {:>9.2f} {:>9.2f} {:>9.2f} {:>7.3f} {:>9.2f}  {}\n",
               fmt::format("{}-{}", row["from"].get<int>(), row["to"].get<int>()),
               row["kind"].get<std::string>(), row["bytes"].get<std::size_t>(),
               row["p50_us"].get<double>(), row["p90_us"].get<double>(),
               row["p99_us"].get<double>(), row["max_us"].get<double>(),
               row["gb_per_s"].get<double>(), row["expected_us"].get<double>(),
               row["verdict"].get<std::string>());
  return {};
}

}  // namespace sinew
