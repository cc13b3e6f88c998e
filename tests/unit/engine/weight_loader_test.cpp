#include "engine/weight_loader.h"

#include <ggml-backend.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <numeric>
#include <random>

#include "model/spec.h"
#include "support/gguf_writer.h"
#include "support/process.h"

namespace sinew {
namespace {

using test::Bytes;
using ::testing::HasSubstr;

Bytes random_bytes(std::size_t size) {
  std::mt19937_64 random(41);
  Bytes bytes(size);
  for (std::size_t i = 0; i + 8 <= size; i += 8) {
    const std::uint64_t word = random();
    std::memcpy(bytes.data() + i, &word, sizeof(word));
  }
  return bytes;
}

// What the words of SliceBytes say, byte by byte.
Bytes slow_slice(ByteSpan tensor, const SliceBytes& slice) {
  Bytes bytes;
  for (std::uint64_t i = 0; i < slice.count; ++i)
    for (std::uint64_t j = 0; j < slice.chunk_bytes; ++j)
      bytes.push_back(tensor[slice.offset + i * slice.stride_bytes + j]);
  return bytes;
}

class ReadSlice : public ::testing::Test {
 protected:
  // A model of one tensor "t" of random elements.
  void write(TensorType type, const std::vector<std::uint64_t>& shape) {
    test::GgufWriter writer;
    writer.add("general.architecture", "llama");
    writer.tensor("t", type, shape, random_bytes(test::GgufWriter::tensor_bytes(type, shape)));
    const Bytes bytes = writer.bytes();
    ASSERT_TRUE(
        test::write_file(path_, {reinterpret_cast<const char*>(bytes.data()), bytes.size()}));
    auto file = ModelFile::open(path_);
    ASSERT_TRUE(file) << file.error().message;
    file_.emplace(std::move(*file));
  }
  const TensorInfo& info() const { return file_->directory.tensors()[0]; }
  LoadItem item(int axis, IndexRange range) const {
    LoadItem one;
    one.name = "t";
    one.type = info().type;
    one.file_offset = info().offset;
    one.bytes = slice_bytes(info(), axis, range);
    return one;
  }
  void expect_right(const LoadItem& one) const {
    Bytes into(one.bytes.total());
    const Status status = read_slice(*file_, one, into);
    ASSERT_TRUE(status) << status.error().message;
    EXPECT_TRUE(into == slow_slice(file_->data(info()), one.bytes))
        << one.bytes.count << " chunks of " << one.bytes.chunk_bytes << " bytes";
  }

  test::TemporaryFolder folder_;
  std::string path_ = folder_.file("model.gguf");
  std::optional<ModelFile> file_;
};

// 12 MB in rows of 4 KiB: several windows of 4 MiB, the last one not full.
TEST_F(ReadSlice, ChunksBelowAPageAreRight) {
  write(TensorType::kF32, {1024, 3001});
  for (const IndexRange range : {IndexRange{0, 1}, IndexRange{100, 164}, IndexRange{1023, 1024},
                                 IndexRange{1, 1024}, IndexRange{0, 512}})
    expect_right(item(0, range));
}

TEST_F(ReadSlice, ChunksOfAPageAndAboveAreRight) {
  write(TensorType::kF32, {8192, 50});
  for (const IndexRange range : {IndexRange{0, 1024}, IndexRange{7, 1031}, IndexRange{3, 8191}})
    expect_right(item(0, range));
}

TEST_F(ReadSlice, ChunksFartherApartThanAWindowAreRight) {
  write(TensorType::kI8, {kReadWindowBytes + 5000, 3});
  expect_right(item(0, {17, 117}));
  expect_right(item(0, {4000, 4000 + static_cast<std::int64_t>(kReadWindowBytes)}));
}

TEST_F(ReadSlice, BlocksRowsAndExpertsAreRight) {
  write(TensorType::kQ8_0, {256, 24, 5});
  for (std::int64_t begin = 0; begin < 256; begin += 64)
    for (std::int64_t end = begin; end <= 256; end += 32) expect_right(item(0, {begin, end}));
  for (const IndexRange range : {IndexRange{0, 24}, IndexRange{3, 4}, IndexRange{8, 24}})
    expect_right(item(1, range));
  for (const IndexRange range : {IndexRange{0, 5}, IndexRange{2, 3}, IndexRange{5, 5}})
    expect_right(item(2, range));
}

TEST_F(ReadSlice, FileThatShrankIsAnErrorThatNamesIt) {
  write(TensorType::kF32, {1024, 64});
  ASSERT_EQ(::truncate(path_.c_str(), static_cast<off_t>(info().offset + info().bytes / 2)), 0);
  for (const LoadItem& one : {item(1, {0, 64}), item(0, {0, 64})}) {
    Bytes into(one.bytes.total());
    const Status status = read_slice(*file_, one, into);
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().code, ErrorCode::kIo);
    EXPECT_THAT(status.error().message, HasSubstr(path_));
  }
}

TEST(LoadWeights, FillsEveryTensorOfTheRankAndTellsTheBytes) {
  const auto file = ModelFile::open(SINEW_SOURCE_DIR "/models/tiny/sinew-tiny-q8_0.gguf");
  ASSERT_TRUE(file) << file.error().message;
  const auto spec = read_spec(file->directory);
  ASSERT_TRUE(spec) << spec.error().message;
  const auto bound = bind_tensors(*spec, file->directory);
  ASSERT_TRUE(bound) << bound.error().message;
  const auto plan = make_plan(*spec, *bound, Layout{{2, 1, 1}, {}, false});
  ASSERT_TRUE(plan) << plan.error().message;
  std::vector<LoadItem> items = make_load_list(*bound, *plan, 1);
  // Tensors that are only multiplied may lie in a layout that cannot be read back.
  for (LoadItem& one : items) one.use = TensorUse::kOther;
  const auto device = Device::open("CPU", 1);
  ASSERT_TRUE(device) << device.error().message;
  const auto weights = Weights::allocate(**device, items);
  ASSERT_TRUE(weights) << weights.error().message;

  std::vector<std::uint64_t> told;
  const Status status =
      load_weights(*file, items, *weights, [&](std::uint64_t bytes) { told.push_back(bytes); });
  ASSERT_TRUE(status) << status.error().message;
  ASSERT_EQ(told.size(), items.size());
  std::uint64_t total = 0;
  for (std::size_t i = 0; i < items.size(); ++i) {
    total += items[i].bytes.total();
    EXPECT_EQ(told[i], total);
    ggml_tensor* tensor = weights->find(items[i].name);
    ASSERT_NE(tensor, nullptr) << items[i].name;
    Bytes loaded(items[i].bytes.total());
    ggml_backend_tensor_get(tensor, loaded.data(), 0, loaded.size());
    const TensorInfo* info = file->directory.find(items[i].name);
    EXPECT_TRUE(loaded == slow_slice(file->data(*info), items[i].bytes)) << items[i].name;
  }
  EXPECT_EQ(weights->find("no.such.tensor"), nullptr);
}

}  // namespace
}  // namespace sinew
