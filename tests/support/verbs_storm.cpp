#include "support/verbs_storm.h"

#include <cstdlib>
#include <cstring>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "collective/mesh_group.h"
#include "transport/verbs_bringup.h"

namespace sinew::testing {
namespace {

using std::chrono::milliseconds;

// Of a collective: what a lost last message costs.
constexpr milliseconds kTimeout{400};
constexpr milliseconds kBringUpMax{20000};
// Short vectors wait for each other, long ones fill every window.
constexpr std::size_t kShortFloatsMax = 2000;
constexpr std::size_t kLongFloatsMax = 60000;

float value_of(Rank rank, std::uint64_t round, std::size_t at) {
  return static_cast<float>((round * 31 + at * 7 + static_cast<std::uint64_t>(rank) * 13) % 1024);
}

// What the ranks of one epoch share.
struct Epochs {
  FakeFabric* fabric;
  int ranks;
  std::uint64_t messages;
  std::uint32_t seed;
  std::mutex mutex;
  StormReport report;            // guarded by mutex
  std::map<Rank, Error> errors;  // of this epoch, guarded by mutex

  void problem(const std::string& text) {
    const std::lock_guard lock(mutex);
    if (report.problem.empty()) report.problem = text;
  }
};

// One rank of one epoch: sums until an error, or until enough messages were sent.
void sum_until_failure(Epochs& epochs, const GroupIdentity& identity, TcpListener& listener,
                       const std::vector<Endpoint>& endpoints) {
  VerbsOptions options;
  options.slot_bytes = 4096;
  auto links =
      connect_verbs_links(identity, epochs.fabric->provider(identity.rank), options, listener,
                          endpoints, std::chrono::steady_clock::now() + kBringUpMax);
  if (!links) {
    const std::lock_guard lock(epochs.mutex);
    epochs.errors.emplace(identity.rank, links.error());
    return;
  }
  GroupOptions group_options;
  group_options.timeout = kTimeout;
  const auto group = make_group(identity, std::move(*links), group_options);
  std::mt19937 lengths(epochs.seed + static_cast<std::uint32_t>(identity.epoch));
  std::uint64_t sums = 0;
  for (std::uint64_t round = 0;; ++round) {
    // All ranks must agree on the end: it is part of what they sum.
    const bool enough = epochs.fabric->counts().sent >= epochs.messages;
    const bool is_short = lengths() % 4 == 0;
    std::vector<float> data(2 + lengths() % (is_short ? kShortFloatsMax : kLongFloatsMax));
    data[0] = enough ? 1.0f : 0.0f;
    for (std::size_t i = 1; i < data.size(); ++i) data[i] = value_of(identity.rank, round, i);
    const Status status = group->all_reduce_sum(data);
    if (!status) {
      const std::lock_guard lock(epochs.mutex);
      epochs.report.sums += sums;
      epochs.errors.emplace(identity.rank, status.error());
      return;
    }
    for (std::size_t i = 1; i < data.size(); ++i) {
      float expected = 0;
      for (Rank rank = 0; rank < epochs.ranks; ++rank) expected += value_of(rank, round, i);
      if (data[i] != expected) {
        epochs.problem(fmt::format("wrong sum: epoch {}, round {}, rank {}", identity.epoch, round,
                                   identity.rank));
      }
    }
    ++sums;
    if (data[0] > 0) break;
  }
  const std::lock_guard lock(epochs.mutex);
  epochs.report.sums += sums;
}

std::uint64_t faults_of(const FakeCounts& counts) {
  return counts.lost + counts.corrupted + counts.duplicated;
}

void run_epoch(Epochs& epochs, Epoch epoch) {
  std::vector<TcpListener> listeners;
  std::vector<Endpoint> endpoints;
  for (Rank rank = 0; rank < epochs.ranks; ++rank) {
    auto listener = TcpListener::bind("127.0.0.1", 0);
    if (!listener) std::abort();
    endpoints.push_back({"127.0.0.1", listener->port()});
    listeners.push_back(std::move(*listener));
  }
  const std::uint64_t faults_before = faults_of(epochs.fabric->counts());
  epochs.errors.clear();
  std::vector<std::thread> threads;
  for (Rank rank = 0; rank < epochs.ranks; ++rank) {
    threads.emplace_back([&, rank] {
      const GroupIdentity identity{JobId{{1, 2}}, epoch, rank, epochs.ranks};
      sum_until_failure(epochs, identity, listeners[static_cast<std::size_t>(rank)], endpoints);
    });
  }
  for (std::thread& thread : threads) thread.join();
  ++epochs.report.epochs;
  if (epochs.errors.empty()) return;
  const Error& first = epochs.errors.begin()->second;
  ++epochs.report.failures[std::string(error_code_name(first.code))];
  for (const auto& [rank, error] : epochs.errors) {
    if (error.code != ErrorCode::kUnsupported && !error.rank) {
      epochs.problem(fmt::format("rank {} names nobody: {}", rank, error.message));
    }
  }
  if (faults_of(epochs.fabric->counts()) == faults_before) {
    epochs.problem(fmt::format("failed without a fault: {}", first.message));
  }
}

}  // namespace

StormReport storm(FakeStack stack, int ranks, int cables, std::uint64_t messages,
                  FakeFaults faults) {
  FakeFabric fabric(stack, ranks, cables);
  const std::uint32_t seed = faults.seed;
  Epochs epochs;
  epochs.fabric = &fabric;
  epochs.ranks = ranks;
  epochs.messages = messages;
  epochs.seed = seed;
  for (Epoch epoch = 1; fabric.counts().sent < messages && epochs.report.problem.empty(); ++epoch) {
    // The dice of a queue pair depend on the seed and its number, which are the same every epoch.
    faults.seed = seed + static_cast<std::uint32_t>(epoch) * 7919;
    fabric.set_faults(faults);
    run_epoch(epochs, epoch);
  }
  if (fabric.violations() > 0) epochs.problem(fabric.first_violation());
  if (fabric.leaks() != 0) epochs.problem(fmt::format("{} objects leaked", fabric.leaks()));
  epochs.report.counts = fabric.counts();
  epochs.report.messages = epochs.report.counts.sent;
  return epochs.report;
}

}  // namespace sinew::testing
