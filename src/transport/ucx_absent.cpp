// In the place of the other ucx_*.cpp where the build found no header of UCX.
#include "transport/ucx_link.h"

namespace sinew {

Result<Links> make_ucx_links(const GroupIdentity&, std::vector<Socket>, const LinkShare&,
                             const UcxOptions&, Deadline) {
  return fail(ErrorCode::kUnsupported,
              "ucx: this build has no support for it: build again where ucp/api/ucp.h is installed "
              "(Debian: libucx-dev), or use --link tcp");
}

}  // namespace sinew
