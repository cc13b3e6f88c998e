#pragma once

#include <ucp/api/ucp.h>

#include "base/result.h"

namespace sinew {

// The functions of UCX that the link uses, found at run time: one program runs with and without the
// library, and UCX reads its settings when it is loaded, so they can be given defaults first.
struct UcxApi {
  decltype(&ucp_config_read) config_read;
  decltype(&ucp_config_release) config_release;
  decltype(&ucp_init_version) init_version;
  decltype(&ucp_cleanup) cleanup;
  decltype(&ucp_worker_create) worker_create;
  decltype(&ucp_worker_destroy) worker_destroy;
  decltype(&ucp_worker_get_address) worker_get_address;
  decltype(&ucp_worker_release_address) worker_release_address;
  decltype(&ucp_worker_progress) worker_progress;
  decltype(&ucp_worker_get_efd) worker_get_efd;
  decltype(&ucp_worker_arm) worker_arm;
  decltype(&ucp_ep_create) ep_create;
  decltype(&ucp_ep_close_nbx) ep_close;
  decltype(&ucp_ep_flush_nbx) ep_flush;
  decltype(&ucp_ep_print_info) ep_print_info;
  decltype(&ucp_tag_send_nbx) tag_send;
  decltype(&ucp_tag_recv_nbx) tag_recv;
  decltype(&ucp_tag_recv_request_test) tag_recv_test;
  decltype(&ucp_request_check_status) request_status;
  decltype(&ucp_request_cancel) request_cancel;
  decltype(&ucp_request_free) request_free;
  decltype(&ucs_status_string) status_string;
};

// Loads UCX at the first call and keeps it. Unless the environment says otherwise, UCX installs no
// signal handlers, and writes to standard error only if `show_log` (of the first call).
// kUnsupported, with the remedy, where the library is missing.
//
// Threads: any.
Result<const UcxApi*> load_ucx(bool show_log);

}  // namespace sinew
