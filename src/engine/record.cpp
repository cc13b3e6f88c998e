#include "engine/record.h"

#include <xxhash.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

namespace sinew {
namespace {

using Json = nlohmann::ordered_json;
constexpr int kSchema = 1;

std::string hex128(ByteSpan bytes) {
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

Json place_json(const TracePlace& place, const PlaceTrace& trace, const std::vector<float>& noise,
                const std::vector<LogitRow>& rows) {
  Json positions = Json::array();
  Json sketches = Json::array();
  Json kept_noise = Json::array();
  for (std::size_t i = 0; i < trace.positions.size(); ++i) {
    const bool kept = std::any_of(rows.begin(), rows.end(), [&](const LogitRow& row) {
      return row.position == trace.positions[i];
    });
    if (!kept) continue;
    positions.push_back(trace.positions[i]);
    for (int row = 0; row < kSketchRows; ++row)
      sketches.push_back(trace.sketches[i * kSketchRows + static_cast<std::size_t>(row)]);
    kept_noise.push_back(noise[i]);
  }
  return {{"layer", place.layer},
          {"part", place.part},
          {"positions", positions},
          {"sketches", sketches},
          {"noise", kept_noise}};
}

Json record_json(const Record& record) {
  const Reference& reference = record.reference;
  Json json{{"schema", kSchema},
            {"program", record.program},
            {"layout", record.layout},
            {"model", {{"header", record.model.header}, {"tensors", record.model.tensors}}},
            {"layers", reference.layers},
            {"has_experts", reference.has_experts},
            {"chunk", record.chunk_tokens},
            {"prompt", reference.run.prompt},
            {"greedy", reference.run.greedy},
            {"places", Json::array()},
            {"rows", Json::array()}};
  for (const auto& [place, trace] : reference.run.traces)
    json["places"].push_back(
        place_json(place, trace, reference.noise.at(place), reference.run.rows));
  for (std::size_t i = 0; i < reference.run.rows.size(); ++i) {
    const LogitRow& row = reference.run.rows[i];
    json["rows"].push_back({{"position", row.position},
                            {"ids", row.ids},
                            {"logits", row.values},
                            {"log_sum", row.log_sum},
                            {"noise_kl", reference.row_noise[i].kl},
                            {"noise_largest", reference.row_noise[i].largest}});
  }
  return json;
}

Status take_places(const Json& list, Reference& reference) {
  for (const Json& json : list) {
    const TracePlace place{json.at("layer").get<int>(), json.at("part").get<int>()};
    PlaceTrace trace{json.at("positions").get<std::vector<std::int64_t>>(),
                     json.at("sketches").get<std::vector<float>>()};
    auto noise = json.at("noise").get<std::vector<float>>();
    if (trace.sketches.size() != trace.positions.size() * kSketchRows ||
        noise.size() != trace.positions.size() ||
        !std::is_sorted(trace.positions.begin(), trace.positions.end()))
      return fail(ErrorCode::kInvalidFile, "place {} of layer {} is not whole", place.part,
                  place.layer);
    reference.run.traces[place] = std::move(trace);
    reference.noise[place] = std::move(noise);
  }
  return {};
}

Status take_rows(const Json& list, Reference& reference) {
  for (const Json& json : list) {
    LogitRow row;
    row.position = json.at("position").get<std::int64_t>();
    row.ids = json.at("ids").get<std::vector<TokenId>>();
    row.values = json.at("logits").get<std::vector<float>>();
    row.log_sum = json.at("log_sum").get<double>();
    if (row.ids.empty() || row.ids.size() != row.values.size() ||
        *std::min_element(row.ids.begin(), row.ids.end()) < 0)
      return fail(ErrorCode::kInvalidFile, "the logits after position {} are not whole",
                  row.position);
    reference.run.rows.push_back(std::move(row));
    reference.row_noise.push_back(
        {json.at("noise_kl").get<double>(), json.at("noise_largest").get<double>()});
  }
  return {};
}

Result<Record> take_record(const Json& json) {
  if (json.at("schema").get<int>() != kSchema)
    return fail(ErrorCode::kInvalidFile, "it has schema {}, this version reads {}",
                json.at("schema").get<int>(), kSchema);
  Record record;
  record.program = json.at("program").get<std::string>();
  record.layout = json.at("layout").get<std::string>();
  record.chunk_tokens = json.at("chunk").get<int>();
  record.model.header = json.at("model").at("header").get<std::string>();
  record.model.tensors = json.at("model").at("tensors").get<std::map<std::string, std::string>>();
  record.reference.layers = json.at("layers").get<int>();
  record.reference.has_experts = json.at("has_experts").get<bool>();
  record.reference.run.prompt = json.at("prompt").get<std::vector<TokenId>>();
  record.reference.run.greedy = json.at("greedy").get<std::vector<TokenId>>();
  SINEW_TRY(take_places(json.at("places"), record.reference));
  SINEW_TRY(take_rows(json.at("rows"), record.reference));
  const CanaryRun& run = record.reference.run;
  if (run.prompt.empty() || run.greedy.empty() || run.rows.size() < run.greedy.size())
    return fail(ErrorCode::kInvalidFile, "it has {} prompt tokens, {} greedy tokens and {} rows",
                run.prompt.size(), run.greedy.size(), run.rows.size());
  return record;
}

}  // namespace

Result<ModelIdentity> identify(const ModelFile& file, bool with_tensors,
                               const std::function<bool()>& stop) {
  ModelIdentity identity;
  for (std::uint32_t part = 0; part < file.parts.size(); ++part) {
    std::uint64_t begin = file.parts[part].bytes().size();
    for (const TensorInfo& tensor : file.directory.tensors())
      if (tensor.part == part) begin = std::min(begin, tensor.offset);
    identity.header += hex128(file.parts[part].bytes().first(begin));
  }
  if (!with_tensors) return identity;
  for (const TensorInfo& tensor : file.directory.tensors()) {
    if (stop()) return fail(ErrorCode::kCancelled, "stopped by a signal");
    const ByteSpan bytes = file.data(tensor);
    identity.tensors[tensor.name] = fmt::format("{:016x}", XXH3_64bits(bytes.data(), bytes.size()));
  }
  return identity;
}

Status same_model(const ModelIdentity& recorded, const ModelIdentity& here) {
  if (recorded.header != here.header)
    return fail(ErrorCode::kIntegrity,
                "the file's header is not the recorded one (hash {}, not {}): it is another model, "
                "or another conversion of it",
                here.header, recorded.header);
  for (const auto& [name, hash] : recorded.tensors) {
    const auto found = here.tensors.find(name);
    if (found != here.tensors.end() && found->second != hash)
      return fail(ErrorCode::kIntegrity,
                  "tensor '{}' is not the recorded one (hash {}, not {}): copy the file again and "
                  "compare sha256sum",
                  name, found->second, hash);
  }
  return {};
}

Status write_record(const std::string& path, const Record& record) {
  const std::string text =
      record_json(record).dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << text;
  file.close();
  if (!file) return fail(ErrorCode::kIo, "{}: cannot be written", path);
  return {};
}

Result<Record> read_record(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) return fail(ErrorCode::kNotFound, "{}: cannot be opened", path);
  const auto size = static_cast<std::uint64_t>(file.tellg());
  if (size > kRecordBytesMax)
    return fail(ErrorCode::kInvalidFile, "{}: {} bytes are no record; {} is the limit", path, size,
                kRecordBytesMax);
  std::string text(size, '\0');
  file.seekg(0);
  file.read(text.data(), static_cast<std::streamsize>(size));
  if (!file) return fail(ErrorCode::kIo, "{}: cannot be read", path);
  try {
    auto record = take_record(Json::parse(text));
    if (!record) return fail(record.error().within(path));
    return record;
  } catch (const Json::exception& error) {
    return fail(ErrorCode::kInvalidFile,
                "{}: is no record of 'sinew verify --record' ({}); record it again", path,
                error.what());
  }
}

}  // namespace sinew
