#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "sample/sampler.h"

namespace sinew {

// One request in tokens. The caller always passes the full sequence; the engine reuses what its
// cache holds.
struct GenerationRequest {
  std::vector<TokenId> prompt;
  SamplingParams sampling;
  std::int64_t tokens_max = 0;      // of the answer; cut to what the context allows
  std::vector<TokenId> end_tokens;  // the answer ends before one of these; empty: --ignore-eos
  // Tokens of the answer that `prompt` ends with, because an earlier epoch has drawn them: the
  // index of the next draw.
  std::uint64_t first_draw = 0;
  // So many of the prompt's last tokens are computed one by one, as when they were drawn: many at
  // once are faster, and round otherwise.
  std::size_t stepwise = 0;
};

enum class FinishReason : std::uint8_t { kStop, kLength, kCancelled };

struct GenerationResult {
  FinishReason reason = FinishReason::kStop;
  std::int64_t prompt_tokens = 0;
  std::int64_t cached_tokens = 0;  // of the prompt, found in the cache
  std::int64_t answer_tokens = 0;
  double prefill_seconds = 0;
  double decode_seconds = 0;
};

// A loaded model, wherever its ranks are. The narrow waist: server, cli and bench see nothing below
// it.
//
// Threads: one thread at a time calls `generate`; `health` may be called from any thread.
class Engine {
 public:
  virtual ~Engine() = default;

  virtual std::int64_t context() const = 0;  // tokens of prompt and answer together
  virtual int vocabulary_size() const = 0;

  // Blocks until the answer ends. `on_token` is called for every token of the answer; returning
  // false cancels. `wanted` is asked about ten times a second, also while the prompt is computed,
  // and cancels by false, too (FinishReason::kCancelled). Both are called on the calling thread. An
  // error (kPeerLost, kDeadline, ..) names rank and cause; the tokens delivered before it stand. A
  // lost rank is no error while it can be started again: the answer pauses and goes on.
  // kInvalidRequest if the prompt does not fit the context.
  virtual Result<GenerationResult> generate(const GenerationRequest& request,
                                            const std::function<bool(TokenId)>& on_token,
                                            const std::function<bool()>& wanted) = 0;

  // Ok, or why the engine cannot serve any more.
  virtual Status health() const = 0;
  // Why it serves nobody for the moment; nothing while it serves.
  virtual std::optional<Error> recovering() const { return std::nullopt; }
};

}  // namespace sinew
