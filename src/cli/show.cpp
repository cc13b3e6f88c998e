#include "cli/show.h"

#include <fmt/format.h>
#include <fmt/ostream.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <string_view>
#include <variant>

#include "gguf/printable.h"
#include "host/model_file.h"

namespace sinew {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kElementsShown = 6;  // of an array, to people
constexpr std::size_t kTextBytesShown = 96;

std::string_view element_type_name(std::uint32_t id) {
  constexpr std::array<std::string_view, 13> kNames{"u8",  "i8",  "u16",  "i16",    "u32",
                                                    "i32", "f32", "bool", "string", "array",
                                                    "u64", "i64", "f64"};
  return id < kNames.size() ? kNames[id] : "unknown";
}

std::uint64_t elements(const TensorInfo& tensor) {
  return tensor.shape[0] * tensor.rows();
}

struct Total {
  std::uint64_t tensors = 0;
  std::uint64_t parameters = 0;
  std::uint64_t bytes = 0;
};

// By type, in the order of the types' ids.
std::map<TensorType, Total> totals(const GgufModel& model) {
  std::map<TensorType, Total> by_type;
  for (const TensorInfo& tensor : model.tensors()) {
    Total& total = by_type[tensor.type];
    ++total.tensors;
    total.parameters += elements(tensor);
    total.bytes += tensor.bytes;
  }
  return by_type;
}

Total sum(const std::map<TensorType, Total>& by_type) {
  Total all;
  for (const auto& [type, total] : by_type) {
    all.tensors += total.tensors;
    all.parameters += total.parameters;
    all.bytes += total.bytes;
  }
  return all;
}

// Large numbers for people: "1.03 T", "671.03 B".
std::string short_count(std::uint64_t count) {
  constexpr std::array<std::string_view, 5> kUnits{"", " K", " M", " B", " T"};
  auto value = static_cast<double>(count);
  std::size_t unit = 0;
  while (value >= 1000.0 && unit + 1 < kUnits.size()) {
    value /= 1000.0;
    ++unit;
  }
  return unit == 0 ? fmt::format("{}", count) : fmt::format("{:.2f}{}", value, kUnits[unit]);
}

std::string shape_text(const TensorInfo& tensor) {
  const auto used = std::span(tensor.shape).first(static_cast<std::size_t>(tensor.dimensions));
  return fmt::format("{}", fmt::join(used, " x "));
}

Json scalar_json(const MetaScalar& value) {
  return std::visit([](const auto& held) { return Json(held); }, value);
}

// The first `count` elements.
Json elements_json(const MetaArray& array, std::size_t count) {
  Json list = Json::array();
  const auto take = [&](const auto& values) {
    for (std::size_t i = 0; i < std::min(count, values.size()); ++i) list.push_back(values[i]);
  };
  take(array.unsigned_integers);
  take(array.signed_integers);
  take(array.reals);
  for (std::size_t i = 0; i < std::min(count, array.booleans.size()); ++i)
    list.push_back(static_cast<bool>(array.booleans[i]));
  take(array.strings);
  for (std::size_t i = 0; i < std::min(count, array.arrays.size()); ++i)
    list.push_back(elements_json(array.arrays[i], count));
  return list;
}

Json value_json(const MetaValue& value) {
  if (const auto* scalar = std::get_if<MetaScalar>(&value)) return scalar_json(*scalar);
  const auto& array = std::get<MetaArray>(value);
  return {{"elements_of", element_type_name(array.element_type)},
          {"count", array.size},
          {"first", elements_json(array, kElementsShown)}};
}

// Text that is not UTF-8 is shown with replacement characters: files may hold any bytes.
std::string compact(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string value_text(const MetaValue& value) {
  if (const auto* scalar = std::get_if<MetaScalar>(&value)) {
    const auto* text = std::get_if<std::string>(scalar);
    if (text != nullptr) return printable(*text, kTextBytesShown);
    // Seven digits: nearly all reals in these files are 32 bits wide.
    if (const auto* real = std::get_if<double>(scalar)) return fmt::format("{:.7g}", *real);
    return compact(scalar_json(*scalar));
  }
  const auto& array = std::get<MetaArray>(value);
  std::string list;
  for (const Json& element : elements_json(array, kElementsShown)) {
    if (!list.empty()) list += ", ";
    list += printable(compact(element), kTextBytesShown);
  }
  if (array.size > kElementsShown) list += ", ..";
  return fmt::format("[{}] ({} x {})", list, array.size, element_type_name(array.element_type));
}

// A string's value, or what stands in for it: showing a file does not judge it.
std::string text_or(const Metadata& metadata, std::string_view key, std::string_view fallback) {
  const auto text = metadata.string(key);
  return text ? *text : std::string(fallback);
}

void write_json(const ModelFile& file, std::ostream& out) {
  const GgufModel& model = file.directory;
  const std::map<TensorType, Total> by_type = totals(model);
  Json document;
  document["files"] = Json::array();
  for (const MappedFile& part : file.parts)
    document["files"].push_back({{"path", part.path()}, {"bytes", part.bytes().size()}});
  document["gguf_version"] = model.version();
  document["architecture"] = text_or(model.metadata(), "general.architecture", "");
  document["name"] = text_or(model.metadata(), "general.name", "");
  document["parameters"] = sum(by_type).parameters;
  document["metadata"] = Json::object();
  for (const std::string& key : model.metadata().keys())
    document["metadata"][key] = value_json(*model.metadata().find(key));
  document["tensors"] = Json::array();
  for (const TensorInfo& tensor : model.tensors()) {
    Json shape = Json::array();
    for (int i = 0; i < tensor.dimensions; ++i)
      shape.push_back(tensor.shape[static_cast<std::size_t>(i)]);
    document["tensors"].push_back({{"name", tensor.name},
                                   {"type", tensor.traits().name},
                                   {"shape", std::move(shape)},
                                   {"bytes", tensor.bytes},
                                   {"file", tensor.part},
                                   {"offset", tensor.offset}});
  }
  document["types"] = Json::array();
  for (const auto& [type, total] : by_type) {
    document["types"].push_back({{"type", tensor_type_traits(type)->name},
                                 {"tensors", total.tensors},
                                 {"parameters", total.parameters},
                                 {"bytes", total.bytes}});
  }
  out << document.dump(2, ' ', false, Json::error_handler_t::replace) << '\n';
}

void write_header(const ModelFile& file, const Total& all, std::ostream& out) {
  const GgufModel& model = file.directory;
  std::uint64_t bytes = 0;
  for (const MappedFile& part : file.parts) bytes += part.bytes().size();
  for (const MappedFile& part : file.parts)
    fmt::print(out, "file          {} ({})\n", part.path(), format_bytes(part.bytes().size()));
  fmt::print(out, "format        GGUF version {}, {} in {} file{}\n", model.version(),
             format_bytes(bytes), file.parts.size(), file.parts.size() == 1 ? "" : "s");
  fmt::print(out, "architecture  {}\n",
             printable(text_or(model.metadata(), "general.architecture", "(not given)")));
  fmt::print(out, "name          {}\n",
             printable(text_or(model.metadata(), "general.name", "(not given)")));
  fmt::print(out, "parameters    {} ({}) in {} tensors\n", short_count(all.parameters),
             all.parameters, all.tensors);
}

void write_text(const ModelFile& file, std::ostream& out) {
  const GgufModel& model = file.directory;
  const std::map<TensorType, Total> by_type = totals(model);
  write_header(file, sum(by_type), out);

  fmt::print(out, "\nmetadata ({} keys)\n", model.metadata().keys().size());
  for (const std::string& key : model.metadata().keys())
    fmt::print(out, "  {} = {}\n", printable(key), value_text(*model.metadata().find(key)));

  std::size_t name_width = 4;
  std::size_t shape_width = 5;
  for (const TensorInfo& tensor : model.tensors()) {
    name_width = std::max(name_width, printable(tensor.name).size());
    shape_width = std::max(shape_width, shape_text(tensor).size());
  }
  const bool split = file.parts.size() > 1;
  fmt::print(out, "\n  {:<{}}  {:<7}  {:<{}}  {:>14}  {:>16}{}\n", "tensor", name_width, "type",
             "shape", shape_width, "bytes", "offset", split ? "  file" : "");
  for (const TensorInfo& tensor : model.tensors()) {
    fmt::print(out, "  {:<{}}  {:<7}  {:<{}}  {:>14}  {:>16}{}\n", printable(tensor.name),
               name_width, tensor.traits().name, shape_text(tensor), shape_width, tensor.bytes,
               tensor.offset, split ? fmt::format("  {:>4}", tensor.part + 1) : "");
  }

  fmt::print(out, "\n  {:<7}  {:>7}  {:>12}  {:>12}\n", "type", "tensors", "parameters", "size");
  for (const auto& [type, total] : by_type)
    fmt::print(out, "  {:<7}  {:>7}  {:>12}  {:>12}\n", tensor_type_traits(type)->name,
               total.tensors, short_count(total.parameters), format_bytes(total.bytes));
}

}  // namespace

Status show_model(const std::string& path, bool json, std::ostream& out) {
  SINEW_ASSIGN(const ModelFile file, ModelFile::open(path));
  if (json) {
    write_json(file, out);
  } else {
    write_text(file, out);
  }
  out.flush();
  if (!out) return fail(ErrorCode::kIo, "the description of {} could not be written out", path);
  return {};
}

}  // namespace sinew
