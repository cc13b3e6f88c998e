// The server against clients that are slow, broken or malicious.
#include <vector>

#include "sample/random.h"
#include "unit/server/fixture.h"

namespace sinew::testing {
namespace {

TEST_F(ServerTest, Garbage_Gets400_AndTheServerLives) {
  start();
  for (const std::string bytes : {"GARBAGE\r\n\r\n", "GET\r\n\r\n", "\x16\x03\x01\x02\r\n\r\n",
                                  "GET / HTTP/9.9\r\n\r\n", "GET / HTTP/1.1\r\nno colon\r\n\r\n"}) {
    const Answer answer = ask(bytes);
    EXPECT_EQ(answer.status, 400) << bytes;
    EXPECT_EQ(answer.json()["error"]["code"], "bad_http");
  }
  EXPECT_EQ(get("/health").status, 200);
}

TEST_F(ServerTest, RandomBytes_DoNotKillTheServer) {
  start();
  const std::string good = post_chat(chat_body(""));
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    std::string bytes = good;
    for (std::uint64_t i = 0; i < 4; ++i) {
      bytes[random_bits(seed, 2 * i) % bytes.size()] =
          static_cast<char>(random_bits(seed, 2 * i + 1));
    }
    RawClient client(port());
    client.send(bytes);
    client.send("\r\n\r\n");
    client.close();
  }
  EXPECT_EQ(get("/health").status, 200);
}

TEST_F(ServerTest, OversizeBody_Gets413WithoutBeingRead) {
  start();
  const Answer announced =
      ask("POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: "
          "99999999999\r\n\r\n");
  EXPECT_EQ(announced.status, 413);
  EXPECT_EQ(announced.json()["error"]["code"], "body_too_large");
}

TEST_F(ServerTest, OversizeHeader_Gets431) {
  start();
  EXPECT_EQ(
      ask("GET /health HTTP/1.1\r\nHost: localhost\r\nX: " + std::string(100000, 'x') + "\r\n\r\n")
          .status,
      431);
}

TEST_F(ServerTest, SlowRequest_IsCutOff) {
  options.request_timeout = 200ms;
  start();
  for (const std::string& start_of_request :
       {std::string(), std::string("GET /hea"),
        std::string("POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: "
                    "100\r\n\r\n{")}) {
    RawClient client(port());
    client.send(start_of_request);
    client.read_all(3s);  // fails if the server does not close in time
  }
}

TEST_F(ServerTest, TooManyConnections_Get503) {
  options.connections_max = 2;
  start();
  RawClient one(port());
  RawClient two(port());
  ASSERT_TRUE(eventually([&] { return get("/health").status == 503; }));
  one.close();
  EXPECT_TRUE(eventually([&] { return get("/health").status == 200; }));
}

TEST_F(ServerTest, ExpectContinue_IsAnswered) {
  start();
  const std::string body = chat_body("");
  RawClient client(port());
  client.send(
      "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\n"
      "Content-Length: " +
      std::to_string(body.size()) + "\r\n\r\n");
  const std::string interim = "HTTP/1.1 100 Continue\r\n\r\n";
  EXPECT_EQ(client.read_until([&](const std::string& got) { return got.size() >= interim.size(); }),
            interim);
  client.send(body);
  EXPECT_EQ(parse_answer(client.read_all().substr(interim.size())).status, 200);
}

TEST_F(ServerTest, KeepAlive_ServesSeveralRequests) {
  start();
  RawClient client(port());
  for (std::size_t i = 1; i <= 3; ++i) {
    client.send("GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n");
    client.read_until([&](const std::string& got) {
      std::size_t count = 0;
      for (std::size_t at = 0; (at = got.find("\"list\"", at)) != std::string::npos; ++at) ++count;
      return count == i && got.ends_with("}");
    });
  }
}

TEST_F(ServerTest, Paths_Methods_AndHead) {
  start();
  EXPECT_EQ(get("/nowhere").status, 404);
  EXPECT_EQ(get("/nowhere").json()["error"]["code"], "unknown_url");
  const Answer wrong = get("/v1/chat/completions");
  EXPECT_EQ(wrong.status, 405);
  EXPECT_NE(wrong.header.find("Allow: POST"), std::string::npos);
  EXPECT_EQ(get("/v1/models?x=1").json()["data"][0]["id"], "tiny");
  EXPECT_EQ(get("/v1/models/t%69ny").json()["id"], "tiny");
  EXPECT_EQ(get("/v1/models/other").status, 404);
  EXPECT_EQ(get("/v1/models/%zz").status, 404);
  const Answer head =
      ask("HEAD /v1/models HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
  EXPECT_EQ(head.status, 200);
  EXPECT_TRUE(head.body.empty());
}

TEST_F(ServerTest, Health_TellsWhyNot) {
  start();
  EXPECT_EQ(get("/health").json()["status"], "ok");
  engine->sick = true;
  const Answer answer = get("/health");
  EXPECT_EQ(answer.status, 503);
  EXPECT_EQ(answer.json()["error"]["message"], "rank 1 died");
  EXPECT_EQ(chat("").status, 503);
}

TEST_F(ServerTest, ForeignHostOrOrigin_IsRefusedOnLoopback) {
  start();
  const auto with_host = [&](const std::string& host) {
    return ask("GET /v1/models HTTP/1.1\r\nHost: " + host + "\r\nConnection: close\r\n\r\n").status;
  };
  EXPECT_EQ(with_host("evil.example:80"), 403);
  EXPECT_EQ(with_host("127.0.0.1.evil.example"), 403);
  EXPECT_EQ(with_host("LocalHost:1234"), 200);
  EXPECT_EQ(with_host("[::1]:80"), 200);
  EXPECT_EQ(with_host("127.0.0.1:80"), 200);
  EXPECT_EQ(get("/v1/models", "Origin: https://evil.example\r\n").status, 403);
  EXPECT_EQ(get("/v1/models", "Origin: null\r\n").status, 403);
  const Answer local = get("/v1/models", "Origin: http://localhost:3000\r\n");
  EXPECT_EQ(local.status, 200);
  EXPECT_NE(local.header.find("Access-Control-Allow-Origin: http://localhost:3000"),
            std::string::npos);
}

TEST_F(ServerTest, Preflight_IsAnsweredForLocalPages) {
  options.api_key = "secret";
  start();
  const Answer answer =
      ask("OPTIONS /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nOrigin: "
          "http://127.0.0.1:8000\r\n"
          "Access-Control-Request-Method: POST\r\nConnection: close\r\n\r\n");
  EXPECT_EQ(answer.status, 204);
  EXPECT_NE(answer.header.find("Access-Control-Allow-Methods: GET, HEAD, POST"), std::string::npos);
}

TEST_F(ServerTest, ApiKey_IsAskedFor) {
  options.api_key = "secret";
  start();
  EXPECT_EQ(get("/v1/models").status, 401);
  EXPECT_EQ(get("/v1/models", "Authorization: Bearer wrong\r\n").status, 401);
  EXPECT_EQ(get("/v1/models", "Authorization: Bearer secretsecret\r\n").status, 401);
  EXPECT_EQ(get("/v1/models", "Authorization: bearer secret\r\n").status, 200);
  EXPECT_EQ(get("/health").status, 200);
}

}  // namespace
}  // namespace sinew::testing
