#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "base/result.h"

namespace sinew {

// The Jinja template of a model, through minja; parsed once, rendered for every request.
//
// Bounds: template source, input and rendered output have limits (kTemplateBytesMax,
// kTextBytesMax), so a hostile file or request ends in an error, not in memory. No exception of the
// library leaves this class.
//
// Threads: const calls may run at the same time.
class ChatTemplate {
 public:
  // `source` is tokenizer.chat_template; bos and eos are the tokens' texts ("" if none).
  static Result<ChatTemplate> parse(std::string source, std::string bos, std::string eos);
  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;
  ~ChatTemplate();

  // `messages` as in an OpenAI request (an array of objects with role and content); `tools` null or
  // an array. kInvalidRequest with the template's own words if it refuses the conversation.
  Result<std::string> render(const nlohmann::ordered_json& messages,
                             const nlohmann::ordered_json& tools, bool add_generation_prompt) const;

 private:
  struct State;
  explicit ChatTemplate(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace sinew
