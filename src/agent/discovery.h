#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "cluster/node.h"

namespace sinew {

// The functions of dns_sd.h that are used, with its binary interface: Bonjour's library on macOS,
// Avahi's stand-in on Linux. Loaded at run time, so that no machine needs it.
struct DnsSdApi {
  using Ref = void*;
  using RegisterReply = void (*)(Ref, std::uint32_t flags, std::int32_t error, const char* name,
                                 const char* type, const char* domain, void* context);
  using BrowseReply = void (*)(Ref, std::uint32_t flags, std::uint32_t interface,
                               std::int32_t error, const char* name, const char* type,
                               const char* domain, void* context);
  using ResolveReply = void (*)(Ref, std::uint32_t flags, std::uint32_t interface,
                                std::int32_t error, const char* full_name, const char* host,
                                std::uint16_t port, std::uint16_t text_size,
                                const unsigned char* text, void* context);

  std::int32_t (*announce)(Ref*, std::uint32_t flags, std::uint32_t interface, const char* name,
                           const char* type, const char* domain, const char* host,
                           std::uint16_t port, std::uint16_t text_size, const void* text,
                           RegisterReply, void* context) = nullptr;
  std::int32_t (*browse)(Ref*, std::uint32_t flags, std::uint32_t interface, const char* type,
                         const char* domain, BrowseReply, void* context) = nullptr;
  std::int32_t (*resolve)(Ref*, std::uint32_t flags, std::uint32_t interface, const char* name,
                          const char* type, const char* domain, ResolveReply,
                          void* context) = nullptr;
  int (*descriptor)(Ref) = nullptr;
  std::int32_t (*process)(Ref) = nullptr;
  void (*release)(Ref) = nullptr;
};
// kUnsupported, with the package's name, where the library is not there.
Result<DnsSdApi> load_dns_sd();

// The text of our announcement, as RFC 6763 has it: which cluster, which node, its addresses.
// Public: it says nothing that opens a door.
struct Announcement {
  std::string cluster;  // hexadecimal
  std::string node;     // hexadecimal
  std::vector<std::string> hosts;
};
std::vector<unsigned char> encode_announcement(const Announcement& announcement);
// What can be understood of it; hosts that are no numeric address, and more than
// kMemberAddressesMax of them, are left out.
Announcement decode_announcement(ByteSpan text);

// Announces this node and finds others of its cluster. The library may wait for its daemon, so it
// has a thread of its own, which is left behind if it does not end in time.
class Discovery {
 public:
  static std::unique_ptr<Discovery> start(const DnsSdApi& api, const Announcement& own,
                                          std::uint16_t port);
  ~Discovery();
  Discovery(const Discovery&) = delete;
  Discovery& operator=(const Discovery&) = delete;

  // Addresses of nodes that are announced now. Whoever answers there has yet to prove the key.
  std::vector<Address> found() const;
  // Why it has ended, once: one line for the log.
  std::string take_complaint();

 private:
  struct Shared;
  explicit Discovery(std::shared_ptr<Shared> shared) : shared_(std::move(shared)) {}
  std::shared_ptr<Shared> shared_;
};

}  // namespace sinew
