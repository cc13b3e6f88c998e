#include "api/chat_request.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>

#include "api/json_body.h"
#include "base/limits.h"

namespace sinew {
namespace {

const std::string kUser = R"("messages":[{"role":"user","content":"hi"}])";

std::string with(const std::string& fields) {
  return "{" + kUser + "," + fields + "}";
}

// The field that a body is refused for; "" if it is accepted.
std::string refused_for(const std::string& body) {
  const auto parsed = parse_chat_request(body);
  if (parsed) return "";
  EXPECT_EQ(parsed.error().type, "invalid_request_error");
  EXPECT_FALSE(parsed.error().message.empty());
  return parsed.error().param.value_or("?");
}

TEST(ChatRequest, MinimalBody_LeavesTheDefaultsToTheServer) {
  const auto parsed = parse_chat_request("{" + kUser + "}");
  ASSERT_TRUE(parsed);
  EXPECT_FALSE(parsed->model);
  EXPECT_FALSE(parsed->temperature);
  EXPECT_FALSE(parsed->seed);
  EXPECT_FALSE(parsed->tokens_max);
  EXPECT_FALSE(parsed->stream);
  EXPECT_EQ(parsed->messages.dump(), R"([{"role":"user","content":"hi"}])");
}

TEST(ChatRequest, AllFieldsAreRead) {
  const auto parsed =
      parse_chat_request(with(R"("model":"m","temperature":0.5,"top_p":0.9,"top_k":40,"min_p":0.05,
      "repetition_penalty":1.1,"presence_penalty":0.1,"frequency_penalty":0.2,"seed":7,
      "max_completion_tokens":5,"max_tokens":5,"stop":["a","b"],"stream":true,
      "stream_options":{"include_usage":true},"ignore_eos":true)"));
  ASSERT_TRUE(parsed) << parsed.error().message;
  EXPECT_EQ(parsed->model, "m");
  EXPECT_EQ(parsed->temperature, 0.5);
  EXPECT_EQ(parsed->top_k, 40);
  EXPECT_EQ(parsed->repeat_penalty, 1.1);
  EXPECT_EQ(parsed->seed, 7U);
  EXPECT_EQ(parsed->tokens_max, 5);
  EXPECT_EQ(parsed->stop, (std::vector<std::string>{"a", "b"}));
  EXPECT_TRUE(parsed->stream && parsed->include_usage && parsed->ignore_eos);
}

TEST(ChatRequest, NullAndUnknownFieldsAreIgnored) {
  EXPECT_EQ(refused_for(with(R"("temperature":null,"stop":null,"tools":null,"n":null,
      "user":"me","store":true,"no_such_field":[1,2,{"a":3}])")),
            "");
}

TEST(ChatRequest, NeutralValuesOfUnsupportedFieldsAreAccepted) {
  EXPECT_EQ(refused_for(with(R"("n":1,"logprobs":false,"top_logprobs":0,"logit_bias":{},
      "tools":[],"tool_choice":"none","response_format":{"type":"text"},"modalities":["text"])")),
            "");
}

TEST(ChatRequest, UnsupportedFieldsAreRefusedByName) {
  const std::pair<const char*, const char*> cases[] = {
      {"n", "2"},
      {"logprobs", "true"},
      {"top_logprobs", "3"},
      {"logit_bias", R"({"5":1})"},
      {"tools", R"([{"type":"function"}])"},
      {"tool_choice", R"("required")"},
      {"functions", "[{}]"},
      {"response_format", R"({"type":"json_object"})"},
      {"response_format", "7"},
      {"modalities", R"(["text","audio"])"},
      {"audio", "{}"},
      {"web_search_options", "{}"},
      {"reasoning_effort", R"("high")"},
      {"chat_template_kwargs", R"({"enable_thinking":false})"}};
  for (const auto& [field, value] : cases) {
    EXPECT_EQ(refused_for(with(fmt::format("\"{}\":{}", field, value))), field);
  }
}

TEST(ChatRequest, WrongTypesAreRefusedByName) {
  for (const char* field : {"temperature", "top_p", "top_k", "seed", "max_tokens", "stream", "stop",
                            "model", "stream_options", "ignore_eos"}) {
    EXPECT_EQ(refused_for(with(fmt::format("\"{}\":[{{}}]", field))), field);
  }
  EXPECT_EQ(refused_for(with(R"("top_k":1.5)")), "top_k");
  EXPECT_EQ(refused_for(with(R"("seed":1e300)")), "seed");
}

TEST(ChatRequest, LimitsOfTokensAndStops) {
  EXPECT_EQ(refused_for(with(R"("max_tokens":0)")), "max_tokens");
  EXPECT_EQ(refused_for(with(R"("max_tokens":-1)")), "");
  EXPECT_EQ(refused_for(with(R"("max_tokens":4,"max_completion_tokens":5)")), "max_tokens");
  EXPECT_EQ(refused_for(with(R"("stop":"")")), "stop");
  EXPECT_EQ(refused_for(with("\"stop\":\"" + std::string(kStopStringBytesMax + 1, 'x') + "\"")),
            "stop");
  std::string many = "\"x\"";
  for (std::size_t i = 0; i < kStopStringsMax; ++i) many += ",\"x\"";
  EXPECT_EQ(refused_for(with("\"stop\":[" + many + "]")), "stop");
  EXPECT_EQ(refused_for(with(R"("stream_options":{"include_usage":true})")), "stream_options");
}

TEST(ChatRequest, MessagesAreCheckedOneByOne) {
  const auto messages = [](const std::string& list) {
    return refused_for("{\"messages\":" + list + "}");
  };
  EXPECT_EQ(refused_for("{}"), "messages");
  EXPECT_EQ(messages("[]"), "messages");
  EXPECT_EQ(messages("\"hi\""), "messages");
  EXPECT_EQ(messages("[3]"), "messages[0]");
  EXPECT_EQ(messages(R"([{"content":"x"}])"), "messages[0].role");
  EXPECT_EQ(messages(R"([{"role":"robot","content":"x"}])"), "messages[0].role");
  EXPECT_EQ(messages(R"([{"role":"user"}])"), "messages[0].content");
  EXPECT_EQ(messages(R"([{"role":"user","content":5}])"), "messages[0].content");
  EXPECT_EQ(messages(R"([{"role":"user","content":[{"type":"image_url"}]}])"),
            "messages[0].content[0]");
  EXPECT_EQ(messages(R"([{"role":"user","content":"x","tool_calls":[{}]}])"),
            "messages[0].tool_calls");
  EXPECT_EQ(messages(R"([{"role":"assistant","content":null}])"), "messages[0].content");
}

TEST(ChatRequest, ContentPartsAreJoined_DeveloperIsSystem_ReasoningIsKept) {
  const auto parsed = parse_chat_request(R"({"messages":[
    {"role":"developer","content":"be brief"},
    {"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}],"x":1},
    {"role":"assistant","content":null,"reasoning":"hm","tool_calls":[{"id":"1"}]},
    {"role":"tool","content":"5","tool_call_id":"1"}]})");
  ASSERT_TRUE(parsed) << parsed.error().message;
  EXPECT_EQ(
      parsed->messages.dump(),
      R"([{"role":"system","content":"be brief"},{"role":"user","content":"ab"},)"
      R"({"role":"assistant","content":null,"tool_calls":[{"id":"1"}],"reasoning_content":"hm"},)"
      R"({"role":"tool","content":"5","tool_call_id":"1"}])");
}

TEST(JsonBody, GarbageIsRefused) {
  for (const char* body : {"", "{", "[]", "null", "{\"a\":}", "{\"a\":\"\xff\"}", "{\"a\":1}x"}) {
    const auto parsed = parse_json_body(body);
    ASSERT_FALSE(parsed) << body;
    EXPECT_EQ(parsed.error().status, 400);
  }
}

TEST(JsonBody, DepthAndNumberOfValuesAreBounded) {
  const auto nested = [](int depth) {
    const auto count = static_cast<std::size_t>(depth);
    return "{\"a\":" + std::string(count, '[') + std::string(count, ']') + "}";
  };
  EXPECT_TRUE(parse_json_body(nested(kJsonDepthMax - 1)));
  EXPECT_EQ(parse_json_body(nested(kJsonDepthMax)).error().code, "json_too_deep");
  EXPECT_EQ(parse_json_body(nested(1 << 20)).error().code, "json_too_deep");
  // Brackets in strings are text.
  EXPECT_TRUE(parse_json_body("{\"a\":\"" + std::string(1000, '[') + "\\\"[[\"}"));
  std::string wide = "{\"a\":[0";
  for (int i = 0; i < kJsonValuesMax; ++i) wide += ",0";
  EXPECT_EQ(parse_json_body(wide + "]}").error().code, "json_too_large");
  EXPECT_EQ(parse_json_body(std::string(kTextBytesMax + 1, ' ')).error().status, 413);
}

TEST(ApiError, BodyIsOpenAis) {
  const ApiError error{.status = 400,
                       .message = "bad \xff",
                       .type = "invalid_request_error",
                       .param = "n",
                       .code = "c"};
  const auto body = nlohmann::json::parse(error_body(error));
  EXPECT_EQ(body["error"]["param"], "n");
  EXPECT_EQ(body["error"]["message"], "bad \xEF\xBF\xBD");
  EXPECT_TRUE(nlohmann::json::parse(error_body({}))["error"]["code"].is_null());
}

TEST(ApiError, LossOfARankIsARetryableServerError) {
  const ApiError error = to_api_error({ErrorCode::kPeerLost, "rank 2 died", 2});
  EXPECT_EQ(error.status, 503);
  EXPECT_EQ(error.type, "server_error");
  EXPECT_EQ(error.code, "peer_lost");
  EXPECT_GT(error.retry_after_seconds, 0);
  EXPECT_EQ(to_api_error({ErrorCode::kInvalidRequest, "", {}}).status, 400);
}

}  // namespace
}  // namespace sinew
