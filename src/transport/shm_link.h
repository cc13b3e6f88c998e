#pragma once

#include "collective/link.h"
#include "transport/shm_segment.h"

namespace sinew {

// Links of one rank to all others over shared memory. A rank takes its place in a segment once: a
// new epoch gets a new segment. kProtocol if the place is taken or the sizes differ.
//
// A closed link is noticed by its peer at once; a peer that died without closing, by the deadline.
Result<Links> make_shm_links(const ShmSegment& segment, const GroupIdentity& identity);

}  // namespace sinew
