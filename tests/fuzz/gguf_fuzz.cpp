// GgufModel::parse on hostile files: one part, or two. An input that begins with "GGUF" is one
// part; otherwise its first two bytes are the length of the first part, and what follows that is
// the second. Run with -malloc_limit_mb: the parser must not allocate more than a small multiple of
// its input.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "base/assert.h"
#include "gguf/reader.h"

namespace {

using sinew::ByteSpan;
using sinew::GgufModel;
using sinew::GgufPart;

std::vector<GgufPart> split_input(ByteSpan input) {
  std::uint16_t first = 0;
  if (input.size() < sizeof(first) ||
      (input.size() >= 4 && std::memcmp(input.data(), "GGUF", 4) == 0))
    return {{"one", input}};
  std::memcpy(&first, input.data(), sizeof(first));
  const ByteSpan rest = input.subspan(sizeof(first));
  if (first > rest.size()) return {{"one", rest}};
  return {{"first", rest.first(first)}, {"second", rest.subspan(first)}};
}

// What every caller relies on once a model has been read.
void check(const GgufModel& model, const std::vector<GgufPart>& parts) {
  SINEW_ASSERT(model.paths().size() == parts.size());
  for (const sinew::TensorInfo& tensor : model.tensors()) {
    SINEW_ASSERT(sinew::tensor_type_traits(tensor.type) != nullptr);
    SINEW_ASSERT(tensor.part < parts.size());
    SINEW_ASSERT(tensor.shape[0] % tensor.traits().block_length == 0);
    SINEW_ASSERT(tensor.bytes > 0 && tensor.row_bytes() * tensor.rows() == tensor.bytes);
    const std::uint64_t size = parts[tensor.part].bytes.size();
    SINEW_ASSERT(tensor.offset <= size && tensor.bytes <= size - tensor.offset);
    SINEW_ASSERT(model.find(tensor.name) == &tensor);
  }
  const sinew::Metadata& metadata = model.metadata();
  for (const std::string& key : metadata.keys()) {
    SINEW_ASSERT(metadata.find(key) != nullptr);
    const int kinds = metadata.integer(key).has_value() + metadata.real(key).has_value() +
                      metadata.boolean(key).has_value() + metadata.string(key).has_value();
    SINEW_ASSERT(kinds <= 1);
    (void)metadata.strings(key).has_value();
    (void)metadata.integers(key).has_value();
    (void)metadata.reals(key).has_value();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::vector<GgufPart> parts =
      split_input(std::as_bytes(std::span<const std::uint8_t>(data, size)));
  const auto model = GgufModel::parse(parts);
  if (model) {
    check(*model, parts);
  } else {
    SINEW_ASSERT(!model.error().message.empty());
  }
  const std::string name(reinterpret_cast<const char*>(data), size);
  if (const auto paths = sinew::split_paths(name)) SINEW_ASSERT(!paths->empty());
  return 0;
}
