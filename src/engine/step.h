#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "graph/trace.h"

namespace sinew {

// What the head tells all ranks before each forward pass. No graph, pointer or tensor travels:
// ranks build the same computation from these few numbers.
struct Step {
  enum class Kind : std::uint8_t {
    kCompute,
    kEnd,  // the request is over: back to waiting for the supervisor
  };
  enum class Rows : std::uint8_t {
    kNone,  // no logits: the prompt goes on in the next step
    kLast,  // logits of the last token
    kAll,   // logits of every token
  };
  Kind kind = Kind::kCompute;
  Rows rows = Rows::kNone;
  Trace trace = Trace::kOff;
  std::uint64_t number = 0;
  std::uint32_t slot = 0;
  // Position of the first token. Cache operation: the slot keeps the cells before it and forgets
  // the others.
  std::int64_t position = 0;
  std::vector<TokenId> tokens;
};

// A step travels as one block of fixed size, and the tokens that do not fit it as a second.
inline constexpr std::size_t kStepBlockBytes = 128;
std::vector<std::byte> encode_step(const Step& step);
// kProtocol for a step that is malformed or outside the limits of limits.h.
Result<Step> decode_step(std::span<const std::byte> bytes);

}  // namespace sinew
