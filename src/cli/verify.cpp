#include "cli/verify.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "cli/interrupt.h"
#include "cli/token_file.h"
#include "engine/fault.h"
#include "host/model_file.h"
#include "sample/random.h"
#include "text/tokenizer.h"

namespace sinew {
namespace {

using Json = nlohmann::ordered_json;

// Longer than 4096, and not a multiple of any usual step: the last chunk is a short one.
constexpr std::int64_t kPromptTokens = 4133;
constexpr int kGreedyTokens = 32;
constexpr std::int64_t kBriefPromptTokens = 64;
constexpr int kBriefGreedyTokens = 8;

// Prose, numbers, code and other scripts: tokens of many parts of a vocabulary.
constexpr const char* kText =
    "Entry {0}. The harbour master wrote the tide tables by hand, and on day {0} the water stood "
    "{1} centimetres above the mark. \"Nobody reads them,\" said the boy, \"yet every boat obeys "
    "them.\" Where {0} + {1} = {2}, what is {2} - {1}?\n"
    "for (int i = 0; i < {1}; ++i) total += table[i % {0}];  // {2}\n"
    "Die Flut kam um {0} Uhr. La mar\u00e9e \u00e9tait haute; \u00bfqui\u00e9n lo dijo? "
    "\u6f6e\u6c34\u5728\u7b2c{0}\u5929\u6da8\u4e86{1}\u5398\u7c73\u3002 "
    "\u041f\u0440\u0438\u043b\u0438\u0432 {2}.\n\n";

Result<std::vector<TokenId>> text_prompt(const Tokenizer& tokenizer, std::size_t length) {
  std::string text;
  std::vector<TokenId> tokens;
  for (std::uint64_t entry = 1; tokens.size() < length; ++entry) {
    const std::uint64_t height = random_bits(1, entry) % 1000;
    text += fmt::format(kText, entry, height, entry + height);
    // No token stands for more bytes than this on average, so it is encoded only a few times.
    constexpr std::size_t kBytesPerToken = 4;
    if (text.size() < length * kBytesPerToken && entry % 8 != 0) continue;
    SINEW_ASSIGN(tokens, tokenizer.encode(text, {.add_bos = true, .parse_special = false}));
  }
  tokens.resize(length);
  return tokens;
}

// A walk over the vocabulary, the same on every machine.
std::vector<TokenId> walk_prompt(int vocabulary, std::size_t length) {
  constexpr std::uint64_t kSeed = 7;
  std::vector<TokenId> tokens;
  while (tokens.size() < length)
    tokens.push_back(static_cast<TokenId>(random_bits(kSeed, tokens.size()) %
                                          static_cast<std::uint64_t>(vocabulary)));
  return tokens;
}

// As long as the model was trained for, at most.
Result<std::vector<TokenId>> make_prompt(const VerifyFlags& flags, int greedy_tokens) {
  if (!flags.tokens_file.empty()) return read_tokens(flags.tokens_file);
  const auto file = ModelFile::open(flags.model.model);
  if (!file) return fail(file.error());
  SINEW_ASSIGN(const ModelSpec spec, read_spec(file->directory));
  const std::int64_t context = flags.model.context > 0 ? flags.model.context : spec.context_trained;
  const std::int64_t length =
      std::min(flags.brief ? kBriefPromptTokens : kPromptTokens, context - greedy_tokens - 1);
  if (length < 1)
    return fail(ErrorCode::kUsage, "a context of {} tokens is too short; {} are needed", context,
                greedy_tokens + 2);
  const auto tokenizer = Tokenizer::from_metadata(file->directory.metadata());
  if (!tokenizer) return walk_prompt(spec.vocabulary, static_cast<std::size_t>(length));
  SINEW_ASSIGN(std::vector<TokenId> tokens,
               text_prompt(*tokenizer, static_cast<std::size_t>(length)));
  return tokens;
}

Result<std::pair<Rank, std::string>> parse_inject(const std::string& text) {
  Rank rank = 0;
  const std::size_t colon = std::min(text.find(':'), text.size());
  const auto number = std::from_chars(text.data(), text.data() + colon, rank);
  if (colon == text.size() || number.ptr != text.data() + colon)
    return fail(ErrorCode::kUsage, "--inject {}: must be RANK:WHAT", text);
  SINEW_TRY(parse_fault(text.substr(colon + 1)));
  return std::pair(rank, text.substr(colon + 1));
}

const char* state_name(VerifyCheck::State state) {
  switch (state) {
    case VerifyCheck::State::kOk:
      return "ok";
    case VerifyCheck::State::kFailed:
      return "FAILED";
    case VerifyCheck::State::kSkipped:
      return "skipped";
  }
  return "?";
}

Json report_json(const VerifyReport& report) {
  Json json{{"schema", 1}, {"ok", report.ok()}, {"checks", Json::array()}};
  for (const VerifyCheck& check : report.checks) {
    Json entry{{"name", check.name}, {"state", state_name(check.state)}, {"detail", check.detail}};
    if (check.canary) {
      entry["kl_median"] = check.canary->kl_median;
      entry["kl_worst"] = check.canary->kl_worst;
      entry["logit_difference"] = check.canary->logit_difference;
      entry["first_fault"] = check.canary->first_fault;
      entry["places"] = Json::array();
      for (const PlaceReport& place : check.canary->places)
        entry["places"].push_back({{"name", place.name},
                                   {"tokens", place.tokens},
                                   {"median", place.error.median},
                                   {"worst", place.error.worst},
                                   {"noise_median", place.noise.median},
                                   {"noise_worst", place.noise.worst},
                                   {"fault", place.fault}});
    }
    json["checks"].push_back(std::move(entry));
  }
  return json;
}

void print_places(const CanaryReport& canary) {
  fmt::print("  {:<34} {:>6}  {:>10} {:>10}  {:>10} {:>10}\n", "relative difference of", "tokens",
             "median", "worst", "its noise", "worst");
  for (const PlaceReport& place : canary.places)
    fmt::print("  {:<34} {:>6}  {:>10.2e} {:>10.2e}  {:>10.2e} {:>10.2e}{}\n", place.name,
               place.tokens, place.error.median, place.error.worst, place.noise.median,
               place.noise.worst, place.fault.empty() ? "" : "  FAILED: " + place.fault);
}

void print_report(const VerifyReport& report, bool verbose) {
  for (const VerifyCheck& check : report.checks) {
    fmt::print("{:<8} {}: {}\n", state_name(check.state), check.name, check.detail);
    if (check.canary && (verbose || !check.canary->ok())) print_places(*check.canary);
  }
  fmt::print("{}\n", report.ok() ? "ok: nothing differs beyond rounding"
                                 : "FAILED: do not trust this model's answers here");
}

// One line that is written over, on a terminal; elsewhere one line for each stage of the work.
class ProgressLine {
 public:
  void show(const std::string& text) {
    if (::isatty(STDERR_FILENO) != 0) {
      fmt::print(stderr, "\r\033[K{}", text);
      std::fflush(stderr);
      shown_ = true;
      return;
    }
    const std::string stage = text.substr(0, text.rfind(':'));
    if (stage == stage_) return;
    stage_ = stage;
    fmt::print(stderr, "{}\n", text);
  }
  ~ProgressLine() {
    if (shown_) fmt::print(stderr, "\r\033[K");
  }

 private:
  std::string stage_;
  bool shown_ = false;
};

}  // namespace

Result<VerifyOptions> verify_options(const VerifyFlags& flags) {
  if (!flags.record.empty() && !flags.against.empty())
    return fail(ErrorCode::kUsage, "--record and --against exclude each other");
  if (!flags.model.launcher.empty())
    return fail(ErrorCode::kUsage,
                "verify starts several sets of ranks in turn; run it without --launcher");
  VerifyOptions options;
  SINEW_ASSIGN(options.launch, flags.model.launch_options());
  options.launch.recover = {};  // a lost rank is a finding
  const bool chosen =
      flags.model.ranks.has_value() || !flags.model.shares.empty() || !flags.model.stages.empty();
  options.may_skip = !chosen;
  options.reference.shares = {1.0};
  if (chosen) {
    options.layouts = {options.launch.layout};
  } else {
    for (const std::size_t ranks : {2U, 3U, 4U}) {
      options.layouts.push_back(options.launch.layout);
      options.layouts.back().shares.assign(ranks, 1.0);
      if (flags.brief) break;
    }
  }
  if (!flags.record.empty() && chosen) options.reference = options.launch.layout;
  options.threads = flags.model.threads;
  options.greedy_tokens = flags.brief ? kBriefGreedyTokens : kGreedyTokens;
  options.hashes = flags.brief ? HashScope::kSample : HashScope::kAll;
  options.record = flags.record;
  options.against = flags.against;
  options.program = SINEW_VERSION;
  for (const std::string& text : flags.inject) {
    SINEW_ASSIGN(auto fault, parse_inject(text));
    options.launch.faults.push_back(std::move(fault));
  }
  // What cannot be read or computed is told by the report.
  if (flags.against.empty()) {
    auto prompt = make_prompt(flags, options.greedy_tokens);
    if (!prompt && prompt.error().code != ErrorCode::kInvalidFile) return fail(prompt.error());
    options.prompt = prompt ? std::move(*prompt) : std::vector<TokenId>{0};
  }
  return options;
}

Result<bool> verify_command(const VerifyFlags& flags) {
  watch_interrupts();
  SINEW_ASSIGN(const VerifyOptions options, verify_options(flags));
  if (options.launch.wire != WireType::kF32)
    return fail(ErrorCode::kUsage,
                "verify tells faults from the rounding of float32 sums; leave out --wire {}",
                flags.model.wire);
  std::optional<ProgressLine> line(std::in_place);
  SINEW_ASSIGN(const VerifyReport report, verify_model(
                                              options, [] { return interrupts() == 0; },
                                              [&](const std::string& text) { line->show(text); }));
  line.reset();
  if (flags.json) {
    fmt::print("{}\n", report_json(report).dump(2, ' ', false, Json::error_handler_t::replace));
  } else {
    print_report(report, flags.model.verbose);
  }
  return report.ok();
}

}  // namespace sinew
