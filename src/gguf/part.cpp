#include "gguf/part.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "gguf/printable.h"

namespace sinew {
namespace {

constexpr std::uint64_t kAlignmentDefault = 32;
constexpr std::uint64_t kAlignmentMin = 8;  // of the format: a multiple of 8
constexpr std::uint64_t kAlignmentMax = 1u << 20;
constexpr std::uint64_t kTensorNameBytesMax = 64;  // of the format
constexpr std::uint64_t kTensorCountMax = 1u << 20;
constexpr std::uint64_t kElementsMax = std::numeric_limits<std::int64_t>::max();  // ggml counts so

Result<std::uint32_t> read_version(ByteCursor& cursor) {
  SINEW_ASSIGN(const ByteSpan magic, cursor.take(4));
  if (std::memcmp(magic.data(), "GGUF", 4) != 0)
    return cursor.invalid(
        "the file does not begin with 'GGUF', so it is no GGUF model; name a .gguf file");
  SINEW_ASSIGN(const std::uint32_t version, cursor.number<std::uint32_t>());
  if (version != 0 && (version & 0xFFFF) == 0)
    return cursor.unsupported(
        "the file is big-endian, and only little-endian GGUF is read; convert the model again on a "
        "little-endian machine");
  if (version != 2 && version != 3)
    return cursor.unsupported(
        fmt::format("GGUF version {} is not read, only 2 and 3; convert the model again with a "
                    "current converter",
                    version));
  return version;
}

Result<std::uint64_t> read_alignment(const ByteCursor& cursor, const Metadata& metadata) {
  constexpr std::string_view kKey = "general.alignment";
  SINEW_ASSIGN(const std::int64_t value,
               metadata.integer_or(kKey, static_cast<std::int64_t>(kAlignmentDefault)));
  const auto alignment = static_cast<std::uint64_t>(value);
  if (value < 0 || !std::has_single_bit(alignment) || alignment < kAlignmentMin ||
      alignment > kAlignmentMax)
    return cursor.invalid(fmt::format(
        "the key '{}' holds {}, and must be a power of two from {} to {}; convert the model again",
        kKey, value, kAlignmentMin, kAlignmentMax));
  return alignment;
}

Status read_shape(ByteCursor& cursor, TensorInfo& tensor) {
  SINEW_ASSIGN(const std::uint32_t dimensions, cursor.number<std::uint32_t>());
  if (dimensions < 1 || dimensions > tensor.shape.size())
    return cursor.invalid(fmt::format(
        "{} dimensions, where 1 to 4 are allowed; the file is damaged: download it again",
        dimensions));
  tensor.dimensions = static_cast<int>(dimensions);
  std::uint64_t elements = 1;
  for (std::uint32_t i = 0; i < dimensions; ++i) {
    SINEW_ASSIGN(tensor.shape[i], cursor.number<std::uint64_t>());
    if (tensor.shape[i] == 0)
      return cursor.invalid(
          fmt::format("dimension {} is 0; the file is damaged: download or convert it again", i));
    const auto product = checked_mul(elements, tensor.shape[i]);
    if (!product || *product > kElementsMax)
      return cursor.invalid(
          "the product of the dimensions exceeds 63 bits; the file is damaged: download it again");
    elements = *product;
  }
  return {};
}

Status read_type(ByteCursor& cursor, TensorInfo& tensor) {
  SINEW_ASSIGN(const std::uint32_t id, cursor.number<std::uint32_t>());
  const auto type = static_cast<TensorType>(id);
  const TensorTypeTraits* traits = tensor_type_traits(type);
  if (traits == nullptr)
    return cursor.unsupported(
        fmt::format("tensor type {} is unknown to this version or was removed from the format; "
                    "convert or download a current version of the model",
                    id));
  if (tensor.shape[0] % traits->block_length != 0)
    return cursor.invalid(
        fmt::format("rows of {} elements are no multiple of the {} that a block of {} holds; the "
                    "file is damaged: "
                    "download or convert it again",
                    tensor.shape[0], traits->block_length, traits->name));
  tensor.type = type;
  const auto bytes = checked_mul(tensor.row_bytes(), tensor.rows());
  if (!bytes)
    return cursor.invalid(
        "the size in bytes exceeds 64 bits; the file is damaged: download it again");
  tensor.bytes = *bytes;
  return {};
}

// `offset` still counts from the start of the data section, whose place is known only after the
// last tensor of the directory.
Result<TensorInfo> read_tensor(ByteCursor& cursor, std::uint64_t alignment) {
  TensorInfo tensor;
  SINEW_ASSIGN(const std::string_view name, cursor.string(kTensorNameBytesMax));
  if (name.empty())
    return cursor.invalid("a tensor has no name; the file is damaged: download it again");
  cursor.set_subject(fmt::format("tensor '{}'", printable(name)));
  tensor.name = name;
  SINEW_TRY(read_shape(cursor, tensor));
  SINEW_TRY(read_type(cursor, tensor));
  SINEW_ASSIGN(tensor.offset, cursor.number<std::uint64_t>());
  if (tensor.offset % alignment != 0)
    return cursor.invalid(
        fmt::format("its data is at {}, which is no multiple of the alignment {}; the file is "
                    "damaged: download "
                    "or convert it again",
                    tensor.offset, alignment));
  return tensor;
}

// Turns offsets in the data section into offsets in the file, and proves that they are inside.
Status place_tensors(const GgufPart& part, std::uint64_t data_start,
                     std::vector<TensorInfo>& tensors) {
  for (TensorInfo& tensor : tensors) {
    const auto begin = checked_add(data_start, tensor.offset);
    const auto end = begin ? checked_add(*begin, tensor.bytes) : std::nullopt;
    if (!end || *end > part.bytes.size())
      return fail(
          ErrorCode::kInvalidFile,
          "{}: tensor '{}': its {} bytes begin at {} of the data section, which begins at byte "
          "{}, and so end behind the file's {} bytes; the file is truncated: download it again",
          part.path, printable(tensor.name), tensor.bytes, tensor.offset, data_start,
          part.bytes.size());
    tensor.offset = *begin;
  }
  return {};
}

Status check_overlap(const GgufPart& part, const std::vector<TensorInfo>& tensors) {
  std::vector<const TensorInfo*> order;
  order.reserve(tensors.size());
  for (const TensorInfo& tensor : tensors) order.push_back(&tensor);
  std::sort(order.begin(), order.end(),
            [](const TensorInfo* a, const TensorInfo* b) { return a->offset < b->offset; });
  for (std::size_t i = 1; i < order.size(); ++i) {
    const TensorInfo& before = *order[i - 1];
    if (before.offset + before.bytes > order[i]->offset)
      return fail(
          ErrorCode::kInvalidFile,
          "{}: at byte {}: the data of the tensors '{}' and '{}' overlap; the file is damaged: "
          "download or convert it again",
          part.path, order[i]->offset, printable(before.name), printable(order[i]->name));
  }
  return {};
}

}  // namespace

Result<PartDirectory> parse_part(const GgufPart& part, std::uint32_t index) {
  PartDirectory directory;
  directory.metadata = Metadata(part.path);
  ByteCursor cursor(part.path, part.bytes);
  SINEW_ASSIGN(directory.version, read_version(cursor));
  SINEW_ASSIGN(const std::uint64_t tensor_count, cursor.number<std::uint64_t>());
  SINEW_ASSIGN(const std::uint64_t key_count, cursor.number<std::uint64_t>());
  constexpr std::uint64_t kTensorBytesMin = 8 + 1 + 4 + 8 + 4 + 8;  // one letter, one dimension
  cursor.set_subject("the tensor count");
  SINEW_TRY(cursor.expect(tensor_count, kTensorBytesMin));
  if (tensor_count > kTensorCountMax)
    return cursor.invalid(fmt::format(
        "{} tensors, where at most {} are allowed; the file is damaged: download it again",
        tensor_count, kTensorCountMax));
  cursor.set_subject("the key count");
  SINEW_TRY(read_metadata(cursor, key_count, directory.metadata));

  cursor.set_subject("the metadata");
  SINEW_ASSIGN(const std::uint64_t alignment, read_alignment(cursor, directory.metadata));
  cursor.set_subject("the tensor count");
  SINEW_TRY(cursor.expect(tensor_count, kTensorBytesMin));
  directory.tensors.reserve(tensor_count);
  for (std::uint64_t i = 0; i < tensor_count; ++i) {
    cursor.set_subject(fmt::format("tensor {} of {}", i + 1, tensor_count));
    SINEW_ASSIGN(TensorInfo tensor, read_tensor(cursor, alignment));
    tensor.part = index;
    directory.tensors.push_back(std::move(tensor));
  }
  const std::uint64_t data_start = (cursor.offset() + alignment - 1) / alignment * alignment;
  SINEW_TRY(place_tensors(part, data_start, directory.tensors));
  SINEW_TRY(check_overlap(part, directory.tensors));
  return directory;
}

}  // namespace sinew
