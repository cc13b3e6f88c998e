#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "engine/canary.h"
#include "engine/slice_hash.h"
#include "engine/supervisor.h"

namespace sinew {

// The proof that a model is split without a fault, on the user's own file and machines: what every
// rank holds against the file, and what the ranks compute against one rank, or against a recorded
// computation (engine/record.h). What counts as equal is told in engine/judgement.h.
struct VerifyOptions {
  LaunchOptions launch;  // path, link, device, cache type; layout, threads and context are set here
  std::vector<Layout> layouts;  // each is compared with the reference
  Layout reference;
  // Layouts that the model cannot be split into, or that do not fit the memory, are left out and
  // told; otherwise they fail.
  bool may_skip = false;
  int threads = 0;  // of each rank; 0: the cores divided by the ranks
  std::vector<TokenId> prompt;
  int greedy_tokens = 32;
  HashScope hashes = HashScope::kAll;
  std::string record;   // file to write the reference to; layouts are then not compared
  std::string against;  // file to read the reference from
  std::string program;  // version, for the record
};

struct VerifyCheck {
  enum class State : std::uint8_t { kOk, kFailed, kSkipped } state = State::kOk;
  std::string name;
  std::string detail;  // what was found or, after a failure, cause and remedy
  std::optional<CanaryReport> canary;
};
struct VerifyReport {
  std::vector<VerifyCheck> checks;
  bool ok() const;
};

// Runs every check, also after one has failed. An error only if nothing could be checked:
// kCancelled once `wanted` says no, kUsage. `progress` is told what goes on.
Result<VerifyReport> verify_model(const VerifyOptions& options, const std::function<bool()>& wanted,
                                  const std::function<void(const std::string&)>& progress);

// "2 ranks", "4 ranks of weights 3,3,1,1, stages 2,2, whole experts".
std::string describe_layout(const Layout& layout);

}  // namespace sinew
