#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "agent/state_folder.h"
#include "base/result.h"

namespace sinew {

using ClusterKey = std::array<std::uint8_t, 32>;

// What makes a machine a member: whoever holds it may join. Never logged.
struct ClusterSecret {
  std::array<std::uint8_t, 16> cluster{};  // public: the hint which key a peer means
  ClusterKey secret{};
  std::string name;      // for people
  bool founder = false;  // this machine created the cluster

  std::string cluster_name() const;  // hexadecimal
  // The key of TLS on the control plane (HKDF-SHA256, RFC 5869; salt: the cluster's id), so that
  // other uses of the secret can have other keys.
  Result<ClusterKey> control_key() const;
  // "sinew1-" and hexadecimal digits: id, secret, and 4 bytes of SHA-256 against typing errors.
  std::string token() const;
};

Result<ClusterSecret> draw_secret(std::string name);
// kUsage, without the token in its message.
Result<ClusterSecret> parse_token(std::string_view token);

// The secret in the state folder; nothing if this machine is in no cluster.
Result<std::optional<ClusterSecret>> load_secret(const StateFolder& folder);
Status save_secret(const StateFolder& folder, const ClusterSecret& secret);

}  // namespace sinew
