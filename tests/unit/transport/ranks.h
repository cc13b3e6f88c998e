#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "collective/mesh_group.h"
#include "transport/shm_link.h"
#include "transport/tcp_link.h"
#include "transport/ucx_link.h"

namespace sinew::testing {

using std::chrono::milliseconds;

inline Deadline in(milliseconds time) {
  return std::chrono::steady_clock::now() + time;
}

inline GroupIdentity identity_of(Rank rank, int size) {
  return {JobId{{0x1234, 0x5678}}, 7, rank, size};
}

// kMixed: neighbours by rank talk over TCP, other pairs over shared memory. The kinds of UCX name
// the transport that it may use.
enum class Transport { kShm, kTcp, kMixed, kUcxTcp, kUcxPosix, kUcxSysv };

inline bool over_ucx(Transport transport) {
  return transport == Transport::kUcxTcp || transport == Transport::kUcxPosix ||
         transport == Transport::kUcxSysv;
}

// All that this build and machine have.
inline std::vector<Transport> all_transports() {
  std::vector<Transport> all{Transport::kShm, Transport::kTcp, Transport::kMixed};
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
    for (Rank rank = 0; rank < size; ++rank) {
      auto listener = TcpListener::bind("127.0.0.1", 0);
      EXPECT_TRUE(listener) << listener.error().message;
      endpoints_.push_back({"127.0.0.1", listener->port()});
      listeners_.push_back(std::move(*listener));
    }
  }

  int size() const { return size_; }

  Result<Links> links(Rank rank) {
    const GroupIdentity identity = identity_of(rank, size_);
    switch (transport_) {
      case Transport::kShm:
        return make_shm_links(segment_.front(), identity);
      case Transport::kTcp:
        return connect_tcp_links(identity, listeners_[static_cast<std::size_t>(rank)], endpoints_,
                                 in(milliseconds{10000}));
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
  }

 private:
  Result<Links> ucx_links(const GroupIdentity& identity) {
    SINEW_ASSIGN(std::vector<Socket> sockets,
                 connect_tcp_sockets(identity, listeners_[static_cast<std::size_t>(identity.rank)],
                                     endpoints_, in(milliseconds{10000})));
    return make_ucx_links(identity, std::move(sockets), LinkShare::everyone(identity), {},
                          in(milliseconds{10000}));
  }
  Result<Links> mixed_links(const GroupIdentity& identity) {
    const LinkShare all = LinkShare::everyone(identity);
    LinkShare tcp{all.hub, {}};
    for (Rank peer = 0; peer < size_; ++peer) {
      if (peer == identity.rank - 1 || peer == identity.rank + 1) tcp.peers = tcp.peers.with(peer);
    }
    const LinkShare shm{all.hub, {all.peers.bits & ~tcp.peers.bits}};
    SINEW_ASSIGN(std::vector<Socket> sockets,
                 connect_tcp_sockets(identity, listeners_[static_cast<std::size_t>(identity.rank)],
                                     endpoints_, in(milliseconds{10000})));
    SINEW_ASSIGN(Links links, make_shm_links(segment_.front(), identity, shm));
    add_links(links, make_tcp_links(std::move(sockets), tcp));
    return links;
  }

  Transport transport_;
  int size_;
  std::vector<ShmSegment> segment_;  // one, or none
  std::vector<TcpListener> listeners_;
  std::vector<Endpoint> endpoints_;
};

}  // namespace sinew::testing
