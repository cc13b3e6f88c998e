#include "agent/hello.h"

#include "base/wire.h"

namespace sinew {

std::vector<std::byte> encode_hello(const Hello& hello) {
  WireWriter out;
  for (const std::uint8_t byte : hello.id.bytes) out.put(byte);
  out.put(hello.incarnation).put(hello.nonce).put(hello.port);
  out.put(std::string_view(hello.name).substr(0, kMemberNameMax));
  return {out.bytes().begin(), out.bytes().end()};
}

Result<Hello> decode_hello(ByteSpan bytes) {
  WireReader in(bytes);
  Hello hello;
  for (std::uint8_t& byte : hello.id.bytes) byte = in.get<std::uint8_t>();
  hello.incarnation = in.get<std::uint64_t>();
  hello.nonce = in.get<std::uint64_t>();
  hello.port = in.get<std::uint16_t>();
  hello.name = in.get_string();
  SINEW_TRY(in.status("hello"));
  if (hello.id.none() || hello.name.size() > kMemberNameMax)
    return fail(ErrorCode::kProtocol, "a hello without an id, or with a name of {} bytes",
                hello.name.size());
  for (char& c : hello.name) {
    if (static_cast<unsigned char>(c) < ' ' || c == '\x7f') c = '?';
  }
  return hello;
}

}  // namespace sinew
