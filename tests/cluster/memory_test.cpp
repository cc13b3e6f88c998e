// What a rank needs: its own slices, its KV cache and the largest slice in transit, not the model.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <map>
#include <regex>
#include <string>
#include <vector>

#include "host/model_file.h"
#include "shard/load_list.h"
#include "support/generated_model.h"

namespace sinew::test {
namespace {

constexpr int kRanks = 4;
constexpr std::int64_t kContext = 512;
// What a rank has in memory besides: the program and ggml (about 6 MiB of touched pages), the read
// window (4 MiB), links, graphs and activations of short steps. Measured on x86-64 with one thread:
// 9 to 11 MiB for each of the models here; half as much again for other systems' libraries.
constexpr std::uint64_t kOverheadBytes = 16u << 20;

#ifdef SINEW_SLOW_BUILD
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

// By rank, from "rank R: ..." and the line below it that ends in "at most X MiB resident".
std::map<int, std::uint64_t> peaks(const std::string& err) {
  static const std::regex line(R"(rank (\d+): [^\n]*\n[^\n]*at most ([0-9.]+) ([KMG]iB) resident)");
  static const std::map<std::string, double> units{
      {"KiB", 1024.0}, {"MiB", 1048576.0}, {"GiB", 1073741824.0}};
  std::map<int, std::uint64_t> found;
  for (std::sregex_iterator it(err.begin(), err.end(), line), end; it != end; ++it)
    found[std::stoi((*it)[1])] =
        static_cast<std::uint64_t>(std::ceil(std::stod((*it)[2]) * units.at((*it)[3])));
  return found;
}

std::map<int, std::uint64_t> peaks_of_run(const std::string& model, const std::string& link) {
  const auto output = run_checked(
      {SINEW_PROGRAM, "run", model, "Hello", "--ranks", std::to_string(kRanks), "--link", link,
       "--threads", "1", "--ctx", std::to_string(kContext), "--ignore-eos", "-n", "8", "--verbose"},
      "", std::chrono::seconds(60));
  EXPECT_TRUE(output) << output.error().message;
  return output ? peaks(output->err) : std::map<int, std::uint64_t>{};
}

// The most that each rank may have in memory, from the file and the plan.
Result<std::vector<std::uint64_t>> allowances(const std::string& path) {
  SINEW_ASSIGN(const ModelFile file, ModelFile::open(path));
  SINEW_ASSIGN(const ModelSpec spec, read_spec(file.directory));
  SINEW_ASSIGN(const std::vector<BoundTensor> tensors, bind_tensors(spec, file.directory));
  SINEW_ASSIGN(const Plan plan,
               make_plan(spec, tensors, Layout{std::vector<double>(kRanks, 1.0), {}, false}));
  std::vector<std::uint64_t> all;
  for (Rank rank = 0; rank < kRanks; ++rank) {
    const RankMemory memory = rank_memory(spec, tensors, plan, rank, kContext, TensorType::kF16);
    std::uint64_t largest = 0;
    for (const LoadItem& item : make_load_list(tensors, plan, rank))
      largest = std::max(largest, item.bytes.total());
    all.push_back(memory.weight_bytes + memory.cache_bytes + largest + kOverheadBytes);
  }
  return all;
}

void expect_within_allowance(const std::string& model, const std::string& link) {
  const auto allowed = allowances(model);
  ASSERT_TRUE(allowed) << allowed.error().message;
  const auto measured = peaks_of_run(model, link);
  ASSERT_EQ(measured.size(), std::size_t{kRanks});
  for (const auto& [rank, bytes] : measured) {
    const std::uint64_t most = allowed->at(static_cast<std::size_t>(rank));
    std::printf("rank %d over %s: %.1f of %.1f MiB allowed\n", rank, link.c_str(),
                static_cast<double>(bytes) / 1048576.0, static_cast<double>(most) / 1048576.0);
    EXPECT_LE(bytes, most) << "rank " << rank;
  }
}

class RankMemoryOfRun : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (kSanitized) GTEST_SKIP() << "sanitizers keep several bytes for each byte of the program";
  }
};

TEST_P(RankMemoryOfRun, BundledModelStaysWithinItsParts) {
  expect_within_allowance(SINEW_SOURCE_DIR "/models/tiny/sinew-tiny-q8_0.gguf", GetParam());
}

TEST_P(RankMemoryOfRun, DenseModelStaysWithinItsParts) {
  const TemporaryFolder folder;
  const auto model = generate_model(SINEW_GENERATE, folder, "tiny-llama", "f32", kContext);
  ASSERT_TRUE(model) << model.error().message;
  expect_within_allowance(*model, GetParam());
}

// 74 MiB: large enough to stand out against what every process needs.
TEST_P(RankMemoryOfRun, RankOfALargerModelHoldsFarLessThanTheModel) {
  const TemporaryFolder folder;
  const auto model = generate_model(SINEW_GENERATE, folder, "tiny-ds", "f32", kContext);
  ASSERT_TRUE(model) << model.error().message;
  expect_within_allowance(*model, GetParam());
  for (const auto& [rank, bytes] : peaks_of_run(*model, GetParam()))
    EXPECT_LT(bytes, std::filesystem::file_size(*model) / 5 * 3) << "rank " << rank;
}

INSTANTIATE_TEST_SUITE_P(Links, RankMemoryOfRun, testing::Values("shm", "tcp"),
                         [](const auto& given) { return std::string(given.param); });

}  // namespace
}  // namespace sinew::test
