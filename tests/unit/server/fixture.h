#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

#include "host/model_file.h"
#include "server/http_server.h"

namespace sinew::testing {

using namespace std::chrono_literals;

// An engine that says a given text, as fast as told, and can fail or wait on the way.
class FakeEngine final : public Engine {
 public:
  explicit FakeEngine(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {
    say("Hello there, friend.");
  }

  void say(std::string_view text) { answer = *tokenizer_.encode(text, {}); }
  std::int64_t context() const override { return 128; }
  int vocabulary_size() const override { return tokenizer_.vocabulary_size(); }
  Status health() const override {
    if (sick) return fail(ErrorCode::kPeerLost, "rank 1 died");
    return {};
  }

  Result<GenerationResult> generate(const GenerationRequest& request,
                                    const std::function<bool(TokenId)>& on_token,
                                    const std::function<bool()>& wanted) override {
    last_request = request;
    ++running;
    const auto result = speak(request, on_token, wanted);
    --running;
    ++finished;
    return result;
  }

  std::optional<Error> recovering() const override {
    if (!mending) return std::nullopt;
    return Error{ErrorCode::kPeerLost, "rank 1 was killed", 1};
  }

  std::vector<TokenId> answer;
  bool endless = false;                 // repeats the answer for ever
  std::optional<std::size_t> fails_at;  // kPeerLost before the token of this index
  std::chrono::milliseconds token_time{0};
  std::chrono::milliseconds prefill_time{0};
  std::atomic<bool> sick{false};
  std::atomic<bool> mending{false};  // a rank, for the moment
  std::atomic<int> running{0};
  std::atomic<int> finished{0};
  std::atomic<bool> cancelled{false};
  GenerationRequest last_request;

 private:
  Result<GenerationResult> speak(const GenerationRequest& request,
                                 const std::function<bool(TokenId)>& on_token,
                                 const std::function<bool()>& wanted) {
    GenerationResult result;
    result.prompt_tokens = static_cast<std::int64_t>(request.prompt.size());
    const auto prefilled = std::chrono::steady_clock::now() + prefill_time;
    while (std::chrono::steady_clock::now() < prefilled) {
      if (!wanted()) {
        cancelled = true;
        result.reason = FinishReason::kCancelled;
        return result;
      }
      std::this_thread::sleep_for(10ms);
    }
    for (std::size_t i = 0; endless || i < answer.size(); ++i) {
      if (fails_at == i) return fail(ErrorCode::kPeerLost, "rank 1 died: start it again");
      if (!endless && result.answer_tokens == request.tokens_max) {
        result.reason = FinishReason::kLength;
        return result;
      }
      std::this_thread::sleep_for(token_time);
      ++result.answer_tokens;
      if (!on_token(answer[i % answer.size()])) {
        cancelled = true;
        result.reason = FinishReason::kCancelled;
        return result;
      }
    }
    if (fails_at == answer.size()) return fail(ErrorCode::kPeerLost, "rank 1 died: start it again");
    return result;
  }

  const Tokenizer& tokenizer_;
};

// A TCP client without an HTTP library, so that it can misbehave. Every wait has a deadline.
class RawClient {
 public:
  explicit RawClient(int port, int receive_buffer = 0);
  ~RawClient();
  RawClient(const RawClient&) = delete;
  RawClient& operator=(const RawClient&) = delete;

  void send(std::string_view bytes);
  // Until the server closes, `enough` is content, or the deadline passes (a test failure).
  std::string read_until(const std::function<bool(const std::string&)>& enough,
                         std::chrono::milliseconds limit = 5s);
  std::string read_all(std::chrono::milliseconds limit = 5s) {
    return read_until([](const std::string&) { return false; }, limit);
  }
  void close();

 private:
  int descriptor_ = -1;
  std::string received_;
};

struct Answer {
  int status = 0;
  std::string header;
  std::string body;  // chunks joined
  nlohmann::json json() const { return nlohmann::json::parse(body, nullptr, false); }
};
Answer parse_answer(const std::string& bytes);

std::string post_chat(const std::string& body, const std::string& headers = "");

bool eventually(const std::function<bool()>& condition, std::chrono::milliseconds limit = 5s);

class ServerTest : public ::testing::Test {
 protected:
  void SetUp() override;
  void start();
  int port() const { return server->port(); }

  Answer ask(const std::string& request) {
    RawClient client(port());
    client.send(request);
    return parse_answer(client.read_all());
  }
  Answer chat(const std::string& fields) { return ask(post_chat(chat_body(fields))); }
  Answer get(const std::string& path, const std::string& headers = "") {
    return ask("GET " + path + " HTTP/1.1\r\nHost: localhost\r\n" + headers +
               "Connection: close\r\n\r\n");
  }
  static std::string chat_body(const std::string& fields) {
    return R"({"messages":[{"role":"user","content":"hi"}])" +
           (fields.empty() ? "" : "," + fields) + "}";
  }

  std::unique_ptr<Tokenizer> tokenizer;
  std::unique_ptr<ChatTemplate> chat_template;
  std::unique_ptr<FakeEngine> engine;
  ServerOptions options;
  std::unique_ptr<Server> server;
};

}  // namespace sinew::testing
