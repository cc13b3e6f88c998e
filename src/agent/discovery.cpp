#include "agent/discovery.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <map>
#include <mutex>
#include <set>
#include <thread>

namespace sinew {
namespace {

#ifdef __APPLE__
constexpr const char* kLibrary = "/usr/lib/libSystem.B.dylib";
#else
constexpr const char* kLibrary = "libdns_sd.so.1";
#endif
constexpr const char* kType = "_sinew._tcp";
constexpr std::uint32_t kFlagAdd = 2;
constexpr int kPollMs = 200;
constexpr std::chrono::seconds kEndMax{1};
constexpr std::chrono::seconds kResolveMax{10};
constexpr std::size_t kServicesMax = 64;
constexpr std::size_t kTextItemMax = 255;
using Clock = std::chrono::steady_clock;

bool is_numeric(const std::string& host) {
  std::array<std::uint8_t, 16> bytes{};
  return ::inet_pton(AF_INET, host.c_str(), bytes.data()) == 1 ||
         ::inet_pton(AF_INET6, host.c_str(), bytes.data()) == 1;
}

}  // namespace

Result<DnsSdApi> load_dns_sd() {
#ifndef __APPLE__
  // Avahi's library otherwise tells every user to use another interface.
  ::setenv("AVAHI_COMPAT_NOWARN", "1", 0);
#endif
  void* library = ::dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  DnsSdApi api;
  const auto find = [library](const char* name, auto& into) {
    into = reinterpret_cast<std::remove_reference_t<decltype(into)>>(::dlsym(library, name));
    return into != nullptr;
  };
  if (library == nullptr || !find("DNSServiceRegister", api.announce) ||
      !find("DNSServiceBrowse", api.browse) || !find("DNSServiceResolve", api.resolve) ||
      !find("DNSServiceRefSockFD", api.descriptor) ||
      !find("DNSServiceProcessResult", api.process) ||
      !find("DNSServiceRefDeallocate", api.release))
    return fail(ErrorCode::kUnsupported,
                "{} is not there (Debian: libavahi-compat-libdnssd1 and avahi-daemon)", kLibrary);
  return api;
}

std::vector<unsigned char> encode_announcement(const Announcement& announcement) {
  std::vector<unsigned char> text;
  const auto add = [&text](const std::string& item) {
    if (item.size() > kTextItemMax) return;
    text.push_back(static_cast<unsigned char>(item.size()));
    text.insert(text.end(), item.begin(), item.end());
  };
  add("c=" + announcement.cluster);
  add("n=" + announcement.node);
  for (const std::string& host : announcement.hosts) add("a=" + host);
  return text;
}

Announcement decode_announcement(ByteSpan text) {
  Announcement found;
  for (std::size_t at = 0; at < text.size();) {
    const auto size = static_cast<std::size_t>(text[at]);
    ++at;
    if (size > text.size() - at) break;
    const std::string item(reinterpret_cast<const char*>(text.data() + at), size);
    at += size;
    const std::string value = item.size() < 2 ? "" : item.substr(2);
    if (item.starts_with("c=")) found.cluster = value;
    if (item.starts_with("n=")) found.node = value;
    if (item.starts_with("a=") && is_numeric(value) && found.hosts.size() < kMemberAddressesMax)
      found.hosts.push_back(value);
  }
  return found;
}

struct Discovery::Shared {
  DnsSdApi api;
  Announcement own;
  std::uint16_t port = 0;

  mutable std::mutex mutex;
  std::condition_variable changed;
  bool stop = false;
  bool ended = false;
  std::string complaint;
  std::map<std::string, std::vector<Address>> services;  // by the name that the network gives

  // The thread's own.
  struct Resolving {
    Shared* shared = nullptr;
    std::string name;
    DnsSdApi::Ref ref = nullptr;
    Clock::time_point end;
    bool done = false;
  };
  std::vector<std::unique_ptr<Resolving>> resolving;

  static void on_announced(DnsSdApi::Ref, std::uint32_t, std::int32_t, const char*, const char*,
                           const char*, void*) {}
  static void on_browsed(DnsSdApi::Ref, std::uint32_t flags, std::uint32_t interface,
                         std::int32_t error, const char* name, const char* type, const char* domain,
                         void* context);
  static void on_resolved(DnsSdApi::Ref, std::uint32_t, std::uint32_t, std::int32_t error,
                          const char*, const char*, std::uint16_t port, std::uint16_t text_size,
                          const unsigned char* text, void* context);
  void run();
  void work();
  bool stopping() const {
    const std::lock_guard lock(mutex);
    return stop;
  }
  void complain(const char* what, std::int32_t error) {
    const std::lock_guard lock(mutex);
    complaint = fmt::format(
        "cannot {} on the local network (dns_sd error {}): is avahi-daemon running? --peer and "
        "--join need none",
        what, error);
  }
};

void Discovery::Shared::on_browsed(DnsSdApi::Ref, std::uint32_t flags, std::uint32_t interface,
                                   std::int32_t error, const char* name, const char* type,
                                   const char* domain, void* context) {
  auto* shared = static_cast<Shared*>(context);
  if (error != 0) return;
  if ((flags & kFlagAdd) == 0) {
    const std::lock_guard lock(shared->mutex);
    shared->services.erase(name);
    return;
  }
  if (shared->resolving.size() >= kServicesMax) return;  // asked again when it is announced again
  auto one = std::make_unique<Resolving>();
  one->shared = shared;
  one->name = name;
  one->end = Clock::now() + kResolveMax;
  if (shared->api.resolve(&one->ref, 0, interface, name, type, domain, &on_resolved, one.get()) ==
      0)
    shared->resolving.push_back(std::move(one));
}

void Discovery::Shared::on_resolved(DnsSdApi::Ref, std::uint32_t, std::uint32_t, std::int32_t error,
                                    const char*, const char*, std::uint16_t port,
                                    std::uint16_t text_size, const unsigned char* text,
                                    void* context) {
  auto* one = static_cast<Resolving*>(context);
  one->done = true;
  if (error != 0) return;
  const Announcement said =
      decode_announcement(std::as_bytes(std::span<const unsigned char>(text, text_size)));
  Shared& shared = *one->shared;
  if (said.cluster != shared.own.cluster || said.node == shared.own.node) return;
  std::vector<Address> addresses;
  for (const std::string& host : said.hosts)
    addresses.push_back({PathKind::kUnknown, false, host, ntohs(port)});
  const std::lock_guard lock(shared.mutex);
  if (shared.services.size() < kServicesMax) shared.services[one->name] = std::move(addresses);
}

void Discovery::Shared::work() {
  DnsSdApi::Ref announced = nullptr;
  DnsSdApi::Ref browsed = nullptr;
  const std::vector<unsigned char> text = encode_announcement(own);
  const std::string name = "sinew-" + own.node.substr(0, 8);
  const std::int32_t announce_error =
      api.announce(&announced, 0, 0, name.c_str(), kType, nullptr, nullptr, htons(port),
                   static_cast<std::uint16_t>(text.size()), text.data(), &on_announced, this);
  if (announce_error != 0) return complain("announce this node", announce_error);
  const std::int32_t browse_error = api.browse(&browsed, 0, 0, kType, nullptr, &on_browsed, this);
  if (browse_error != 0) {
    api.release(announced);
    return complain("look for other nodes", browse_error);
  }
  std::int32_t error = 0;
  while (error == 0 && !stopping()) {
    std::vector<pollfd> polls{{api.descriptor(announced), POLLIN, 0},
                              {api.descriptor(browsed), POLLIN, 0}};
    for (const auto& one : resolving) polls.push_back({api.descriptor(one->ref), POLLIN, 0});
    const std::size_t resolves = resolving.size();  // answers to browsing add more
    ::poll(polls.data(), static_cast<nfds_t>(polls.size()), kPollMs);
    // Processing waits where nothing has come.
    if (polls[0].revents != 0) error = api.process(announced);
    for (std::size_t i = 0; i < resolves; ++i) {
      Resolving& one = *resolving[i];
      if (polls[i + 2].revents != 0 && api.process(one.ref) != 0) one.done = true;
      if (Clock::now() > one.end) one.done = true;
    }
    if (error == 0 && polls[1].revents != 0) error = api.process(browsed);
    for (const auto& one : resolving) {
      if (one->done) api.release(one->ref);
    }
    std::erase_if(resolving, [](const auto& one) { return one->done; });
  }
  if (error != 0) complain("go on looking for nodes", error);
  for (const auto& one : resolving) api.release(one->ref);
  resolving.clear();
  api.release(browsed);
  api.release(announced);
}

void Discovery::Shared::run() {
  work();
  const std::lock_guard lock(mutex);
  services.clear();  // nobody keeps them true any more
  ended = true;
  changed.notify_all();
}

std::unique_ptr<Discovery> Discovery::start(const DnsSdApi& api, const Announcement& own,
                                            std::uint16_t port) {
  auto shared = std::make_shared<Shared>();
  shared->api = api;
  shared->own = own;
  shared->port = port;
  std::thread([shared] { shared->run(); }).detach();
  return std::unique_ptr<Discovery>(new Discovery(std::move(shared)));
}

Discovery::~Discovery() {
  std::unique_lock lock(shared_->mutex);
  shared_->stop = true;
  shared_->changed.wait_for(lock, kEndMax, [this] { return shared_->ended; });
}

std::vector<Address> Discovery::found() const {
  const std::lock_guard lock(shared_->mutex);
  std::vector<Address> all;
  for (const auto& [name, addresses] : shared_->services)
    all.insert(all.end(), addresses.begin(), addresses.end());
  return all;
}

std::string Discovery::take_complaint() {
  const std::lock_guard lock(shared_->mutex);
  return std::exchange(shared_->complaint, {});
}

}  // namespace sinew
