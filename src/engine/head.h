#pragma once

#include <atomic>
#include <functional>
#include <vector>

#include "collective/group.h"
#include "engine/engine.h"
#include "engine/step_runner.h"

namespace sinew {

// Sends `step` to all ranks. Called by rank 0; the others call `receive_step`.
Status send_step(const Step& step, Group& group);
Result<Step> receive_step(Group& group);

// Rank 0 of a request: decides the steps, samples, and remembers what the cache holds.
//
// Threads: one; `cancel` may be set from another.
class Head {
 public:
  Head(StepRunner& runner, Group& group, int chunk_tokens)
      : runner_(runner), group_(group), chunk_tokens_(chunk_tokens) {}

  // `on_token` is told every token of the answer as it is sampled.
  Result<GenerationResult> generate(const GenerationRequest& request,
                                    const std::atomic<bool>& cancel,
                                    const std::function<void(TokenId)>& on_token);

  // Logits of every token (`all`) or the last one, in pieces of whole rows, in order.
  Status evaluate(std::span<const TokenId> tokens, bool all,
                  const std::function<void(std::span<const float>)>& on_rows);
  // Steps over what the cache does not hold of `tokens`, or over all if `fresh`, each traced, with
  // the logits of its last token. `on_step` is told the step, while the runner still has its trace,
  // and the logits.
  Status trace(std::span<const TokenId> tokens, Trace trace, bool fresh,
               const std::atomic<bool>& cancel,
               const std::function<void(const Step&, std::span<const float>)>& on_step);

 private:
  // Runs one step on all ranks; the tokens follow what the cache holds.
  Result<std::span<const float>> step(std::span<const TokenId> tokens, Step::Rows rows);
  Step next_step(std::span<const TokenId> tokens, Step::Rows rows);
  // Keeps what the cache and `tokens` have in common, but leaves at least the last token to be
  // computed.
  std::size_t keep_prefix(std::span<const TokenId> tokens);
  Result<GenerationResult> run(const GenerationRequest& request, const std::atomic<bool>& cancel,
                               const std::function<void(TokenId)>& on_token);
  Status end_request();

  StepRunner& runner_;
  Group& group_;
  int chunk_tokens_;
  std::uint64_t steps_ = 0;
  std::vector<TokenId> cached_;  // tokens whose keys and values slot 0 holds
};

}  // namespace sinew
