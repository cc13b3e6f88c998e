// What a stranger or a broken peer can send to an agent: frames inside a connection, hellos, and
// the bytes before TLS and of its first messages. Nothing may crash, be taken beyond the bounds, or
// be let in.
#include <fcntl.h>
#include <fuzzer/FuzzedDataProvider.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <span>

#include "agent/frame_reader.h"
#include "agent/hello.h"
#include "agent/secret.h"
#include "agent/secure_channel.h"
#include "base/assert.h"

namespace {

using namespace sinew;

ByteSpan bytes_of(const std::vector<std::uint8_t>& bytes) {
  return std::as_bytes(std::span(bytes));
}

// However a stream is cut, the same frames come out.
void fuzz_frames(FuzzedDataProvider& input) {
  const std::size_t piece = input.ConsumeIntegralInRange<std::size_t>(1, 64);
  const auto all = input.ConsumeRemainingBytes<std::uint8_t>();
  FrameReader whole;
  whole.append(bytes_of(all));
  FrameReader cut;
  std::size_t at = 0;
  while (true) {
    const auto frame = whole.next();
    auto same = cut.next();
    while (same && !*same && at < all.size()) {
      const std::size_t size = std::min(piece, all.size() - at);
      cut.append(bytes_of(all).subspan(at, size));
      at += size;
      same = cut.next();
    }
    SINEW_ASSERT(frame.has_value() == same.has_value());
    if (!frame || !*frame) return;
    SINEW_ASSERT(*same && (*frame)->kind == (*same)->kind && (*frame)->payload == (*same)->payload);
    SINEW_ASSERT((*frame)->payload.size() <= kFramePayloadMax);
    if ((*frame)->kind == FrameKind::kHello)
      static_cast<void>(decode_hello((*frame)->payload).has_value());
  }
}

void fuzz_token(FuzzedDataProvider& input) {
  const auto secret = parse_token(input.ConsumeRemainingBytesAsString());
  SINEW_ASSERT(secret || secret.error().code == ErrorCode::kUsage);
}

void fuzz_stranger(FuzzedDataProvider& input) {
  static const auto settings = TlsSettings::create(ClusterSecret{}, {kControlVersion, "1"});
  SINEW_ASSERT(settings.has_value());
  std::array<int, 2> pair{};
  SINEW_ASSERT(socketpair(AF_UNIX, SOCK_STREAM, 0, pair.data()) == 0);
  SINEW_ASSERT(fcntl(pair[0], F_SETFL, O_NONBLOCK) == 0);
  const Socket stranger(pair[1]);
  const bool dials = input.ConsumeBool();
  const auto channel = SecureChannel::create(**settings, Socket(pair[0]), dials);
  SINEW_ASSERT(channel.has_value());
  if (input.ConsumeBool()) {
    const auto greeting = encode_greeting({kControlVersion, "1"});
    SINEW_ASSERT(send(pair[1], greeting.data(), greeting.size(), MSG_NOSIGNAL) ==
                 static_cast<ssize_t>(greeting.size()));
  }
  auto bytes = input.ConsumeRemainingBytes<std::uint8_t>();
  bytes.resize(std::min<std::size_t>(bytes.size(), 16384));
  if (!bytes.empty())
    SINEW_ASSERT(send(pair[1], bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
                 static_cast<ssize_t>(bytes.size()));
  std::vector<ControlFrame> frames;
  Status status;
  for (int turn = 0; turn < 4 && status; ++turn) status = (*channel)->advance(frames);
  SINEW_ASSERT(!(*channel)->established() && frames.empty());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  FuzzedDataProvider input(data, size);
  switch (input.ConsumeIntegralInRange<int>(0, 3)) {
    case 0:
      fuzz_token(input);
      break;
    case 1:
      fuzz_frames(input);
      break;
    default:
      fuzz_stranger(input);
      break;
  }
  return 0;
}
