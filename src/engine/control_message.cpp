#include "engine/control_message.h"

#include <algorithm>

#include "base/wire.h"

namespace sinew {
namespace {

void put(WireWriter& w, const VerbsOptions& o) {
  w.put(static_cast<std::uint32_t>(o.devices.size()));
  for (const std::string& device : o.devices) w.put(device);
  w.put(o.gid_index.has_value()).put(o.gid_index.value_or(0));
  w.put(o.qp_type.has_value()).put(o.qp_type.value_or(VerbsQpType::kRc));
  w.put(o.slot_bytes).put(o.fall_back_to_tcp);
}
void get(WireReader& r, VerbsOptions& o) {
  const std::size_t count = std::min<std::size_t>(r.get<std::uint32_t>(), kVerbsPortsMax);
  for (std::size_t i = 0; i < count; ++i) o.devices.push_back(r.get_string());
  const bool has_index = r.get<std::uint8_t>() != 0;
  const auto index = r.get<std::uint32_t>();
  if (has_index) o.gid_index = index;
  const bool has_type = r.get<std::uint8_t>() != 0;
  const auto type = r.get<VerbsQpType>();
  if (has_type) o.qp_type = type;
  o.slot_bytes = r.get<std::uint32_t>();
  o.fall_back_to_tcp = r.get<std::uint8_t>() != 0;
}

void put(WireWriter& w, const ConfigureMessage& m) {
  w.put(m.model_path)
      .put(m.job.words[0])
      .put(m.job.words[1])
      .put(m.epoch)
      .put_array(std::span<const double>(m.layout.shares))
      .put_array(std::span<const int>(m.layout.stages))
      .put(m.layout.whole_experts)
      .put(m.rank);
  w.put(m.link)
      .put(m.device)
      .put(m.threads)
      .put(m.context)
      .put(m.slots)
      .put(m.chunk_tokens)
      .put(m.timeout_ms)
      .put(m.wire)
      .put(m.one_shot_max.has_value())
      .put(m.one_shot_max.value_or(0))
      .put(m.cache_type)
      .put(m.hashes);
  put(w, m.verbs);
  w.put(m.listen).put(m.verbose).put(m.recover);
}
void get(WireReader& r, ConfigureMessage& m) {
  m.model_path = r.get_string();
  m.job.words[0] = r.get<std::uint64_t>();
  m.job.words[1] = r.get<std::uint64_t>();
  m.epoch = r.get<Epoch>();
  m.layout.shares = r.get_array<double>();
  m.layout.stages = r.get_array<int>();
  m.layout.whole_experts = r.get<std::uint8_t>() != 0;
  m.rank = r.get<Rank>();
  m.link = r.get<LinkKind>();
  m.device = r.get_string();
  m.threads = r.get<int>();
  m.context = r.get<std::int64_t>();
  m.slots = r.get<int>();
  m.chunk_tokens = r.get<int>();
  m.timeout_ms = r.get<std::uint32_t>();
  m.wire = r.get<WireType>();
  const bool given = r.get<std::uint8_t>() != 0;
  const auto one_shot_max = r.get<std::uint64_t>();
  if (given) m.one_shot_max = one_shot_max;
  m.cache_type = r.get<TensorType>();
  m.hashes = r.get<HashScope>();
  get(r, m.verbs);
  m.listen = r.get_string();
  m.verbose = r.get<std::uint8_t>() != 0;
  m.recover = r.get<std::uint8_t>() != 0;
}

void put(WireWriter& w, const PeersMessage& m) {
  w.put_array(std::span<const std::uint16_t>(m.ports));
  for (const std::string& host : m.hosts) w.put(host);
}
void get(WireReader& r, PeersMessage& m) {
  m.ports = r.get_array<std::uint16_t>();
  for (std::size_t i = 0; i < m.ports.size(); ++i) m.hosts.push_back(r.get_string());
}

void put(WireWriter&, const EndMessage&) {}
void get(WireReader&, EndMessage&) {}

void put(WireWriter& w, const AbandonMessage& m) {
  w.put(m.next);
}
void get(WireReader& r, AbandonMessage& m) {
  m.next = r.get<Epoch>();
}

void put(WireWriter& w, const LeftMessage& m) {
  w.put(m.next);
}
void get(WireReader& r, LeftMessage& m) {
  m.next = r.get<Epoch>();
}

void put(WireWriter& w, const SamplingParams& p) {
  w.put(p.temperature)
      .put(p.top_k)
      .put(p.top_p)
      .put(p.min_p)
      .put(p.repeat_penalty)
      .put(p.presence_penalty);
  w.put(p.frequency_penalty).put(p.penalty_window).put(p.seed);
}
void get(WireReader& r, SamplingParams& p) {
  p.temperature = r.get<float>();
  p.top_k = r.get<int>();
  p.top_p = r.get<float>();
  p.min_p = r.get<float>();
  p.repeat_penalty = r.get<float>();
  p.presence_penalty = r.get<float>();
  p.frequency_penalty = r.get<float>();
  p.penalty_window = r.get<int>();
  p.seed = r.get<std::uint64_t>();
}

void put(WireWriter& w, const BeginMessage& m) {
  w.put(m.kind).put_array(std::span<const TokenId>(m.request.prompt));
  put(w, m.request.sampling);
  w.put(m.request.tokens_max)
      .put(m.request.first_draw)
      .put(static_cast<std::uint64_t>(m.request.stepwise))
      .put_array(std::span<const TokenId>(m.request.end_tokens));
  w.put(m.fresh);
}
void get(WireReader& r, BeginMessage& m) {
  m.kind = r.get<BeginMessage::Kind>();
  m.request.prompt = r.get_array<TokenId>();
  get(r, m.request.sampling);
  m.request.tokens_max = r.get<std::int64_t>();
  m.request.first_draw = r.get<std::uint64_t>();
  m.request.stepwise = r.get<std::uint64_t>();
  m.request.end_tokens = r.get_array<TokenId>();
  m.fresh = r.get<std::uint8_t>() != 0;
}

void put(WireWriter&, const CancelMessage&) {}
void get(WireReader&, CancelMessage&) {}

void put(WireWriter& w, const ListeningMessage& m) {
  w.put(m.port);
}
void get(WireReader& r, ListeningMessage& m) {
  m.port = r.get<std::uint16_t>();
}

void put(WireWriter& w, const LoadingMessage& m) {
  w.put(m.bytes_done).put(m.bytes_total);
}
void get(WireReader& r, LoadingMessage& m) {
  m.bytes_done = r.get<std::uint64_t>();
  m.bytes_total = r.get<std::uint64_t>();
}

void put(WireWriter& w, const ReadyMessage& m) {
  w.put(m.weight_bytes).put(m.read_bytes).put(m.cache_bytes).put(m.device).put(m.load_seconds);
}
void get(WireReader& r, ReadyMessage& m) {
  m.weight_bytes = r.get<std::uint64_t>();
  m.read_bytes = r.get<std::uint64_t>();
  m.cache_bytes = r.get<std::uint64_t>();
  m.device = r.get_string();
  m.load_seconds = r.get<double>();
}

void put(WireWriter& w, const HeartbeatMessage& m) {
  w.put(m.activity).put(m.steps);
}
void get(WireReader& r, HeartbeatMessage& m) {
  m.activity = r.get_string();
  m.steps = r.get<std::uint64_t>();
}

void put(WireWriter& w, const TokenMessage& m) {
  w.put(m.token);
}
void get(WireReader& r, TokenMessage& m) {
  m.token = r.get<TokenId>();
}

void put(WireWriter& w, const LogitsMessage& m) {
  w.put_array(std::span<const float>(m.values));
}
void get(WireReader& r, LogitsMessage& m) {
  m.values = r.get_array<float>();
}

void put(WireWriter& w, const TraceMessage& m) {
  w.put(m.place.layer).put(m.place.part).put(m.position);
  w.put_array(std::span<const float>(m.sketches));
}
void get(WireReader& r, TraceMessage& m) {
  m.place.layer = r.get<int>();
  m.place.part = r.get<int>();
  m.position = r.get<std::int64_t>();
  m.sketches = r.get_array<float>();
}

void put(WireWriter& w, const SliceHashMessage& m) {
  w.put(m.rank).put(m.hash.tensor).put_array(std::span<const std::uint64_t>(m.hash.blocks));
}
void get(WireReader& r, SliceHashMessage& m) {
  m.rank = r.get<Rank>();
  m.hash.tensor = r.get_string();
  m.hash.blocks = r.get_array<std::uint64_t>();
}

void put(WireWriter& w, const DoneMessage& m) {
  w.put(m.result.reason)
      .put(m.result.prompt_tokens)
      .put(m.result.cached_tokens)
      .put(m.result.answer_tokens);
  w.put(m.result.prefill_seconds).put(m.result.decode_seconds);
  w.put(m.compute_seconds)
      .put(m.collective_seconds)
      .put(m.collectives)
      .put(m.bytes_sent)
      .put(m.peak_resident);
}
void get(WireReader& r, DoneMessage& m) {
  m.result.reason = r.get<FinishReason>();
  m.result.prompt_tokens = r.get<std::int64_t>();
  m.result.cached_tokens = r.get<std::int64_t>();
  m.result.answer_tokens = r.get<std::int64_t>();
  m.result.prefill_seconds = r.get<double>();
  m.result.decode_seconds = r.get<double>();
  m.compute_seconds = r.get<double>();
  m.collective_seconds = r.get<double>();
  m.collectives = r.get<std::uint64_t>();
  m.bytes_sent = r.get<std::uint64_t>();
  m.peak_resident = r.get<std::uint64_t>();
}

void put(WireWriter& w, const FailedMessage& m) {
  w.put(m.error.code).put(m.error.message).put(m.error.rank.value_or(-1)).put(m.ends);
}
void get(WireReader& r, FailedMessage& m) {
  m.error.code = r.get<ErrorCode>();
  m.error.message = r.get_string();
  const int rank = r.get<int>();
  if (rank >= 0) m.error.rank = rank;
  m.ends = r.get<std::uint8_t>() != 0;
}

// Tries the alternatives of the variant by index.
template <std::size_t Index = 0>
bool get_alternative(std::size_t index, WireReader& reader, ControlMessage& message) {
  if constexpr (Index < std::variant_size_v<ControlMessage>) {
    if (index != Index) return get_alternative<Index + 1>(index, reader, message);
    get(reader, message.emplace<Index>());
    return true;
  }
  return false;
}

}  // namespace

std::vector<std::byte> encode_control(const ControlMessage& message) {
  WireWriter writer;
  writer.put(static_cast<std::uint8_t>(message.index()));
  std::visit([&](const auto& alternative) { put(writer, alternative); }, message);
  return {writer.bytes().begin(), writer.bytes().end()};
}

Result<ControlMessage> decode_control(std::span<const std::byte> bytes) {
  WireReader reader(bytes);
  const std::size_t index = reader.get<std::uint8_t>();
  ControlMessage message;
  if (!get_alternative(index, reader, message))
    return fail(ErrorCode::kProtocol, "control message of unknown kind {}", index);
  SINEW_TRY(reader.status("control"));
  return message;
}

}  // namespace sinew
