#include "transport/ucx_api.h"

#include <dlfcn.h>

#include <cstdlib>

namespace sinew {
namespace {

constexpr const char* kLibrary = "libucp.so.0";

template <typename Function>
bool find(void* library, const char* name, Function& into) {
  into = reinterpret_cast<Function>(dlsym(library, name));
  return into != nullptr;
}

bool find_all(void* library, UcxApi& ucx) {
  return find(library, "ucp_config_read", ucx.config_read) &&
         find(library, "ucp_config_release", ucx.config_release) &&
         find(library, "ucp_init_version", ucx.init_version) &&
         find(library, "ucp_cleanup", ucx.cleanup) &&
         find(library, "ucp_worker_create", ucx.worker_create) &&
         find(library, "ucp_worker_destroy", ucx.worker_destroy) &&
         find(library, "ucp_worker_get_address", ucx.worker_get_address) &&
         find(library, "ucp_worker_release_address", ucx.worker_release_address) &&
         find(library, "ucp_worker_progress", ucx.worker_progress) &&
         find(library, "ucp_worker_get_efd", ucx.worker_get_efd) &&
         find(library, "ucp_worker_arm", ucx.worker_arm) &&
         find(library, "ucp_ep_create", ucx.ep_create) &&
         find(library, "ucp_ep_close_nbx", ucx.ep_close) &&
         find(library, "ucp_ep_flush_nbx", ucx.ep_flush) &&
         find(library, "ucp_ep_print_info", ucx.ep_print_info) &&
         find(library, "ucp_tag_send_nbx", ucx.tag_send) &&
         find(library, "ucp_tag_recv_nbx", ucx.tag_recv) &&
         find(library, "ucp_tag_recv_request_test", ucx.tag_recv_test) &&
         find(library, "ucp_request_check_status", ucx.request_status) &&
         find(library, "ucp_request_cancel", ucx.request_cancel) &&
         find(library, "ucp_request_free", ucx.request_free) &&
         find(library, "ucs_status_string", ucx.status_string);
}

Result<UcxApi> load(bool show_log) {
  // A crash is the supervisor's to report, and a debugger started by UCX would hold the rank.
  setenv("UCX_HANDLE_ERRORS", "none", 0);
  if (!show_log) setenv("UCX_LOG_LEVEL", "fatal", 0);
  // Never closed: UCX keeps threads and exit handlers of its own.
  void* library = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  UcxApi ucx{};
  if (library == nullptr || !find_all(library, ucx)) {
    return fail(ErrorCode::kUnsupported,
                "ucx: {} cannot be loaded or is too old: install UCX 1.13 or later (Debian: "
                "libucx0), or use --link tcp",
                kLibrary);
  }
  return ucx;
}

}  // namespace

Result<const UcxApi*> load_ucx(bool show_log) {
  static const Result<UcxApi> loaded = load(show_log);
  if (!loaded) return fail(loaded.error());
  return &*loaded;
}

}  // namespace sinew
