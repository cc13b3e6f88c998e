// `sinew bench collectives`: what ranks do together, by operation, algorithm and size.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "cli/bench_figures.h"
#include "cli/bench_ranks.h"
#include "cli/commands.h"
#include "collective/mesh_group.h"
#include "host/process.h"

namespace sinew {
namespace {

using Clock = std::chrono::steady_clock;
using Json = nlohmann::ordered_json;

constexpr std::chrono::seconds kBenchMax{900};
constexpr std::uint64_t kNoLimit = ~std::uint64_t{0};

// One line of the benchmark: an operation, and for all-reduces who decides on the algorithm.
struct Subject {
  std::string operation;
  std::optional<Algorithm> algorithm;  // nothing: as the group measured
};

std::vector<Subject> subjects() {
  return {{"all-reduce", std::nullopt},
          {"all-reduce", Algorithm::kOneShot},
          {"all-reduce", Algorithm::kTwoPhase},
          {"all-reduce", Algorithm::kRing},
          {"all-reduce", Algorithm::kChain},
          {"all-gather", std::nullopt},
          {"gather", std::nullopt},
          {"broadcast", std::nullopt}};
}

std::string name_of(const Subject& subject) {
  if (subject.operation != "all-reduce") return "-";
  return subject.algorithm ? std::string(algorithm_name(*subject.algorithm)) : "measured";
}

// Leaves out the links that a ring would not have.
void cut_to_ring(const GroupIdentity& identity, Links& links, CollectivePlan& plan) {
  const auto joined = [&](Rank a, Rank b) {
    const int apart = a < b ? b - a : a - b;
    return apart == 1 || apart == identity.size - 1;
  };
  for (Rank a = 0; a < identity.size; ++a) {
    RankSet& own = plan.linked[static_cast<std::size_t>(a)];
    for (Rank b = 0; b < identity.size; ++b) {
      if (a == b || joined(a, b)) continue;
      own.bits &= ~RankSet::range(b, 1).bits;
      if (a == identity.rank) links[static_cast<std::size_t>(b)].reset();
    }
  }
}

Result<std::unique_ptr<Group>> group_for(const Subject& subject, const GroupIdentity& identity,
                                         Links links, const GroupOptions& options) {
  if (!subject.algorithm) return form_group(identity, std::move(links), options);
  const bool one_shot = *subject.algorithm == Algorithm::kOneShot;
  CollectivePlan plan = CollectivePlan::direct(identity.size, one_shot ? kNoLimit : 0);
  if (*subject.algorithm == Algorithm::kRing || *subject.algorithm == Algorithm::kChain)
    cut_to_ring(identity, links, plan);
  if (*subject.algorithm == Algorithm::kRing) plan.ring_max.fill(kNoLimit);
  return make_group(identity, std::move(links), options, plan);
}

// What one repeat of an operation works on.
struct Buffers {
  std::vector<float> values;
  std::vector<std::byte> part;
  std::vector<std::byte> whole;
  std::vector<std::size_t> counts;

  Buffers(std::size_t bytes, int ranks)
      : values(bytes / sizeof(float), 1.0f), counts(static_cast<std::size_t>(ranks)) {}
};

Status run_once(const std::string& operation, Group& group, Buffers& buffers) {
  if (operation == "all-reduce") return group.all_reduce_sum(buffers.values);
  if (operation == "broadcast")
    return group.broadcast(0, std::as_writable_bytes(std::span(buffers.values)));
  if (buffers.whole.empty()) {
    // The whole has the size; each rank brings its share.
    const std::size_t each = buffers.values.size() * sizeof(float) / buffers.counts.size();
    std::fill(buffers.counts.begin(), buffers.counts.end(), each);
    buffers.part.resize(each);
    buffers.whole.resize(each * buffers.counts.size());
  }
  if (operation == "all-gather")
    return group.all_gather(buffers.part, buffers.counts, buffers.whole);
  SINEW_TRY(group.gather(0, buffers.part, buffers.counts,
                         group.rank() == 0 ? std::span(buffers.whole) : std::span<std::byte>()));
  // Else senders would run ahead and rank 0 would find everything there.
  std::byte go{};
  return group.broadcast(0, std::span(&go, 1));
}

// Times of rank 0; every repeat follows the last at once, as the sums of a decode step do.
Result<std::string> be_rank(const Subject& subject, const GroupIdentity& identity, Links links,
                            const BenchCollectivesFlags& flags, WireType wire,
                            const std::vector<std::size_t>& sizes) {
  GroupOptions options;
  options.wire = wire;
  SINEW_ASSIGN(const std::unique_ptr<Group> group,
               group_for(subject, identity, std::move(links), options));
  const FabricFigures expected = expected_fabric(flags.transport, identity.size);
  Json rows = Json::array();
  for (const std::size_t bytes : sizes) {
    Buffers buffers(bytes, identity.size);
    const int repeats = repeats_for(bytes, flags.repeats);
    const int warm_up = 1 + repeats / 10;
    std::vector<double> times;
    for (int i = 0; i < warm_up + repeats; ++i) {
      const auto start = Clock::now();
      SINEW_TRY(run_once(subject.operation, *group, buffers));
      const std::chrono::duration<double, std::micro> time = Clock::now() - start;
      if (i >= warm_up) times.push_back(time.count());
      // Sums of ones grow without end.
      if (subject.operation == "all-reduce")
        std::fill(buffers.values.begin(), buffers.values.end(), 1.0f);
    }
    const Percentiles us = percentiles_of(std::move(times));
    const std::size_t wire_bytes = bytes / sizeof(float) * wire_width(wire);
    Json row{{"operation", subject.operation},
             {"algorithm", name_of(subject)},
             {"ranks", identity.size},
             {"kind", group->kind()},
             {"wire", wire_type_name(wire)},
             {"bytes", bytes},
             {"repeats", repeats},
             {"p50_us", us.p50},
             {"p90_us", us.p90},
             {"p99_us", us.p99},
             {"max_us", us.max},
             {"gb_per_s", double(bytes) / us.p50 * 1e-3}};
    if (subject.operation == "all-reduce" && identity.size > 1) {
      const Algorithm used =
          subject.algorithm.value_or(group->plan().algorithm(group->everyone(), wire_bytes));
      const double expected_time =
          expected_us(expected, used, identity.size, static_cast<double>(wire_bytes));
      row["used"] = algorithm_name(used);
      row["expected_us"] = expected_time;
      row["verdict"] = verdict(us.p50, expected_time);
    }
    rows.push_back(std::move(row));
  }
  return rows.dump();
}

void print_table(const Json& rows, int ranks, int cores) {
  fmt::print(
      "Microseconds on rank 0; expected: the cost model with figures of such links "
      "elsewhere\n");
  if (ranks > cores) fmt::print("{} ranks share {} cores\n", ranks, cores);
  fmt::print("{:>10} {:>9} {:>4} {:>9} {:>9} {:>9} {:>9} {:>9} {:>7} {:>9}  {}\n", "operation",
             "algorithm", "kind", "bytes", "p50", "p90", "p99", "max", "GB/s", "expected",
             "verdict");
  for (const Json& row : rows) {
    const std::string algorithm = row["algorithm"].get<std::string>();
    fmt::print("{:>10} {:>9} {:>4} {:>9} {:>9.2f} {:>9.2f} {:>9.2f} {:>9.2f} {:>7.3f}",
               row["operation"].get<std::string>(), algorithm, row["kind"].get<std::string>(),
               row["bytes"].get<std::size_t>(), row["p50_us"].get<double>(),
               row["p90_us"].get<double>(), row["p99_us"].get<double>(),
               row["max_us"].get<double>(), row["gb_per_s"].get<double>());
    if (row.contains("verdict"))
      fmt::print(" {:>9.2f}  {}{}", row["expected_us"].get<double>(),
                 row["verdict"].get<std::string>(),
                 algorithm == "measured" ? " (" + row["used"].get<std::string>() + ")" : "");
    fmt::print("\n");
  }
}

}  // namespace

Status bench_collectives_command(const BenchCollectivesFlags& flags) {
  if (flags.ranks < 2 || flags.repeats < 1)
    return fail(ErrorCode::kUsage, "--ranks and --repeats must be at least 2 and 1");
  const std::optional<WireType> wire = wire_type_named(flags.wire);
  if (!wire)
    return fail(ErrorCode::kUsage, "--wire {} is not known; there are f32, bf16 and f16",
                flags.wire);
  std::vector<std::size_t> sizes = default_sizes();
  if (!flags.sizes.empty()) {
    SINEW_ASSIGN(sizes, parse_sizes(flags.sizes));
  }
  Json rows = Json::array();
  for (const Subject& subject : subjects()) {
    if (!flags.only.empty() && flags.only != name_of(subject) && flags.only != subject.operation)
      continue;
    SINEW_ASSIGN(const std::vector<std::string> reports,
                 run_bench_ranks(flags.transport, flags.ranks, kBenchMax,
                                 [&](const GroupIdentity& identity, Links links) {
                                   return be_rank(subject, identity, std::move(links), flags, *wire,
                                                  sizes);
                                 }));
    const Json own = Json::parse(reports.front(), nullptr, false);
    rows.insert(rows.end(), own.begin(), own.end());
  }
  if (rows.empty())
    return fail(ErrorCode::kUsage,
                "--only {} is not known; there are all-reduce, all-gather, gather, broadcast, "
                "measured, one-shot, two-phase, ring and chain",
                flags.only);
  if (flags.json) {
    const Json all{{"schema", 1}, {"cores", usable_cores()}, {"collectives", rows}};
    fmt::print("{}\n", all.dump());
    return {};
  }
  print_table(rows, flags.ranks, usable_cores());
  return {};
}

}  // namespace sinew
