#include "agent/secret.h"

#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/kdf.h>
#include <openssl/params.h>
#include <openssl/rand.h>

#include <algorithm>
#include <memory>
#include <span>

#include "agent/hex.h"

namespace sinew {
namespace {

constexpr std::string_view kPrefix = "sinew1-";
constexpr std::string_view kFile = "cluster";
constexpr std::string_view kFounder = "founder";
constexpr std::string_view kControlLabel = "sinew control plane 1";
constexpr std::size_t kFileBytesMax = 1024;
constexpr std::size_t kNameMax = 64;
constexpr std::size_t kCheckBytes = 4;

using Payload = std::array<std::uint8_t, 16 + 32>;
using Check = std::array<std::uint8_t, kCheckBytes>;

Check check_bytes(const Payload& payload) {
  std::array<std::uint8_t, EVP_MAX_MD_SIZE> hash{};
  unsigned size = 0;
  EVP_Digest(payload.data(), payload.size(), hash.data(), &size, EVP_sha256(), nullptr);
  Check check{};
  std::copy_n(hash.begin(), kCheckBytes, check.begin());
  return check;
}

std::string_view first_line(std::string_view& text) {
  const std::size_t end = std::min(text.find('\n'), text.size());
  std::string_view line = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.remove_suffix(1);
  return line;
}

}  // namespace

std::string ClusterSecret::cluster_name() const {
  return to_hex(cluster);
}

Result<ClusterKey> ClusterSecret::control_key() const {
  const std::unique_ptr<EVP_KDF, decltype(&EVP_KDF_free)> method(
      EVP_KDF_fetch(nullptr, "HKDF", nullptr), &EVP_KDF_free);
  const std::unique_ptr<EVP_KDF_CTX, decltype(&EVP_KDF_CTX_free)> context(
      EVP_KDF_CTX_new(method.get()), &EVP_KDF_CTX_free);
  std::string digest = "SHA256";
  auto key = secret;
  auto salt = cluster;
  std::string label(kControlLabel);
  const std::array<OSSL_PARAM, 5> parameters{
      OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, digest.data(), 0),
      OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_KEY, key.data(), key.size()),
      OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_SALT, salt.data(), salt.size()),
      OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_INFO, label.data(), label.size()),
      OSSL_PARAM_construct_end()};
  ClusterKey derived{};
  const bool done = context != nullptr && EVP_KDF_derive(context.get(), derived.data(),
                                                         derived.size(), parameters.data()) == 1;
  OPENSSL_cleanse(key.data(), key.size());
  if (!done) return fail(ErrorCode::kUnsupported, "this OpenSSL has no HKDF");
  return derived;
}

std::string ClusterSecret::token() const {
  Payload payload{};
  std::ranges::copy(cluster, payload.begin());
  std::ranges::copy(secret, payload.begin() + 16);
  return std::string(kPrefix) + to_hex(payload) + to_hex(check_bytes(payload));
}

Result<ClusterSecret> draw_secret(std::string name) {
  if (name.size() > kNameMax || name.find('\n') != std::string::npos)
    return fail(ErrorCode::kUsage, "the name of a cluster is one line of at most {} bytes",
                kNameMax);
  ClusterSecret secret;
  secret.name = std::move(name);
  if (RAND_bytes(secret.cluster.data(), static_cast<int>(secret.cluster.size())) != 1 ||
      RAND_priv_bytes(secret.secret.data(), static_cast<int>(secret.secret.size())) != 1)
    return fail(ErrorCode::kIo, "the system gives no random bytes");
  return secret;
}

Result<ClusterSecret> parse_token(std::string_view token) {
  std::array<std::uint8_t, sizeof(Payload) + kCheckBytes> bytes{};
  if (!token.starts_with(kPrefix) || !from_hex(token.substr(kPrefix.size()), bytes))
    return fail(ErrorCode::kUsage,
                "this is not a join token ('sinew1-' and {} digits, as 'sinew cluster create' "
                "prints it)",
                2 * bytes.size());
  Payload payload{};
  std::copy_n(bytes.begin(), payload.size(), payload.begin());
  const Check check = check_bytes(payload);
  if (!std::equal(check.begin(), check.end(), bytes.end() - kCheckBytes))
    return fail(ErrorCode::kUsage, "the join token has a typing error: copy it again");
  ClusterSecret secret;
  std::copy_n(payload.begin(), 16, secret.cluster.begin());
  std::copy_n(payload.begin() + 16, 32, secret.secret.begin());
  return secret;
}

Result<std::optional<ClusterSecret>> load_secret(const StateFolder& folder) {
  SINEW_ASSIGN(const auto bytes, folder.read(kFile, kFileBytesMax));
  if (!bytes) return std::optional<ClusterSecret>();
  std::string_view text = *bytes;
  Result<ClusterSecret> secret = parse_token(first_line(text));
  if (!secret) return fail(secret.error().within(folder.file(kFile)));
  secret->name = first_line(text);
  secret->founder = first_line(text) == kFounder;
  return std::optional<ClusterSecret>(std::move(*secret));
}

Status save_secret(const StateFolder& folder, const ClusterSecret& secret) {
  return folder.write(kFile, fmt::format("{}\n{}\n{}\n", secret.token(), secret.name,
                                         secret.founder ? kFounder : ""));
}

}  // namespace sinew
