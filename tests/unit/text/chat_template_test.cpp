#include "text/chat_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <minja/minja.hpp>

#include "base/limits.h"
#include "text/template_guard.h"

namespace sinew {
namespace {

using Json = nlohmann::ordered_json;
using testing::HasSubstr;

const Json kConversation = Json::parse(R"([
  {"role": "system", "content": "Be brief."},
  {"role": "user", "content": "Hi"},
  {"role": "assistant", "content": "Hello."},
  {"role": "user", "content": "More"}])");

Result<std::string> render(const std::string& source, const Json& messages = kConversation,
                           bool add_generation_prompt = true, const Json& tools = nullptr) {
  auto parsed = ChatTemplate::parse(source, "<s>", "</s>");
  if (!parsed) return fail(parsed.error());
  return parsed->render(messages, tools, add_generation_prompt);
}

void expect_error(const std::string& source, ErrorCode code, const std::string& part) {
  const auto result = render(source);
  ASSERT_FALSE(result) << *result;
  EXPECT_EQ(result.error().code, code) << result.error().message;
  EXPECT_THAT(result.error().message, HasSubstr(part));
  EXPECT_EQ(result.error().message.find('\n'), std::string::npos);
}

// The turns of each family, written down from their documentation.
constexpr const char* kChatMl =
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] "
    "+ "
    "'<|im_end|>' + '\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' "
    "}}"
    "{% endif %}";
constexpr const char* kLlama3 =
    "{{- bos_token }}\n"
    "{%- for message in messages %}\n"
    "    {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n' + "
    "message['content'] | "
    "trim + '<|eot_id|>' }}\n"
    "{%- endfor %}\n"
    "{%- if add_generation_prompt %}\n"
    "    {{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}\n"
    "{%- endif %}\n";
constexpr const char* kDeepSeek3 =
    "{% if not add_generation_prompt is defined %}{% set add_generation_prompt = false %}{% endif "
    "%}"
    "{% set ns = namespace(system='', in_tool=false) %}"
    "{%- for message in messages %}{%- if message['role'] == 'system' %}"
    "{% set ns.system = ns.system + message['content'] %}{%- endif %}{%- endfor %}"
    "{{ bos_token }}{{ ns.system }}"
    "{%- for message in messages %}"
    "{%- if message['role'] == 'user' %}{{ '<\uFF5CUser\uFF5C>' + message['content'] }}"
    "{%- elif message['role'] == 'assistant' %}"
    "{{ '<\uFF5CAssistant\uFF5C>' + message['content'] + '<\uFF5Cend\u2581of\u2581sentence\uFF5C>' "
    "}}"
    "{%- endif %}{%- endfor -%}"
    "{% if add_generation_prompt %}{{ '<\uFF5CAssistant\uFF5C>' }}{% endif %}";
constexpr const char* kKimiK2 =
    "{%- macro content(message) -%}{{ message.content }}{%- endmacro -%}\n"
    "{%- if tools -%}<|im_system|>tool_declare<|im_middle|>{{ tools | tojson }}<|im_end|>{%- endif "
    "-%}\n"
    "{%- for message in messages -%}\n"
    "  {%- if loop.first and message.role != 'system' -%}\n"
    "    <|im_system|>system<|im_middle|>You are Kimi.<|im_end|>\n"
    "  {%- endif -%}\n"
    "  {%- set name = message.name or message.role -%}\n"
    "  {%- if message.role == 'user' -%}<|im_user|>{{ name }}<|im_middle|>\n"
    "  {%- elif message.role == 'assistant' -%}<|im_assistant|>{{ name }}<|im_middle|>\n"
    "  {%- else -%}<|im_system|>{{ name }}<|im_middle|>{%- endif -%}\n"
    "  {{- content(message) -}}<|im_end|>\n"
    "{%- endfor -%}\n"
    "{%- if add_generation_prompt -%}<|im_assistant|>assistant<|im_middle|>{%- endif -%}\n";

TEST(ChatTemplate, ChatMl) {
  EXPECT_EQ(render(kChatMl).value(),
            "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
            "<|im_start|>assistant\nHello.<|im_end|>\n<|im_start|>user\nMore<|im_end|>\n"
            "<|im_start|>assistant\n");
}

TEST(ChatTemplate, Llama3) {
  EXPECT_EQ(render(kLlama3).value(),
            "<s><|start_header_id|>system<|end_header_id|>\n\nBe brief.<|eot_id|>"
            "<|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\nHello.<|eot_id|>"
            "<|start_header_id|>user<|end_header_id|>\n\nMore<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\n");
}

TEST(ChatTemplate, DeepSeekV3) {
  EXPECT_EQ(render(kDeepSeek3).value(),
            "<s>Be brief.<\uFF5CUser\uFF5C>Hi<\uFF5CAssistant\uFF5C>Hello."
            "<\uFF5Cend\u2581of\u2581sentence\uFF5C><\uFF5CUser\uFF5C>More<\uFF5CAssistant\uFF5C>");
  EXPECT_EQ(render(kDeepSeek3, Json::array({kConversation[1]}), false).value(),
            "<s><\uFF5CUser\uFF5C>Hi");
}

TEST(ChatTemplate, KimiK2WithToolsAndTheDefaultSystemTurn) {
  EXPECT_EQ(
      render(kKimiK2, Json::array({kConversation[1]}), true, Json::parse(R"([{"a": 1}])")).value(),
      "<|im_system|>tool_declare<|im_middle|>[{\"a\": 1}]<|im_end|>"
      "<|im_system|>system<|im_middle|>You are Kimi.<|im_end|>"
      "<|im_user|>user<|im_middle|>Hi<|im_end|><|im_assistant|>assistant<|im_middle|>");
}

TEST(ChatTemplate, RefusalOfTheTemplateIsTheCallersFault) {
  expect_error("{{ raise_exception('roles must\nalternate') }}", ErrorCode::kInvalidRequest,
               "refuses: roles must alternate");
}

TEST(ChatTemplate, ErrorsNameTheLine) {
  expect_error("a\nb\n{% if %}", ErrorCode::kInvalidFile, "row 3");
  expect_error("a\n{{ messages.nothing() }}", ErrorCode::kInvalidRequest, "row 2");
  expect_error("a\n\n{{ 1 % messages }}", ErrorCode::kUnsupported, "line 3");
}

TEST(ChatTemplate, LoopsEnd) {
  const std::string turn = "{% for a in 'aaaaaaaaaaaaaaaaaaaa' %}";
  const std::string end = "{% endfor %}";
  std::string nested;
  for (int i = 0; i < 12; ++i) nested += turn;
  for (int i = 0; i < 12; ++i) nested += end;
  const auto begin = std::chrono::steady_clock::now();
  expect_error(nested, ErrorCode::kInvalidRequest, "too long");
  expect_error("{% for i in range(1000000000) %}x{% endfor %}", ErrorCode::kInvalidRequest,
               "too long");
  expect_error("{% for i in range(1, 2, 0) %}x{% endfor %}", ErrorCode::kInvalidRequest,
               "step of 0");
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
}

TEST(ChatTemplate, MacrosThatCallThemselvesEnd) {
  expect_error("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", ErrorCode::kInvalidRequest,
               "too deeply");
  expect_error(
      "{% macro m() %}{{ caller() }}{% endmacro %}{% call m() %}{{ caller() }}{% endcall %}",
      ErrorCode::kInvalidRequest, "too deeply");
}

TEST(ChatTemplate, OutputIsBounded) {
  const Json messages = Json::array({{{"role", "user"}, {"content", std::string(1u << 20, 'x')}}});
  const auto result =
      render("{% for i in range(100) %}{{ messages[0].content }}{% endfor %}", messages);
  ASSERT_FALSE(result);
  EXPECT_THAT(result.error().message, HasSubstr("too long"));
}

TEST(ChatTemplate, RequestsAreBounded) {
  Json deep = "x";
  for (int i = 0; i < 1000; ++i) {
    Json outer = Json::array();
    outer.push_back(std::move(deep));
    deep = std::move(outer);
  }
  const auto nested = render("{{ messages }}", Json::array({deep}));
  ASSERT_FALSE(nested);
  EXPECT_EQ(nested.error().code, ErrorCode::kInvalidRequest);
  EXPECT_FALSE(render("x", Json::array({std::string(kTextBytesMax + 1, 'x')})));
  EXPECT_FALSE(render("x", Json::object()));
}

TEST(ChatTemplate, TextThatIsNotUtf8IsAnErrorAndNoException) {
  EXPECT_FALSE(render("{{ messages | tojson }}", Json::array({"\xFF"})));
}

// Each would crash or hang minja itself.
TEST(TemplateGuard, RefusesWhatMinjaDoesNotSurvive) {
  const std::vector<std::string> hostile{
      "{{ 1 % 0 }}",
      "{{ 1 // 0 }}",
      "{{ 1 / x }}",
      "{{ 5 % 2 | length }}",
      "{{ 2 ** 3 }}",
      "{{ 'abc'[5:0:-1] }}",
      "{{ 'abc'[x::2] }}",
      "{{ 'abc'.split('') }}",
      "{{ 'abc'.split(x) }}",
      "{% for a in b recursive %}{{ loop(a) }}{% endfor %}",
      "{% for a in b %}{% set ns.c = loop.cycle %}{% endfor %}",
      "{% set sinew_step = 1 %}",
      "{{ " + std::string(100, '(') + "1",
      "{{ " + std::string(5000, '(') + "1",
      "{# " + std::string(5000, '\n') + " #}",
      "{# x",
      "{{ 'x",
      "{{ x ",
      std::string(2000, ' '),
      std::string(1u << 20, 'x'),
  };
  for (const std::string& source : hostile) {
    const auto guarded = guard_template(source);
    EXPECT_FALSE(guarded) << source.substr(0, 60);
    if (guarded) continue;
    EXPECT_EQ(guarded.error().code, ErrorCode::kUnsupported);
  }
  std::string nots = "{{ ";
  for (int i = 0; i < 1000; ++i) nots += "not ";
  EXPECT_FALSE(guard_template(nots + "x }}"));
  std::string blocks;
  for (int i = 0; i < 1000; ++i) blocks += "{% if x %}";
  EXPECT_FALSE(guard_template(blocks));
}

TEST(TemplateGuard, LongCommentsAreBlankedAndKeepTheirMarks) {
  EXPECT_EQ(guard_template("a {#- x\ny -#} b").value(), "a {#-\n-#} b");
  EXPECT_TRUE(render("{# " + std::string(100000, 'x') + " #}"));
}

TEST(TemplateGuard, AllowsWhatRealTemplatesUse) {
  for (const char* source :
       {"{{ loop.index0 % 2 == 0 }}", "{{ messages[::-1] }}", "{{ a[1:] }}",
        "{{ {'a': {'b': 1}} }}", "{{ x.split('</think>')[-1] }}", "{{ a[b if c else 'd:e:f'] }}",
        "{{ '}}' }}", "{{ x | e }}", "{%- set a = '%}' -%}"}) {
    EXPECT_TRUE(guard_template(source)) << source;
  }
}

// What minja makes of a source without the guard's additions.
std::string render_unguarded(const std::string& source, const Json& messages) {
  const auto root = minja::Parser::parse(source, {true, true, false});
  const auto context = minja::Context::make(minja::Value(Json{{"messages", messages},
                                                              {"add_generation_prompt", true},
                                                              {"bos_token", "<s>"},
                                                              {"eos_token", "</s>"}}));
  return root->render(context);
}

TEST(TemplateGuard, ChangesNothingInWhatIsRendered) {
  std::vector<std::string> sources{
      kChatMl,
      kLlama3,
      kDeepSeek3,
      kKimiK2,
      " \n{%- for m in messages -%} \n x {{ m.role }} \n {% endfor %}\n y \n",
      "{% for m in messages %}\n  {{ m.role }}\n{% endfor %}\n",
      "{% for m in messages -%}\n  a\n  {# c #}\n{%- endfor %}\n\n",
      "{% macro f(x) -%} \n {{ x }} \n{%- endmacro %}\n{{ f('a') }}\n",
  };
  for (const std::string& source : sources) {
    EXPECT_EQ(render(source).value(), render_unguarded(source, kConversation)) << source;
  }
}

// Of the templates that come with llama.cpp, where its source tree is at hand, those of the
// families that Sinew runs (minja takes long to parse them all).
TEST(TemplateGuard, TakesTheTemplatesOfKnownModels) {
  FILE* pipe = ::popen(SINEW_SOURCE_DIR "/tools/deps source 2>/dev/null", "r");
  std::array<char, 4096> line{};
  const bool ok = pipe != nullptr && std::fgets(line.data(), line.size(), pipe) != nullptr;
  if (pipe != nullptr) ::pclose(pipe);
  std::string path = ok ? line.data() : "";
  while (!path.empty() && path.back() == '\n') path.pop_back();
  const auto folder = std::filesystem::path(path) / "models" / "templates";
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << "no templates: tools/deps source gave none";
  int same = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    const bool wanted = name.starts_with("deepseek-ai") || name.starts_with("Kimi-K2") ||
                        name.starts_with("moonshotai") || name.starts_with("meta-llama") ||
                        name.starts_with("Qwen3-0.6B") || name.starts_with("HuggingFaceTB");
    if (!wanted) continue;
    std::ifstream stream(entry.path(), std::ios::binary);
    const std::string source{std::istreambuf_iterator<char>(stream), {}};
    std::string expected;
    try {
      expected = render_unguarded(source, kConversation);
    } catch (const std::exception&) {
      continue;  // minja cannot take it, or it refuses this conversation
    }
    const auto rendered = render(source);
    EXPECT_TRUE(rendered) << entry.path() << ": " << (rendered ? "" : rendered.error().message);
    EXPECT_EQ(rendered.value_or(""), expected) << entry.path();
    ++same;
  }
  EXPECT_GT(same, 5);
}

}  // namespace
}  // namespace sinew
