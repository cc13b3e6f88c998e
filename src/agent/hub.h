#pragma once

#include <poll.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "agent/hello.h"
#include "agent/secure_channel.h"
#include "base/result.h"
#include "cluster/node.h"
#include "transport/tcp_socket.h"

namespace sinew {

// All control connections of one agent. Every address of every peer is dialled and kept, so that
// each is measured all the time and another one is there when the one in use dies. An agent speaks
// over connections that it dialled; over those that peers dialled only where it reaches them no
// other way.
//
// Nothing here waits: one thread polls, calls serve() and takes what happened.
class Hub {
 public:
  struct Timing {
    Time handshake = std::chrono::seconds{5};  // from the connect to the peer's hello
    Time probe_every = std::chrono::milliseconds{700};
    // A connection that brings nothing for so long is closed: the cable may be out.
    Time silence_max = std::chrono::milliseconds{2800};
    Time redial_first = std::chrono::milliseconds{200};
    Time redial_max = std::chrono::seconds{3};
  };
  // Connections that have proven nothing yet. With more, the oldest of the address that has most
  // of them is closed, so that one stranger does not keep the others out.
  static constexpr std::size_t kUnknownMax = 16;
  static constexpr std::size_t kConnectionsMax = 1024;

  struct Options {
    Hello self;                       // its port is filled in
    std::vector<std::string> listen;  // numeric addresses
    std::uint16_t port = 0;
    Timing timing;
    std::uint64_t seed = 0;  // for back-off
  };
  struct Target {
    Address address;
    NodeId node;  // whom one expects there; none: anybody
  };
  struct Happening {
    enum class Kind : std::uint8_t {
      kConnected,     // `peer` is reached over `address`; the first way to it, or another one
      kDisconnected,  // no way is left
      kMessage,
      kProbed,     // round trip of one address, or nothing
      kRefused,    // a connection ended before the peer was known; `error` says why
      kDuplicate,  // another machine has this node's id
    };
    Kind kind = Kind::kConnected;
    NodeId peer;
    Address address;
    bool dialled = false;
    std::string name;
    std::optional<Time> round_trip;
    std::vector<std::byte> payload;
    Error error;
  };
  struct Path {
    NodeId peer;
    Address address;
    bool dialled = false;
    std::optional<Time> round_trip;
  };

  // `settings` outlives the hub. kIo if an address or port cannot be listened on.
  static Result<std::unique_ptr<Hub>> create(const TlsSettings& settings, Options options);

  std::uint16_t port() const { return options_.self.port; }
  // Whom to keep connections to, from now on. Connections to addresses that are not listed end.
  void set_targets(const std::vector<Target>& targets);
  void add_polls(std::vector<pollfd>& polls) const;
  Time next_due(Time now) const;
  void serve(Time now);
  std::vector<Happening> take_happenings();
  // False if no connection to the peer is there. `preferred`: the path to use if it is up.
  bool send(const NodeId& peer, const std::optional<Address>& preferred, ByteSpan message);
  // Lets the last messages out, without waiting.
  void flush();
  std::vector<Path> paths() const;
  std::size_t unknown_count() const;

 private:
  struct Connection {
    std::unique_ptr<SecureChannel> channel;
    bool dialled = false;
    Address address;
    NodeId expected;
    Time began{};
    Time heard{};
    Time next_probe{};
    std::optional<Time> probe_sent;
    std::optional<Time> round_trip;
    std::optional<Hello> peer;
    std::optional<Error> broken;
    bool greeted = false;  // our hello is sent
    bool own = false;      // this agent dialled itself
  };
  struct Dial {
    Target target;
    Time next{};
    Time wait{};
    bool self = false;  // this agent itself answers there
    bool open = false;
  };

  Hub(const TlsSettings& settings, Options options);
  void accept_all(Time now);
  void evict_unknown();
  void dial_due(Time now);
  void redial_later(Dial& dial, Time now, bool proven);
  void serve_one(Connection& connection, Time now);
  void take_frame(Connection& connection, ControlFrame frame, Time now);
  void take_hello(Connection& connection, const ControlFrame& frame);
  void check_deadlines(Connection& connection, Time now);
  void send_probe(Connection& connection, Time now);
  void remove_broken(Time now);
  void report_end(const Connection& connection);
  Connection* best(const NodeId& peer, const std::optional<Address>& preferred);
  static std::string key(const Address& address);

  const TlsSettings& settings_;
  Options options_;
  std::vector<TcpListener> listeners_;
  std::vector<std::unique_ptr<Connection>> connections_;
  std::map<std::string, Dial> dials_;
  std::vector<Happening> happenings_;
  std::minstd_rand random_;
};

}  // namespace sinew
