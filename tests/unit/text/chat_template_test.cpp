#include "text/chat_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "base/limits.h"

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
  expect_error("a\nb\n{% if %}", ErrorCode::kInvalidFile, "line 3");
  expect_error("a\n{{ messages.nothing() }}", ErrorCode::kInvalidRequest, "line 2");
  expect_error("a\n\n{{ 1 % messages }}", ErrorCode::kInvalidRequest, "line 3");
  expect_error("{{ 'a\n\n' }}\n{{ x | nonsense }}", ErrorCode::kUnsupported, "line 4");
}

TEST(ChatTemplate, LoopsEnd) {
  const std::string turn = "{% for a in 'aaaaaaaaaaaaaaaaaaaa' %}";
  const std::string end = "{% endfor %}";
  std::string nested;
  for (int i = 0; i < 12; ++i) nested += turn;
  for (int i = 0; i < 12; ++i) nested += end;
  const auto begin = std::chrono::steady_clock::now();
  expect_error(nested, ErrorCode::kInvalidRequest, "too long");
  expect_error("{% for i in range(1000000000) %}x{% endfor %}", ErrorCode::kInvalidRequest, "too");
  expect_error("{% for i in range(1, 2, 0) %}x{% endfor %}", ErrorCode::kInvalidRequest,
               "step of 0");
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
}

TEST(ChatTemplate, MacrosThatCallThemselvesEnd) {
  expect_error("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", ErrorCode::kInvalidRequest,
               "too deeply");
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
  EXPECT_FALSE(render("x", Json::array({std::uint64_t{1} << 63})));
}

TEST(ChatTemplate, MemoryIsBounded) {
  expect_error("{{ 'x' * 1000000000000 }}", ErrorCode::kInvalidRequest, "memory");
  expect_error("{{ [1] * 100000000000 }}", ErrorCode::kInvalidRequest, "memory");
  expect_error(
      "{% set n = namespace(s='xxxxxxxx') %}{% for i in range(60) %}"
      "{% set n.s = n.s + n.s %}{% endfor %}",
      ErrorCode::kInvalidRequest, "memory");
  // A value that stands in itself, and one that stands 2^40 times in another.
  expect_error("{% set l = [] %}{% set _ = l.append(l) %}{{ l }}", ErrorCode::kInvalidRequest,
               "too deep");
  expect_error(
      "{% set n = namespace(l=['xxxxxxxx']) %}{% for i in range(40) %}"
      "{% set n.l = [n.l, n.l] %}{% endfor %}{{ n.l }}",
      ErrorCode::kInvalidRequest, "too long");
}

TEST(ChatTemplate, HostileSourcesAreRefusedAndEndSoon) {
  const auto begin = std::chrono::steady_clock::now();
  std::string nots = "{{ ";
  std::string blocks;
  std::string chain = "{% if a %}";
  for (int i = 0; i < 1000; ++i) {
    nots += "not ";
    blocks += "{% if x %}";
    chain += "{% elif b %}";
  }
  for (const std::string& source :
       {"{{ " + std::string(100, '(') + "1", "{{ " + std::string(500'000, '[') + "1",
        "{{ " + std::string(500'000, '-') + "1 }}", std::string("{# x"), std::string("{{ 'x"),
        std::string("{{ x "), std::string("{% raw %}"), std::string("{{ '\\x4' }}"),
        std::string("{{ 99999999999999999999 }}"), nots + "x }}", blocks, chain + "{% endif %}",
        std::string(kTemplateBytesMax + 1, 'x'), std::string("\xFF")}) {
    EXPECT_FALSE(ChatTemplate::parse(source, "", "")) << source.substr(0, 60);
  }
  // As long, and harmless: the depth of evaluation is checked where it happens.
  std::string sum = "{{ 1";
  for (int i = 0; i < 100'000; ++i) sum += "+1";
  expect_error(sum + " }}", ErrorCode::kInvalidRequest, "too deeply");
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
}

TEST(ChatTemplate, TheClockAndOtherSettingsAreGiven) {
  const auto parsed = ChatTemplate::parse(
      "{{ strftime_now('%d %b %Y') if strftime_now is defined else 'no clock' }} {{ effort }}", "",
      "");
  ASSERT_TRUE(parsed);
  EXPECT_EQ(parsed->render(Json::array(), nullptr, true).value(), "no clock ");
  ChatSettings settings;
  settings.variables["effort"] = "high";
  settings.now = std::tm{};
  settings.now->tm_mday = 7;
  settings.now->tm_mon = 2;
  settings.now->tm_year = 126;
  EXPECT_EQ(parsed->render(Json::array(), nullptr, true, settings).value(), "07 Mar 2026 high");
}

// transformers gives every template `tools`, as none where there are none.
TEST(ChatTemplate, ToolsAreNoneWhereThereAreNone) {
  const std::string source =
      "{{ tools is defined }} {{ tools is none }} {{ tools | length if tools }}";
  EXPECT_EQ(render(source).value(), "True True ");
  EXPECT_EQ(render(source, kConversation, true, Json::parse(R"([{"a": 1}])")).value(),
            "True False 1");
}

}  // namespace
}  // namespace sinew
