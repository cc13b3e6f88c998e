// TLS goes through memory, not through OpenSSL's sockets: so bytes of strangers are counted before
// OpenSSL sees them, and no call can wait.
#include "agent/secure_channel.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <span>

#include "base/assert.h"

namespace sinew {
namespace {

constexpr std::array<char, 8> kMagic{'S', 'I', 'N', 'E', 'W', 'C', 'P', '\n'};
constexpr std::size_t kProductMax = 16;
constexpr std::size_t kReadBytes = 16u << 10;
constexpr int kReadsInARow = 8;  // then other connections have their turn
constexpr std::size_t kCipherAhead = 64u << 10;
constexpr std::size_t kShortFrame = 8u << 10;
// Record header, then type and length of the handshake message in it.
constexpr std::size_t kFirstHeaderBytes = 9;
constexpr std::uint8_t kHandshakeRecord = 22;
constexpr std::uint8_t kAlertRecord = 21;
constexpr char kCipher[] = "TLS_AES_128_GCM_SHA256";
constexpr std::array<unsigned char, 2> kCipherCode{0x13, 0x01};
#ifdef MSG_NOSIGNAL
constexpr int kSendFlags = MSG_NOSIGNAL;
#else
constexpr int kSendFlags = 0;
#endif

// ALPN's form: the name with its length in front.
std::string protocol_name() {
  std::string name = "sinew-control-" + std::to_string(kControlVersion);
  return static_cast<char>(name.size()) + name;
}

struct FreeSsl {
  void operator()(SSL* ssl) const { SSL_free(ssl); }
  void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
  void operator()(SSL_SESSION* session) const { SSL_SESSION_free(session); }
};

}  // namespace

struct TlsSettings::Parts {
  std::unique_ptr<SSL_CTX, FreeSsl> context;
  std::unique_ptr<SSL_SESSION, FreeSsl> session;  // the key, in the form that OpenSSL wants
  std::string hint;                               // the cluster's id

  static Parts* of(SSL* ssl) {
    return static_cast<Parts*>(SSL_CTX_get_app_data(SSL_get_SSL_CTX(ssl)));
  }
  static int use_key(SSL* ssl, const EVP_MD*, const unsigned char** id, std::size_t* id_size,
                     SSL_SESSION** session) {
    Parts* parts = of(ssl);
    SSL_SESSION_up_ref(parts->session.get());
    *session = parts->session.get();
    *id = reinterpret_cast<const unsigned char*>(parts->hint.data());
    *id_size = parts->hint.size();
    return 1;
  }
  static int find_key(SSL* ssl, const unsigned char* id, std::size_t id_size,
                      SSL_SESSION** session) {
    Parts* parts = of(ssl);
    *session = nullptr;
    if (std::string_view(reinterpret_cast<const char*>(id), id_size) != parts->hint) return 1;
    SSL_SESSION_up_ref(parts->session.get());
    *session = parts->session.get();
    return 1;
  }
  static int choose_protocol(SSL*, const unsigned char** out, unsigned char* out_size,
                             const unsigned char* in, unsigned in_size, void*) {
    static const std::string own = protocol_name();
    const std::string_view offered(reinterpret_cast<const char*>(in), in_size);
    if (offered != own) return SSL_TLSEXT_ERR_ALERT_FATAL;
    *out = in + 1;
    *out_size = in[0];
    return SSL_TLSEXT_ERR_OK;
  }
};

TlsSettings::TlsSettings(std::unique_ptr<Parts> parts, Greeting greeting)
    : parts_(std::move(parts)), greeting_(std::move(greeting)) {}
TlsSettings::~TlsSettings() = default;

Result<std::unique_ptr<TlsSettings>> TlsSettings::create(const ClusterSecret& secret,
                                                         Greeting greeting) {
  SINEW_ASSIGN(const ClusterKey key, secret.control_key());
  auto parts = std::make_unique<Parts>();
  parts->hint = secret.cluster_name();
  parts->context.reset(SSL_CTX_new(TLS_method()));
  parts->session.reset(SSL_SESSION_new());
  SSL_CTX* context = parts->context.get();
  const std::string protocol = protocol_name();
  constexpr std::array<unsigned char, 5> kPurpose{'s', 'i', 'n', 'e', 'w'};  // OpenSSL wants one
  bool good =
      context != nullptr && parts->session != nullptr &&
      SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) == 1 &&
      SSL_CTX_set_ciphersuites(context, kCipher) == 1 && SSL_CTX_set_num_tickets(context, 0) == 1 &&
      SSL_CTX_set_session_id_context(context, kPurpose.data(), kPurpose.size()) == 1 &&
      SSL_CTX_set_alpn_protos(context, reinterpret_cast<const unsigned char*>(protocol.data()),
                              static_cast<unsigned>(protocol.size())) == 0;
  if (good) {
    // Without a certificate and with peers verified, the key is the only way in.
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER, nullptr);
    SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_options(context, SSL_OP_NO_TICKET | SSL_OP_NO_RENEGOTIATION);
    SSL_CTX_set_mode(context, SSL_MODE_RELEASE_BUFFERS);
    SSL_CTX_set_app_data(context, parts.get());
    SSL_CTX_set_psk_use_session_callback(context, &Parts::use_key);
    SSL_CTX_set_psk_find_session_callback(context, &Parts::find_key);
    SSL_CTX_set_alpn_select_cb(context, &Parts::choose_protocol, nullptr);
    const std::unique_ptr<SSL, FreeSsl> ssl(SSL_new(context));
    const SSL_CIPHER* cipher = SSL_CIPHER_find(ssl.get(), kCipherCode.data());
    good =
        cipher != nullptr &&
        SSL_SESSION_set1_master_key(parts->session.get(), key.data(), key.size()) == 1 &&
        SSL_SESSION_set_cipher(parts->session.get(), cipher) == 1 &&
        SSL_SESSION_set1_id_context(parts->session.get(), kPurpose.data(), kPurpose.size()) == 1 &&
        SSL_SESSION_set_protocol_version(parts->session.get(), TLS1_3_VERSION) == 1;
  }
  ERR_clear_error();
  if (!good) return fail(ErrorCode::kUnsupported, "this OpenSSL has no TLS 1.3 with {}", kCipher);
  return std::unique_ptr<TlsSettings>(new TlsSettings(std::move(parts), std::move(greeting)));
}

std::array<std::byte, kGreetingBytes> encode_greeting(const Greeting& greeting) {
  std::array<std::byte, kGreetingBytes> bytes{};
  std::memcpy(bytes.data(), kMagic.data(), kMagic.size());
  std::memcpy(bytes.data() + 8, &greeting.wire_version, 2);
  const std::string product = greeting.product.substr(0, kProductMax);
  std::memcpy(bytes.data() + 16, product.data(), product.size());
  return bytes;
}

Result<Greeting> decode_greeting(std::span<const std::byte, kGreetingBytes> bytes) {
  if (std::memcmp(bytes.data(), kMagic.data(), kMagic.size()) != 0)
    return fail(ErrorCode::kProtocol, "the other end is no agent of Sinew");
  Greeting greeting;
  std::memcpy(&greeting.wire_version, bytes.data() + 8, 2);
  for (const std::byte byte : bytes.subspan(16, kProductMax)) {
    const char c = static_cast<char>(byte);
    if (c == '\0') break;
    // It ends in a log: nothing that moves a cursor.
    greeting.product.push_back(c > ' ' && c < '\x7f' ? c : '?');
  }
  return greeting;
}

struct SecureChannel::Parts {
  const TlsSettings* settings = nullptr;
  Socket socket;
  bool dials = false;
  bool connecting = false;  // until the socket is writable
  bool greeted = false;     // the peer's greeting has come, of our version
  bool first_seen = false;  // and its first handshake message is of a sane size
  bool established = false;
  std::unique_ptr<SSL, FreeSsl> ssl;
  BIO* from_peer = nullptr;  // owned by ssl
  BIO* to_peer = nullptr;
  std::vector<std::byte> unknown;  // received before TLS has started
  std::size_t unknown_bytes = 0;   // all that came before the peer was known
  std::vector<std::byte> cipher;   // encrypted, to be sent
  std::size_t cipher_at = 0;
  std::deque<std::vector<std::byte>> short_frames;
  std::deque<std::vector<std::byte>> long_frames;
  std::size_t queued = 0;
  FrameReader reader;

  std::string_view side() const { return dials ? "dialled" : "dialling"; }
  Status flush();
  Status receive(std::vector<ControlFrame>& frames);
  Status take(ByteSpan bytes);
  Status take_unknown(ByteSpan bytes);
  Status check_first();
  Status drive_tls(std::vector<ControlFrame>& frames);
  Status encrypt_queued();
  void drain();
  Status tls_failure();
};

SecureChannel::SecureChannel(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
SecureChannel::~SecureChannel() = default;

Result<std::unique_ptr<SecureChannel>> SecureChannel::create(const TlsSettings& settings,
                                                             Socket socket, bool dials) {
  auto parts = std::make_unique<Parts>();
  parts->settings = &settings;
  parts->socket = std::move(socket);
  parts->dials = dials;
  parts->connecting = dials;
  parts->ssl.reset(SSL_new(settings.parts_->context.get()));
  BIO* in = BIO_new(BIO_s_mem());
  BIO* out = BIO_new(BIO_s_mem());
  if (parts->ssl == nullptr || in == nullptr || out == nullptr) {
    BIO_free(in);
    BIO_free(out);
    return fail(ErrorCode::kInternal, "OpenSSL has no memory for a connection");
  }
  SSL_set_bio(parts->ssl.get(), in, out);
  parts->from_peer = in;
  parts->to_peer = out;
  dials ? SSL_set_connect_state(parts->ssl.get()) : SSL_set_accept_state(parts->ssl.get());
  const auto greeting = encode_greeting(settings.greeting());
  parts->cipher.assign(greeting.begin(), greeting.end());
  return std::unique_ptr<SecureChannel>(new SecureChannel(std::move(parts)));
}

int SecureChannel::fd() const {
  return parts_->socket.fd();
}
bool SecureChannel::established() const {
  return parts_->established;
}
bool SecureChannel::has_unsent() const {
  return parts_->connecting || parts_->cipher_at < parts_->cipher.size() ||
         (parts_->established && parts_->queued > 0);
}
short SecureChannel::poll_events() const {
  return static_cast<short>((parts_->connecting ? 0 : POLLIN) | (has_unsent() ? POLLOUT : 0));
}

Status SecureChannel::send(FrameKind kind, ByteSpan payload) {
  std::vector<std::byte> frame = encode_control_frame(kind, payload);
  if (parts_->queued + frame.size() > kQueueBytesMax)
    return fail(ErrorCode::kPeerLost, "the peer reads too slowly: {} bytes wait for it",
                parts_->queued);
  parts_->queued += frame.size();
  auto& lane = frame.size() <= kShortFrame ? parts_->short_frames : parts_->long_frames;
  lane.push_back(std::move(frame));
  return {};
}

Status SecureChannel::advance(std::vector<ControlFrame>& frames) {
  if (parts_->connecting) {
    pollfd ready{fd(), POLLOUT, 0};
    if (::poll(&ready, 1, 0) <= 0) return {};
    SINEW_TRY(finish_connect(parts_->socket));
    parts_->connecting = false;
  }
  const Status received = parts_->receive(frames);
  // Also after an error: it may be that the peer is told why.
  const Status sent = parts_->flush();
  SINEW_TRY(received);
  return sent;
}

Status SecureChannel::Parts::receive(std::vector<ControlFrame>& frames) {
  std::array<std::byte, kReadBytes> buffer{};
  for (int reads = 0; reads < kReadsInARow; ++reads) {
    // One byte more than a stranger may send shows that it sends too much.
    const std::size_t room =
        established ? buffer.size() : std::min(buffer.size(), kUnknownBytesMax + 1 - unknown_bytes);
    const ssize_t got = ::recv(socket.fd(), buffer.data(), room, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
    if (got < 0) return fail(ErrorCode::kPeerLost, "{}", std::strerror(errno));
    if (got == 0) return fail(ErrorCode::kPeerLost, "the peer closed the connection");
    SINEW_TRY(take(ByteSpan(buffer).first(static_cast<std::size_t>(got))));
    SINEW_TRY(drive_tls(frames));
  }
  return {};
}

Status SecureChannel::Parts::take(ByteSpan bytes) {
  if (!established) {
    unknown_bytes += bytes.size();
    if (unknown_bytes > kUnknownBytesMax)
      return fail(ErrorCode::kProtocol, "the {} side sent {} bytes before it proved its key",
                  side(), unknown_bytes);
    if (!first_seen) return take_unknown(bytes);
  }
  const int written = BIO_write(from_peer, bytes.data(), static_cast<int>(bytes.size()));
  SINEW_ASSERT(written == static_cast<int>(bytes.size()));
  return {};
}

Status SecureChannel::Parts::take_unknown(ByteSpan bytes) {
  unknown.insert(unknown.end(), bytes.begin(), bytes.end());
  if (!greeted) {
    // Garbage is known by its first bytes: a stranger need not say much to be refused.
    const std::size_t seen = std::min(unknown.size(), kMagic.size());
    if (std::memcmp(unknown.data(), kMagic.data(), seen) != 0)
      return fail(ErrorCode::kProtocol, "the {} side is no agent of Sinew", side());
    if (unknown.size() < kGreetingBytes) return {};
    SINEW_ASSIGN(const Greeting peer, decode_greeting(std::span<const std::byte, kGreetingBytes>(
                                          unknown.data(), kGreetingBytes)));
    if (peer.wire_version != settings->greeting().wire_version)
      return fail(ErrorCode::kProtocol,
                  "this is sinew {} with control protocol {}, the other machine has sinew {} with "
                  "{}: install the same version on both",
                  settings->greeting().product, settings->greeting().wire_version, peer.product,
                  peer.wire_version);
    greeted = true;
    unknown.erase(unknown.begin(), unknown.begin() + kGreetingBytes);
  }
  if (unknown.size() < kFirstHeaderBytes &&
      (unknown.empty() || static_cast<std::uint8_t>(unknown[0]) != kAlertRecord))
    return {};
  SINEW_TRY(check_first());
  first_seen = true;
  const int written = BIO_write(from_peer, unknown.data(), static_cast<int>(unknown.size()));
  SINEW_ASSERT(written == static_cast<int>(unknown.size()));
  std::vector<std::byte>().swap(unknown);
  return {};
}

// OpenSSL makes room for as many bytes as a handshake message announces, up to 128 KiB.
Status SecureChannel::Parts::check_first() {
  const auto at = [this](std::size_t i) { return static_cast<std::uint32_t>(unknown[i]); };
  if (at(0) == kAlertRecord) return {};
  const std::uint32_t size = at(6) << 16 | at(7) << 8 | at(8);
  if (at(0) != kHandshakeRecord || size > kUnknownBytesMax)
    return fail(ErrorCode::kProtocol, "the {} side does not begin as TLS does", side());
  return {};
}

Status SecureChannel::Parts::drive_tls(std::vector<ControlFrame>& frames) {
  if (!greeted) return {};
  ERR_clear_error();
  if (!established) {
    const int done = SSL_do_handshake(ssl.get());
    drain();
    if (done != 1) {
      const int error = SSL_get_error(ssl.get(), done);
      return error == SSL_ERROR_WANT_READ ? Status() : tls_failure();
    }
    const unsigned char* protocol = nullptr;
    unsigned protocol_size = 0;
    SSL_get0_alpn_selected(ssl.get(), &protocol, &protocol_size);
    // OpenSSL counts a connection with a key given beforehand as one that goes on.
    if (SSL_session_reused(ssl.get()) != 1 || protocol_size == 0)
      return fail(ErrorCode::kUnauthorised, "the peer proved no key");
    established = true;
  }
  std::array<std::byte, kReadBytes> plain{};
  while (true) {
    const int got = SSL_read(ssl.get(), plain.data(), static_cast<int>(plain.size()));
    if (got <= 0) {
      const int error = SSL_get_error(ssl.get(), got);
      drain();
      if (error == SSL_ERROR_WANT_READ) return {};
      if (error == SSL_ERROR_ZERO_RETURN)
        return fail(ErrorCode::kPeerLost, "the peer closed the connection");
      return tls_failure();
    }
    reader.append(ByteSpan(plain).first(static_cast<std::size_t>(got)));
    while (true) {
      SINEW_ASSIGN(auto frame, reader.next());
      if (!frame) break;
      frames.push_back(std::move(*frame));
    }
  }
}

Status SecureChannel::Parts::tls_failure() {
  const unsigned long code = ERR_peek_last_error();
  const char* reason = ERR_reason_error_string(code);
  const std::string why = reason == nullptr ? "broken" : reason;
  ERR_clear_error();
  if (established) return fail(ErrorCode::kPeerLost, "the encrypted connection is {}", why);
  // Told apart from a version that differs, which the greetings have settled already: what fails
  // from here on is the key.
  if (dials)
    return fail(ErrorCode::kUnauthorised,
                "the other machine belongs to another cluster or has another secret ({}): use the "
                "token that 'sinew cluster create' printed",
                why);
  return fail(ErrorCode::kUnauthorised, "the dialling side has another secret, or none ({})", why);
}

void SecureChannel::Parts::drain() {
  std::array<std::byte, kReadBytes> buffer{};
  int got = 0;
  while ((got = BIO_read(to_peer, buffer.data(), static_cast<int>(buffer.size()))) > 0)
    cipher.insert(cipher.end(), buffer.begin(), buffer.begin() + got);
}

Status SecureChannel::Parts::encrypt_queued() {
  while (queued > 0 && cipher.size() - cipher_at < kCipherAhead) {
    auto& lane = short_frames.empty() ? long_frames : short_frames;
    const std::vector<std::byte>& frame = lane.front();
    ERR_clear_error();
    if (SSL_write(ssl.get(), frame.data(), static_cast<int>(frame.size())) <= 0)
      return tls_failure();
    queued -= frame.size();
    lane.pop_front();
    drain();
  }
  return {};
}

Status SecureChannel::Parts::flush() {
  // The dialling side speaks first, once it knows that the other one understands it; both greetings
  // cross on the way.
  if (dials && greeted && !established) {
    ERR_clear_error();
    static_cast<void>(SSL_do_handshake(ssl.get()));  // a failure shows again when bytes come
    drain();
  }
  while (true) {
    if (established) SINEW_TRY(encrypt_queued());
    if (cipher_at == cipher.size()) {
      cipher.clear();
      cipher_at = 0;
      return {};
    }
    const ssize_t sent =
        ::send(socket.fd(), cipher.data() + cipher_at, cipher.size() - cipher_at, kSendFlags);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return {};
    if (sent < 0) return fail(ErrorCode::kPeerLost, "{}", std::strerror(errno));
    cipher_at += static_cast<std::size_t>(sent);
  }
}

}  // namespace sinew
