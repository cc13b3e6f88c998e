#include <fmt/format.h>

#include <cstring>
#include <string>
#include <utility>

#include "gguf/part.h"
#include "gguf/printable.h"

// Memory is bounded twice: a count is compared with the bytes that are left before anything is
// reserved for it, and the limits below keep what is small in the file and large in memory (an
// empty nested array, a byte widened to 64 bits) from adding up.
namespace sinew {
namespace {

constexpr std::uint64_t kKeyBytesMax = 65535;  // of the format
constexpr std::uint64_t kStringBytesMax = 64u << 20;
constexpr std::uint64_t kKeyCountMax = 65536;
constexpr std::uint64_t kElementCountMax = 32u << 20;      // of all arrays of a file together
constexpr std::uint64_t kNestedArrayCountMax = 64u << 10;  // likewise
constexpr int kNestingMax = 4;

// Value types, numbered as in the file.
enum class MetaType : std::uint32_t {
  kU8 = 0,
  kI8 = 1,
  kU16 = 2,
  kI16 = 3,
  kU32 = 4,
  kI32 = 5,
  kF32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kU64 = 10,
  kI64 = 11,
  kF64 = 12,
};

// The fewest bytes that one value can take in the file; 0 for a type that does not exist.
std::uint64_t bytes_min(MetaType type) {
  switch (type) {
    case MetaType::kU8:
    case MetaType::kI8:
    case MetaType::kBool:
      return 1;
    case MetaType::kU16:
    case MetaType::kI16:
      return 2;
    case MetaType::kU32:
    case MetaType::kI32:
    case MetaType::kF32:
      return 4;
    case MetaType::kU64:
    case MetaType::kI64:
    case MetaType::kF64:
      return 8;
    case MetaType::kString:
      return 8;
    case MetaType::kArray:
      return 12;
  }
  return 0;
}

class ValueReader {
 public:
  explicit ValueReader(ByteCursor& cursor) : cursor_(cursor) {}

  Result<MetaValue> value() {
    SINEW_ASSIGN(const MetaType type, type_id());
    if (type != MetaType::kArray) return scalar(type);
    SINEW_ASSIGN(MetaArray read, array(1));
    return MetaValue(std::move(read));
  }

 private:
  Result<MetaType> type_id() {
    SINEW_ASSIGN(const std::uint32_t id, cursor_.number<std::uint32_t>());
    const auto type = static_cast<MetaType>(id);
    if (bytes_min(type) == 0)
      return cursor_.unsupported(fmt::format(
          "value type {} is none of GGUF's 0 to 12; the file is damaged (download it again) or "
          "newer than this program",
          id));
    return type;
  }

  template <typename Wide, typename Stored>
  Result<MetaValue> widened() {
    SINEW_ASSIGN(const Stored stored, cursor_.number<Stored>());
    return MetaValue(MetaScalar(static_cast<Wide>(stored)));
  }

  Result<MetaValue> scalar(MetaType type) {
    switch (type) {
      case MetaType::kU8:
        return widened<std::uint64_t, std::uint8_t>();
      case MetaType::kU16:
        return widened<std::uint64_t, std::uint16_t>();
      case MetaType::kU32:
        return widened<std::uint64_t, std::uint32_t>();
      case MetaType::kU64:
        return widened<std::uint64_t, std::uint64_t>();
      case MetaType::kI8:
        return widened<std::int64_t, std::int8_t>();
      case MetaType::kI16:
        return widened<std::int64_t, std::int16_t>();
      case MetaType::kI32:
        return widened<std::int64_t, std::int32_t>();
      case MetaType::kI64:
        return widened<std::int64_t, std::int64_t>();
      case MetaType::kF32:
        return widened<double, float>();
      case MetaType::kF64:
        return widened<double, double>();
      case MetaType::kBool: {
        SINEW_ASSIGN(const bool flag, boolean());
        return MetaValue(MetaScalar(flag));
      }
      case MetaType::kString: {
        SINEW_ASSIGN(const std::string_view text, cursor_.string(kStringBytesMax));
        return MetaValue(MetaScalar(std::string(text)));
      }
      case MetaType::kArray:
        break;
    }
    return cursor_.invalid("an array is no scalar");
  }

  Result<bool> boolean() {
    SINEW_ASSIGN(const std::uint8_t byte, cursor_.number<std::uint8_t>());
    if (byte > 1)
      return cursor_.invalid(
          fmt::format("a boolean is 0 or 1, not {}; the file is damaged: download it again", byte));
    return byte == 1;
  }

  template <typename Stored, typename Wide>
  Status numbers(std::uint64_t count, std::vector<Wide>& target) {
    SINEW_ASSIGN(const ByteSpan source, cursor_.take(count * sizeof(Stored)));
    target.resize(count);
    for (std::uint64_t i = 0; i < count; ++i) {
      Stored stored;
      std::memcpy(&stored, source.data() + i * sizeof(Stored), sizeof(Stored));
      target[i] = static_cast<Wide>(stored);
    }
    return {};
  }

  Status booleans(std::uint64_t count, std::vector<bool>& target) {
    target.reserve(count);
    for (std::uint64_t i = 0; i < count; ++i) {
      SINEW_ASSIGN(const bool flag, boolean());
      target.push_back(flag);
    }
    return {};
  }

  Status strings(std::uint64_t count, std::vector<std::string>& target) {
    target.reserve(count);
    for (std::uint64_t i = 0; i < count; ++i) {
      SINEW_ASSIGN(const std::string_view text, cursor_.string(kStringBytesMax));
      target.emplace_back(text);
    }
    return {};
  }

  Status nested(std::uint64_t count, int depth, std::vector<MetaArray>& target) {
    if (depth == kNestingMax)
      return cursor_.invalid(
          fmt::format("arrays are nested more than {} deep; the file is damaged: download it again",
                      kNestingMax));
    nested_arrays_ += count;
    if (nested_arrays_ > kNestedArrayCountMax)
      return cursor_.invalid(
          fmt::format("the file has more than {} nested arrays; it is damaged: download it again",
                      kNestedArrayCountMax));
    target.reserve(count);
    for (std::uint64_t i = 0; i < count; ++i) {
      SINEW_ASSIGN(MetaArray read, array(depth + 1));
      target.push_back(std::move(read));
    }
    return {};
  }

  Result<MetaArray> array(int depth) {
    SINEW_ASSIGN(const MetaType type, type_id());
    SINEW_ASSIGN(const std::uint64_t count, cursor_.number<std::uint64_t>());
    SINEW_TRY(cursor_.expect(count, bytes_min(type)));
    elements_ += count;
    if (elements_ > kElementCountMax)
      return cursor_.invalid(
          fmt::format("the arrays have more than {} elements together; the file is damaged: "
                      "download it again",
                      kElementCountMax));
    MetaArray read;
    read.element_type = static_cast<std::uint32_t>(type);
    read.size = count;
    SINEW_TRY(elements(type, count, depth, read));
    return read;
  }

  Status elements(MetaType type, std::uint64_t count, int depth, MetaArray& read) {
    switch (type) {
      case MetaType::kU8:
        return numbers<std::uint8_t>(count, read.unsigned_integers);
      case MetaType::kU16:
        return numbers<std::uint16_t>(count, read.unsigned_integers);
      case MetaType::kU32:
        return numbers<std::uint32_t>(count, read.unsigned_integers);
      case MetaType::kU64:
        return numbers<std::uint64_t>(count, read.unsigned_integers);
      case MetaType::kI8:
        return numbers<std::int8_t>(count, read.signed_integers);
      case MetaType::kI16:
        return numbers<std::int16_t>(count, read.signed_integers);
      case MetaType::kI32:
        return numbers<std::int32_t>(count, read.signed_integers);
      case MetaType::kI64:
        return numbers<std::int64_t>(count, read.signed_integers);
      case MetaType::kF32:
        return numbers<float>(count, read.reals);
      case MetaType::kF64:
        return numbers<double>(count, read.reals);
      case MetaType::kBool:
        return booleans(count, read.booleans);
      case MetaType::kString:
        return strings(count, read.strings);
      case MetaType::kArray:
        return nested(count, depth, read.arrays);
    }
    return cursor_.invalid("no such element type");
  }

  ByteCursor& cursor_;
  std::uint64_t elements_ = 0;
  std::uint64_t nested_arrays_ = 0;
};

}  // namespace

Status read_metadata(ByteCursor& cursor, std::uint64_t count, Metadata& metadata) {
  constexpr std::uint64_t kPairBytesMin = 8 + 1 + 4 + 1;  // length, one letter, type, one byte
  SINEW_TRY(cursor.expect(count, kPairBytesMin));
  if (count > kKeyCountMax)
    return cursor.invalid(
        fmt::format("{} keys, where at most {} are allowed; the file is damaged: download it again",
                    count, kKeyCountMax));
  ValueReader reader(cursor);
  for (std::uint64_t i = 0; i < count; ++i) {
    cursor.set_subject(fmt::format("key {} of {}", i + 1, count));
    SINEW_ASSIGN(const std::string_view key, cursor.string(kKeyBytesMax));
    if (key.empty())
      return cursor.invalid("the key is empty; the file is damaged: download it again");
    cursor.set_subject(fmt::format("key '{}'", printable(key)));
    SINEW_ASSIGN(MetaValue value, reader.value());
    if (!metadata.insert(std::string(key), std::move(value)))
      return cursor.invalid(
          "the key is there twice; the file is damaged: download or convert it again");
  }
  return {};
}

}  // namespace sinew
