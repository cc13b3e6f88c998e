// The server tests' own client and fake engine.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "unit/server/fixture.h"

namespace sinew::testing {

RawClient::RawClient(int port, int receive_buffer) {
  descriptor_ = ::socket(AF_INET, SOCK_STREAM, 0);
  if (receive_buffer > 0)
    ::setsockopt(descriptor_, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof receive_buffer);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(::connect(descriptor_, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
}

RawClient::~RawClient() {
  close();
}

void RawClient::close() {
  if (descriptor_ >= 0) ::close(descriptor_);
  descriptor_ = -1;
}

void RawClient::send(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(descriptor_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) return;  // the server refused and left: its answer tells
    bytes.remove_prefix(static_cast<std::size_t>(sent));
  }
}

std::string RawClient::read_until(const std::function<bool(const std::string&)>& enough,
                                  std::chrono::milliseconds limit) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  while (!enough(received_)) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        deadline - std::chrono::steady_clock::now());
    pollfd waiting{descriptor_, POLLIN, 0};
    if (left.count() <= 0 || ::poll(&waiting, 1, static_cast<int>(left.count())) <= 0) {
      ADD_FAILURE() << "no answer in time, only: " << received_;
      break;
    }
    char buffer[4096];
    const ssize_t count = ::recv(descriptor_, buffer, sizeof buffer, 0);
    if (count <= 0) break;
    received_.append(buffer, static_cast<std::size_t>(count));
  }
  return received_;
}

Answer parse_answer(const std::string& bytes) {
  Answer answer;
  const auto end = bytes.find("\r\n\r\n");
  if (end == std::string::npos || bytes.size() < 12) return answer;
  answer.header = bytes.substr(0, end + 2);
  answer.status = std::stoi(bytes.substr(9, 3));
  std::string_view rest = std::string_view(bytes).substr(end + 4);
  if (answer.header.find("chunked") == std::string::npos) {
    answer.body = rest;
    return answer;
  }
  while (!rest.empty()) {
    const std::size_t size = std::stoul(std::string(rest.substr(0, 16)), nullptr, 16);
    rest.remove_prefix(std::min(rest.size(), rest.find("\r\n") + 2));
    if (size == 0) break;
    answer.body += rest.substr(0, size);
    rest.remove_prefix(std::min(rest.size(), size + 2));
  }
  return answer;
}

std::string post_chat(const std::string& body, const std::string& headers) {
  return "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n" +
         headers + "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
}

bool eventually(const std::function<bool()>& condition, std::chrono::milliseconds limit) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(2ms);
  }
  return true;
}

void ServerTest::SetUp() {
  const auto file =
      ModelFile::open(std::string(SINEW_SOURCE_DIR) + "/models/tiny/sinew-tiny-q8_0.gguf");
  ASSERT_TRUE(file) << file.error().message;
  const Metadata& metadata = file->directory.metadata();
  auto made = Tokenizer::from_metadata(metadata);
  ASSERT_TRUE(made) << made.error().message;
  tokenizer = std::make_unique<Tokenizer>(std::move(*made));
  const auto text_of = [&](std::optional<TokenId> token) {
    return token ? tokenizer->piece(*token) : std::string();
  };
  auto parsed = ChatTemplate::parse(*metadata.string("tokenizer.chat_template"),
                                    text_of(tokenizer->bos()), text_of(tokenizer->eos()));
  ASSERT_TRUE(parsed) << parsed.error().message;
  chat_template = std::make_unique<ChatTemplate>(std::move(*parsed));
  engine = std::make_unique<FakeEngine>(*tokenizer);
  options.port = 0;
}

void ServerTest::start() {
  auto started = Server::start(options, {"tiny", *engine, *tokenizer, *chat_template, 1700000000});
  ASSERT_TRUE(started) << started.error().message;
  server = std::move(*started);
}

}  // namespace sinew::testing
