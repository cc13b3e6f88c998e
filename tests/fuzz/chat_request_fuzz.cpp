// The body of POST /v1/chat/completions: whatever arrives is refused with a message or gives a
// request that can be written as JSON again.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "api/api_error.h"
#include "api/chat_request.h"
#include "base/assert.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace sinew;
  const auto parsed =
      parse_chat_request(std::string_view(reinterpret_cast<const char*>(data), size));
  if (!parsed) {
    SINEW_ASSERT(parsed.error().status >= 400 && parsed.error().status < 500);
    SINEW_ASSERT(!error_body(parsed.error()).empty());
    return 0;
  }
  SINEW_ASSERT(!parsed->messages.dump().empty());
  SINEW_ASSERT(parsed->messages.size() <= kMessagesMax);
  SINEW_ASSERT(parsed->tokens_max.value_or(1) >= 1);
  SINEW_ASSERT(parsed->stop.size() <= kStopStringsMax);
  return 0;
}
