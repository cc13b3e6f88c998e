// Arbitrary template sources, rendered with a small conversation: an error or a text, in bounded
// time.
#include "text/chat_template.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const auto messages = nlohmann::ordered_json::parse(
      R"([{"role": "system", "content": "s"}, {"role": "user", "content": "u\n"},
          {"role": "assistant", "content": null, "tool_calls": [{"function": {"name": "f"}}]}])");
  const std::string source(reinterpret_cast<const char*>(data), size);
  const auto parsed = sinew::ChatTemplate::parse(source, "<s>", "</s>");
  if (parsed) (void)parsed->render(messages, messages, true);
  return 0;
}
