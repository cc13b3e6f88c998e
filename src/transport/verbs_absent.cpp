// In the place of verbs_system.cpp where the build found no header of a verbs stack.
#include "transport/verbs_bringup.h"

namespace sinew {

Result<std::shared_ptr<VerbsProvider>> load_system_verbs() {
  return fail(ErrorCode::kUnsupported,
              "verbs: this build has no support for it: build again where infiniband/verbs.h is "
              "installed (Debian: libibverbs-dev; macOS: a developer kit of 26.2 or later)");
}

}  // namespace sinew
