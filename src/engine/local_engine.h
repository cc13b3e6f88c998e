#pragma once

#include <memory>
#include <vector>

#include "engine/engine.h"
#include "engine/supervisor.h"
#include "model/spec.h"
#include "plan/plan.h"

namespace sinew {

// A model split over ranks on this machine.
class LocalEngine : public Engine {
 public:
  // Checks file, shares and memory first, so that a mistake is one error before any rank starts.
  // `options.context` 0 means what the model was trained for, at most kContextDefault.
  static Result<std::unique_ptr<LocalEngine>> load(
      LaunchOptions options, const std::function<void(const std::vector<RankStatus>&)>& progress);

  std::int64_t context() const override { return options_.context; }
  int vocabulary_size() const override { return spec_.vocabulary; }
  Result<GenerationResult> generate(const GenerationRequest& request,
                                    const std::function<bool(TokenId)>& on_token,
                                    const std::function<bool()>& wanted) override;
  Status health() const override { return supervisor_->health(); }
  std::optional<Error> recovering() const override { return supervisor_->recovering(); }

  // Logits of the last token, or of every token: [tokens][vocabulary]. What the cache holds of the
  // tokens is reused for the last token's.
  Result<std::vector<float>> evaluate(const std::vector<TokenId>& tokens, bool all);

  // Computes what the cache does not hold of the tokens, or all if `fresh`, one step a chunk, and
  // returns the logits after each of those steps, [steps][vocabulary]. `on_trace` is told what
  // every place of every step showed. kCancelled, and the engine is finished, once `wanted` says
  // no.
  Result<std::vector<float>> trace(const std::vector<TokenId>& tokens, Trace trace, bool fresh,
                                   const std::function<void(const TraceMessage&)>& on_trace,
                                   const std::function<bool()>& wanted);
  // What every rank holds, in its load order. Options must have asked for hashes.
  Result<std::vector<std::vector<SliceHash>>> slice_hashes(const std::function<bool()>& wanted);

  const ModelSpec& spec() const { return spec_; }
  const Plan& plan() const { return plan_; }
  std::vector<RankStatus> ranks() const { return supervisor_->ranks(); }
  // What a rank holds, for people.
  std::string holds(Rank rank) const { return explain_rank(spec_, plan_, rank); }

 private:
  LocalEngine() = default;
  // Runs a request to its end; `on_event` sees what comes before.
  Status collect(BeginMessage begin, const std::function<void(ControlMessage&)>& on_event,
                 const std::function<bool()>& wanted);
  // A request up to the end of its epoch: what has been delivered is in `request` then.
  Result<GenerationResult> generate_in_epoch(GenerationRequest& request,
                                             const std::function<bool(TokenId)>& on_token,
                                             const std::function<bool()>& wanted);
  Status check_prompt(const std::vector<TokenId>& tokens) const;

  LaunchOptions options_;
  ModelSpec spec_;
  Plan plan_;
  std::unique_ptr<Supervisor> supervisor_;
};

inline constexpr std::int64_t kContextDefault = 8192;

}  // namespace sinew
