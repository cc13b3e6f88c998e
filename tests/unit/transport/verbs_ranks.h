#pragma once

#include <array>
#include <functional>
#include <future>
#include <memory>
#include <vector>

#include "unit/transport/ranks.h"

namespace sinew::testing {

// Ranks of one group over a fake verbs stack; unlike Mesh it shows how bringing up ends, and takes
// options, epochs and cables.
class VerbsRanks {
 public:
  VerbsRanks(FakeFabric& fabric, int size, Epoch epoch = 7)
      : fabric_(fabric), size_(size), epoch_(epoch), options(static_cast<std::size_t>(size)) {
    for (Rank rank = 0; rank < size; ++rank) {
      auto listener = TcpListener::bind("127.0.0.1", 0);
      EXPECT_TRUE(listener) << listener.error().message;
      endpoints_.push_back({"127.0.0.1", listener->port()});
      listeners_.push_back(std::move(*listener));
    }
  }

  GroupIdentity identity(Rank rank) const {
    GroupIdentity own = identity_of(rank, size_);
    own.epoch = epoch_;
    return own;
  }

  // Brings every rank up, each on a thread of its own.
  std::vector<Result<Links>> connect() {
    std::vector<std::future<Result<Links>>> coming;
    for (Rank rank = 0; rank < size_; ++rank) {
      coming.push_back(std::async(std::launch::async, [this, rank] {
        const auto index = static_cast<std::size_t>(rank);
        return connect_verbs_links(identity(rank), fabric_.provider(rank), options[index],
                                   listeners_[index], endpoints_, in(milliseconds{20000}));
      }));
    }
    std::vector<Result<Links>> links;
    for (auto& one : coming) links.push_back(one.get());
    return links;
  }

  // The links of all ranks; a failure of the test if there are none.
  std::vector<Links> links() {
    std::vector<Links> all;
    for (auto& one : connect()) {
      EXPECT_TRUE(one) << one.error().message;
      all.push_back(one ? std::move(*one) : Links(static_cast<std::size_t>(size_)));
    }
    return all;
  }

 private:
  FakeFabric& fabric_;  // outlives the ranks
  int size_;
  Epoch epoch_;
  std::vector<TcpListener> listeners_;
  std::vector<Endpoint> endpoints_;

 public:
  std::vector<VerbsOptions> options;  // by rank
};

}  // namespace sinew::testing
