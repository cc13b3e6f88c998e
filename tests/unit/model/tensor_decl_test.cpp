#include "model/tensor_decl.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <set>

#include "support/tiny_model.h"

namespace sinew {
namespace {

using test::GgufWriter;
using test::stored_shape;
using test::stored_type;
using test::tiny_deepseek_spec;
using test::tiny_llama_spec;
using test::tiny_metadata;
using test::TinyModel;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// How one tensor of a file differs from what is declared.
using Change =
    std::function<void(GgufWriter&, const TensorDecl&, TensorType, std::vector<std::uint64_t>)>;

GgufWriter write_all(GgufWriter writer, const ModelSpec& spec, const std::string& changed,
                     const Change& change) {
  for (const TensorDecl& decl : declare_tensors(spec)) {
    if (decl.name == changed)
      change(writer, decl, stored_type(decl, TensorType::kQ8_0), stored_shape(decl));
    else
      writer.tensor(decl.name, stored_type(decl, TensorType::kQ8_0), stored_shape(decl));
  }
  return writer;
}

void expect_refused(const std::string& changed, const Change& change, ErrorCode code,
                    const char* cause) {
  const ModelSpec spec = tiny_llama_spec();
  const auto model =
      TinyModel::from_file(write_all(tiny_metadata(spec), spec, changed, change).bytes());
  ASSERT_FALSE(model);
  EXPECT_EQ(model.error().code, code) << model.error().message;
  EXPECT_THAT(model.error().message, HasSubstr(changed));
  EXPECT_THAT(model.error().message, HasSubstr(cause));
  EXPECT_THAT(model.error().message, HasSubstr("tiny.gguf"));
}

TEST(BindTensors, BothFamiliesBindEveryDeclaredTensorByName) {
  for (const ModelSpec& spec : {tiny_llama_spec(), tiny_deepseek_spec()}) {
    const auto model = TinyModel::make(spec, TensorType::kQ8_0);
    ASSERT_TRUE(model) << model.error().message;
    EXPECT_EQ((*model)->tensors.size(), declare_tensors(spec).size());
    EXPECT_EQ((*model)->tensors.size(), (*model)->directory.tensors().size());
    for (const BoundTensor& tensor : (*model)->tensors)
      EXPECT_EQ(tensor.decl.name, tensor.info->name);
  }
}

TEST(BindTensors, MissingTensorIsNamed) {
  expect_refused(
      "blk.1.attn_k.weight", [](auto&&...) {}, ErrorCode::kInvalidFile, "missing");
}

TEST(BindTensors, OptionalTensorMayBeMissing) {
  const ModelSpec spec = tiny_llama_spec();
  const auto model = TinyModel::from_file(
      write_all(tiny_metadata(spec), spec, "rope_freqs.weight", [](auto&&...) {}).bytes());
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_EQ((*model)->tensors.size() + 1, declare_tensors(spec).size());
}

TEST(BindTensors, WrongShapeTellsBothShapes) {
  expect_refused(
      "blk.0.ffn_up.weight",
      [](GgufWriter& writer, const TensorDecl& decl, TensorType type, std::vector<std::uint64_t>) {
        writer.tensor(decl.name, type, {64, 224});
      },
      ErrorCode::kInvalidFile, "has shape [64, 224, 1, 1], its metadata say [64, 256, 1, 1]");
}

TEST(BindTensors, NormThatIsNotF32IsUnsupported) {
  expect_refused(
      "output_norm.weight",
      [](GgufWriter& writer, const TensorDecl& decl, TensorType,
         const std::vector<std::uint64_t>& shape) {
        writer.tensor(decl.name, TensorType::kF16, shape);
      },
      ErrorCode::kUnsupported, "f16");
}

TEST(BindTensors, MatrixOfIntegersIsUnsupported) {
  expect_refused(
      "blk.0.attn_q.weight",
      [](GgufWriter& writer, const TensorDecl& decl, TensorType,
         const std::vector<std::uint64_t>& shape) {
        writer.tensor(decl.name, TensorType::kI32, shape);
      },
      ErrorCode::kUnsupported, "i32");
}

TEST(BindTensors, TensorThatWouldBeIgnoredIsRefused) {
  const ModelSpec spec = tiny_llama_spec();
  for (const char* name : {"blk.0.attn_gate.weight", "blk.x.weight", "visual.weight"}) {
    GgufWriter writer = write_all(tiny_metadata(spec), spec, "", [](auto&&...) {});
    writer.tensor(name, TensorType::kF32, {4});
    const auto model = TinyModel::from_file(writer.bytes());
    ASSERT_FALSE(model) << name;
    EXPECT_EQ(model.error().code, ErrorCode::kUnsupported);
    EXPECT_THAT(model.error().message, HasSubstr(name));
  }
}

TEST(BindTensors, TensorsOfPredictLayersAreLeftOut) {
  ModelSpec spec = tiny_deepseek_spec();
  ++spec.layers;
  GgufWriter metadata = tiny_metadata(spec);
  metadata.add("deepseek2.nextn_predict_layers", std::uint32_t{1});
  --spec.layers;
  GgufWriter writer = write_all(metadata, spec, "", [](auto&&...) {});
  writer.tensor("blk.2.nextn.eh_proj.weight", TensorType::kF16, {128, 64});
  const auto model = TinyModel::from_file(writer.bytes());
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_EQ((*model)->tensors.size(), declare_tensors(spec).size());
}

TEST(DeclareTensors, TiedModelsTakeTheirOutputLayerFromTheEmbedding) {
  ModelSpec spec = tiny_llama_spec();
  spec.tied_output = true;
  const auto model = TinyModel::make(spec, TensorType::kF16);
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_TRUE((*model)->spec.tied_output);
  const auto bound = [&](const std::string& name) {
    for (const BoundTensor& tensor : (*model)->tensors)
      if (tensor.decl.name == name) return tensor;
    return BoundTensor{};
  };
  EXPECT_EQ(bound("output.weight").info, (*model)->directory.find("token_embd.weight"));
  EXPECT_EQ(bound("output.weight").decl.use, TensorUse::kMatrix);
  EXPECT_EQ(bound("token_embd.weight").decl.use, TensorUse::kOther);
}

// What a plan relies on: the indices of a dimension are exactly the elements along the axis.
TEST(DeclareTensors, IndicesTimesElementsAreTheAxis) {
  ModelSpec shared = tiny_deepseek_spec();
  shared.experts.shared = 3;
  ModelSpec direct = tiny_deepseek_spec();
  direct.latent.query_rank = 0;
  std::vector<ModelSpec> specs = test::tiny_specs();
  specs.insert(specs.end(), {shared, direct});
  for (const ModelSpec& spec : specs) {
    std::set<std::string> names;
    for (const TensorDecl& decl : declare_tensors(spec)) {
      EXPECT_TRUE(names.insert(decl.name).second) << decl.name << " is declared twice";
      if (decl.expert_axis >= 0) {
        EXPECT_EQ(decl.shape[static_cast<std::size_t>(decl.expert_axis)], spec.experts.count)
            << decl.name;
      }
      if (decl.split.mirrored) continue;
      EXPECT_EQ(dimension_size(spec, decl.split.dimension) * decl.split.elements_per_index,
                decl.shape[static_cast<std::size_t>(decl.split.axis)])
          << decl.name;
    }
  }
}

TEST(DimensionSize, DimensionsThatAModelLacksAreEmpty) {
  const auto sizes = [](const ModelSpec& spec) {
    std::vector<std::int64_t> all;
    for (int d = 0; d < kDimensionCount; ++d)
      all.push_back(dimension_size(spec, static_cast<Dimension>(d)));
    return all;
  };
  EXPECT_THAT(sizes(tiny_llama_spec()), ElementsAre(4, 256, 0, 0, 0, 96));
  ModelSpec spec = tiny_deepseek_spec();
  EXPECT_THAT(sizes(spec), ElementsAre(8, 256, 128, 4, 128, 96));
  spec.experts.dense_layers = 0;
  spec.experts.shared = 2;
  EXPECT_THAT(sizes(spec), ElementsAre(8, 0, 128, 4, 256, 96));
  spec.experts.dense_layers = spec.layers;
  EXPECT_THAT(sizes(spec), ElementsAre(8, 256, 0, 0, 0, 96));
}

TEST(SplitUnits, AreWholeBlocksOfTheTensorsCutAlongTheirRows) {
  const auto units = [](const ModelSpec& spec, TensorType type) {
    const auto model = TinyModel::make(spec, type);
    EXPECT_TRUE(model) << model.error().message;
    return split_units((*model)->spec, (*model)->tensors);
  };
  ModelSpec spec = tiny_llama_spec();
  EXPECT_THAT(units(spec, TensorType::kF16), ElementsAre(1, 32, 32, 1, 32, 32));
  EXPECT_THAT(units(spec, TensorType::kQ8_0), ElementsAre(1, 32, 32, 1, 32, 32));
  // A head group has 2 x 32 elements of the output projection, a block 256.
  EXPECT_THAT(units(spec, TensorType::kQ4_K), ElementsAre(4, 256, 32, 1, 32, 32));
  spec.vocabulary = 100;  // unquantised rows: the largest power of two up to 32 that divides it
  EXPECT_THAT(units(spec, TensorType::kQ8_0), ElementsAre(1, 32, 32, 1, 32, 4));
}

}  // namespace
}  // namespace sinew
