#include "cli/loaded_model.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>

#include "base/bytes.h"
#include "base/log.h"
#include "host/model_file.h"

namespace sinew {
namespace {

// One line that is written over while ranks load; nothing where standard error is a file.
class ProgressLine {
 public:
  void show(const std::vector<RankStatus>& ranks) {
    if (::isatty(STDERR_FILENO) == 0) return;
    std::uint64_t done = 0;
    std::uint64_t total = 0;
    for (const RankStatus& rank : ranks) {
      done += rank.ready ? rank.loading.bytes_total : rank.loading.bytes_done;
      total += rank.loading.bytes_total;
    }
    if (total == 0) return;
    shown_ = true;
    fmt::print(stderr, "\rloading: {} of {}   ", format_bytes(done), format_bytes(total));
    std::fflush(stderr);
  }
  ~ProgressLine() {
    if (shown_) fmt::print(stderr, "\r\033[K");
  }

 private:
  bool shown_ = false;
};

double rate(std::int64_t count, double seconds) {
  return seconds > 0 ? static_cast<double>(count) / seconds : 0.0;
}

Result<std::optional<ChatTemplate>> read_template(const Metadata& metadata,
                                                  const Tokenizer& tokenizer) {
  if (!metadata.has("tokenizer.chat_template")) return std::optional<ChatTemplate>();
  SINEW_ASSIGN(std::string source, metadata.string("tokenizer.chat_template"));
  const auto text = [&](std::optional<TokenId> token) {
    return token ? tokenizer.piece(*token) : std::string();
  };
  SINEW_ASSIGN(
      ChatTemplate chat_template,
      ChatTemplate::parse(std::move(source), text(tokenizer.bos()), text(tokenizer.eos())));
  return std::optional<ChatTemplate>(std::move(chat_template));
}

}  // namespace

Result<LoadedModel> LoadedModel::load(const ModelFlags& flags) {
  SINEW_ASSIGN(LaunchOptions options, flags.launch_options());
  // The text side first: a file without a usable tokenizer is refused before gigabytes are read.
  SINEW_ASSIGN(const ModelFile file, ModelFile::open(flags.model));
  SINEW_TRY(read_spec(file.directory));
  SINEW_ASSIGN(Tokenizer tokenizer, Tokenizer::from_metadata(file.directory.metadata()));
  SINEW_ASSIGN(auto chat_template, read_template(file.directory.metadata(), tokenizer));
  ProgressLine line;
  SINEW_ASSIGN(auto engine,
               LocalEngine::load(std::move(options),
                                 [&](const std::vector<RankStatus>& ranks) { line.show(ranks); }));
  if (flags.verbose) {
    const std::vector<RankStatus> ranks = engine->ranks();
    for (std::size_t rank = 0; rank < ranks.size(); ++rank)
      if (ranks[rank].host.empty())
        fmt::print(stderr, "rank {}: pid {}\n", rank, ranks[rank].process);
      else
        fmt::print(stderr, "rank {}: at {}\n", rank, ranks[rank].host);
  }
  return LoadedModel{std::filesystem::path(flags.model).stem().string(), std::move(tokenizer),
                     std::move(chat_template), std::move(engine)};
}

void print_ranks(const LocalEngine& engine) {
  const std::vector<RankStatus> ranks = engine.ranks();
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const RankStatus& rank = ranks[i];
    fmt::print(stderr, "rank {}: {}\n", i, engine.holds(static_cast<Rank>(i)));
    if (!rank.ready) continue;
    fmt::print(stderr, "        {} of weights, {} of KV cache on {}, loaded in {:.2f} s",
               format_bytes(rank.ready->weight_bytes), format_bytes(rank.ready->cache_bytes),
               rank.ready->device, rank.ready->load_seconds);
    const DoneMessage& done = rank.last_request;
    if (done.peak_resident > 0)
      fmt::print(stderr,
                 "; computed {:.3f} s, in {} collectives {:.3f} s, sent {}, at most {} resident",
                 done.compute_seconds, done.collectives, done.collective_seconds,
                 format_bytes(done.bytes_sent), format_bytes(done.peak_resident));
    fmt::print(stderr, "\n");
  }
}

std::string describe_speed(const GenerationResult& result) {
  const std::int64_t computed = result.prompt_tokens - result.cached_tokens;
  // The first token of an answer comes from the prompt's last step.
  const std::int64_t decoded = std::max<std::int64_t>(0, result.answer_tokens - 1);
  return fmt::format(
      "prompt {} tokens ({} from the cache) in {:.3f} s, {:.1f} tokens/s; answer {} tokens in "
      "{:.3f} s, {:.1f} tokens/s",
      result.prompt_tokens, result.cached_tokens, result.prefill_seconds,
      rate(computed, result.prefill_seconds), result.answer_tokens, result.decode_seconds,
      rate(decoded, result.decode_seconds));
}

}  // namespace sinew
