// The only file that knows the HTTP library. A connection reads one request at a time and either
// answers at once or hands the buffer of a chat answer to the engine's thread, which fills it; the
// HTTP thread alone touches the socket.
#include "server/http_server.h"

#include <fmt/format.h>

#include <array>
#include <atomic>
#include <boost/asio.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <mutex>
#include <optional>
#include <random>
#include <thread>
#include <utility>

#include "base/bytes.h"
#include "base/limits.h"
#include "server/answer_buffer.h"
#include "server/request_queue.h"
#include "server/routes.h"

namespace sinew {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using asio::ip::tcp;
using boost::system::error_code;
using std::chrono::milliseconds;

constexpr std::uint32_t kHeaderBytesMax = 32 << 10;
constexpr std::size_t kReadBufferBytesMax = kHeaderBytesMax + (64u << 10);
constexpr milliseconds kLingerTimeout{
    2000};  // for a client to read the last answer before the port closes
constexpr milliseconds kAcceptPause{100};  // after an accept that failed: no descriptors, mostly
constexpr int kQueueFullRetrySeconds = 2;

ApiError http_error(int status, std::string message, const char* code) {
  return {.status = status,
          .message = std::move(message),
          .type = "invalid_request_error",
          .code = code};
}

// What all connections share. Outlives them: the io context that holds their handlers is its
// member.
struct ServerCore {
  ServerOptions options;
  asio::io_context io{1};
  std::unique_ptr<Routes> routes;
  std::unique_ptr<RequestQueue> queue;
  std::atomic<bool> stopping{false};
  std::atomic<std::size_t> connections{0};
  std::atomic<std::size_t> unanswered{0};
};

// Owned by its pending handlers, so it lives on the HTTP thread and ends with the last of them. The
// engine's thread holds only the answer's buffer.
class Connection final : public std::enable_shared_from_this<Connection> {
 public:
  Connection(ServerCore& core, tcp::socket socket)
      : core_(core), stream_(std::move(socket)), timer_(core.io) {
    ++core_.connections;
  }
  ~Connection() {
    close();
    --core_.connections;
  }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  void start() { read_request(); }
  // Answers without a look at the request, then closes.
  void refuse(const ApiError& error);

 private:
  void read_request();
  void on_header(error_code error);
  void read_body(error_code error);
  void on_request(error_code error);
  void refuse_unread(error_code error);
  std::shared_ptr<AnswerBuffer> begin_answer(AnswerForm form);
  void submit(ChatAnswerer::Job job);
  void drain();
  void keep_alive_later();
  void flush();
  void after_answer();
  void close();

  ServerCore& core_;
  beast::tcp_stream stream_;
  asio::steady_timer timer_;
  beast::flat_buffer buffer_{kReadBufferBytesMax};
  std::optional<http::request_parser<http::string_body>> parser_;
  std::shared_ptr<AnswerBuffer> answer_;  // shared with the line of requests
  std::string in_flight_;                 // what the pending write reads
  std::array<char, 4096> discarded_{};
  bool unanswered_ = false;
  bool draining_ = false;
  bool writing_ = false;
};

std::shared_ptr<AnswerBuffer> Connection::begin_answer(AnswerForm form) {
  form.pending_bytes_max = core_.options.pending_bytes_max;
  answer_ = std::make_shared<AnswerBuffer>(
      std::move(form), [weak = weak_from_this(), executor = core_.io.get_executor()] {
        asio::post(executor, [weak] {
          if (const auto self = weak.lock()) self->flush();
        });
      });
  if (!std::exchange(unanswered_, true)) ++core_.unanswered;
  return answer_;
}

void Connection::refuse(const ApiError& error) {
  begin_answer({})->reply(reply_of(error));
  flush();
}

void Connection::read_request() {
  parser_.emplace();
  parser_->header_limit(kHeaderBytesMax);
  parser_->body_limit(kTextBytesMax);
  stream_.expires_after(core_.options.request_timeout);
  http::async_read_header(
      stream_, buffer_, *parser_,
      [self = shared_from_this()](error_code error, std::size_t) { self->on_header(error); });
}

void Connection::on_header(error_code error) {
  if (error) return refuse_unread(error);
  const auto& header = parser_->get();
  if (header.version() < 11 || !beast::iequals(header[http::field::expect], "100-continue"))
    return read_body({});
  // curl waits for this before it sends a long body.
  static constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
  asio::async_write(
      stream_, asio::buffer(kContinue),
      [self = shared_from_this()](error_code failed, std::size_t) { self->read_body(failed); });
}

void Connection::read_body(error_code error) {
  if (error) return close();
  http::async_read(
      stream_, buffer_, *parser_,
      [self = shared_from_this()](error_code failed, std::size_t) { self->on_request(failed); });
}

// A request that could not be read: an answer if the client is still there to get it.
void Connection::refuse_unread(error_code error) {
  const bool answerable = error.category() == make_error_code(http::error::bad_method).category() &&
                          error != http::error::end_of_stream &&
                          error != http::error::partial_message;
  if (!answerable) return close();
  if (error == http::error::body_limit)
    return refuse(http_error(
        413, fmt::format("the request body is larger than {}", format_bytes(kTextBytesMax)),
        "body_too_large"));
  if (error == http::error::header_limit || error == http::error::buffer_overflow)
    return refuse(http_error(
        431, fmt::format("the HTTP header is larger than {}", format_bytes(kHeaderBytesMax)),
        "header_too_large"));
  refuse(
      http_error(400, fmt::format("this is not an HTTP request: {}", error.message()), "bad_http"));
}

void Connection::on_request(error_code error) {
  if (error) return refuse_unread(error);
  auto message = parser_->release();
  const HttpRequest request{.method = std::string(message.method_string()),
                            .target = std::string(message.target()),
                            .host = std::string(message[http::field::host]),
                            .origin = std::string(message[http::field::origin]),
                            .authorization = std::string(message[http::field::authorization]),
                            .body = std::move(message.body())};
  AnswerForm form{.version = message.version(),
                  .head = request.method == "HEAD",
                  .cors = core_.routes->cors_headers(request)};
  if (request.host.empty() && form.version >= 11)
    return refuse(http_error(400, "the Host header is missing", "bad_http"));
  auto outcome = core_.routes->handle(request);
  const auto* reply = std::get_if<HttpReply>(&outcome);
  // While a chat answer is made, the connection is watched for the client's leave: it carries no
  // other request.
  form.keep_alive = reply != nullptr && message.keep_alive() && !core_.stopping.load();
  begin_answer(std::move(form));
  if (reply == nullptr) return submit(std::get<ChatAnswerer::Job>(std::move(outcome)));
  answer_->reply(*reply);
  flush();
}

void Connection::submit(ChatAnswerer::Job job) {
  const bool streamed = job.request.stream;
  stream_.expires_never();
  drain();
  if (streamed) keep_alive_later();
  if (core_.queue->push({std::move(job), answer_})) return;
  answer_->fail({.status = 429,
                 .message = fmt::format("{} requests are waiting already: try again later",
                                        core_.options.waiting_max),
                 .type = "rate_limit_error",
                 .code = "queue_full",
                 .retry_after_seconds = kQueueFullRetrySeconds});
}

// Reads and drops what comes until the client leaves: the only sign that an answer is not wanted
// any more.
void Connection::drain() {
  if (std::exchange(draining_, true)) return;
  stream_.async_read_some(asio::buffer(discarded_),
                          [self = shared_from_this()](error_code error, std::size_t) {
                            self->draining_ = false;
                            if (error) return self->close();
                            self->drain();
                          });
}

void Connection::keep_alive_later() {
  timer_.expires_after(core_.options.keep_alive_interval);
  timer_.async_wait([self = shared_from_this()](error_code error) {
    if (error || !self->answer_->wanted() || !self->answer_->keep_alive()) return;
    self->flush();
    self->keep_alive_later();
  });
}

void Connection::flush() {
  if (!answer_) return;
  if (!answer_->wanted()) return close();
  if (writing_) return;
  AnswerBuffer::Output output = answer_->take();
  in_flight_ = std::move(output.bytes);
  if (in_flight_.empty()) {
    if (output.complete) after_answer();
    return;
  }
  writing_ = true;
  stream_.expires_after(core_.options.write_timeout);
  asio::async_write(stream_, asio::buffer(in_flight_),
                    [self = shared_from_this()](error_code error, std::size_t) {
                      self->writing_ = false;
                      if (error) return self->close();
                      self->flush();
                    });
}

void Connection::after_answer() {
  const bool closes = answer_->closes_connection();
  answer_.reset();
  if (std::exchange(unanswered_, false)) --core_.unanswered;
  if (!closes) return read_request();
  // Closing now could take the answer's tail away from a client that is still sending.
  error_code ignored;
  stream_.socket().shutdown(tcp::socket::shutdown_send, ignored);
  stream_.expires_never();
  timer_.expires_after(kLingerTimeout);
  timer_.async_wait([self = shared_from_this()](error_code error) {
    if (!error) self->close();
  });
  drain();
}

void Connection::close() {
  if (answer_) answer_->abandon();
  if (std::exchange(unanswered_, false)) --core_.unanswered;
  timer_.cancel();
  error_code ignored;
  stream_.socket().close(ignored);
}

std::uint64_t random_number() {
  static thread_local std::random_device device;
  return static_cast<std::uint64_t>(device()) << 32 | device();
}

std::int64_t now_seconds() {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

Result<tcp::endpoint> endpoint_of(const ServerOptions& options) {
  if (options.port < 0 || options.port > 65535)
    return fail(ErrorCode::kUsage, "the port must be from 0 to 65535, but is {}", options.port);
  error_code error;
  const auto address =
      asio::ip::make_address(options.host == "localhost" ? "127.0.0.1" : options.host, error);
  if (error)
    return fail(ErrorCode::kUsage,
                "'{}' is not an address: give an IP address of this machine, such as 127.0.0.1, or "
                "0.0.0.0 for all of them",
                options.host);
  if (!address.is_loopback() && options.api_key.empty())
    return fail(ErrorCode::kUsage,
                "{} can be reached from other machines: set an API key, or listen on 127.0.0.1",
                options.host);
  return tcp::endpoint(address, static_cast<std::uint16_t>(options.port));
}

Status open_port(tcp::acceptor& acceptor, const tcp::endpoint& endpoint) {
  error_code error;
  acceptor.open(endpoint.protocol(), error);
  if (!error) acceptor.set_option(tcp::acceptor::reuse_address(true), error);
  if (!error) acceptor.bind(endpoint, error);
  if (!error) acceptor.listen(asio::socket_base::max_listen_connections, error);
  if (!error) return {};
  const std::string place = fmt::format("{}:{}", endpoint.address().to_string(), endpoint.port());
  if (error == asio::error::address_in_use)
    return fail(ErrorCode::kIo,
                "{} is in use by another program: choose another port, or 0 for any free one",
                place);
  if (error == asio::error::access_denied)
    return fail(ErrorCode::kIo, "{} may not be used: choose a port from 1024 up", place);
  return fail(ErrorCode::kIo, "cannot listen on {}: {}", place, error.message());
}

}  // namespace

class Server::Impl {
 public:
  Impl(const ServerOptions& options, const ServedModel& model)
      : answerer_(model, core_.stopping), acceptor_(core_.io), pause_(core_.io) {
    core_.options = options;
  }

  Status start(const ServedModel& model) {
    const ServerOptions& options = core_.options;
    SINEW_TRY(check_sampling(options.sampling));
    if (options.waiting_max == 0)
      return fail(ErrorCode::kUsage, "the line of waiting requests must have room for one");
    SINEW_ASSIGN(const tcp::endpoint endpoint, endpoint_of(options));
    SINEW_TRY(open_port(acceptor_, endpoint));
    port_ = acceptor_.local_endpoint().port();
    const std::string host = endpoint.address().to_string();
    url_ = endpoint.address().is_v6() ? fmt::format("http://[{}]:{}", host, port_)
                                      : fmt::format("http://{}:{}", host, port_);

    core_.queue = std::make_unique<RequestQueue>(
        options.waiting_max,
        [this](const ChatAnswerer::Job& job, AnswerSink& sink) { answerer_.answer(job, sink); });
    core_.routes = std::make_unique<Routes>(
        model,
        AccessRules{.loopback_only = endpoint.address().is_loopback(),
                    .api_key = options.api_key,
                    .allowed_hosts = options.allowed_hosts,
                    .allowed_origins = options.allowed_origins},
        options.sampling,
        RouteSources{now_seconds, random_number, [this] { return core_.queue->waiting(); }});
    accept();
    thread_ = std::thread([this] { core_.io.run(); });
    return {};
  }

  void run_until(const std::function<bool()>& stopped) {
    while (!core_.stopping.load() && !stopped()) std::this_thread::sleep_for(milliseconds(100));
    stop();
  }

  void stop() {
    const std::lock_guard lock(stop_mutex_);
    core_.stopping = true;
    if (!thread_.joinable()) return;
    asio::post(core_.io, [this] {
      error_code ignored;
      acceptor_.close(ignored);
      pause_.cancel();
    });
    core_.queue->close();
    const auto deadline = std::chrono::steady_clock::now() + core_.options.stop_timeout;
    while (core_.unanswered.load() > 0 && std::chrono::steady_clock::now() < deadline)
      std::this_thread::sleep_for(milliseconds(5));
    core_.io.stop();
    thread_.join();
  }

  int port() const { return port_; }
  const std::string& url() const { return url_; }

 private:
  void accept() {
    acceptor_.async_accept([this](error_code error, tcp::socket socket) {
      if (core_.stopping.load()) return;
      if (error) {
        pause_.expires_after(kAcceptPause);
        pause_.async_wait([this](error_code cancelled) {
          if (!cancelled) accept();
        });
        return;
      }
      error_code ignored;
      socket.set_option(tcp::no_delay(true), ignored);
      const bool full = core_.connections.load() >= core_.options.connections_max;
      const auto connection = std::make_shared<Connection>(core_, std::move(socket));
      if (full) {
        connection->refuse({.status = 503,
                            .message = "too many connections are open",
                            .code = "too_many_connections",
                            .retry_after_seconds = kQueueFullRetrySeconds});
      } else {
        connection->start();
      }
      accept();
    });
  }

  ServerCore core_;
  ChatAnswerer answerer_;
  tcp::acceptor acceptor_;
  asio::steady_timer pause_;
  std::mutex stop_mutex_;
  std::thread thread_;
  int port_ = 0;
  std::string url_;
};

Result<std::unique_ptr<Server>> Server::start(const ServerOptions& options,
                                              const ServedModel& model) {
  auto impl = std::make_unique<Impl>(options, model);
  SINEW_TRY(impl->start(model));
  return std::unique_ptr<Server>(new Server(std::move(impl)));
}

Server::Server(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Server::~Server() {
  impl_->stop();
}
int Server::port() const {
  return impl_->port();
}
const std::string& Server::url() const {
  return impl_->url();
}
void Server::run_until(const std::function<bool()>& stopped) {
  impl_->run_until(stopped);
}
void Server::stop() {
  impl_->stop();
}

}  // namespace sinew
