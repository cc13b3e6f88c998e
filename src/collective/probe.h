#pragma once

#include <chrono>

#include "base/result.h"
#include "collective/collective_plan.h"
#include "collective/messenger.h"

namespace sinew {

struct Agreement {
  CollectivePlan plan;
  // All that was measured on rank 0; elsewhere what this rank and those above it measured.
  FabricFigures figures;
};

// Measures the links of this rank, together with all others, and returns the plan that rank 0 made
// of everybody's figures: the same value on every rank. Takes about `budget`, more only on links
// on which a few round trips take longer.
//
// Every pair measures alone: first small messages there and back (latency is half of a fast one),
// then long ones with a small answer. Then every rank sends to all its peers at once, for the
// crowding. What was measured passes from each rank to the one below it, the plan the other way, so
// that any cabling will do in which neighbours have links. Errors as of a Group's operations;
// kUnsupported for other cablings.
Result<Agreement> agree_on_plan(Messenger& messenger, std::chrono::nanoseconds budget);

}  // namespace sinew
