#include "graph/device.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace sinew {
namespace {

// A row in the middle of a cache line makes ggml's AMX kernel take 1.3 to 1.8 times as long
// (tools/ggml_prelude.h mends it), and whether it happens depends on the number of tokens.
TEST(Device, TensorsBehindOnesOfAnySizeStartAtCacheLines) {
#if !defined(SINEW_GGML_HAS_PRELUDE) || !defined(__x86_64__)
  GTEST_SKIP() << "this ggml is built without the prelude";
#endif
  constexpr std::uintptr_t kCacheLine = 64;
  const auto device = Device::open("CPU", 1);
  ASSERT_TRUE(device) << device.error().message;
  const ggml_context_ptr context(ggml_init({ggml_tensor_overhead() * 64, nullptr, true}));
  for (const std::int64_t elements : {1, 8, 9, 24, 31, 2048})
    for (const ggml_type type : {GGML_TYPE_I32, GGML_TYPE_F16, GGML_TYPE_F32})
      ggml_new_tensor_2d(context.get(), type, elements, 3);
  const ggml_backend_buffer_ptr buffer(
      ggml_backend_alloc_ctx_tensors_from_buft(context.get(), (*device)->default_buffers()));
  ASSERT_NE(buffer, nullptr);
  for (ggml_tensor* tensor = ggml_get_first_tensor(context.get()); tensor != nullptr;
       tensor = ggml_get_next_tensor(context.get(), tensor))
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(tensor->data) % kCacheLine, 0U)
        << ggml_nbytes(tensor) << " bytes";
}

}  // namespace
}  // namespace sinew
