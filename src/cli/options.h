#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/supervisor.h"
#include "sample/sampler.h"

namespace sinew {

// Flags that say which model is loaded and how it is split; shared by run, serve, demo, logits and
// bench.
struct ModelFlags {
  std::string model;
  std::optional<int> ranks = {};  // as many as there are shares, else 1
  std::vector<double> shares;
  std::vector<int> stages;  // ranks of each pipeline stage; empty: one stage
  std::string experts = "columns";
  std::string cache_type = "f16";
  int threads = 0;   // of each rank; 0: the cores divided by the ranks
  std::string link;  // "": shm, or tcp between ranks that a launcher started
  VerbsOptions verbs;
  std::string verbs_qp;  // "": what the stack does best
  std::string launcher;  // "": the supervisor
  std::string device;
  std::int64_t context = 0;  // 0: what the model was trained for, at most kContextDefault
  int chunk = 512;
  double timeout_seconds = 30;
  bool recover_exactly = false;
  std::optional<double> recover_seconds = {};  // 300; 0 where a launcher has started the ranks
  std::string wire = "f32";
  std::optional<std::uint64_t> one_shot_max = {};
  bool verbose = false;

  // Set on the process of rank 0 where there is a launcher.
  std::optional<LaunchedRank> launched = {};

  void add_to(CLI::App& app);
  // Runs `lead`, unless this is the process of another rank than 0 of a launcher: then it serves as
  // that rank, and the process ends with rank 0's.
  Status lead_or_serve(const std::function<Status()>& lead);
  // kUsage for flags that contradict each other or are out of range.
  Result<LaunchOptions> launch_options() const;

 private:
  Status read_link(LaunchOptions& options) const;
};

// Flags that say how tokens are drawn; greedy unless told otherwise.
struct SamplingFlags {
  SamplingParams params;
  void add_to(CLI::App& app);
};

}  // namespace sinew
