// What another agent, or its disk, can hold: messages and records of the cluster's core, and whole
// conversations with a node.
#include <fuzzer/FuzzedDataProvider.h>

#include <algorithm>
#include <span>
#include <vector>

#include "base/assert.h"
#include "cluster/message.h"

namespace {

using namespace sinew;

struct Store final : ClusterStore {
  Status save(ByteSpan block) override {
    content.assign(block.begin(), block.end());
    return {};
  }
  std::vector<std::byte> content;
};

// Bytes that decode must encode to themselves: no second spelling of a message.
void fuzz_bytes(ByteSpan bytes) {
  if (const auto message = decode_message(bytes)) {
    const auto again = encode_message(*message);
    SINEW_ASSERT(std::ranges::equal(again, bytes));
  }
  if (const auto record = decode_record(bytes)) {
    const auto again = encode_record(*record);
    SINEW_ASSERT(std::ranges::equal(again, bytes));
  }
}

// What a node has saved, it can read again, whatever it was told.
void fuzz_node(FuzzedDataProvider& input) {
  Store store;
  NodeCore::Options options;
  options.self.id.bytes.fill(1);
  options.self.incarnation = 1;
  options.found = input.ConsumeBool();
  const auto core = NodeCore::create(options, {}, store);
  SINEW_ASSERT(core.has_value());
  Time now{};
  (*core)->start(now);
  NodeId peer;
  while (input.remaining_bytes() > 0) {
    now += std::chrono::milliseconds(input.ConsumeIntegralInRange<int>(0, 5000));
    peer.bytes.fill(input.ConsumeIntegralInRange<std::uint8_t>(2, 4));
    const auto bytes =
        input.ConsumeBytes<std::uint8_t>(input.ConsumeIntegralInRange<std::size_t>(0, 600));
    (*core)->received(now, peer, std::as_bytes(std::span(bytes)));
    if (input.ConsumeBool()) (*core)->tick(now);
  }
  SINEW_ASSERT(store.content.empty() || decode_record(store.content));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz_bytes(std::as_bytes(std::span(data, size)));
  FuzzedDataProvider input(data, size);
  fuzz_node(input);
  return 0;
}
