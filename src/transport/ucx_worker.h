#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "collective/link.h"
#include "transport/ucx_api.h"

namespace sinew {

// One send or receive that UCX has been given. Its buffer belongs to UCX while `pending()`.
class UcxRequest {
 public:
  UcxRequest() = default;  // done
  UcxRequest(const UcxApi& ucx, void* handle) : ucx_(&ucx), handle_(handle) {}
  ~UcxRequest() { reset(); }
  UcxRequest(UcxRequest&& other) noexcept
      : ucx_(other.ucx_), handle_(std::exchange(other.handle_, nullptr)) {}
  UcxRequest& operator=(UcxRequest&& other) noexcept;

  bool pending() const;
  // Whether a send that is no longer pending went well.
  Status sent() const;
  // Of a receive that is no longer pending: the bytes that came, or why none did.
  Result<std::size_t> received() const;
  void cancel(ucp_worker_h worker);
  // UCX ends what is pending by itself.
  void reset();

 private:
  const UcxApi* ucx_ = nullptr;
  void* handle_ = nullptr;
};

// A context of UCX, its one worker, and the memory that is sent from and received into: it lives
// until UCX touches it no more.
//
// Threads: one.
class UcxWorker {
 public:
  static Result<std::shared_ptr<UcxWorker>> open(const UcxApi& ucx, std::size_t memory_bytes);
  ~UcxWorker();
  UcxWorker(const UcxWorker&) = delete;
  UcxWorker& operator=(const UcxWorker&) = delete;

  const UcxApi& ucx() const { return *ucx_; }
  ucp_worker_h handle() const { return worker_; }
  // What a peer needs to connect to this worker.
  Result<std::vector<std::byte>> address() const;
  std::span<std::byte> memory() const;

  // Lets UCX work. False if nothing moved.
  bool progress() { return ucx_->worker_progress(worker_) != 0; }
  // Works until `done()`, for `longest` at most, sleeping shortly while nothing moves.
  template <typename Done>
  bool progress_until(const Done& done, std::chrono::milliseconds longest);
  // Becomes readable by news that come after `arm` has succeeded; -1 where the transports have no
  // such thing.
  int event_fd() const { return event_fd_; }
  // False if there is news already: `progress` first.
  bool arm();

  // The buffer must be untouched until the request is no longer pending.
  Result<UcxRequest> receive(std::span<std::byte> into, std::uint64_t tag);

 private:
  struct Memory;
  explicit UcxWorker(const UcxApi& ucx);
  void nap(Deadline until) const;

  const UcxApi* ucx_;
  std::unique_ptr<Memory> memory_;
  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  int event_fd_ = -1;
};

// The way to one peer's worker.
class UcxEndpoint {
 public:
  // `same_machine`: the peer runs here, where UCX offers shared memory only to those who do without
  // its word of failures. On a network that word is needed: without it, UCX ends a process that
  // sends to a lost peer.
  static Result<std::unique_ptr<UcxEndpoint>> connect(std::shared_ptr<UcxWorker> worker,
                                                      std::span<const std::byte> address,
                                                      bool same_machine);
  // Closes, for `kUcxCloseMax` at most.
  ~UcxEndpoint();
  UcxEndpoint(const UcxEndpoint&) = delete;
  UcxEndpoint& operator=(const UcxEndpoint&) = delete;

  Result<UcxRequest> send(std::span<const std::byte> bytes, std::uint64_t tag);
  // Until all that was sent has left this process, for `longest` at most.
  void flush(std::chrono::milliseconds longest);
  // Why the peer cannot be reached any more, once UCX has found out. Not all transports do.
  const std::optional<std::string>& failure() const { return failure_; }
  // UCX's names of the transports and devices in use, for people; empty if it does not say.
  std::string transports() const;

 private:
  explicit UcxEndpoint(std::shared_ptr<UcxWorker> worker) : worker_(std::move(worker)) {}
  ucs_status_t create(std::span<const std::byte> address, ucp_err_handling_mode_t mode);
  static void on_failure(void* endpoint, ucp_ep_h handle, ucs_status_t status);

  // Shared by the endpoints of a rank, which are closed one by one.
  std::shared_ptr<UcxWorker> worker_;
  ucp_ep_h handle_ = nullptr;
  bool told_of_failures_ = false;
  std::optional<std::string> failure_;
};

// How long a peer may hold up the end of a link that was sent something.
inline constexpr std::chrono::milliseconds kUcxCloseMax{200};

template <typename Done>
bool UcxWorker::progress_until(const Done& done, std::chrono::milliseconds longest) {
  const Deadline end = std::chrono::steady_clock::now() + longest;
  while (!done()) {
    if (progress()) continue;
    if (std::chrono::steady_clock::now() >= end) return done();
    nap(end);
  }
  return true;
}

}  // namespace sinew
