#include "engine/slice_hash.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/fault.h"
#include "engine/weight_loader.h"
#include "support/process.h"
#include "support/tiny_model.h"

namespace sinew {
namespace {

using ::testing::HasSubstr;

// A tiny model on disk, of tensors whose bytes all differ, and the slices of two ranks.
class SliceHashes : public testing::Test {
 protected:
  void SetUp() override {
    const ModelSpec spec = test::tiny_deepseek_spec();
    test::GgufWriter writer = test::tiny_metadata(spec);
    std::uint32_t state = 1;
    for (const TensorDecl& decl : declare_tensors(spec)) {
      const TensorType type = test::stored_type(decl, TensorType::kQ8_0);
      test::Bytes bytes(test::GgufWriter::tensor_bytes(type, test::stored_shape(decl)));
      for (std::byte& byte : bytes)
        byte = static_cast<std::byte>((state = state * 1664525 + 1013904223) >> 24);
      writer.tensor(decl.name, type, test::stored_shape(decl), bytes);
    }
    const test::Bytes bytes = writer.bytes();
    path_ = folder_.file("tiny.gguf");
    ASSERT_TRUE(
        test::write_file(path_, {reinterpret_cast<const char*>(bytes.data()), bytes.size()}));
    auto file = ModelFile::open(path_);
    ASSERT_TRUE(file) << file.error().message;
    file_.emplace(std::move(*file));
    const auto read = read_spec(file_->directory);
    ASSERT_TRUE(read) << read.error().message;
    const auto bound = bind_tensors(*read, file_->directory);
    ASSERT_TRUE(bound) << bound.error().message;
    const auto plan = make_plan(*read, *bound, Layout{{1.0, 1.0}, {}, false});
    ASSERT_TRUE(plan) << plan.error().message;
    items_ = make_load_list(*bound, *plan, 1);
  }

  // What the loader reads, hashed.
  std::vector<SliceHash> hashes(const Faults& faults, HashScope scope) {
    const auto chosen = choose_blocks(items_, scope);
    std::vector<SliceHash> all;
    for (std::size_t i = 0; i < items_.size(); ++i) {
      std::vector<std::byte> slice(items_[i].bytes.total());
      EXPECT_TRUE(read_slice(*file_, items_[i], slice));
      EXPECT_TRUE(faults.damage_read(items_[i], slice));
      all.push_back({items_[i].name, hash_packed(slice, chosen[i])});
    }
    return all;
  }
  Status compare(const std::vector<SliceHash>& held, HashScope scope) {
    return compare_hashes(*file_, items_, scope, 1, held, [] { return false; });
  }

  test::TemporaryFolder folder_;
  std::string path_;
  std::optional<ModelFile> file_;
  std::vector<LoadItem> items_;
};

TEST_F(SliceHashes, LoaderAndFileAgreeOnEverySlice) {
  for (const HashScope scope : {HashScope::kAll, HashScope::kSample}) {
    const Status same = compare(hashes({}, scope), scope);
    EXPECT_TRUE(same) << same.error().message;
  }
}

TEST_F(SliceHashes, EveryTensorsDamageIsNamed) {
  for (const LoadItem& item : items_) {
    const auto faults =
        Faults::parse({fmt::format("byte={}@{}", item.name, item.bytes.total() - 1)});
    ASSERT_TRUE(faults);
    const Status differs = compare(hashes(*faults, HashScope::kAll), HashScope::kAll);
    ASSERT_FALSE(differs) << item.name;
    EXPECT_EQ(differs.error().code, ErrorCode::kIntegrity);
    EXPECT_THAT(differs.error().message,
                HasSubstr(fmt::format("rank 1: tensor '{}' is not what the file has", item.name)));
    EXPECT_THAT(differs.error().message, HasSubstr(path_));
  }
}

TEST_F(SliceHashes, PositionInTheFileIsThatOfThePackedByte) {
  for (const LoadItem& item : items_) {
    std::vector<std::byte> slice(item.bytes.total());
    ASSERT_TRUE(read_slice(*file_, item, slice));
    const ByteSpan bytes = file_->parts[item.part].bytes();
    for (std::uint64_t packed = 0; packed < slice.size(); packed += 97)
      ASSERT_EQ(slice[packed], bytes[file_position(item, packed)]) << item.name << ' ' << packed;
  }
}

TEST_F(SliceHashes, SlicesOfAnotherPlanAreRefused) {
  std::vector<SliceHash> held = hashes({}, HashScope::kAll);
  std::swap(held[0].tensor, held[1].tensor);
  EXPECT_FALSE(compare(held, HashScope::kAll));
  held.pop_back();
  EXPECT_FALSE(compare(held, HashScope::kAll));
}

TEST(HashBlocks, SampleIsBoundedAndSpreadOverAllTensors) {
  std::vector<LoadItem> items(10);
  for (LoadItem& item : items) {
    item.bytes = {0, 100 * kHashBlockBytes + 1, 100 * kHashBlockBytes + 1, 1};
  }
  const auto all = choose_blocks(items, HashScope::kAll);
  EXPECT_EQ(all.front().size(), 101U);
  std::uint64_t blocks = 0;
  for (const auto& chosen : choose_blocks(items, HashScope::kSample)) {
    EXPECT_FALSE(chosen.empty());
    blocks += chosen.size();
  }
  EXPECT_LE(blocks, kSampleBlocks);
  EXPECT_GT(blocks, kSampleBlocks / 2);
}

TEST(Faults, WhatCannotBeReadIsAUsageError) {
  for (const char* text : {"", "byte", "byte=a", "byte=a@", "byte=a@x", "rows=a@1", "rows=a@1,",
                           "sum=x@1,2", "sum=1@1", "frob=1@1,2", "@="}) {
    const auto fault = parse_fault(text);
    ASSERT_FALSE(fault) << text;
    EXPECT_EQ(fault.error().code, ErrorCode::kUsage);
  }
}

TEST(Faults, SumIsDamagedInItsStepAndPlaceAlone) {
  const auto faults = Faults::parse({"element=3@2,1", "sum=4@0,2"});
  ASSERT_TRUE(faults) << faults.error().message;
  std::vector<float> values{1, 1, 1};
  faults->damage_sum(2, 2, values);
  faults->damage_sum(3, 0, values);
  EXPECT_THAT(values, testing::ElementsAre(1, 1, 1));
  faults->damage_sum(3, 2, values);
  EXPECT_THAT(values, testing::ElementsAre(1, 101, 1));
  faults->damage_sum(5, 0, values);
  EXPECT_THAT(values, testing::ElementsAre(2, 202, 2));
}

}  // namespace
}  // namespace sinew
