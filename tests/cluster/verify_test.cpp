// `sinew verify` as users run it: it passes what is whole, in every way to split, and it names
// rank, tensor or layer of what was damaged on purpose (engine/fault.h).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "support/bundled_model.h"
#include "support/generated_model.h"

namespace sinew::test {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;
using Json = nlohmann::json;

// Two chunks and some of a prompt.
constexpr const char* kContext = "600";
constexpr const char* kChunk = "256";

struct Outcome {
  int status = -1;
  Json report;
  std::string err;

  bool ok() const { return status == 0 && report.value("ok", false); }
  // The first check whose name begins so.
  Json check(const std::string& name) const {
    for (const Json& each : report.value("checks", Json::array()))
      if (each["name"].get<std::string>().starts_with(name)) return each;
    return Json{{"state", "missing"}, {"detail", ""}, {"first_fault", ""}};
  }
};

Outcome verify(const std::string& model, std::vector<std::string> more,
               const std::vector<std::string>& size = {"--ctx", kContext, "--chunk", kChunk}) {
  std::vector<std::string> arguments{SINEW_PROGRAM, "verify", model, "--json", "--threads", "1"};
  arguments.insert(arguments.end(), size.begin(), size.end());
  arguments.insert(arguments.end(), more.begin(), more.end());
  const auto output = run_process(arguments, "", std::chrono::seconds(300));
  if (!output) return {-1, {}, output.error().message};
  return {output->exit_status, Json::parse(output->out, nullptr, false), output->err};
}

struct Case {
  const char* kind;
  const char* type;
  friend void PrintTo(const Case& given, std::ostream* out) {
    *out << given.kind << ' ' << given.type;
  }
};
std::string case_name(const testing::TestParamInfo<Case>& given) {
  std::string name = std::string(given.param.kind) + "_" + given.param.type;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

class Verify : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    const auto made =
        generate_model(SINEW_GENERATE, folder_, GetParam().kind, GetParam().type, 1024);
    ASSERT_TRUE(made) << made.error().message;
    model_ = *made;
  }
  TemporaryFolder folder_;
  std::string model_;
};

TEST_P(Verify, PassesWhatIsWhole) {
  const Outcome outcome = verify(model_, {});
  EXPECT_TRUE(outcome.ok()) << outcome.report.dump(1) << outcome.err;
  EXPECT_EQ(outcome.check("computation, 2 ranks")["state"], "ok");
  EXPECT_EQ(outcome.check("computation, 3 ranks")["state"], "ok");
}

// Sums of a step: the embedding is 0, attention of layer n is 1 + 2n, its feed-forward 2 + 2n; in
// MiniMax-M2 another one, of the norms, comes before each attention.
TEST_P(Verify, NamesTheLayerOfAWrongSum) {
  const bool norms = std::string_view(GetParam().kind) == "tiny-minimax";
  const std::string sum = norms ? "1:sum=1@6,0.5" : "1:sum=1@4,0.5";
  const Outcome outcome = verify(model_, {"--ranks", "3", "--inject", sum});
  EXPECT_EQ(outcome.status, 1);
  EXPECT_EQ(outcome.check("slices, 3 ranks")["state"], "ok");
  EXPECT_THAT(outcome.check("computation, 3 ranks")["first_fault"].get<std::string>(),
              StartsWith("layer 1 feed-forward"))
      << outcome.report.dump(1) << outcome.err;
}

// Both ranks round every part of every sum as another kernel for this type may.
TEST_P(Verify, PassesWhatOtherKernelsRound) {
  const std::string type = GetParam().type;
  const std::string size = type == "f32" ? "4.8e-7" : type == "f16" ? "2.8e-4" : "6.4e-3";
  const Outcome outcome = verify(model_, {"--ranks", "2", "--inject", "0:noise=1@1," + size,
                                          "--inject", "1:noise=1@1," + size});
  EXPECT_TRUE(outcome.ok()) << outcome.report.dump(1) << outcome.err;
}

// Eight times as much is no rounding; for float32, what is clearly above the sketches' own.
TEST_P(Verify, FailsForMoreThanRounding) {
  const std::string type = GetParam().type;
  const std::string size = type == "f32" ? "2e-5" : type == "f16" ? "2.3e-3" : "5.1e-2";
  const Outcome outcome = verify(model_, {"--ranks", "2", "--inject", "0:noise=1@1," + size,
                                          "--inject", "1:noise=1@1," + size});
  EXPECT_EQ(outcome.status, 1) << outcome.report.dump(1) << outcome.err;
}

INSTANTIATE_TEST_SUITE_P(Models, Verify,
                         testing::Values(Case{"tiny-llama", "f16"}, Case{"tiny-llama", "q8_0"},
                                         Case{"tiny-llama3", "q4_0"}, Case{"tiny-llama", "f32"},
                                         Case{"tiny-ds", "f16"}, Case{"tiny-ds", "q4_0"},
                                         Case{"tiny-kimi", "q8_0"}, Case{"tiny-kimi", "q4_K"},
                                         Case{"tiny-qwen3moe", "q8_0"}, Case{"tiny-glm4moe", "f16"},
                                         Case{"tiny-gptoss", "q8_0"}, Case{"tiny-minimax", "q8_0"},
                                         Case{"tiny-gemma3", "f16"}, Case{"tiny-ds-old", "f16"},
                                         Case{"tiny-ds32", "f16"}, Case{"tiny-glm-dsa", "f32"}),
                         case_name);

class VerifyOne : public testing::Test {
 protected:
  std::string generate(const char* kind, const char* type) {
    const auto made = generate_model(SINEW_GENERATE, folder_, kind, type, 1024);
    EXPECT_TRUE(made) << made.error().message;
    return made ? *made : std::string();
  }
  TemporaryFolder folder_;
};

TEST_F(VerifyOne, PassesEveryWayToSplit) {
  const std::string model = generate("tiny-ds", "q8_0");
  for (const std::vector<std::string>& layout : {std::vector<std::string>{"--shares", "3,1"},
                                                 {"--ranks", "4", "--stages", "2,2"},
                                                 {"--ranks", "4", "--experts", "whole"},
                                                 {"--ranks", "2", "--link", "tcp"},
                                                 {"--ranks", "2", "--cache-type", "q8_0"}}) {
    const Outcome outcome = verify(model, layout);
    EXPECT_TRUE(outcome.ok()) << layout.front() << outcome.report.dump(1) << outcome.err;
  }
}

// Stages trace their own layers: none is missing.
TEST_F(VerifyOne, ShowsEveryLayerOfEveryStage) {
  const std::string model = generate("tiny-llama", "f16");
  const Outcome whole = verify(model, {"--ranks", "2"});
  const Outcome staged = verify(model, {"--ranks", "4", "--stages", "2,2"});
  ASSERT_TRUE(whole.ok()) << whole.report.dump(1) << whole.err;
  ASSERT_TRUE(staged.ok()) << staged.report.dump(1) << staged.err;
  const Json places = whole.check("computation")["places"];
  EXPECT_EQ(places.size(), staged.check("computation")["places"].size());
  EXPECT_THAT(places.dump(), HasSubstr("layer 0 attention, prompt"));
  EXPECT_THAT(places.dump(), HasSubstr("final norm, answer"));
}

TEST_F(VerifyOne, LongPromptOfTheBundledModelPasses) {
  const auto model = load_bundled_model();
  ASSERT_TRUE(model) << model.error().message;
  const Outcome outcome = verify(model->path, {}, {});
  EXPECT_TRUE(outcome.ok()) << outcome.report.dump(1) << outcome.err;
}

TEST_F(VerifyOne, NamesRankTensorAndBytesOfADamagedSlice) {
  for (const char* kind : {"tiny-llama", "tiny-ds"}) {
    const std::string model = generate(kind, "q8_0");
    const Outcome outcome =
        verify(model, {"--ranks", "2", "--inject", "1:byte=blk.0.ffn_down.weight@3000"});
    EXPECT_EQ(outcome.status, 1);
    const Json slices = outcome.check("slices, 2 ranks");
    EXPECT_EQ(slices["state"], "FAILED");
    EXPECT_THAT(slices["detail"].get<std::string>(),
                StartsWith("rank 1: tensor 'blk.0.ffn_down.weight' is not what the file has, in "
                           "bytes 0 to "));
    EXPECT_EQ(outcome.check("slices, 1 rank")["state"], "ok");
  }
}

// Damage behind the hashes, in a matrix that the device lays out anew or not, is found by what the
// ranks compute.
TEST_F(VerifyOne, NamesTheLayerOfSwappedRows) {
  const Outcome outcome = verify(generate("tiny-llama", "q8_0"),
                                 {"--ranks", "2", "--inject", "1:rows=blk.1.ffn_up.weight@0,7"});
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.check("computation, 2 ranks")["first_fault"].get<std::string>(),
              StartsWith("layer 1 feed-forward"))
      << outcome.report.dump(1) << outcome.err;
}

TEST_F(VerifyOne, FindsOneWrongElementOfOneSumOfADenseModel) {
  const Outcome outcome =
      verify(generate("tiny-llama", "f16"), {"--ranks", "2", "--inject", "1:element=2@3,4242"});
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.check("computation, 2 ranks")["first_fault"].get<std::string>(),
              HasSubstr("layer 1 attention, prompt: single tokens"))
      << outcome.report.dump(1) << outcome.err;
}

TEST_F(VerifyOne, FaultOfDecodingAloneIsFoundInTheAnswer) {
  const Outcome outcome =
      verify(generate("tiny-ds", "q8_0"), {"--ranks", "2", "--inject", "0:sum=5@1,0.2"});
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.check("computation, 2 ranks")["first_fault"].get<std::string>(),
              HasSubstr("layer 0 attention, answer"))
      << outcome.report.dump(1) << outcome.err;
}

TEST_F(VerifyOne, RecordComparesWithTheSameModelAlone) {
  const std::string model = generate("tiny-ds", "q8_0");
  const std::string record = folder_.file("record.json");
  const Outcome recorded = verify(model, {"--record", record});
  ASSERT_TRUE(recorded.ok()) << recorded.report.dump(1) << recorded.err;

  const Outcome same = verify(model, {"--against", record, "--ranks", "2"});
  EXPECT_TRUE(same.ok()) << same.report.dump(1) << same.err;
  EXPECT_EQ(same.check("computation, 2 ranks")["state"], "ok");

  const Outcome damaged =
      verify(model, {"--against", record, "--ranks", "2", "--inject", "1:sum=1@2,0.5"});
  EXPECT_EQ(damaged.status, 1);
  EXPECT_THAT(damaged.check("computation, 2 ranks")["first_fault"].get<std::string>(),
              StartsWith("layer 0 feed-forward"))
      << damaged.report.dump(1);

  const Outcome other =
      verify(generate("tiny-kimi", "q8_0"), {"--against", record, "--ranks", "2"});
  EXPECT_EQ(other.status, 1);
  EXPECT_THAT(other.check("record")["detail"].get<std::string>(), HasSubstr("another model"));
}

TEST_F(VerifyOne, ShortFormPassesAndFindsAWrongSum) {
  const std::string model = generate("tiny-llama", "q8_0");
  const Outcome whole = verify(model, {"--short"});
  EXPECT_TRUE(whole.ok()) << whole.report.dump(1) << whole.err;
  const Outcome damaged = verify(model, {"--short", "--inject", "1:sum=1@4,0.5"});
  EXPECT_EQ(damaged.status, 1);
  EXPECT_THAT(damaged.check("computation, 2 ranks")["first_fault"].get<std::string>(),
              StartsWith("layer 1 feed-forward"));
}

TEST_F(VerifyOne, FileThatIsCutShortFailsWithItsReason) {
  const std::string model = generate("tiny-llama", "q8_0");
  auto bytes = read_file(model);
  ASSERT_TRUE(bytes);
  ASSERT_TRUE(write_file(model, bytes->substr(0, bytes->size() / 2)));
  const Outcome outcome = verify(model, {});
  EXPECT_EQ(outcome.status, 1);
  EXPECT_EQ(outcome.check("file")["state"], "FAILED");
}

TEST_F(VerifyOne, ImpossibleSplitThatWasAskedForFails) {
  const Outcome refused = verify(generate("tiny-llama", "q8_0"), {"--shares", "1,1000000"});
  EXPECT_EQ(refused.status, 1) << refused.report.dump(1) << refused.err;
}

TEST_F(VerifyOne, InterruptEndsItWithItsOwnStatus) {
  const std::string model = generate("tiny-ds", "f32");
  const auto output =
      run_process({"/usr/bin/env", "timeout", "--preserve-status", "-s", "INT", "3", SINEW_PROGRAM,
                   "verify", model, "--ctx", "1000", "--chunk", "1", "--threads", "1"},
                  "", std::chrono::seconds(60));
  ASSERT_TRUE(output) << output.error().message;
  EXPECT_EQ(output->exit_status, 130) << output->out << output->err;
}

TEST_F(VerifyOne, DamageOnPurposeIsSaidAloud) {
  const Outcome outcome = verify(generate("tiny-llama", "q8_0"),
                                 {"--short", "--inject", "1:byte=output_norm.weight@0"});
  EXPECT_THAT(outcome.err, HasSubstr("DAMAGED ON PURPOSE"));
}

}  // namespace
}  // namespace sinew::test
