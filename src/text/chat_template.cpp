#include "text/chat_template.h"

#include "base/limits.h"
#include "base/unicode.h"
#include "jinja/machine.h"
#include "jinja/parser.h"

namespace sinew {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kRequestDepthMax = 64;
// What one rendering may make, freed or not: templates copy a conversation several times.
constexpr std::size_t kMemoryMax = 512u << 20;

// Adds up the bytes of `value`; false if it is nested too deeply or too large. The depth is checked
// before anything recurses over the request.
bool measure(const Json& value, int depth, std::size_t& bytes) {
  if (depth > kRequestDepthMax) return false;
  bytes += value.is_string() ? value.get_ref<const std::string&>().size() : 8;
  if (value.is_structured()) {
    for (const auto& item : value.items()) {
      bytes += item.key().size();
      if (!measure(item.value(), depth + 1, bytes)) return false;
    }
  }
  return bytes <= kTextBytesMax;
}

std::string one_line(std::string text) {
  for (char& c : text) {
    if (c == '\n' || c == '\r') c = ' ';
  }
  return text;
}

}  // namespace

struct ChatTemplate::State {
  jinja::Template parsed;
  std::string bos;
  std::string eos;
};

ChatTemplate::ChatTemplate(std::unique_ptr<State> state) : state_(std::move(state)) {}
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;
ChatTemplate::~ChatTemplate() = default;

Result<ChatTemplate> ChatTemplate::parse(std::string source, std::string bos, std::string eos) {
  if (source.size() > kTemplateBytesMax) {
    return fail(ErrorCode::kUnsupported, "the chat template has {} bytes; at most {} are supported",
                source.size(), kTemplateBytesMax);
  }
  for (const std::string* text : {&source, &bos, &eos}) {
    if (!is_valid_utf8(*text)) {
      return fail(ErrorCode::kInvalidFile, "the chat template or one of its tokens is not UTF-8");
    }
  }
  auto state = std::make_unique<State>();
  SINEW_ASSIGN(state->parsed, jinja::parse_template(source));
  state->bos = std::move(bos);
  state->eos = std::move(eos);
  return ChatTemplate(std::move(state));
}

Result<std::string> ChatTemplate::render(const Json& messages, const Json& tools,
                                         bool add_generation_prompt,
                                         const ChatSettings& settings) const {
  std::size_t bytes = 0;
  if (!messages.is_array() || !settings.variables.is_object() || !measure(messages, 0, bytes) ||
      !measure(tools, 0, bytes) || !measure(settings.variables, 0, bytes)) {
    return fail(ErrorCode::kInvalidRequest,
                "messages and tools must be arrays of at most {} bytes, nested at most {} deep",
                kTextBytesMax, kRequestDepthMax);
  }
  jinja::Heap heap(kMemoryMax);
  jinja::Scope variables;
  const auto define = [&](std::string_view name, const Json& json) -> Status {
    SINEW_ASSIGN(jinja::Value value, heap.from_json(json));
    variables.set(name, std::move(value));
    return {};
  };
  SINEW_TRY(define("messages", messages));
  // transformers gives these to every template, as none where there are none.
  SINEW_TRY(define("tools", tools));
  SINEW_TRY(define("documents", nullptr));
  SINEW_TRY(define("add_generation_prompt", add_generation_prompt));
  SINEW_TRY(define("bos_token", state_->bos));
  SINEW_TRY(define("eos_token", state_->eos));
  for (const auto& [name, json] : settings.variables.items()) SINEW_TRY(define(name, json));

  jinja::Machine machine(heap, settings.now ? &*settings.now : nullptr);
  auto text = machine.render(state_->parsed, std::move(variables));
  if (text) return text;
  if (machine.refusal()) {
    return fail(ErrorCode::kInvalidRequest, "the model's chat template refuses: {}",
                one_line(*machine.refusal()));
  }
  return fail(ErrorCode::kInvalidRequest, "the chat template fails: {}",
              one_line(text.error().message));
}

}  // namespace sinew
