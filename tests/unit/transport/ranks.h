#pragma once

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "collective/mesh_group.h"
#include "support/fake_verbs.h"
#include "transport/shm_link.h"
#include "transport/tcp_link.h"
#include "transport/ucx_link.h"
#include "transport/verbs_bringup.h"

namespace sinew::testing {

using std::chrono::milliseconds;

inline Deadline in(milliseconds time) {
  return std::chrono::steady_clock::now() + time;
}

inline GroupIdentity identity_of(Rank rank, int size) {
  return {JobId{{0x1234, 0x5678}}, 7, rank, size};
}

// kUc, kRc: verbs over a fake stack with Apple's rules, and with those of Linux. kMixed: neighbours
// by rank talk over verbs, the next but one over TCP, other pairs over shared memory. The kinds of
// UCX name the transport that it may use.
enum class Transport { kShm, kTcp, kUc, kRc, kMixed, kUcxTcp, kUcxPosix, kUcxSysv };

inline bool over_ucx(Transport transport) {
  return transport == Transport::kUcxTcp || transport == Transport::kUcxPosix ||
         transport == Transport::kUcxSysv;
}

// All that this build and machine have.
inline std::vector<Transport> all_transports() {
  std::vector<Transport> all{Transport::kShm, Transport::kTcp, Transport::kUc, Transport::kRc,
                             Transport::kMixed};
#ifdef SINEW_HAS_UCX
  all.insert(all.end(), {Transport::kUcxTcp, Transport::kUcxPosix, Transport::kUcxSysv});
#endif
  return all;
}

inline std::string transport_name(Transport transport) {
  switch (transport) {
    case Transport::kShm:
      return "shm";
    case Transport::kTcp:
      return "tcp";
    case Transport::kUc:
      return "uc";
    case Transport::kRc:
      return "rc";
    case Transport::kMixed:
      return "mixed";
    case Transport::kUcxTcp:
      return "ucx_tcp";
    case Transport::kUcxPosix:
      return "ucx_posix";
    case Transport::kUcxSysv:
      return "ucx_sysv";
  }
  return "?";
}

// The device that SINEW_VERBS_DEVICE names: kUc and kRc then are verbs over the system's stack, as
// in tests/guest. Null without it.
inline const char* real_verbs_device() {
  return std::getenv("SINEW_VERBS_DEVICE");
}

// One group over a real transport whose ranks are threads of this process, or its forked children.
class Mesh {
 public:
  Mesh(Transport transport, int size) : transport_(transport), size_(size) {
    if (transport == Transport::kUcxTcp) setenv("UCX_TLS", "tcp,self", 1);
    if (transport == Transport::kUcxPosix) setenv("UCX_TLS", "posix,self", 1);
    if (transport == Transport::kUcxSysv) setenv("UCX_TLS", "sysv,self", 1);
    if (transport == Transport::kShm || transport == Transport::kMixed) {
      auto segment = ShmSegment::create(size);
      EXPECT_TRUE(segment) << segment.error().message;
      segment_.push_back(std::move(*segment));
    }
    if (transport == Transport::kShm) return;
    const bool faked = transport == Transport::kMixed || real_verbs_device() == nullptr;
    if (transport != Transport::kTcp && !over_ucx(transport) && faked) {
      fabric_ = std::make_unique<FakeFabric>(
          transport == Transport::kRc ? FakeStack::kLinux : FakeStack::kApple, size);
    }
    for (Rank rank = 0; rank < size; ++rank) {
      auto listener = TcpListener::bind("127.0.0.1", 0);
      EXPECT_TRUE(listener) << listener.error().message;
      endpoints_.push_back({"127.0.0.1", listener->port()});
      listeners_.push_back(std::move(*listener));
    }
  }

  ~Mesh() {
    if (!fabric_) return;
    EXPECT_EQ(fabric_->violations(), 0u) << fabric_->first_violation();
    EXPECT_EQ(fabric_->counts().met_no_receive, 0u);
  }
  Mesh(const Mesh&) = delete;
  Mesh& operator=(const Mesh&) = delete;

  int size() const { return size_; }

  Result<Links> links(Rank rank) {
    const GroupIdentity identity = identity_of(rank, size_);
    switch (transport_) {
      case Transport::kShm:
        return make_shm_links(segment_.front(), identity);
      case Transport::kTcp:
        return connect_tcp_links(identity, listeners_[static_cast<std::size_t>(rank)], endpoints_,
                                 in(milliseconds{10000}));
      case Transport::kUc:
      case Transport::kRc:
        return verbs_links(identity);
      case Transport::kMixed:
        return mixed_links(identity);
      case Transport::kUcxTcp:
      case Transport::kUcxPosix:
      case Transport::kUcxSysv:
        return ucx_links(identity);
    }
    return Links();
  }

  std::unique_ptr<Group> group(Rank rank, const GroupOptions& options = {}) {
    auto made = links(rank);
    if (!made) {
      ADD_FAILURE() << made.error().message;
      std::abort();
    }
    return make_group(identity_of(rank, size_), std::move(*made), options);
  }

  // Runs `body(group)` as every rank at once, one thread each.
  void run(const std::function<void(Group&)>& body, const GroupOptions& options = {}) {
    std::vector<std::thread> threads;
    for (Rank rank = 0; rank < size_; ++rank) {
      threads.emplace_back([&, rank] {
        const auto own = group(rank, options);
        body(*own);
      });
    }
    for (std::thread& thread : threads) thread.join();
    if (fabric_) {
      EXPECT_EQ(fabric_->leaks(), 0);
    }
  }

 private:
  Result<Links> verbs_links(const GroupIdentity& identity) {
    VerbsOptions options;
    if (!fabric_) {
      options.devices = {real_verbs_device()};
      options.qp_type = transport_ == Transport::kRc ? VerbsQpType::kRc : VerbsQpType::kUc;
    }
    return connect_verbs_links(
        identity, fabric_ ? fabric_->provider(identity.rank) : load_system_verbs(), options,
        listeners_[static_cast<std::size_t>(identity.rank)], endpoints_, in(milliseconds{10000}));
  }

  Result<Links> ucx_links(const GroupIdentity& identity) {
    SINEW_ASSIGN(std::vector<Socket> sockets,
                 connect_tcp_sockets(identity, listeners_[static_cast<std::size_t>(identity.rank)],
                                     endpoints_, in(milliseconds{10000})));
    return make_ucx_links(identity, std::move(sockets), LinkShare::everyone(identity), {},
                          in(milliseconds{10000}));
  }
  Result<Links> mixed_links(const GroupIdentity& identity) {
    const LinkShare all = LinkShare::everyone(identity);
    LinkShare verbs{all.hub, {}}, tcp{all.hub, {}}, shm{all.hub, {}};
    for (Rank peer = 0; peer < size_; ++peer) {
      if (peer == identity.rank) continue;
      const int distance = std::abs(peer - identity.rank);
      LinkShare& share = distance == 1 ? verbs : distance == 2 ? tcp : shm;
      share.peers = share.peers.with(peer);
    }
    SINEW_ASSIGN(std::vector<Socket> sockets,
                 connect_tcp_sockets(identity, listeners_[static_cast<std::size_t>(identity.rank)],
                                     endpoints_, in(milliseconds{10000})));
    SINEW_ASSIGN(VerbsBringUp up,
                 bring_up_verbs(identity, fabric_->provider(identity.rank), {}, verbs.peers,
                                std::move(sockets), in(milliseconds{10000})));
    if (up.refusal) return fail(*up.refusal);
    SINEW_ASSIGN(Links links, make_shm_links(segment_.front(), identity, shm));
    add_links(links, make_tcp_links(std::move(up.sockets), tcp));
    add_links(links, make_verbs_links(size_, std::move(up.connections), all.hub));
    return links;
  }

  Transport transport_;
  int size_;
  std::unique_ptr<FakeFabric> fabric_;  // of verbs
  std::vector<ShmSegment> segment_;     // one, or none
  std::vector<TcpListener> listeners_;
  std::vector<Endpoint> endpoints_;
};

}  // namespace sinew::testing
