#include "engine/recovery.h"

namespace sinew {

bool RecoveryPolicy::lost(Clock::time_point now) {
  if (longest_.count() == 0 || ++losses_ > kLossesMax) return false;
  // A loss in the middle of mending another one gets no time of its own.
  if (!until_) until_ = now + longest_;
  return !late(now);
}

}  // namespace sinew
