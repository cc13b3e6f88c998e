#pragma once

#include "transport/shm_segment.h"
#include "transport/stream_link.h"

namespace sinew {

// Links of one rank to all others over shared memory. A rank takes its place in a segment once:
// for a new epoch the segment is renewed. kProtocol if the place is taken or the sizes differ.
//
// A closed link is noticed by its peer at once; a peer that died without closing, by the deadline.
Result<Links> make_shm_links(const ShmSegment& segment, const GroupIdentity& identity);
// Only those of `share`. The segment still has a place for every rank of the group.
Result<Links> make_shm_links(const ShmSegment& segment, const GroupIdentity& identity,
                             const LinkShare& share);

}  // namespace sinew
