#include "graph/weights.h"

#include <ggml.h>

#include "base/assert.h"
#include "base/bytes.h"

namespace sinew {
namespace {

constexpr std::int64_t kProbeTokens = 512;

// Rows of so few columns stay in plain buffers: with them the AMX kernels of ggml 0.25 give wrong
// products for more than 32 tokens (tests/unit/graph/weight_kernels_test.cpp finds it).
constexpr std::int64_t kColumnsTooFew = 32;

// True if `type` of buffer holds `weight` in a layout with which the device multiplies.
bool multiplies_from(const Device& device, ggml_backend_buffer_type_t type, const LoadItem& item) {
  ggml_context_ptr context(ggml_init({ggml_tensor_overhead() * 8, nullptr, true}));
  if (context == nullptr) return false;
  ggml_tensor* weight =
      ggml_new_tensor(context.get(), static_cast<ggml_type>(item.type), 4, item.shape.data());
  ggml_tensor* product = nullptr;
  if (item.use == TensorUse::kExperts) {
    ggml_tensor* input =
        ggml_new_tensor_3d(context.get(), GGML_TYPE_F32, item.shape[0], 1, kProbeTokens);
    ggml_tensor* experts = ggml_new_tensor_2d(context.get(), GGML_TYPE_I32, 1, kProbeTokens);
    product = ggml_mul_mat_id(context.get(), weight, input, experts);
  } else {
    product =
        ggml_mul_mat(context.get(), weight,
                     ggml_new_tensor_2d(context.get(), GGML_TYPE_F32, item.shape[0], kProbeTokens));
  }
  ggml_backend_buffer_ptr empty(ggml_backend_buft_alloc_buffer(type, 0));
  weight->buffer = empty.get();
  const bool supported = empty != nullptr && device.supports(product);
  weight->buffer = nullptr;
  return supported;
}

ggml_backend_buffer_type_t choose_buffers(const Device& device, const LoadItem& item) {
  if (item.use != TensorUse::kOther && item.shape[0] > kColumnsTooFew)
    for (ggml_backend_buffer_type_t type : device.weight_buffers())
      if (multiplies_from(device, type, item)) return type;
  return device.default_buffers();
}

}  // namespace

Result<Weights> Weights::allocate(const Device& device, const std::vector<LoadItem>& items) {
  std::map<ggml_backend_buffer_type_t, std::vector<const LoadItem*>> by_type;
  for (const LoadItem& item : items) by_type[choose_buffers(device, item)].push_back(&item);

  Weights weights;
  weights.plain_ = device.default_buffers();
  for (const auto& [type, members] : by_type) {
    ggml_context_ptr context(
        ggml_init({ggml_tensor_overhead() * (members.size() + 1), nullptr, true}));
    if (context == nullptr)
      return fail(ErrorCode::kNoMemory, "no memory for {} tensor headers", members.size());
    std::uint64_t bytes = 0;
    // One content under two names in one layout is held once.
    std::map<std::array<std::uint64_t, 4>, ggml_tensor*> by_content;
    for (const LoadItem* item : members) {
      ggml_tensor*& known =
          by_content[{item->part, item->file_offset, item->bytes.offset, item->bytes.total()}];
      if (known != nullptr) {
        weights.tensors_.emplace(item->name, known);
        continue;
      }
      ggml_tensor* tensor =
          ggml_new_tensor(context.get(), static_cast<ggml_type>(item->type), 4, item->shape.data());
      ggml_set_name(tensor, item->name.c_str());
      SINEW_ASSERT(ggml_nbytes(tensor) == item->bytes.total());
      bytes += item->bytes.total();
      weights.tensors_.emplace(item->name, tensor);
      known = tensor;
    }
    ggml_backend_buffer_ptr buffer(ggml_backend_alloc_ctx_tensors_from_buft(context.get(), type));
    if (buffer == nullptr)
      return fail(ErrorCode::kNoMemory,
                  "{} of weights do not fit the memory of {}; use more ranks or a smaller share "
                  "for this one",
                  format_bytes(bytes), device.name());
    ggml_backend_buffer_set_usage(buffer.get(), GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
    weights.contexts_.push_back(std::move(context));
    weights.buffers_.push_back(std::move(buffer));
  }
  return weights;
}

ggml_tensor* Weights::find(std::string_view name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : found->second;
}

bool Weights::reads_back(const ggml_tensor* tensor) const {
  return ggml_backend_buffer_get_type(tensor->buffer) == plain_;
}

void Weights::read(const ggml_tensor* tensor, std::uint64_t offset,
                   std::span<std::byte> into) const {
  ggml_backend_tensor_get(tensor, into.data(), offset, into.size());
}

void Weights::set(ggml_tensor* tensor, std::span<const std::byte> bytes) const {
  SINEW_ASSERT(bytes.size() == ggml_nbytes(tensor));
  ggml_backend_tensor_set(tensor, bytes.data(), 0, bytes.size());
}

std::uint64_t Weights::bytes() const {
  std::uint64_t total = 0;
  for (const auto& buffer : buffers_) total += ggml_backend_buffer_get_size(buffer.get());
  return total;
}

}  // namespace sinew
