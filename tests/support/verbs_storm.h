#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "support/fake_verbs.h"

namespace sinew::testing {

// What a storm came to. `problem` is empty if every sum was right, nothing hung, and every failure
// named a rank and followed a fault.
struct StormReport {
  std::uint64_t messages = 0;
  std::uint64_t sums = 0;
  std::uint64_t epochs = 0;
  std::map<std::string, std::uint64_t> failures;  // by the code of the first rank's error
  FakeCounts counts;
  std::string problem;
};

// Sums random vectors over verbs on a fake stack that loses, repeats, damages and delays messages,
// in one epoch after another, until `messages` have been sent. `faults` holds the first seed.
StormReport storm(FakeStack stack, int ranks, int cables, std::uint64_t messages,
                  FakeFaults faults);

}  // namespace sinew::testing
