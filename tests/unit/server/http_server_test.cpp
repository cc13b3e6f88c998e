#include "server/http_server.h"

#include "unit/server/fixture.h"

namespace sinew::testing {
namespace {

std::vector<nlohmann::json> events_of(const std::string& body) {
  std::vector<nlohmann::json> events;
  std::size_t at = 0;
  while ((at = body.find("data: ", at)) != std::string::npos) {
    const auto end = body.find("\n\n", at);
    events.push_back(nlohmann::json::parse(body.substr(at + 6, end - at - 6), nullptr, false));
    at = end;
  }
  return events;
}

std::string text_of(const std::vector<nlohmann::json>& events) {
  std::string text;
  for (const auto& event : events) {
    if (event.is_discarded() || !event.contains("choices") || event["choices"].empty()) continue;
    text += event["choices"][0]["delta"].value("content", "");
  }
  return text;
}

bool ends_with_done(const std::string& body) {
  return body.ends_with("data: [DONE]\n\n");
}

TEST_F(ServerTest, WholeAnswer) {
  start();
  const Answer answer = chat(R"("model":"tiny","seed":5)");
  ASSERT_EQ(answer.status, 200) << answer.body;
  const auto body = answer.json();
  EXPECT_EQ(body["choices"][0]["message"]["content"], "Hello there, friend.");
  EXPECT_EQ(body["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(body["model"], "tiny");
  EXPECT_TRUE(body["id"].get<std::string>().starts_with("chatcmpl-"));
  EXPECT_EQ(body["usage"]["completion_tokens"], engine->answer.size());
  EXPECT_EQ(engine->last_request.sampling.seed, 5U);
  EXPECT_EQ(engine->last_request.sampling.temperature, 1.0F);
  EXPECT_FALSE(engine->last_request.end_tokens.empty());
}

TEST_F(ServerTest, PromptHasOneBos) {
  start();
  chat("");
  const auto& prompt = engine->last_request.prompt;
  ASSERT_FALSE(prompt.empty());
  EXPECT_EQ(prompt.front(), *tokenizer->bos());
  EXPECT_EQ(std::count(prompt.begin(), prompt.end(), *tokenizer->bos()), 1);
}

TEST_F(ServerTest, StreamedAnswer) {
  start();
  const Answer answer = chat(R"("stream":true,"stream_options":{"include_usage":true})");
  ASSERT_EQ(answer.status, 200);
  EXPECT_NE(answer.header.find("text/event-stream"), std::string::npos);
  EXPECT_TRUE(ends_with_done(answer.body));
  const auto events = events_of(answer.body);
  ASSERT_GT(events.size(), 4U);
  EXPECT_EQ(events.front()["choices"][0]["delta"]["role"], "assistant");
  EXPECT_EQ(text_of(events), "Hello there, friend.");
  EXPECT_EQ(events[events.size() - 3]["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(events[events.size() - 2]["usage"]["completion_tokens"], engine->answer.size());
}

TEST_F(ServerTest, StreamForHttp10_HasNoChunks) {
  start();
  const std::string body = chat_body(R"("stream":true)");
  const Answer answer =
      ask("POST /v1/chat/completions HTTP/1.0\r\nContent-Length: " + std::to_string(body.size()) +
          "\r\n\r\n" + body);
  EXPECT_EQ(answer.header.find("chunked"), std::string::npos);
  EXPECT_EQ(text_of(events_of(answer.body)), "Hello there, friend.");
  EXPECT_TRUE(ends_with_done(answer.body));
}

TEST_F(ServerTest, TokensMaxAndStopStringEndTheAnswer) {
  start();
  EXPECT_EQ(chat(R"("max_tokens":2)").json()["choices"][0]["finish_reason"], "length");
  const auto stopped = chat(R"("stop":"there")").json();
  EXPECT_EQ(stopped["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(stopped["choices"][0]["message"]["content"], "Hello ");
}

TEST_F(ServerTest, TooLongConversation_IsRefusedBeforeTheEngine) {
  start();
  std::string words;
  for (int i = 0; i < 200; ++i) words += "zebra ";
  const Answer answer =
      ask(post_chat(R"({"messages":[{"role":"user","content":")" + words + "\"}]}"));
  EXPECT_EQ(answer.status, 400);
  EXPECT_EQ(answer.json()["error"]["code"], "context_length_exceeded");
  EXPECT_EQ(engine->finished, 0);
}

TEST_F(ServerTest, BadRequestsAreRefused) {
  start();
  EXPECT_EQ(ask(post_chat("{")).status, 400);
  const auto other = chat(R"("model":"gpt")");
  EXPECT_EQ(other.status, 404);
  EXPECT_EQ(other.json()["error"]["code"], "model_not_found");
  const auto hot = chat(R"("temperature":-1)");
  EXPECT_EQ(hot.status, 400);
  EXPECT_EQ(hot.json()["error"]["param"], "temperature");
  EXPECT_EQ(chat(R"("top_k":99999999999)").json()["error"]["param"], "top_k");
}

TEST_F(ServerTest, EngineErrorBeforeTheFirstToken_IsAnHttpError) {
  engine->fails_at = 0;
  start();
  for (const char* stream : {"false", "true"}) {
    const Answer answer = chat(std::string("\"stream\":") + stream);
    EXPECT_EQ(answer.status, 503);
    EXPECT_EQ(answer.json()["error"]["code"], "peer_lost");
    EXPECT_NE(answer.header.find("Retry-After"), std::string::npos);
  }
}

TEST_F(ServerTest, EngineErrorInMidStream_IsAnEventAndThenTheEnd) {
  engine->fails_at = 2;
  start();
  const Answer answer = chat(R"("stream":true)");
  EXPECT_EQ(answer.status, 200);
  const auto events = events_of(answer.body);
  ASSERT_GE(events.size(), 2U);
  EXPECT_EQ(events[events.size() - 2]["error"]["code"], "peer_lost");
  EXPECT_TRUE(ends_with_done(answer.body));
}

TEST_F(ServerTest, LongPrefill_SendsCommentsAndThenAnErrorInBand) {
  options.keep_alive_interval = 30ms;
  engine->prefill_time = 200ms;
  engine->fails_at = 0;
  start();
  const Answer answer = chat(R"("stream":true)");
  EXPECT_EQ(answer.status, 200);
  EXPECT_TRUE(answer.body.starts_with(": keep-alive\n\n")) << answer.body;
  EXPECT_EQ(events_of(answer.body).front()["error"]["code"], "peer_lost");
  EXPECT_TRUE(ends_with_done(answer.body));
}

TEST_F(ServerTest, Disconnect_CancelsTheGeneration) {
  engine->endless = true;
  engine->token_time = 2ms;
  start();
  for (const char* stream : {"false", "true"}) {
    engine->cancelled = false;
    RawClient client(port());
    client.send(post_chat(chat_body(std::string("\"stream\":") + stream)));
    ASSERT_TRUE(eventually([&] { return engine->running == 1; }));
    std::this_thread::sleep_for(20ms);
    client.close();
    const auto left = std::chrono::steady_clock::now();
    EXPECT_TRUE(eventually([&] { return engine->cancelled.load(); }, 2s));
    EXPECT_LT(std::chrono::steady_clock::now() - left, 1s);
  }
}

TEST_F(ServerTest, DisconnectDuringPrefill_CancelsBeforeTheFirstToken) {
  engine->prefill_time = 20s;
  start();
  RawClient client(port());
  client.send(post_chat(chat_body(R"("stream":true)")));
  ASSERT_TRUE(eventually([&] { return engine->running == 1; }));
  client.close();
  EXPECT_TRUE(eventually([&] { return engine->cancelled.load(); }, 2s));
}

TEST_F(ServerTest, ClientThatNeverReads_IsGivenUp_OthersAreServed) {
  options.pending_bytes_max = 64 << 10;
  options.write_timeout = 300ms;
  engine->endless = true;
  start();
  RawClient stuck(port(), 2048);
  stuck.send(post_chat(chat_body(R"("stream":true)")));
  EXPECT_TRUE(eventually([&] { return engine->cancelled.load(); }));
  engine->endless = false;
  EXPECT_EQ(chat("").status, 200);
}

TEST_F(ServerTest, ClientThatReadsTooSlowly_MeetsTheWriteDeadline) {
  options.write_timeout = 200ms;
  options.pending_bytes_max = 1u << 30;
  engine->endless = true;
  start();
  RawClient stuck(port(), 2048);
  stuck.send(post_chat(chat_body(R"("stream":true)")));
  // The kernel takes some megabytes before a write has to wait: a while under a sanitizer.
  EXPECT_TRUE(eventually([&] { return engine->cancelled.load(); }, 60s));
}

TEST_F(ServerTest, FullLine_Gets429_AndTheLineIsServedInTheEnd) {
  options.waiting_max = 1;
  engine->prefill_time = 400ms;
  start();
  RawClient first(port());
  first.send(post_chat(chat_body("")));
  ASSERT_TRUE(eventually([&] { return engine->running == 1; }));
  RawClient second(port());
  second.send(post_chat(chat_body(R"("stream":true)")));
  ASSERT_TRUE(eventually([&] { return get("/health").json()["requests_waiting"] == 1; }));
  const Answer third = chat("");
  EXPECT_EQ(third.status, 429);
  EXPECT_EQ(third.json()["error"]["code"], "queue_full");
  EXPECT_NE(third.header.find("Retry-After"), std::string::npos);
  EXPECT_EQ(parse_answer(first.read_all()).status, 200);
  EXPECT_EQ(parse_answer(second.read_all()).status, 200);
}

TEST_F(ServerTest, Recovery_IsToldByHealthAndRequestsWaitForIt) {
  start();
  engine->mending = true;
  const Answer during = get("/health");
  EXPECT_EQ(during.status, 503);
  EXPECT_EQ(during.json()["status"], "recovering");
  EXPECT_EQ(during.json()["cause"], "rank 1 was killed");
  EXPECT_NE(during.header.find("Retry-After"), std::string::npos);
  EXPECT_EQ(chat("").status, 200) << "the engine lets it wait; it is not refused";
  engine->mending = false;
  EXPECT_EQ(get("/health").status, 200);
}

TEST_F(ServerTest, WhoLeavesTheLine_MakesRoom) {
  options.waiting_max = 1;
  engine->prefill_time = 500ms;
  start();
  RawClient first(port());
  first.send(post_chat(chat_body("")));
  ASSERT_TRUE(eventually([&] { return engine->running == 1; }));
  {
    RawClient second(port());
    second.send(post_chat(chat_body("")));
    ASSERT_TRUE(eventually([&] { return get("/health").json()["requests_waiting"] == 1; }));
  }
  std::this_thread::sleep_for(50ms);
  EXPECT_EQ(chat("").status, 200);
  EXPECT_EQ(engine->finished, 2);
}

TEST_F(ServerTest, ManyClientsAtOnce_GetTheirOwnAnswers) {
  options.waiting_max = 64;
  start();
  std::atomic<int> good{0};
  std::vector<std::thread> clients;
  for (int i = 0; i < 16; ++i) {
    clients.emplace_back([&, i] {
      const Answer answer = chat(i % 2 == 0 ? R"("stream":true)" : "");
      const std::string text = i % 2 == 0
                                   ? text_of(events_of(answer.body))
                                   : answer.json()["choices"][0]["message"].value("content", "");
      if (text == "Hello there, friend.") ++good;
    });
  }
  for (auto& client : clients) client.join();
  EXPECT_EQ(good, 16);
}

TEST_F(ServerTest, Stop_EndsARunningStreamWithAnError) {
  engine->endless = true;
  engine->token_time = 2ms;
  start();
  RawClient client(port());
  client.send(post_chat(chat_body(R"("stream":true)")));
  client.read_until([](const std::string& got) { return got.find("data:") != std::string::npos; });
  server->stop();
  const Answer answer = parse_answer(client.read_all());
  EXPECT_TRUE(ends_with_done(answer.body));
  const auto events = events_of(answer.body);
  EXPECT_EQ(events[events.size() - 2]["error"]["code"], "cancelled");
}

TEST_F(ServerTest, RunUntil_ReturnsWhenTold) {
  start();
  std::atomic<bool> stopped{false};
  std::thread runner([&] { server->run_until([&] { return stopped.load(); }); });
  EXPECT_EQ(get("/health").status, 200);
  stopped = true;
  runner.join();
}

TEST_F(ServerTest, PortInUse_IsOneErrorWithARemedy) {
  start();
  options.port = port();
  const auto second =
      Server::start(options, {"tiny", *engine, *tokenizer, *chat_template, 1700000000});
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, ErrorCode::kIo);
  EXPECT_NE(second.error().message.find("choose another port"), std::string::npos);
}

TEST_F(ServerTest, WrongOptions_AreUsageErrors) {
  const ServedModel model{"tiny", *engine, *tokenizer, *chat_template, 1700000000};
  const auto code_of = [&](const ServerOptions& wrong) {
    const auto started = Server::start(wrong, model);
    return started ? ErrorCode::kInternal : started.error().code;
  };
  EXPECT_EQ(code_of({.host = "no such host"}), ErrorCode::kUsage);
  EXPECT_EQ(code_of({.port = 70000}), ErrorCode::kUsage);
  EXPECT_EQ(code_of({.host = "0.0.0.0", .port = 0}), ErrorCode::kUsage);  // without a key
  EXPECT_EQ(code_of({.port = 0, .waiting_max = 0}), ErrorCode::kUsage);
}

}  // namespace
}  // namespace sinew::testing
