#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "cluster/node.h"

namespace sinew {

// The first message on each side of an authenticated control connection.
struct Hello {
  NodeId id;
  std::uint64_t incarnation = 0;
  std::uint64_t nonce = 0;
  std::uint16_t port = 0;  // where the sender listens
  std::string name;        // at most kMemberNameMax bytes
};

std::vector<std::byte> encode_hello(const Hello& hello);
// kProtocol if it is none; control characters of the name become '?'.
Result<Hello> decode_hello(ByteSpan bytes);

}  // namespace sinew
