#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "base/result.h"
#include "sample/sampler.h"
#include "server/access.h"
#include "server/served_model.h"

namespace sinew {

struct ServerOptions {
  std::string host = "127.0.0.1";  // an address of this machine, or "localhost"
  int port = 8080;                 // 0: any free one
  std::string api_key = {};        // required where the address is not loopback
  std::vector<std::string> allowed_hosts = {};
  std::vector<std::string> allowed_origins = {};

  // For requests that do not say: OpenAI's defaults.
  SamplingParams sampling = {.temperature = 1.0F};

  std::size_t waiting_max = 16;       // requests in line behind the running one; more get HTTP 429
  std::size_t connections_max = 128;  // more get HTTP 503
  // A client that reads nothing for `write_timeout`, or leaves `pending_bytes_max` of a stream
  // unread, is given up.
  std::size_t pending_bytes_max = 4u << 20;
  std::chrono::milliseconds request_timeout{
      30000};  // to send a request; also the idle time between two
  std::chrono::milliseconds write_timeout{30000};
  std::chrono::milliseconds keep_alive_interval{
      15000};                                    // comments in a stream that has nothing to say
  std::chrono::milliseconds stop_timeout{3000};  // for last answers to reach their clients
};

// The HTTP API of one loaded model: OpenAI's chat completions (whole and streamed) and model list,
// and /health.
//
// Threads: one for all connections, one that owns the engine. Public calls may come from any
// thread.
class Server {
 public:
  // Listening when it returns. kUsage for an address that is not an IP address or a key that is
  // missing, kIo if the port is taken; the model must outlive the server.
  static Result<std::unique_ptr<Server>> start(const ServerOptions& options,
                                               const ServedModel& model);
  ~Server();  // stops

  int port() const;
  // "http://127.0.0.1:8080"
  const std::string& url() const;

  // Blocks until `stopped` is true (looked at ten times a second, so a signal handler may set it)
  // or stop() is called, then stops.
  void run_until(const std::function<bool()>& stopped);

  // Ends running answers with an error that says so, then closes everything. Waits for the engine's
  // present step.
  void stop();

 private:
  class Impl;
  explicit Server(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace sinew
