#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "agent/state_folder.h"
#include "base/result.h"

namespace sinew {

// What happened to the cluster as this agent saw it: one JSON object a line in the state folder,
// the newest last. Two files take turns, so that it never holds more than twice kEventBytesMax.
inline constexpr std::size_t kEventBytesMax = 256u << 10;

class EventRing {
 public:
  // `folder` outlives it.
  explicit EventRing(const StateFolder& folder) : folder_(folder) {}
  // With the time of the wall clock. Never more than a short write to a file; a full disk loses the
  // event and is reported.
  Status add(std::string_view kind, std::string_view node, std::string_view text);

 private:
  const StateFolder& folder_;
};

// All lines that are kept, oldest first.
Result<std::string> read_events(const StateFolder& folder);

}  // namespace sinew
