// An error that nobody looks at does not compile.
#include "base/result.h"

namespace sinew {

Status step() {
  return fail(ErrorCode::kIo, "disk");
}

bool caller() {
#ifdef MUST_FAIL
  step();
  return true;
#else
  return step().has_value();
#endif
}

}  // namespace sinew
