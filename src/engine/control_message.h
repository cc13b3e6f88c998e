#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/ids.h"
#include "base/limits.h"
#include "base/result.h"
#include "collective/wire_type.h"
#include "engine/engine.h"
#include "engine/slice_hash.h"
#include "graph/trace.h"
#include "plan/plan.h"
#include "transport/verbs_options.h"

namespace sinew {

enum class LinkKind : std::uint8_t { kShm, kTcp, kVerbs, kUcx };

// Supervisor -> rank: who you are and what you hold.
struct ConfigureMessage {
  std::string model_path;
  JobId job;
  Epoch epoch = 1;
  Layout layout;
  Rank rank = 0;
  LinkKind link = LinkKind::kShm;
  std::string device;
  int threads = 1;
  std::int64_t context = 0;
  int slots = 1;
  int chunk_tokens = 512;
  std::uint32_t timeout_ms = 30000;  // of a collective
  WireType wire = WireType::kF32;    // of all-reduces
  // Longest all-reduce of one hop, bytes; nothing: as measured.
  std::optional<std::uint64_t> one_shot_max;
  TensorType cache_type = TensorType::kF16;
  HashScope hashes = HashScope::kNone;
  VerbsOptions verbs;                // LinkKind::kVerbs only
  std::string listen = "127.0.0.1";  // address for the other ranks' connections, unless kShm
  bool verbose = false;
  // A rank whose group breaks keeps its weights and waits for the next epoch's configuration.
  bool recover = false;
};
// Supervisor -> rank: where all ranks listen, by rank (answers ListeningMessage).
struct PeersMessage {
  std::vector<std::string> hosts;  // addresses, as this rank reaches them
  std::vector<std::uint16_t> ports;
};
// Supervisor -> rank: the epoch is over. The rank leaves its group, whatever it waits for there,
// answers with LeftMessage, and is configured again. What was sent before it and is not done yet
// is forgotten.
struct AbandonMessage {
  Epoch next = 0;  // the epoch that follows
};
// Supervisor -> rank: nothing more is wanted; the rank ends well.
struct EndMessage {};
// Supervisor -> rank: a request begins. Rank 0 gets its contents; the others follow rank 0's steps.
struct BeginMessage {
  enum class Kind : std::uint8_t {
    kGenerate,
    kEvaluateLast,
    kEvaluateAll,
    kTrace,       // logits after each step, and what Trace::kOn shows
    kTraceNoisy,  // the same with Trace::kNoisy
    kHashes,      // what every rank holds; no steps
  } kind = Kind::kGenerate;
  GenerationRequest request;  // empty except on rank 0
  bool fresh = false;         // kTrace: nothing of the cache is reused
};
// Supervisor -> rank 0: stop the current request between two steps.
struct CancelMessage {};

// Rank -> supervisor.
struct ListeningMessage {
  std::uint16_t port = 0;
};
struct LoadingMessage {
  std::uint64_t bytes_done = 0;
  std::uint64_t bytes_total = 0;
};
struct ReadyMessage {
  std::uint64_t weight_bytes = 0;
  std::uint64_t read_bytes = 0;  // of them for this epoch; 0: all were kept
  std::uint64_t cache_bytes = 0;
  std::string device;
  double load_seconds = 0;
};
// Sent every kHeartbeatInterval by a thread of its own.
struct HeartbeatMessage {
  std::string activity;     // "idle", "step 12 of a request", ..: written into errors
  std::uint64_t steps = 0;  // grows while there is progress
};
struct TokenMessage {
  TokenId token = 0;
};
struct LogitsMessage {
  std::vector<float> values;
};
// One place of one traced step, from the first rank of its stage. Fields as in TraceBlock.
struct TraceMessage {
  TracePlace place;
  std::int64_t position = 0;
  std::vector<float> sketches;
};
// One slice, from the rank that holds it.
struct SliceHashMessage {
  Rank rank = 0;
  SliceHash hash;
};
// The request is over; from every rank. `result` counts on rank 0 alone.
struct DoneMessage {
  GenerationResult result;
  double compute_seconds = 0;
  double collective_seconds = 0;
  std::uint64_t collectives = 0;
  std::uint64_t bytes_sent = 0;
  std::uint64_t peak_resident = 0;
};
// The rank ends, or (ConfigureMessage::recover) its group does and it waits for what follows.
struct FailedMessage {
  Error error;
  bool ends = true;
};
// Answers AbandonMessage: nothing of an older epoch comes after this.
struct LeftMessage {
  Epoch next = 0;
};

using ControlMessage =
    std::variant<ConfigureMessage, PeersMessage, BeginMessage, CancelMessage, ListeningMessage,
                 LoadingMessage, ReadyMessage, HeartbeatMessage, TokenMessage, LogitsMessage,
                 DoneMessage, FailedMessage, TraceMessage, SliceHashMessage, EndMessage,
                 AbandonMessage, LeftMessage>;

// Without the length that goes in front on the socket.
std::vector<std::byte> encode_control(const ControlMessage& message);
Result<ControlMessage> decode_control(std::span<const std::byte> bytes);

}  // namespace sinew
