#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/token_file.h"
#include "engine/local_engine.h"

namespace sinew {
namespace {

Status write_file(const std::string& path, const void* data, std::size_t bytes) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(static_cast<const char*>(data), static_cast<std::streamsize>(bytes));
  file.close();
  if (!file) return fail(ErrorCode::kIo, "{}: cannot be written", path);
  return {};
}

// The most likely token and how far it is ahead of the next.
std::pair<TokenId, float> best_token(const std::vector<float>& logits) {
  const auto best = std::max_element(logits.begin(), logits.end());
  float second = -INFINITY;
  for (auto it = logits.begin(); it != logits.end(); ++it)
    if (it != best) second = std::max(second, *it);
  return {static_cast<TokenId>(best - logits.begin()), *best - second};
}

Result<std::unique_ptr<LocalEngine>> load_engine(const ModelFlags& flags) {
  SINEW_ASSIGN(LaunchOptions options, flags.launch_options());
  options.recover = {};  // a measurement with a pause in it is none
  return LocalEngine::load(std::move(options), [](const std::vector<RankStatus>&) {});
}

// A prompt of made-up tokens, the same on every machine.
std::vector<TokenId> bench_prompt(int tokens, int vocabulary) {
  std::vector<TokenId> prompt;
  std::uint64_t state = 1;
  for (int i = 0; i < tokens; ++i) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;  // Knuth's MMIX generator
    prompt.push_back(static_cast<TokenId>((state >> 33) % static_cast<std::uint64_t>(vocabulary)));
  }
  return prompt;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

}  // namespace

Status logits_command(const LogitsFlags& flags) {
  SINEW_ASSIGN(std::vector<TokenId> tokens, read_tokens(flags.tokens_file));
  SINEW_ASSIGN(const std::unique_ptr<LocalEngine> engine, load_engine(flags.model));
  SINEW_ASSIGN(std::vector<float> logits, engine->evaluate(tokens, flags.all));
  if (!flags.out_file.empty())
    SINEW_TRY(write_file(flags.out_file, logits.data(), logits.size() * sizeof(float)));
  std::string ids;
  const auto vocabulary = static_cast<std::ptrdiff_t>(engine->vocabulary_size());
  logits.erase(logits.begin(), logits.end() - vocabulary);
  for (int i = 0; i < flags.generate; ++i) {
    const auto [token, gap] = best_token(logits);
    ids += fmt::format("{} {}\n", token, gap);
    tokens.push_back(token);
    if (i + 1 < flags.generate) {
      SINEW_ASSIGN(logits, engine->evaluate(tokens, false));
    }
  }
  if (!flags.ids_file.empty()) SINEW_TRY(write_file(flags.ids_file, ids.data(), ids.size()));
  return {};
}

Status bench_command(const BenchFlags& flags) {
  if (flags.prompt_tokens < 1 || flags.answer_tokens < 2 || flags.repeats < 1)
    return fail(ErrorCode::kUsage, "-p, -n and --repeats must be at least 1, 2 and 1");
  ModelFlags model = flags.model;
  if (model.context == 0) model.context = flags.prompt_tokens + flags.answer_tokens + 1;
  SINEW_ASSIGN(const std::unique_ptr<LocalEngine> engine, load_engine(model));
  std::vector<double> prefill;
  std::vector<double> decode;
  std::vector<RankStatus> ranks;
  for (int i = -1; i < flags.repeats; ++i) {  // the first run warms up
    GenerationRequest request;
    request.prompt = bench_prompt(flags.prompt_tokens, engine->vocabulary_size());
    request.prompt.front() =
        (i + 1) % engine->vocabulary_size();  // so that nothing is found in the cache
    request.tokens_max = flags.answer_tokens;
    SINEW_ASSIGN(const GenerationResult result,
                 engine->generate(
                     request, [](TokenId) { return true; }, [] { return true; }));
    if (i < 0) continue;
    prefill.push_back(static_cast<double>(result.prompt_tokens) / result.prefill_seconds);
    decode.push_back(static_cast<double>(result.answer_tokens - 1) / result.decode_seconds);
    ranks = engine->ranks();
  }
  if (!flags.json) {
    fmt::print("prefill {:.2f} tokens/s, decode {:.2f} tokens/s (median of {})\n", median(prefill),
               median(decode), flags.repeats);
    return {};
  }
  nlohmann::ordered_json report{{"schema", 1},
                                {"ranks", ranks.size()},
                                {"prompt_tokens", flags.prompt_tokens},
                                {"answer_tokens", flags.answer_tokens},
                                {"prefill_tps", median(prefill)},
                                {"decode_tps", median(decode)},
                                {"prefill_all", prefill},
                                {"decode_all", decode}};
  for (const RankStatus& rank : ranks)
    report["rank_seconds"].push_back({{"compute", rank.last_request.compute_seconds},
                                      {"collective", rank.last_request.collective_seconds},
                                      {"collectives", rank.last_request.collectives}});
  fmt::print("{}\n", report.dump());
  return {};
}

}  // namespace sinew
