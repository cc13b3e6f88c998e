#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "engine/judgement.h"
#include "engine/local_engine.h"

namespace sinew {

// A long prompt and the greedy tokens after it, computed with a trace of every layer.
struct CanaryPlan {
  std::vector<TokenId> prompt;
  int greedy_tokens = 0;
  // What is fed after the prompt: a reference's greedy tokens, so that every position stays
  // comparable after a difference; empty: its own.
  std::vector<TokenId> fed;
  Trace trace = Trace::kOn;
};

struct CanaryRun {
  std::vector<TokenId> prompt;
  Traces traces;                           // the logits are a place of their own, kLogitsPlace
  std::vector<LogitRow> rows;              // after each chunk of the prompt and each token fed
  std::vector<std::vector<float>> logits;  // of the same rows, whole; empty in a recorded run
  std::vector<TokenId> greedy;             // the likeliest after the prompt and each token fed
};
// The place of the logits' sketches in a model of so many layers.
inline TracePlace logits_place(int layers) {
  return {layers + 1, 0};
}
std::string place_name(TracePlace place, int layers);

// `wanted` false ends with kCancelled. `progress` is told the tokens done and their sum.
Result<CanaryRun> run_canary(LocalEngine& engine, const CanaryPlan& plan,
                             const std::function<bool()>& wanted,
                             const std::function<void(std::size_t, std::size_t)>& progress);

// A run to compare with, and how far noise moves it: relative errors of each place's positions, and
// of each row.
struct Reference {
  CanaryRun run;
  int layers = 0;
  bool has_experts = false;
  std::map<TracePlace, std::vector<float>> noise;
  std::vector<LogitError> row_noise;
};
Reference make_reference(CanaryRun run, const CanaryRun& noisy, int layers, bool has_experts);

// How one place, or the logits, compare; prompt and answer apart, because they take different
// kernels.
struct PlaceReport {
  std::string name;
  std::size_t tokens = 0;
  Spread error;
  Spread noise;
  std::string fault;  // empty: within rounding
};
struct CanaryReport {
  std::vector<PlaceReport> places;  // in the order of computation
  double kl_median = 0;
  double kl_worst = 0;
  double logit_difference = 0;  // largest of all rows
  std::string first_fault;      // names the place; empty: none
  std::string greedy;           // about the greedy tokens, for people
  bool ok() const { return first_fault.empty(); }
};
CanaryReport compare_runs(const Reference& reference, const CanaryRun& run);

}  // namespace sinew
