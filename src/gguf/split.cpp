#include <fmt/format.h>

#include <string_view>

#include "gguf/part.h"

namespace sinew {
namespace {

constexpr std::string_view kNumberKey = "split.no";
constexpr std::string_view kCountKey = "split.count";
constexpr std::string_view kTensorsKey = "split.tensors.count";
constexpr std::uint32_t kPartCountMax = 4096;

// "NAME-00002-of-00005.gguf": five digits on each side, as the splitter of llama.cpp names its
// parts.
constexpr std::size_t kDigits = 5;
constexpr std::string_view kMiddle = "-of-";
constexpr std::string_view kExtension = ".gguf";
constexpr std::size_t kSuffixLength = 1 + kDigits + kMiddle.size() + kDigits + kExtension.size();

std::optional<std::uint32_t> five_digits(std::string_view text) {
  std::uint32_t number = 0;
  for (const char letter : text) {
    if (letter < '0' || letter > '9') return std::nullopt;
    number = number * 10 + static_cast<std::uint32_t>(letter - '0');
  }
  return number;
}

std::string part_name(std::string_view prefix, std::uint32_t number, std::uint32_t count) {
  return fmt::format("{}-{:05}{}{:05}{}", prefix, number, kMiddle, count, kExtension);
}

std::string path_list(std::span<const GgufPart> parts) {
  std::string list;
  for (const GgufPart& part : parts) {
    if (!list.empty()) list += ", ";
    list += part.path;
  }
  return list;
}

Status check_place(std::span<const GgufPart> parts, std::size_t index, const Metadata& metadata) {
  SINEW_ASSIGN(const std::int64_t count, metadata.integer_or(kCountKey, 0));
  SINEW_ASSIGN(const std::int64_t number, metadata.integer_or(kNumberKey, 0));
  const auto given = static_cast<std::int64_t>(parts.size());
  if (count != given)
    return fail(
        ErrorCode::kInvalidFile,
        "{}: the key '{}' says that the model has {} parts, and {} were given ({}); put all "
        "parts, named NAME-00001-of-{:05}.gguf and so on, into one folder",
        parts[index].path, kCountKey, count, given, path_list(parts), count);
  if (number != static_cast<std::int64_t>(index))
    return fail(
        ErrorCode::kInvalidFile,
        "{}: the key '{}' says that this is part {} of {}, and its name says part {}; download "
        "the parts again under their own names",
        parts[index].path, kNumberKey, number + 1, count, index + 1);
  return {};
}

}  // namespace

Status check_split(std::span<const GgufPart> parts, std::span<const PartDirectory> directories) {
  const Metadata& first = directories.front().metadata;
  SINEW_ASSIGN(const std::int64_t count, first.integer_or(kCountKey, 0));
  // A count of 0 is what llama.cpp's splitter leaves in a model that it merged again.
  if (parts.size() == 1 && count == 0) return {};
  std::uint64_t tensors = 0;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    SINEW_TRY(check_place(parts, i, directories[i].metadata));
    tensors += directories[i].tensors.size();
  }
  for (std::size_t i = 0; i < parts.size(); ++i) {
    SINEW_ASSIGN(const std::int64_t said, directories[i].metadata.integer_or(
                                              kTensorsKey, static_cast<std::int64_t>(tensors)));
    if (said != static_cast<std::int64_t>(tensors))
      return fail(
          ErrorCode::kInvalidFile,
          "{}: the key '{}' says that the model has {} tensors, and its parts have {} ({}); the "
          "parts belong to different models: download them again",
          parts[i].path, kTensorsKey, said, tensors, path_list(parts));
  }
  return {};
}

Result<std::vector<std::string>> split_paths(const std::string& path) {
  const std::vector<std::string> alone{path};
  if (path.size() < kSuffixLength) return alone;
  const std::string_view suffix = std::string_view(path).substr(path.size() - kSuffixLength);
  const auto number = five_digits(suffix.substr(1, kDigits));
  const auto count = five_digits(suffix.substr(1 + kDigits + kMiddle.size(), kDigits));
  if (suffix.front() != '-' || suffix.substr(1 + kDigits, kMiddle.size()) != kMiddle || !number ||
      !count || !suffix.ends_with(kExtension))
    return alone;
  if (*count == 0 || *count > kPartCountMax || *number == 0 || *number > *count)
    return fail(
        ErrorCode::kInvalidFile,
        "{}: the name says part {} of {}, which is no part of 1 to {}; give the file its own "
        "name again",
        path, *number, *count, kPartCountMax);
  const std::string_view prefix = std::string_view(path).substr(0, path.size() - kSuffixLength);
  std::vector<std::string> paths;
  for (std::uint32_t i = 1; i <= *count; ++i) paths.push_back(part_name(prefix, i, *count));
  return paths;
}

}  // namespace sinew
