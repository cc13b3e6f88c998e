#pragma once

#include <memory>
#include <optional>
#include <string>

#include "cli/options.h"
#include "engine/local_engine.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace sinew {

// A model ready to answer: its text side here, its ranks in processes of their own.
struct LoadedModel {
  // Loads with progress on standard error.
  static Result<LoadedModel> load(const ModelFlags& flags);

  std::string id;  // the file's name without its ending
  Tokenizer tokenizer;
  std::optional<ChatTemplate> chat_template;  // not every model has one
  std::unique_ptr<LocalEngine> engine;
};

// One line a rank on standard error: what it holds and, after a request, how fast it went.
void print_ranks(const LocalEngine& engine);
// "prompt 12 tokens in 0.02 s (600 tokens/s), answer ..."
std::string describe_speed(const GenerationResult& result);

}  // namespace sinew
