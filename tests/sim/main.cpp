// sim --seed N [--count K] [--mutation NAME] [--verbose]: runs seeds N .. N + K - 1. Prints the
// seeds that break an invariant and a summary; status 1 if there is one.
#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "sim/world.h"

int main(int argc, char** argv) {
  using namespace sinew::sim;
  Settings settings;
  std::uint64_t count = 1;
  for (int i = 1; i < argc; ++i) {
    const std::string_view flag = argv[i];
    if (flag == "--verbose") {
      settings.verbose = true;
    } else if (flag == "--seed" && i + 1 < argc) {
      settings.seed = std::strtoull(argv[++i], nullptr, 10);
    } else if (flag == "--count" && i + 1 < argc) {
      count = std::strtoull(argv[++i], nullptr, 10);
    } else if (flag == "--mutation" && i + 1 < argc) {
      const std::string_view name = argv[++i];
      for (int m = 0; m < kMutationCount; ++m)
        if (mutation_name(static_cast<Mutation>(m)) == name)
          settings.mutation = static_cast<Mutation>(m);
    } else {
      fmt::print(stderr, "usage: sim --seed N [--count K] [--mutation NAME] [--verbose]\n");
      return 2;
    }
  }
  Outcome sum;
  std::uint64_t failures = 0;
  for (std::uint64_t i = 0; i < count; ++i, ++settings.seed) {
    const Outcome one = run(settings);
    sum.events += one.events;
    sum.faults += one.faults;
    sum.elections += one.elections;
    sum.epochs += one.epochs;
    sum.requests += one.requests;
    sum.finished += one.finished;
    sum.failed += one.failed;
    sum.tokens += one.tokens;
    if (one.violation.empty()) continue;
    ++failures;
    fmt::print("seed {}: {}\n", settings.seed, one.violation);
    std::fflush(stdout);
  }
  fmt::print(
      "{} seeds, {} violations; {} events, {} faults, {} elections, {} epochs, {} requests "
      "({} finished, {} ended with an error, the others with their machine), {} tokens\n",
      count, failures, sum.events, sum.faults, sum.elections, sum.epochs, sum.requests,
      sum.finished, sum.failed, sum.tokens);
  return failures == 0 ? 0 : 1;
}
