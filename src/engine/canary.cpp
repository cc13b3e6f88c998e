#include "engine/canary.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "sample/random.h"

namespace sinew {
namespace {

// Sketch of a row of logits, with signs of its own.
void add_logit_sketch(PlaceTrace& place, std::int64_t position, std::span<const float> logits) {
  constexpr std::uint64_t kLogitSeed = 3;
  place.positions.push_back(position);
  std::array<double, kSketchRows> sums{};
  for (std::size_t id = 0; id < logits.size(); ++id) {
    const std::uint64_t bits = random_bits(kLogitSeed, id);
    for (std::size_t row = 0; row < sums.size(); ++row)
      sums[row] += (bits >> row & 1U) != 0 ? double{logits[id]} : -double{logits[id]};
  }
  for (const double sum : sums) place.sketches.push_back(static_cast<float>(sum));
}

void append(Traces& traces, const TraceMessage& block) {
  PlaceTrace& place = traces[block.place];
  for (std::size_t i = 0; i * kSketchRows < block.sketches.size(); ++i)
    place.positions.push_back(block.position + static_cast<std::int64_t>(i));
  place.sketches.insert(place.sketches.end(), block.sketches.begin(), block.sketches.end());
}

// Positions of a place from `begin` to `end`, of sorted ones.
std::pair<std::size_t, std::size_t> between(const std::vector<std::int64_t>& positions,
                                            std::int64_t begin, std::int64_t end) {
  const auto first = std::lower_bound(positions.begin(), positions.end(), begin);
  const auto last = std::lower_bound(first, positions.end(), end);
  return {static_cast<std::size_t>(first - positions.begin()),
          static_cast<std::size_t>(last - positions.begin())};
}

class Comparison {
 public:
  Comparison(const Reference& reference, const CanaryRun& run) : reference_(reference), run_(run) {
    for (const auto& [place, trace] : reference.run.traces) {
      const auto found = run.traces.find(place);
      errors_[place] =
          relative_errors(trace, found == run.traces.end() ? PlaceTrace{} : found->second);
    }
  }

  CanaryReport report() {
    const auto prompt = static_cast<std::int64_t>(reference_.run.prompt.size());
    add_phase("prompt", 0, prompt);
    add_phase("answer", prompt, kContextMax);
    add_rows();
    compare_greedy();
    return std::move(report_);
  }

 private:
  void note(const std::string& name, const std::string& fault) {
    if (!fault.empty() && report_.first_fault.empty())
      report_.first_fault = fmt::format("{}: {}", name, fault);
  }

  void add_phase(const char* phase, std::int64_t begin, std::int64_t end) {
    for (const auto& [place, trace] : reference_.run.traces) {
      const auto [first, last] = between(trace.positions, begin, end);
      if (first == last) continue;
      const auto errors = std::span(errors_.at(place)).subspan(first, last - first);
      const auto noise = std::span(reference_.noise.at(place)).subspan(first, last - first);
      PlaceReport report;
      report.name = fmt::format("{}, {}", place_name(place, reference_.layers), phase);
      report.tokens = errors.size();
      report.error = spread_of(errors);
      report.noise = spread_of(noise);
      report.fault = judge(errors, noise, reference_.has_experts).value_or("");
      note(report.name, report.fault);
      report_.places.push_back(std::move(report));
    }
  }

  // KL grows with the square of a difference, so its root is judged.
  void add_rows() {
    std::vector<float> kl;
    std::vector<float> kl_noise;
    std::vector<float> kl_roots;
    const std::size_t rows = std::min(reference_.run.rows.size(), run_.logits.size());
    for (std::size_t i = 0; i < rows; ++i) {
      const LogitError error = compare_logits(reference_.run.rows[i], run_.logits[i]);
      kl.push_back(static_cast<float>(error.kl));
      kl_roots.push_back(static_cast<float>(std::sqrt(error.kl)));
      kl_noise.push_back(static_cast<float>(std::sqrt(reference_.row_noise[i].kl)));
      report_.logit_difference = std::max(report_.logit_difference, error.largest);
    }
    const Spread spread = spread_of(kl);
    report_.kl_median = spread.median;
    report_.kl_worst = spread.worst;
    // What float32 logits and their exponentials leave of a difference of nothing.
    constexpr double kRootRounding = 1e-4;
    note("logits, KL",
         judge(kl_roots, kl_noise, reference_.has_experts, kRootRounding).value_or(""));
  }

  // Where another token is the likeliest, both must be nearer to each other in the reference than
  // twice what rounding may move a logit: only then can rounding have turned their order.
  void compare_greedy() {
    const std::size_t count = std::min(reference_.run.greedy.size(), run_.greedy.size());
    const std::size_t first_row = reference_.run.rows.size() - reference_.run.greedy.size();
    double moved = 0;
    for (const LogitError& noise : reference_.row_noise) moved = std::max(moved, noise.largest);
    const double allowed = 2 * kTolerance * moved;
    std::size_t equal = 0;
    for (std::size_t i = 0; i < count; ++i) {
      if (reference_.run.greedy[i] == run_.greedy[i]) {
        ++equal;
        continue;
      }
      const LogitRow& row = reference_.run.rows[first_row + i];
      const auto other = std::find(row.ids.begin(), row.ids.end(), run_.greedy[i]);
      const double gap =
          other == row.ids.end()
              ? std::numeric_limits<double>::infinity()
              : double{row.values.front()} -
                    double{row.values[static_cast<std::size_t>(other - row.ids.begin())]};
      const std::string what =
          fmt::format("token {} is {} instead of {}, {:.3g} apart in the reference", i,
                      run_.greedy[i], reference_.run.greedy[i], gap);
      if (gap <= allowed) {
        if (report_.greedy.empty())
          report_.greedy = fmt::format("{}: a near-tie, rounding may turn {:.3g}", what, allowed);
      } else {
        note("greedy tokens", fmt::format("{}, and rounding may turn {:.3g}", what, allowed));
      }
    }
    report_.greedy = fmt::format("{} of {} greedy tokens equal{}{}", equal, count,
                                 report_.greedy.empty() ? "" : "; first ", report_.greedy);
  }

  const Reference& reference_;  // both outlive this
  const CanaryRun& run_;
  std::map<TracePlace, std::vector<float>> errors_;
  CanaryReport report_;
};

}  // namespace

std::string place_name(TracePlace place, int layers) {
  if (place.layer == kEmbeddingLayer) return "embedding";
  if (place.layer == layers) return "final norm";
  if (place.layer > layers) return "logits";
  if (place.part == 0) return fmt::format("layer {} attention", place.layer);
  if (place.part == 1) return fmt::format("layer {} feed-forward", place.layer);
  return fmt::format("layer {} sum {}", place.layer, place.part);
}

Result<CanaryRun> run_canary(LocalEngine& engine, const CanaryPlan& plan,
                             const std::function<bool()>& wanted,
                             const std::function<void(std::size_t, std::size_t)>& progress) {
  const auto vocabulary = static_cast<std::size_t>(engine.vocabulary_size());
  const int layers = engine.spec().layers;
  CanaryRun run;
  run.prompt = plan.prompt;
  std::vector<TokenId> tokens = plan.prompt;
  const std::size_t end = plan.prompt.size() + static_cast<std::size_t>(plan.greedy_tokens) - 1;
  const auto on_trace = [&](const TraceMessage& block) {
    append(run.traces, block);
    if (block.place.layer == layers) progress(static_cast<std::size_t>(block.position) + 1, end);
  };
  for (int i = 0; i < plan.greedy_tokens; ++i) {
    SINEW_ASSIGN(const std::vector<float> logits,
                 engine.trace(tokens, plan.trace, i == 0, on_trace, wanted));
    // The final norm is traced for the same tokens as the logits.
    const std::vector<std::int64_t>& positions = run.traces[{layers, 0}].positions;
    const std::size_t rows = logits.size() / vocabulary;
    if (rows == 0 || positions.size() < rows)
      return fail(ErrorCode::kInternal, "a traced step gave {} rows of logits and {} traces", rows,
                  positions.size());
    for (std::size_t row = 0; row < rows; ++row) {
      const auto values = std::span(logits).subspan(row * vocabulary, vocabulary);
      const std::int64_t position = positions[positions.size() - rows + row];
      run.rows.push_back(summarise(position, values));
      run.logits.emplace_back(values.begin(), values.end());
      add_logit_sketch(run.traces[logits_place(layers)], position, values);
    }
    run.greedy.push_back(run.rows.back().ids.front());
    tokens.push_back(plan.fed.empty() ? run.greedy.back()
                                      : plan.fed[static_cast<std::size_t>(i) % plan.fed.size()]);
  }
  return run;
}

Reference make_reference(CanaryRun run, const CanaryRun& noisy, int layers, bool has_experts) {
  Reference reference;
  reference.layers = layers;
  reference.has_experts = has_experts;
  for (const auto& [place, trace] : run.traces) {
    const auto found = noisy.traces.find(place);
    reference.noise[place] =
        relative_errors(trace, found == noisy.traces.end() ? PlaceTrace{} : found->second);
  }
  for (std::size_t i = 0; i < run.rows.size() && i < noisy.logits.size(); ++i)
    reference.row_noise.push_back(compare_logits(run.rows[i], noisy.logits[i]));
  reference.run = std::move(run);
  return reference;
}

CanaryReport compare_runs(const Reference& reference, const CanaryRun& run) {
  return Comparison(reference, run).report();
}

}  // namespace sinew
