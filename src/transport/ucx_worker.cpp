#include "transport/ucx_worker.h"

#include <poll.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <new>

#include "base/limits.h"
#include "transport/poll_timeout.h"

namespace sinew {
namespace {

constexpr std::size_t kPageBytes = 4096;

tl::unexpected<Error> ucx_error(const UcxApi& ucx, std::string_view what, ucs_status_t status) {
  return fail(ErrorCode::kIo, "ucx: {}: {}", what, ucx.status_string(status));
}

// A request, done (null), or an error, in the pointer that UCX returns.
Result<UcxRequest> request_of(const UcxApi& ucx, std::string_view what, ucs_status_ptr_t pointer) {
  if (UCS_PTR_IS_ERR(pointer)) return ucx_error(ucx, what, UCS_PTR_STATUS(pointer));
  return UcxRequest(ucx, pointer);
}

}  // namespace

UcxRequest& UcxRequest::operator=(UcxRequest&& other) noexcept {
  if (this != &other) {
    reset();
    ucx_ = other.ucx_;
    handle_ = std::exchange(other.handle_, nullptr);
  }
  return *this;
}

bool UcxRequest::pending() const {
  return handle_ != nullptr && ucx_->request_status(handle_) == UCS_INPROGRESS;
}

Status UcxRequest::sent() const {
  const ucs_status_t status = handle_ == nullptr ? UCS_OK : ucx_->request_status(handle_);
  if (status != UCS_OK) return ucx_error(*ucx_, "a message was not sent", status);
  return {};
}

Result<std::size_t> UcxRequest::received() const {
  ucp_tag_recv_info_t info{};
  const ucs_status_t status = ucx_->tag_recv_test(handle_, &info);
  if (status != UCS_OK) return ucx_error(*ucx_, "a message did not arrive", status);
  return info.length;
}

void UcxRequest::cancel(ucp_worker_h worker) {
  if (pending()) ucx_->request_cancel(worker, handle_);
}

void UcxRequest::reset() {
  if (handle_ != nullptr) ucx_->request_free(handle_);
  handle_ = nullptr;
}

struct UcxWorker::Memory {
  explicit Memory(std::size_t count)
      : bytes(static_cast<std::byte*>(::operator new (count, std::align_val_t{kPageBytes}))),
        size(count) {}
  ~Memory() { ::operator delete (bytes, std::align_val_t{kPageBytes}); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  std::byte* bytes;
  std::size_t size;
};

UcxWorker::UcxWorker(const UcxApi& ucx) : ucx_(&ucx) {}

Result<std::shared_ptr<UcxWorker>> UcxWorker::open(const UcxApi& ucx, std::size_t memory_bytes) {
  std::shared_ptr<UcxWorker> worker(new UcxWorker(ucx));
  worker->memory_ = std::make_unique<Memory>(memory_bytes);

  ucp_config_t* config = nullptr;
  ucs_status_t status = ucx.config_read(nullptr, nullptr, &config);
  if (status != UCS_OK) return ucx_error(ucx, "its environment (UCX_..) is wrong", status);
  ucp_params_t params{};
  params.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_ESTIMATED_NUM_EPS;
  params.features = UCP_FEATURE_TAG | UCP_FEATURE_WAKEUP;
  params.estimated_num_eps = kRankCountMax;
  status = ucx.init_version(UCP_API_MAJOR, UCP_API_MINOR, &params, config, &worker->context_);
  ucx.config_release(config);
  if (status != UCS_OK) {
    worker->context_ = nullptr;
    return ucx_error(ucx, "no transport can be used (UCX_TLS, UCX_NET_DEVICES)", status);
  }

  ucp_worker_params_t worker_params{};
  worker_params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  worker_params.thread_mode = UCS_THREAD_MODE_SINGLE;
  status = ucx.worker_create(worker->context_, &worker_params, &worker->worker_);
  if (status != UCS_OK) {
    worker->worker_ = nullptr;
    return ucx_error(ucx, "cannot start", status);
  }
  if (ucx.worker_get_efd(worker->worker_, &worker->event_fd_) != UCS_OK) worker->event_fd_ = -1;
  return worker;
}

UcxWorker::~UcxWorker() {
  if (worker_ != nullptr) ucx_->worker_destroy(worker_);
  if (context_ != nullptr) ucx_->cleanup(context_);
}

std::span<std::byte> UcxWorker::memory() const {
  return {memory_->bytes, memory_->size};
}

Result<std::vector<std::byte>> UcxWorker::address() const {
  ucp_address_t* address = nullptr;
  std::size_t length = 0;
  const ucs_status_t status = ucx_->worker_get_address(worker_, &address, &length);
  if (status != UCS_OK) return ucx_error(*ucx_, "has no address", status);
  const auto* bytes = reinterpret_cast<const std::byte*>(address);
  std::vector<std::byte> copy(bytes, bytes + length);
  ucx_->worker_release_address(worker_, address);
  return copy;
}

bool UcxWorker::arm() {
  return event_fd_ >= 0 && ucx_->worker_arm(worker_) == UCS_OK;
}

void UcxWorker::nap(Deadline until) const {
  constexpr std::chrono::milliseconds kNap{1};
  poll(nullptr, 0, poll_timeout(std::min(until, std::chrono::steady_clock::now() + kNap)));
}

Result<UcxRequest> UcxWorker::receive(std::span<std::byte> into, std::uint64_t tag) {
  ucp_request_param_t param{};
  // What has come is read from a request, also if it came before this call.
  param.op_attr_mask = UCP_OP_ATTR_FLAG_NO_IMM_CMPL | UCP_OP_ATTR_FIELD_MEMORY_TYPE;
  param.memory_type = UCS_MEMORY_TYPE_HOST;
  constexpr ucp_tag_t kWholeTag = ~ucp_tag_t{0};
  return request_of(*ucx_, "cannot receive",
                    ucx_->tag_recv(worker_, into.data(), into.size(), tag, kWholeTag, &param));
}

Result<std::unique_ptr<UcxEndpoint>> UcxEndpoint::connect(std::shared_ptr<UcxWorker> worker,
                                                          std::span<const std::byte> address,
                                                          bool same_machine) {
  std::unique_ptr<UcxEndpoint> endpoint(new UcxEndpoint(std::move(worker)));
  endpoint->told_of_failures_ = !same_machine;
  const ucs_status_t status = endpoint->create(
      address, same_machine ? UCP_ERR_HANDLING_MODE_NONE : UCP_ERR_HANDLING_MODE_PEER);
  if (status != UCS_OK) {
    return ucx_error(endpoint->worker_->ucx(),
                     "no transport reaches the peer (UCX_TLS, UCX_NET_DEVICES)", status);
  }
  return endpoint;
}

ucs_status_t UcxEndpoint::create(std::span<const std::byte> address, ucp_err_handling_mode_t mode) {
  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.address = reinterpret_cast<const ucp_address_t*>(address.data());
  params.err_mode = mode;
  params.err_handler = {&UcxEndpoint::on_failure, this};
  const ucs_status_t status = worker_->ucx().ep_create(worker_->handle(), &params, &handle_);
  if (status != UCS_OK) handle_ = nullptr;
  return status;
}

void UcxEndpoint::on_failure(void* endpoint, ucp_ep_h, ucs_status_t status) {
  auto& own = *static_cast<UcxEndpoint*>(endpoint);
  if (!own.failure_) own.failure_ = own.worker_->ucx().status_string(status);
}

UcxEndpoint::~UcxEndpoint() {
  if (handle_ == nullptr) return;
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
  // Without this flag UCX waits for the peer, which may be gone; with it, what is pending fails.
  // UCX takes it only where it watches for failures.
  param.flags = told_of_failures_ ? std::uint32_t{UCP_EP_CLOSE_FLAG_FORCE} : 0;
  const auto closing =
      request_of(worker_->ucx(), "cannot close", worker_->ucx().ep_close(handle_, &param));
  if (closing) worker_->progress_until([&] { return !closing->pending(); }, kUcxCloseMax);
}

Result<UcxRequest> UcxEndpoint::send(std::span<const std::byte> bytes, std::uint64_t tag) {
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_MEMORY_TYPE;
  param.memory_type = UCS_MEMORY_TYPE_HOST;
  return request_of(worker_->ucx(), "cannot send",
                    worker_->ucx().tag_send(handle_, bytes.data(), bytes.size(), tag, &param));
}

void UcxEndpoint::flush(std::chrono::milliseconds longest) {
  ucp_request_param_t param{};
  const auto flushing =
      request_of(worker_->ucx(), "cannot flush", worker_->ucx().ep_flush(handle_, &param));
  if (!flushing) return;
  worker_->progress_until([&] { return !flushing->pending() || failure_; }, longest);
}

std::string UcxEndpoint::transports() const {
  // UCX 1.13 tells them in no other way than by lines such as
  // "#                 lane[0]:  2:tcp/eth0.0 md[2]            -> addr[1]..".
  char* text = nullptr;
  std::size_t size = 0;
  std::FILE* stream = open_memstream(&text, &size);
  if (stream == nullptr) return {};
  worker_->ucx().ep_print_info(handle_, stream);
  std::fclose(stream);
  const std::unique_ptr<char, decltype(&std::free)> owner(text, &std::free);
  const std::string_view info(text, size);
  std::string names;
  for (std::size_t at = info.find("lane["); at != std::string_view::npos;
       at = info.find("lane[", at + 1)) {
    const std::string_view line = info.substr(at, info.find('\n', at) - at);
    const std::size_t begin = line.find_last_of(':', line.find('/'));
    if (line.find('/') == std::string_view::npos || begin == std::string_view::npos) continue;
    std::string_view name = line.substr(begin + 1);
    name = name.substr(0, name.find(' '));
    if (names.find(name) != std::string::npos) continue;
    if (!names.empty()) names += ", ";
    names += name;
  }
  return names;
}

}  // namespace sinew
