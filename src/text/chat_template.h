#pragma once

#include <ctime>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "base/result.h"

namespace sinew {

// What a template may see beside the conversation.
struct ChatSettings {
  // An object; each member becomes a variable, such as enable_thinking or reasoning_effort.
  nlohmann::ordered_json variables = nlohmann::ordered_json::object();
  // Local time, all fields set, for templates that write today's date (strftime_now). Without it
  // these find no such function: some then write a date of their own, others fail.
  std::optional<std::tm> now;
};

// The Jinja template of a model; parsed once, rendered for every request.
//
// Renders what Jinja renders when it is set up as Hugging Face transformers does it for chat
// templates; tests/templates compares the two. A template that uses a part of Jinja that is not
// here is refused by parse() with its line, and what cannot be rendered as Jinja does is an error:
// no rendering differs in silence.
//
// The template gets the conversation as it is. Nothing is added for templates that know no tools
// or no system turn, content stays as it is given (text, null or parts), and so do the arguments of
// tool calls: most templates print an object of arguments as JSON, some want the JSON text itself.
//
// Bounds: template source, request, steps, memory, depth and output have limits, so a hostile file
// or request ends in an error.
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
                             const nlohmann::ordered_json& tools, bool add_generation_prompt,
                             const ChatSettings& settings = {}) const;

 private:
  struct State;
  explicit ChatTemplate(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace sinew
