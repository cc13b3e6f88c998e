#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "agent/frame_reader.h"
#include "agent/secret.h"
#include "base/result.h"
#include "transport/tcp_socket.h"

namespace sinew {

inline constexpr std::uint16_t kControlVersion = 1;  // grows when agents would misunderstand

// What both sides say in the clear before TLS, so that another version can be named. Nothing in it
// is trusted; the wire version counts again inside TLS, as the protocol's name (ALPN).
struct Greeting {
  std::uint16_t wire_version = kControlVersion;
  std::string product;  // at most 16 printable characters
};
inline constexpr std::size_t kGreetingBytes = 32;
std::array<std::byte, kGreetingBytes> encode_greeting(const Greeting& greeting);
// kProtocol if it is none.
Result<Greeting> decode_greeting(std::span<const std::byte, kGreetingBytes> bytes);

// The keys and settings of all connections of an agent: TLS 1.3 alone, a key that both sides hold
// beforehand (RFC 8446 4.2.11, with Diffie-Hellman so that old traffic stays closed), no
// certificate, no ticket, no early data: a recorded connection cannot be played again.
class TlsSettings {
 public:
  static Result<std::unique_ptr<TlsSettings>> create(const ClusterSecret& secret,
                                                     Greeting greeting);
  ~TlsSettings();
  TlsSettings(const TlsSettings&) = delete;
  TlsSettings& operator=(const TlsSettings&) = delete;
  const Greeting& greeting() const { return greeting_; }

 private:
  friend class SecureChannel;
  struct Parts;
  TlsSettings(std::unique_ptr<Parts> parts, Greeting greeting);
  std::unique_ptr<Parts> parts_;
  Greeting greeting_;
};

// One control connection, either side. Never blocks and keeps no clock: its owner polls, and closes
// what is late. Thread-compatible.
class SecureChannel {
 public:
  // Most bytes taken from a peer, and so held for it, before it has proven the key.
  static constexpr std::size_t kUnknownBytesMax = 4096;
  // Most bytes that wait for a peer; with more the connection counts as broken.
  static constexpr std::size_t kQueueBytesMax = 1u << 20;

  // `settings` outlives it.
  static Result<std::unique_ptr<SecureChannel>> create(const TlsSettings& settings, Socket socket,
                                                       bool dials);
  ~SecureChannel();
  SecureChannel(const SecureChannel&) = delete;
  SecureChannel& operator=(const SecureChannel&) = delete;

  int fd() const;
  short poll_events() const;
  bool established() const;
  bool has_unsent() const;
  // Moves what can be moved, a bounded amount, and appends whole messages to `frames`. An error
  // ends the connection, after frames that came before it: kProtocol (another version, garbage),
  // kUnauthorised (another secret, or none), kPeerLost.
  Status advance(std::vector<ControlFrame>& frames);
  // kPeerLost where the peer has not taken kQueueBytesMax. Short messages overtake long ones that
  // wait, so that a sign of life is behind at most one of them.
  Status send(FrameKind kind, ByteSpan payload);

 private:
  struct Parts;
  explicit SecureChannel(std::unique_ptr<Parts> parts);
  std::unique_ptr<Parts> parts_;
};

}  // namespace sinew
