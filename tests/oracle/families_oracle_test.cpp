// Every family in several quantisations on 1 to 5 ranks, equal and unequal, in stages and with
// whole experts, for short and long prompts: logits against llama.cpp's, greedy tokens against one
// rank's. docs/models.md is made from what this program writes down (models_table.sh).
//
// Tolerances come from the oracle itself, in the same run: it computes each prompt a second time
// without flash attention, with a float32 cache, in chunks of 64 and with the kernels of an older
// processor. Our logits may differ from its first answer by three times (median KL) what its two
// answers differ, and never need to be nearer than kFloor: where the second way happens to take the
// same kernels, its noise is no measure. Random experts tie, and where rounding chooses another one
// the logits at that position are another model's, for the oracle as for us: positions above
// kPositionKl may be as many as 1.5 times those of the oracle, and kFreeOutliers of them.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <random>

#include "support/greedy_match.h"
#include "support/oracle.h"
#include "support/process.h"

namespace sinew::test {
namespace {

constexpr double kNoiseFactor = 3;
constexpr double kOutlierFactor = 1.5;
constexpr double kFreeOutliers = 0.10;
constexpr std::size_t kPositions = 64;
constexpr int kGreedyTokens = 8;
constexpr int kTurnedMax = 3;  // answers of the 24 that one model with experts gives

// By what the products round: nothing, activations to 16 bits, activations to 8 bits.
struct Precision {
  double kl;           // median that needs no better
  double position_kl;  // a position above it is an outlier
  double gap;          // logits: the best two may change places within it
};
constexpr Precision kFloat32{1e-5, 1e-3, 0.01};
constexpr Precision kFloat16{3e-5, 1e-3, 0.03};
constexpr Precision kQuantised{5e-3, 5e-2, 0.25};

struct Case {
  const char* kind;
  const char* type;
  Precision precision;
  bool experts;
  friend void PrintTo(const Case& given, std::ostream* out) {
    *out << given.kind << ' ' << given.type;
  }
};

struct Layout {
  const char* name;
  std::vector<std::string> flags;
  bool needs_experts = false;
};
const std::vector<Layout>& layouts() {
  static const std::vector<Layout> list{
      {"1", {"--ranks", "1"}},
      {"2", {"--ranks", "2"}},
      {"3", {"--ranks", "3"}},
      {"4", {"--ranks", "4"}},
      {"5", {"--ranks", "5"}},
      {"shares 3,1", {"--shares", "3,1"}},
      {"stages 1,2", {"--ranks", "3", "--stages", "1,2"}},
      {"3, whole experts", {"--ranks", "3", "--experts", "whole"}, true},
  };
  return list;
}

struct Difference {
  double median = 0;
  double outliers = 0;  // share of positions above Precision::position_kl
  double largest_logit = 0;
};

Difference difference(std::span<const float> reference, std::span<const float> other,
                      std::size_t rows, double position_kl) {
  Difference result;
  const std::size_t width = reference.size() / rows;
  std::vector<double> kl;
  for (std::size_t row = 0; row < rows; ++row)
    kl.push_back(
        kl_divergence(reference.subspan(row * width, width), other.subspan(row * width, width)));
  std::sort(kl.begin(), kl.end());
  result.median = kl[kl.size() / 2];
  result.outliers = static_cast<double>(std::count_if(kl.begin(), kl.end(),
                                                      [&](double k) { return k > position_kl; })) /
                    static_cast<double>(rows);
  for (std::size_t i = 0; i < reference.size(); ++i)
    result.largest_logit =
        std::max(result.largest_logit, std::abs(double{reference[i]} - double{other[i]}));
  return result;
}

LogitsRequest request_of(const std::string& model, std::size_t length, unsigned seed) {
  LogitsRequest request;
  request.model = model;
  std::mt19937 random(seed);
  while (request.prompt.size() < length)
    request.prompt.push_back(static_cast<TokenId>(random() % 256));
  request.limit = std::chrono::seconds(280);
  return request;
}

class FamiliesOracle : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    model_ = folder_.file("model.gguf");
    std::vector<std::string> generate{SINEW_GENERATE, GetParam().kind, model_, "--type",
                                      GetParam().type};
    // The family's own type of experts would hide the one asked for.
    generate.insert(generate.end(), {"--expert-type", GetParam().type});
    const auto made = run_checked(generate, {}, std::chrono::seconds(60));
    ASSERT_TRUE(made) << made.error().message;
  }

  void compare_length(std::size_t length) {
    const auto seed = static_cast<unsigned>(length) + 7;
    LogitsRequest request = request_of(model_, length, seed);
    const std::size_t rows = std::min(length, kPositions);
    request.more = {"--last", std::to_string(rows)};
    const auto oracle = Oracle::run(request);
    ASSERT_TRUE(oracle) << oracle.error().message;
    request.chunk = 64;
    request.more.insert(request.more.end(), {"--no-flash", "--f32-cache", "--cpu", "haswell"});
    const auto again = Oracle::run(request);
    ASSERT_TRUE(again) << again.error().message;
    const Difference noise =
        difference(oracle->logits, again->logits, rows, GetParam().precision.position_kl);

    std::vector<GreedyToken> reference;
    for (const Layout& layout : layouts()) {
      if (layout.needs_experts && !GetParam().experts) continue;
      if (length > 1000 && layout.name != std::string("1") && layout.name != std::string("4"))
        continue;
      SCOPED_TRACE(testing::Message() << length << " tokens, ranks " << layout.name);
      compare_layout(layout, length, seed, oracle->logits, noise, reference);
    }
  }

  // Without experts, text turns only where two logits are nearly tied. With random experts it may
  // also turn where two of those are, which the logits' gap does not show; that is rare.
  void expect_same_text() const { EXPECT_LE(turned_, GetParam().experts ? kTurnedMax : 0); }

 private:
  void compare_layout(const Layout& layout, std::size_t length, unsigned seed,
                      std::span<const float> oracle, const Difference& noise,
                      std::vector<GreedyToken>& reference) {
    const Precision& precision = GetParam().precision;
    const std::size_t rows = std::min(length, kPositions);
    LogitsRequest request = request_of(model_, length, seed);
    request.all = true;
    request.generate = kGreedyTokens;
    request.more = layout.flags;
    const auto ours = run_logits(SINEW_PROGRAM, request);
    ASSERT_TRUE(ours) << ours.error().message;
    const Difference found = difference(oracle, std::span(ours->logits).last(oracle.size()), rows,
                                        precision.position_kl);
    EXPECT_LT(found.median, std::max(precision.kl, kNoiseFactor * noise.median));
    if (rows > 1) {
      EXPECT_LE(found.outliers, kOutlierFactor * noise.outliers + kFreeOutliers);
    }
    if (reference.empty()) reference = ours->greedy;
    const GreedyMatch match = match_greedy(reference, ours->greedy);
    if (match.differs_at && !match.excused(precision.gap)) {
      std::printf("%zu tokens, ranks %s: token %zu differs, gap %.3f\n", length, layout.name,
                  *match.differs_at, match.gap);
      ++turned_;
    }
    record(layout, length, found, noise, match);
  }

  static void record(const Layout& layout, std::size_t length, const Difference& found,
                     const Difference& noise, const GreedyMatch& match) {
    const char* path = std::getenv("SINEW_MODELS_TABLE");
    if (path == nullptr) return;
    std::ofstream(path, std::ios::app)
        << GetParam().kind << '\t' << GetParam().type << '\t' << layout.name << '\t' << length
        << '\t' << found.median << '\t' << found.largest_logit << '\t' << found.outliers << '\t'
        << noise.median << '\t'
        << (!match.differs_at                         ? "equal"
            : match.excused(GetParam().precision.gap) ? "tie"
                                                      : "expert tie")
        << '\n';
  }

  TemporaryFolder folder_;
  std::string model_;
  int turned_ = 0;
};

TEST_P(FamiliesOracle, ShortAndMediumPromptsAgree) {
  for (const std::size_t length : {1U, 17U, 600U}) compare_length(length);
  expect_same_text();
}

class FamiliesOracleLong : public FamiliesOracle {};

TEST_P(FamiliesOracleLong, LongPromptsAgree) {
  compare_length(5000);
  expect_same_text();
}

struct Kind {
  const char* name;
  bool experts;
  // The 27 layers of the Lite models, and the indexer, take minutes for 5000 tokens.
  bool longest = true;
};
constexpr Kind kKinds[] = {{"tiny-llama2", false},
                           {"tiny-llama3", false},
                           {"tiny-mixtral", true},
                           {"tiny-qwen2", false},
                           {"tiny-qwen3", false},
                           {"tiny-qwen3moe", true},
                           {"tiny-glm4moe", true},
                           {"tiny-gptoss", true},
                           {"tiny-minimax", true},
                           {"tiny-gemma3", false},
                           {"tiny-ds", true},
                           {"tiny-ds-v2", true},
                           {"tiny-kimi", true},
                           {"tiny-moonlight", true},
                           {"tiny-ds-lite", true, false},
                           {"tiny-ds-old", true, false},
                           {"tiny-glm-dsa", true, false},
                           {"tiny-glm-dsa-shared", true, false}};
constexpr std::pair<const char*, Precision> kTypes[] = {
    {"f32", kFloat32}, {"f16", kFloat16}, {"q8_0", kQuantised}, {"q4_K", kQuantised}};

std::vector<Case> cases() {
  std::vector<Case> list;
  for (const Kind& kind : kKinds)
    for (const auto& [type, precision] : kTypes)
      list.push_back({kind.name, type, precision, kind.experts});
  return list;
}

// A test of 5000 tokens takes half a minute to two. ctest has one family for each kind of attention
// and experts, in F16; all others are run for docs/models.md (models_table.sh).
std::vector<Case> long_cases() {
  constexpr std::array<std::string_view, 5> kInCtest{"tiny-llama3", "tiny-qwen3moe", "tiny-gptoss",
                                                     "tiny-gemma3", "tiny-kimi"};
  const bool all = std::getenv("SINEW_MODELS_ALL") != nullptr;
  std::vector<Case> list;
  for (const Kind& kind : kKinds) {
    for (const auto& [type, precision] : kTypes) {
      const bool daily = std::string_view(type) == "f16" &&
                         std::find(kInCtest.begin(), kInCtest.end(), kind.name) != kInCtest.end();
      if (kind.longest && (all || daily))
        list.push_back({kind.name, type, precision, kind.experts});
    }
  }
  return list;
}

template <typename Parameter>
std::string case_name(const testing::TestParamInfo<Parameter>& given) {
  std::string name = std::string(given.param.kind) + "_" + given.param.type;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Models, FamiliesOracle, testing::ValuesIn(cases()), case_name<Case>);
INSTANTIATE_TEST_SUITE_P(Models, FamiliesOracleLong, testing::ValuesIn(long_cases()),
                         case_name<Case>);

struct CacheCase {
  const char* kind;
  const char* type;
  friend void PrintTo(const CacheCase& given, std::ostream* out) {
    *out << given.kind << ' ' << given.type;
  }
};

// A KV cache of fewer bits loses something; how much is written down. It must be what it costs the
// oracle with the same cache, on one rank and on three.
class CacheTypes : public testing::TestWithParam<CacheCase> {};

TEST_P(CacheTypes, LoseAsMuchAsTheOracles) {
  constexpr std::size_t kLength = 600;
  // The loss comes from rounding each cached value alike, so it is the same but for chance.
  constexpr double kLossFactor = 1.5;
  const TemporaryFolder folder;
  const std::string model = folder.file("model.gguf");
  const auto made = run_checked({SINEW_GENERATE, GetParam().kind, model, "--type", "f16"}, {},
                                std::chrono::seconds(60));
  ASSERT_TRUE(made) << made.error().message;
  using Run = std::function<Result<LogitsAnswer>(const LogitsRequest&)>;
  const auto loss = [&](const Run& run, const std::vector<std::string>& flags) {
    LogitsRequest request = request_of(model, kLength, 11);
    request.all = true;
    request.more = flags;
    const auto plain = run(request);
    request.more.insert(request.more.end(), {"--cache-type", GetParam().type});
    const auto packed = run(request);
    if (!plain || !packed) {
      ADD_FAILURE() << (plain ? packed : plain).error().message;
      return Difference{};
    }
    return difference(plain->logits, packed->logits, kLength, kFloat16.position_kl);
  };
  // The oracle turns the heads before it rounds them, unless told otherwise; we do not.
  const Difference theirs = loss(&Oracle::run, {"--no-rotation"});
  for (const char* ranks : {"1", "3"}) {
    const Difference ours =
        loss([](const LogitsRequest& request) { return run_logits(SINEW_PROGRAM, request); },
             {"--ranks", ranks});
    std::printf("%s, cache %s, %s ranks: KL median %.2e (oracle %.2e)\n", GetParam().kind,
                GetParam().type, ranks, ours.median, theirs.median);
    EXPECT_GT(ours.median, 0);
    EXPECT_LT(ours.median, kLossFactor * theirs.median);
    if (const char* path = std::getenv("SINEW_CACHE_TABLE"))
      std::ofstream(path, std::ios::app)
          << GetParam().kind << '\t' << GetParam().type << '\t' << ranks << '\t' << ours.median
          << '\t' << theirs.median << '\n';
  }
}

INSTANTIATE_TEST_SUITE_P(Models, CacheTypes,
                         testing::Values(CacheCase{"tiny-llama3", "q8_0"},
                                         CacheCase{"tiny-llama3", "q4_0"},
                                         CacheCase{"tiny-qwen3", "q8_0"},
                                         CacheCase{"tiny-ds", "q8_0"},
                                         CacheCase{"tiny-ds", "q4_0"}),
                         case_name<CacheCase>);

}  // namespace
}  // namespace sinew::test
