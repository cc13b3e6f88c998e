#pragma once

#include <poll.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "host/process.h"

namespace sinew {

// The agent's door for commands of the same user on the same machine: a Unix socket in the state
// folder (mode 0700, so no other user gets to it). One line asks, everything up to the end of the
// stream answers.
class ControlSocket {
 public:
  static constexpr std::size_t kRequestMax = 4096;
  static constexpr std::size_t kClientsMax = 8;
  static constexpr std::chrono::seconds kClientTime{3};

  // Replaces a socket that a dead agent left: call with the folder's lock held.
  static Result<std::unique_ptr<ControlSocket>> create(const std::string& path);
  ~ControlSocket();
  ControlSocket(const ControlSocket&) = delete;
  ControlSocket& operator=(const ControlSocket&) = delete;

  void add_polls(std::vector<pollfd>& polls) const;
  // Never waits. `answer` gets the line without its end.
  void serve(const std::function<std::string(const std::string& request)>& answer);

 private:
  struct Client {
    Descriptor socket;
    std::chrono::steady_clock::time_point end;
    std::string request;
    std::string reply;
    std::size_t sent = 0;
    bool answering = false;
    bool done = false;
  };
  ControlSocket(std::string path, Descriptor socket)
      : path_(std::move(path)), socket_(std::move(socket)) {}
  static void receive(Client& client);
  static void send(Client& client);

  std::string path_;
  Descriptor socket_;
  std::vector<std::unique_ptr<Client>> clients_;
};

// Asks the agent behind `path`. kNotFound with the remedy if none runs; kDeadline after `limit`.
Result<std::string> ask_agent(const std::string& path, const std::string& request,
                              std::chrono::milliseconds limit);

}  // namespace sinew
