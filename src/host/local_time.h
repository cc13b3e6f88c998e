#pragma once

#include <ctime>

namespace sinew {

// Now, in the time zone of this machine.
std::tm local_time();

}  // namespace sinew
