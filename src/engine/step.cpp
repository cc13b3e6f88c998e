#include "engine/step.h"

#include "base/limits.h"
#include "base/wire.h"

namespace sinew {

std::vector<std::byte> encode_step(const Step& step) {
  WireWriter writer;
  writer.put(step.kind)
      .put(step.rows)
      .put(step.trace)
      .put(step.number)
      .put(step.slot)
      .put(step.position);
  writer.put_array(std::span<const TokenId>(step.tokens));
  return {writer.bytes().begin(), writer.bytes().end()};
}

Result<Step> decode_step(std::span<const std::byte> bytes) {
  WireReader reader(bytes);
  Step step;
  step.kind = reader.get<Step::Kind>();
  step.rows = reader.get<Step::Rows>();
  step.trace = reader.get<Trace>();
  step.number = reader.get<std::uint64_t>();
  step.slot = reader.get<std::uint32_t>();
  step.position = reader.get<std::int64_t>();
  step.tokens = reader.get_array<TokenId>();
  SINEW_TRY(reader.status("step"));
  const bool compute = step.kind == Step::Kind::kCompute;
  if (step.kind > Step::Kind::kEnd || step.rows > Step::Rows::kAll || step.trace > Trace::kNoisy ||
      step.slot >= kSlotCountMax || step.position < 0 || step.position > kContextMax ||
      step.tokens.size() > static_cast<std::size_t>(kChunkTokensMax) ||
      step.tokens.empty() == compute)
    return fail(ErrorCode::kProtocol,
                "step {} is outside the limits: kind {}, slot {}, position {}, {} tokens",
                step.number, static_cast<int>(step.kind), step.slot, step.position,
                step.tokens.size());
  return step;
}

}  // namespace sinew
