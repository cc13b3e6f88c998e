#include "agent/identity.h"

#include <openssl/evp.h>
#include <openssl/rand.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "agent/hex.h"

#ifdef __APPLE__
#include <uuid/uuid.h>
#endif

namespace sinew {
namespace {

constexpr std::string_view kFile = "identity";
constexpr std::size_t kFileBytesMax = 4096;
constexpr std::size_t kPartBytes = 16;  // of a hash
constexpr std::size_t kCardsMax = 16;

std::string first_line(const std::string& path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  return line;
}

// Hardware addresses of cards that are part of the machine: those of bridges, containers and VPNs
// come and go.
std::set<std::string> card_addresses() {
  std::set<std::string> found;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/sys/class/net", error)) {
    if (std::filesystem::exists(entry.path() / "device", error))
      found.insert(first_line((entry.path() / "address").string()));
  }
  return found;
}

std::string system_id() {
#ifdef __APPLE__
  uuid_t uuid{};
  const timespec wait{1, 0};
  if (::gethostuuid(uuid, &wait) == 0)
    return to_hex(std::span<const std::uint8_t>(uuid, sizeof(uuid)));
  return {};
#else
  return first_line("/etc/machine-id");
#endif
}

std::string hashed(const std::string& text) {
  std::array<std::uint8_t, EVP_MAX_MD_SIZE> hash{};
  unsigned size = 0;
  EVP_Digest(text.data(), text.size(), hash.data(), &size, EVP_sha256(), nullptr);
  return to_hex(std::span<const std::uint8_t>(hash.data(), kPartBytes));
}

Result<NodeIdentity> parse_identity(const std::string& text, const std::string& path,
                                    Fingerprint& fingerprint) {
  const nlohmann::json file = nlohmann::json::parse(text, nullptr, false);
  NodeIdentity identity;
  const bool good = file.is_object() && file.contains("id") && file["id"].is_string() &&
                    from_hex(file["id"].get<std::string>(), identity.id.bytes) &&
                    file.contains("incarnation") && file["incarnation"].is_number_unsigned() &&
                    file.contains("machine") && file["machine"].is_array();
  if (!good)
    return fail(ErrorCode::kInvalidFile,
                "{} is damaged: remove it, and this machine joins as a new node", path);
  identity.incarnation = file["incarnation"].get<std::uint64_t>();
  for (const auto& part : file["machine"]) {
    if (part.is_string()) fingerprint.push_back(part.get<std::string>());
  }
  return identity;
}

}  // namespace

Fingerprint machine_fingerprint() {
  if (const char* given = std::getenv("SINEW_MACHINE"); given != nullptr && *given != '\0')
    return {hashed(given)};
  Fingerprint parts{hashed(system_id())};
  for (const std::string& address : card_addresses()) {
    if (parts.size() <= kCardsMax) parts.push_back(hashed(address));
  }
  return parts;
}

bool same_machine(const Fingerprint& a, const Fingerprint& b) {
  if (a.empty() || b.empty() || a.front() != b.front()) return false;
  if (a.size() == 1 || b.size() == 1) return true;
  return std::any_of(a.begin() + 1, a.end(), [&](const std::string& card) {
    return std::find(b.begin() + 1, b.end(), card) != b.end();
  });
}

Result<NodeIdentity> take_identity(const StateFolder& folder, const Fingerprint& fingerprint) {
  SINEW_ASSIGN(const auto text, folder.read(kFile, kFileBytesMax));
  NodeIdentity identity;
  bool draw = !text;
  if (text) {
    Fingerprint machine;
    SINEW_ASSIGN(identity, parse_identity(*text, folder.file(kFile), machine));
    if (!same_machine(machine, fingerprint)) {
      identity.copied = true;
      identity.left = identity.id;
      identity.incarnation = 0;
      draw = true;
    }
  }
  const auto fill = [](void* bytes, std::size_t size) {
    return RAND_bytes(static_cast<unsigned char*>(bytes), static_cast<int>(size)) == 1;
  };
  if ((draw && !fill(identity.id.bytes.data(), identity.id.bytes.size())) ||
      !fill(&identity.nonce, sizeof(identity.nonce)))
    return fail(ErrorCode::kIo, "the system gives no random bytes");
  ++identity.incarnation;
  const nlohmann::json file{{"id", to_hex(identity.id.bytes)},
                            {"incarnation", identity.incarnation},
                            {"machine", fingerprint}};
  SINEW_TRY(folder.write(kFile, file.dump() + "\n"));
  return identity;
}

}  // namespace sinew
