// What a peer, or a stranger on the port, can send: frame headers, hellos, and whole conversations
// with a group over a socket. Nothing may crash, hang, or be accepted that breaks the rules.
#include <fcntl.h>
#include <fuzzer/FuzzedDataProvider.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <span>
#include <vector>

#include "base/assert.h"
#include "collective/frame.h"
#include "collective/mesh_group.h"
#include "transport/tcp_hello.h"
#include "transport/tcp_link.h"

namespace {

using namespace sinew;

const JobId kJob{{11, 22}};
constexpr Epoch kEpoch = 4;
constexpr std::size_t kConversationMax = 16u << 10;  // less than a socket takes without a reader

// Bytes that decode must encode to themselves: no second spelling of a header.
void fuzz_header(FuzzedDataProvider& input) {
  const auto bytes = input.ConsumeBytes<std::uint8_t>(kFrameBytes);
  FrameBytes frame{};
  std::ranges::copy(std::as_bytes(std::span(bytes)), frame.begin());
  const auto header = decode_frame(frame);
  if (!header) return;
  FrameBytes again;
  encode_frame(*header, again);
  SINEW_ASSERT(again == frame);
  static_cast<void>(check_frame(*header, FrameHeader{}).has_value());
}

void fuzz_hello(FuzzedDataProvider& input) {
  const auto bytes = input.ConsumeBytes<std::uint8_t>(kHelloBytes);
  HelloBytes hello{};
  std::ranges::copy(std::as_bytes(std::span(bytes)), hello.begin());
  const auto rank = check_hello(hello, {kJob, kEpoch, 1, 4});
  SINEW_ASSERT(!rank || (*rank >= 0 && *rank < 4 && *rank != 1));
}

// A frame that rank 0 may wait for, with up to one byte changed, and a payload.
void append_frame(FuzzedDataProvider& input, Rank source, std::vector<std::byte>& bytes) {
  const std::vector<std::uint8_t> payload =
      input.ConsumeBytes<std::uint8_t>(input.ConsumeIntegralInRange<std::size_t>(0, 300));
  const auto raw = std::as_bytes(std::span(payload));
  FrameHeader header;
  header.operation = static_cast<Operation>(input.ConsumeIntegralInRange<int>(1, 11));
  header.checksummed = header.operation != Operation::kFault;
  header.source = source;
  header.subject = input.ConsumeIntegralInRange<int>(0, 7);
  header.piece = input.ConsumeIntegralInRange<std::uint32_t>(0, 3);
  header.wire = static_cast<WireType>(input.ConsumeIntegralInRange<int>(0, kWireTypeCount - 1));
  header.job = kJob;
  header.epoch = kEpoch;
  header.sequence = input.ConsumeIntegralInRange<std::uint64_t>(1, 4);
  header.length = raw.size();
  header.checksum = header.checksummed ? payload_checksum(raw) : 0;
  FrameBytes frame;
  encode_frame(header, frame);
  const auto changed = input.ConsumeIntegralInRange<std::size_t>(0, 2 * kFrameBytes);
  if (changed < kFrameBytes) frame[changed] ^= std::byte{input.ConsumeIntegral<std::uint8_t>()};
  bytes.insert(bytes.end(), frame.begin(), frame.end());
  bytes.insert(bytes.end(), raw.begin(), raw.end());
}

Status run_operation(FuzzedDataProvider& input, Group& group) {
  std::vector<float> data(input.ConsumeIntegralInRange<std::size_t>(0, 40), 1.0f);
  std::vector<std::size_t> counts(static_cast<std::size_t>(group.size()), 8);
  std::vector<std::byte> gathered(8 * counts.size());
  const std::array<std::byte, 8> mine{};
  switch (input.ConsumeIntegralInRange<int>(0, 3)) {
    case 0:
      return group.all_reduce_sum(data);
    case 1:
      return group.all_gather(mine, counts, gathered);
    case 2:
      return group.gather(0, mine, counts, gathered);
    default:
      return group.broadcast(1, std::as_writable_bytes(std::span(data)));
  }
}

void fuzz_conversation(FuzzedDataProvider& input) {
  const int size = input.ConsumeIntegralInRange<int>(2, 4);
  std::vector<Socket> own(static_cast<std::size_t>(size));
  std::vector<Socket> peers;
  for (Rank peer = 1; peer < size; ++peer) {
    std::array<int, 2> pair{};
    SINEW_ASSERT(socketpair(AF_UNIX, SOCK_STREAM, 0, pair.data()) == 0);
    own[static_cast<std::size_t>(peer)] = Socket(pair[0]);
    peers.emplace_back(pair[1]);
    SINEW_ASSERT(fcntl(pair[0], F_SETFL, O_NONBLOCK) == 0);
    std::vector<std::byte> bytes;
    for (int frames = input.ConsumeIntegralInRange<int>(0, 4); frames > 0; --frames) {
      append_frame(input, peer, bytes);
    }
    for (const auto byte :
         input.ConsumeBytes<std::uint8_t>(input.ConsumeIntegralInRange<std::size_t>(0, 200))) {
      bytes.push_back(std::byte{byte});
    }
    bytes.resize(std::min(bytes.size(), kConversationMax));
    const ssize_t sent = send(pair[1], bytes.data(), bytes.size(), MSG_NOSIGNAL);
    SINEW_ASSERT(sent == static_cast<ssize_t>(bytes.size()));
    SINEW_ASSERT(shutdown(pair[1], SHUT_WR) == 0);
  }
  const GroupIdentity identity{kJob, kEpoch, 0, size};
  GroupOptions options;
  options.timeout = std::chrono::milliseconds{50};
  options.wire = static_cast<WireType>(input.ConsumeIntegralInRange<int>(0, kWireTypeCount - 1));
  CollectivePlan plan = CollectivePlan::direct(size, input.ConsumeBool() ? 0 : 1000);
  Links links = make_tcp_links(std::move(own), LinkShare::everyone(identity));
  if (size == 4 && input.ConsumeBool()) {
    // A ring: 0 and 2 have no link, nor 1 and 3.
    links[2].reset();
    for (std::size_t rank = 0; rank < 4; ++rank)
      plan.linked[rank].bits &= ~(std::uint32_t{1} << (rank + 2) % 4);
    plan.ring_max.fill(input.ConsumeBool() ? 0 : 1000);
  }
  const auto group = make_group(identity, std::move(links), options, plan);
  for (int i = 0; i < 4; ++i) {
    const Status status = run_operation(input, *group);
    if (status) continue;
    SINEW_ASSERT(!status.error().message.empty());
    SINEW_ASSERT(status.error().rank && *status.error().rank < size);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  FuzzedDataProvider input(data, size);
  switch (input.ConsumeIntegralInRange<int>(0, 3)) {
    case 0:
      fuzz_header(input);
      break;
    case 1:
      fuzz_hello(input);
      break;
    default:
      fuzz_conversation(input);
      break;
  }
  return 0;
}
