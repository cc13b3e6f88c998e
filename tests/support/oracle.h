#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "support/logits_program.h"

namespace sinew::test {

// llama.cpp's prebuilt library, which nobody here wrote, as the authority for tokens and logits.
// Each call runs the program `sinew-oracle` with a time limit.
struct Oracle {
  // The program can be started. The tests that need it are configured only if its library was
  // found.
  static bool available();

  // add_bos: BOS (and EOS) only where the file says that the model wants them.
  static Result<std::vector<std::vector<TokenId>>> tokenize(const std::string& model,
                                                            std::span<const std::string> texts,
                                                            bool parse_special, bool add_bos);

  // Logits of the last position; of the last `positions` ones, in order.
  static Result<std::vector<float>> logits(const std::string& model,
                                           std::span<const TokenId> prompt, int chunk = 512);
  static Result<std::vector<float>> last_logits(const std::string& model,
                                                std::span<const TokenId> prompt, int positions,
                                                int chunk = 512);
  static Result<std::vector<TokenId>> greedy(const std::string& model,
                                             std::span<const TokenId> prompt, int count);

  // Everything else of its command line.
  static Result<LogitsAnswer> run(const LogitsRequest& request);
};

}  // namespace sinew::test
