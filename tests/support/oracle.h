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
  static const char* program();

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

  // Of `tokens` in windows of so many, each read from its beginning; all tokens of a window count
  // but its first. `more`: as in LogitsRequest.
  static Result<double> perplexity(const std::string& model, std::span<const TokenId> tokens,
                                   std::size_t window, const std::vector<std::string>& more = {});

  // Everything else of its command line.
  static Result<LogitsAnswer> run(const LogitsRequest& request);
};

// The same of any program with the command line of `sinew logits`, from the logits that it writes:
// request.prompt holds all tokens.
Result<double> perplexity_by_logits(const std::string& program, const LogitsRequest& request,
                                    std::size_t window);

}  // namespace sinew::test
