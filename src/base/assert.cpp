#include "base/assert.h"

#include <cstdio>
#include <cstdlib>

namespace sinew {

void assertion_failed(const char* condition, const char* file, int line) {
  std::fprintf(stderr,
               "sinew: assertion failed: %s (%s:%d): this is a bug of Sinew, please report it\n",
               condition, file, line);
  std::abort();
}

}  // namespace sinew
