// A device's faster layouts give the products that its plain buffers give.
#include <ggml-cpp.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "graph/device.h"
#include "graph/weights.h"

namespace sinew {
namespace {

constexpr std::int64_t kRows = 256;

struct Case {
  TensorType type;
  std::int64_t columns;
  std::int64_t experts;  // 0: one matrix
};

class WeightKernels : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    auto device = Device::open("CPU", 1);
    ASSERT_TRUE(device) << device.error().message;
    device_ = std::move(*device);
    std::vector<float> values(static_cast<std::size_t>(
        GetParam().columns * kRows * std::max<std::int64_t>(1, GetParam().experts)));
    for (float& value : values) value = normal_(random_);
    const auto type = static_cast<ggml_type>(GetParam().type);
    const std::int64_t rows = kRows * std::max<std::int64_t>(1, GetParam().experts);
    bytes_.resize(ggml_row_size(type, GetParam().columns) * static_cast<std::size_t>(rows));
    ggml_quantize_chunk(type, values.data(), bytes_.data(), 0, rows, GetParam().columns, nullptr);
  }

  // The product of the matrix, kept as `use` asks, with `tokens` columns of the same input.
  std::vector<float> product(TensorUse use, std::int64_t tokens) {
    const auto& given = GetParam();
    LoadItem item;
    item.name = "w";
    item.use = use;
    item.type = given.type;
    item.shape = {given.columns, kRows, std::max<std::int64_t>(1, given.experts), 1};
    item.bytes = {0, bytes_.size(), bytes_.size(), 1};
    const auto weights = Weights::allocate(*device_, {item});
    EXPECT_TRUE(weights);
    weights->set(weights->find("w"), bytes_);
    const ggml_context_ptr context(
        ggml_init({ggml_tensor_overhead() * 16 + ggml_graph_overhead(), nullptr, true}));
    ggml_tensor* input = ggml_new_tensor_3d(context.get(), GGML_TYPE_F32, given.columns, 1, tokens);
    ggml_tensor* chosen = ggml_new_tensor_2d(context.get(), GGML_TYPE_I32, 1, tokens);
    ggml_tensor* result =
        given.experts > 0
            ? ggml_mul_mat_id(context.get(), weights->find("w"), input, chosen)
            : ggml_mul_mat(context.get(), weights->find("w"),
                           ggml_reshape_2d(context.get(), input, given.columns, tokens));
    ggml_cgraph* graph = ggml_new_graph(context.get());
    ggml_build_forward_expand(graph, result);
    const ggml_backend_buffer_ptr buffer(
        ggml_backend_alloc_ctx_tensors_from_buft(context.get(), device_->default_buffers()));
    random_.seed(7);
    std::vector<float> values(static_cast<std::size_t>(given.columns * tokens));
    for (float& value : values) value = normal_(random_);
    ggml_backend_tensor_set(input, values.data(), 0, ggml_nbytes(input));
    std::vector<std::int32_t> experts(static_cast<std::size_t>(tokens));
    for (std::int32_t& expert : experts)
      expert = static_cast<std::int32_t>(
          random_() % static_cast<unsigned>(std::max<std::int64_t>(1, given.experts)));
    ggml_backend_tensor_set(chosen, experts.data(), 0, ggml_nbytes(chosen));
    EXPECT_EQ(ggml_backend_graph_compute(device_->backend(), graph), GGML_STATUS_SUCCESS);
    std::vector<float> out(static_cast<std::size_t>(ggml_nelements(result)));
    ggml_backend_tensor_get(result, out.data(), 0, ggml_nbytes(result));
    return out;
  }

  std::mt19937 random_{5};
  std::normal_distribution<float> normal_;
  std::unique_ptr<Device> device_;
  std::vector<std::byte> bytes_;
};

// Both sides round activations to eight bits of their block's largest: 0.64 % of the result each
// (engine/judgement.h), so 2 % leaves room for both and for few elements.
TEST_P(WeightKernels, ProductsAreThoseOfPlainBuffers) {
  for (const std::int64_t tokens : {1, 2, 16, 33, 200}) {
    const TensorUse fast = GetParam().experts > 0 ? TensorUse::kExperts : TensorUse::kMatrix;
    const std::vector<float> plain = product(TensorUse::kOther, tokens);
    const std::vector<float> laid_out = product(fast, tokens);
    double difference = 0;
    double length = 0;
    for (std::size_t i = 0; i < plain.size(); ++i) {
      difference += std::pow(double{laid_out[i]} - double{plain[i]}, 2);
      length += std::pow(double{plain[i]}, 2);
    }
    EXPECT_LT(std::sqrt(difference / length), 0.02) << tokens << " tokens";
  }
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const TensorType type :
       {TensorType::kF16, TensorType::kQ8_0, TensorType::kQ4_0, TensorType::kQ4_K}) {
    const std::int64_t block = tensor_type_traits(type)->block_length;
    for (const std::int64_t columns : {32, 64, 96, 128, 256, 512})
      if (columns % block == 0)
        for (const std::int64_t experts : {0, 4}) all.push_back({type, columns, experts});
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Shapes, WeightKernels, testing::ValuesIn(cases()),
                         [](const testing::TestParamInfo<Case>& given) {
                           return fmt::format("{}_{}_columns_{}_experts",
                                              tensor_type_traits(given.param.type)->name,
                                              given.param.columns, given.param.experts);
                         });

}  // namespace
}  // namespace sinew
