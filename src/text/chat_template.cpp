// Bounded here: the sizes of source, request and output, the depth of the request, the turns of
// loops and calls of macros of one rendering, the stack that macros use, the length of ranges.
//
// Not bounded, since minja has no place to do it: the memory of one expression ('x' * 1000000000)
// or of a string that doubles itself in one turn of a loop, and structures that contain themselves.
// So a template is trusted not to be hostile in these ways, as the weights beside it are; requests
// need no such trust.
#include "text/chat_template.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <minja/minja.hpp>
#include <optional>
#include <sstream>
#include <streambuf>

#include "base/limits.h"
#include "text/template_guard.h"

namespace sinew {
namespace {

constexpr std::int64_t kStepsMax = 200'000;         // of one rendering
constexpr std::size_t kStackBytesMax = 192u << 10;  // threads have 512 KiB on some systems
constexpr int kRequestDepthMax = 64;

// minja passes errors on as text only, so what must be told apart is noted here as it happens.
struct Rendering {
  std::int64_t steps_left = kStepsMax;
  const char* stack_base = nullptr;
  std::optional<std::string> refusal;  // the argument of raise_exception

  void spend(std::int64_t steps) {
    if (steps > steps_left) throw std::runtime_error("the template runs for too long");
    steps_left -= steps;
  }
  void check_stack() {
    const auto* here = static_cast<const char*>(__builtin_frame_address(0));
    const std::ptrdiff_t used = stack_base > here ? stack_base - here : here - stack_base;
    if (static_cast<std::size_t>(used) > kStackBytesMax) {
      throw std::runtime_error("macros call each other too deeply");
    }
  }
};

// Takes the output as long as it is within the limit; then writing throws.
class BoundedBuffer : public std::streambuf {
 public:
  std::string take() { return std::move(text_); }

 protected:
  std::streamsize xsputn(const char* data, std::streamsize size) override {
    if (static_cast<std::size_t>(size) > kTextBytesMax - text_.size()) {
      throw std::runtime_error("the rendered chat is too long");
    }
    text_.append(data, static_cast<std::size_t>(size));
    return size;
  }
  int_type overflow(int_type c) override {
    const char byte = traits_type::to_char_type(c);
    xsputn(&byte, 1);
    return c;
  }

 private:
  std::string text_;
};

minja::Value range(Rendering& rendering, minja::ArgumentsValue& arguments) {
  // start, stop, step, as in Python.
  std::array<std::int64_t, 3> values{0, 0, 1};
  const std::size_t count = arguments.args.size();
  if (count < 1 || count > 3 || !arguments.kwargs.empty()) {
    throw std::runtime_error("range() takes one to three numbers");
  }
  for (std::size_t i = 0; i < count; ++i) {
    values[count == 1 ? 1 : i] = arguments.args[i].get<std::int64_t>();
  }
  const auto [start, stop, step] = values;
  if (step == 0) throw std::runtime_error("range() with a step of 0");
  minja::Value list = minja::Value::array();
  std::int64_t value = start;
  while (step > 0 ? value < stop : value > stop) {
    rendering.spend(1);
    list.push_back(minja::Value(value));
    if (__builtin_add_overflow(value, step, &value)) break;
  }
  return list;
}

void define_functions(minja::Context& context, Rendering& rendering) {
  using Arguments = minja::ArgumentsValue;
  using ContextPointer = std::shared_ptr<minja::Context>;
  context.set(std::string(kStepFunction),
              minja::Value::callable([&rendering](const ContextPointer&, Arguments&) {
                rendering.spend(1);
                rendering.check_stack();
                return minja::Value();
              }));
  context.set("range",
              minja::Value::callable([&rendering](const ContextPointer&, Arguments& given) {
                return range(rendering, given);
              }));
  context.set(
      "raise_exception",
      minja::Value::callable([&rendering](const ContextPointer&, Arguments& given) -> minja::Value {
        const bool has_text = !given.args.empty() && given.args[0].is_string();
        rendering.refusal = has_text ? given.args[0].to_str() : "no reason given";
        throw std::runtime_error("raise_exception");
      }));
}

// The message of minja's innermost error with its place; the source lines below it are left out.
std::string first_line(std::string text) {
  text.resize(std::min(text.size(), text.find('\n')));
  while (!text.empty() && (text.back() == ':' || text.back() == ' ')) text.pop_back();
  return text;
}

std::string one_line(std::string text) {
  for (char& c : text) {
    if (c == '\n' || c == '\r') c = ' ';
  }
  return text;
}

// Adds up the bytes of `value`; false if it is nested too deeply or too large. The depth is checked
// before anything recurses over the request.
bool measure(const nlohmann::ordered_json& value, int depth, std::size_t& bytes) {
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

}  // namespace

struct ChatTemplate::State {
  std::shared_ptr<minja::TemplateNode> root;
  std::string bos;
  std::string eos;
};

ChatTemplate::ChatTemplate(std::unique_ptr<State> state) : state_(std::move(state)) {}
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;
ChatTemplate::~ChatTemplate() = default;

Result<ChatTemplate> ChatTemplate::parse(std::string source, std::string bos, std::string eos) {
  SINEW_ASSIGN(const std::string guarded, guard_template(source));
  auto state = std::make_unique<State>();
  state->bos = std::move(bos);
  state->eos = std::move(eos);
  try {
    // As transformers sets Jinja up for chat templates.
    state->root = minja::Parser::parse(
        guarded, {.trim_blocks = true, .lstrip_blocks = true, .keep_trailing_newline = false});
  } catch (const std::exception& error) {
    return fail(ErrorCode::kInvalidFile, "the chat template does not parse: {}",
                first_line(error.what()));
  }
  return ChatTemplate(std::move(state));
}

Result<std::string> ChatTemplate::render(const nlohmann::ordered_json& messages,
                                         const nlohmann::ordered_json& tools,
                                         bool add_generation_prompt) const {
  std::size_t bytes = 0;
  if (!messages.is_array() || !measure(messages, 0, bytes) || !measure(tools, 0, bytes)) {
    return fail(ErrorCode::kInvalidRequest,
                "messages and tools must be arrays of at most {} bytes, nested at most {} deep",
                kTextBytesMax, kRequestDepthMax);
  }
  Rendering rendering;
  rendering.stack_base = static_cast<const char*>(__builtin_frame_address(0));
  std::shared_ptr<minja::Context> context;
  Result<std::string> result;
  try {
    context = minja::Context::make(minja::Value(nlohmann::ordered_json{
        {"messages", messages},
        {"add_generation_prompt", add_generation_prompt},
        {"bos_token", state_->bos},
        {"eos_token", state_->eos},
    }));
    if (!tools.is_null()) context->set("tools", minja::Value(tools));
    define_functions(*context, rendering);
    BoundedBuffer buffer;
    std::ostringstream out;
    out.std::ios::rdbuf(&buffer);
    out.exceptions(std::ios::badbit | std::ios::failbit);  // or the stream swallows the limit
    state_->root->render(out, context);
    result = buffer.take();
  } catch (const std::exception& error) {
    if (rendering.refusal) {
      result = fail(ErrorCode::kInvalidRequest, "the model's chat template refuses: {}",
                    one_line(*rendering.refusal));
    } else {
      result =
          fail(ErrorCode::kInvalidRequest, "the chat template fails: {}", first_line(error.what()));
    }
  }
  // A macro refers to the context that holds it: taken apart here, or every rendering would leak.
  if (context) {
    for (const minja::Value& key : context->keys()) context->set(key, minja::Value());
  }
  return result;
}

}  // namespace sinew
