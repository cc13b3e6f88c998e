#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "cluster/node.h"

namespace sinew {

using RequestId = std::uint64_t;

// The requests that this node has taken from its clients, with all that is needed to go on with
// them in another epoch: the prompt and the tokens that were delivered. A token is delivered once
// and in order, whatever ranks of old epochs still send. The draw of a token depends on seed and
// index alone, so that another engine continues the same answer.
class RequestLog {
 public:
  struct Settings {
    Time recover_max = std::chrono::seconds{30};  // without an epoch or a token: the request fails
    Time resend_after = std::chrono::seconds{3};  // without a token: the head is asked again
    std::size_t requests_max = 256;
  };
  // What the head of an epoch is asked: prefill prompt and tokens, then go on with index
  // `tokens.size()`.
  struct Begin {
    RequestId request = 0;
    Epoch epoch = 0;
    std::vector<TokenId> prompt;
    std::vector<TokenId> tokens;
    std::uint32_t tokens_max = 0;
  };
  struct Delivery {
    RequestId request = 0;
    std::optional<TokenId> token;
    bool ended = false;  // the last delivery of a request
    Status status;       // with `ended`: how
  };

  explicit RequestLog(Settings settings) : settings_(settings) {}

  // kInvalidRequest if the id is taken or there are too many. `tokens_max` is at least 1.
  Result<std::optional<Begin>> submit(Time now, RequestId id, std::vector<TokenId> prompt,
                                      std::uint32_t tokens_max);
  void cancel(RequestId id) { requests_.erase(id); }
  // The model runs in `epoch`: every request goes on there. Nothing for an epoch that is not newer.
  std::vector<Begin> epoch_started(Time now, Epoch epoch);
  // The model runs nowhere; requests keep their tokens and wait.
  void epoch_ended(Epoch epoch);
  // A token from the head of `epoch`; `last` if the answer ends with it. Nothing if it is of
  // another epoch, was delivered already, or one before it is missing.
  std::optional<Delivery> token(Time now, Epoch epoch, RequestId id, std::uint32_t index,
                                TokenId token, bool last);
  struct Due {
    std::vector<Begin> again;
    std::vector<Delivery> failed;
  };
  Due tick(Time now);
  std::size_t size() const { return requests_.size(); }

 private:
  struct Request {
    std::vector<TokenId> prompt;
    std::vector<TokenId> tokens;
    std::uint32_t tokens_max = 0;
    Time progressed{};
    Time asked{};
  };
  Begin begin(Time now, RequestId id, Request& request) const;

  Settings settings_;
  Epoch newest_ = 0;
  bool running_ = false;
  std::map<RequestId, Request> requests_;
};

}  // namespace sinew
