#pragma once

#include <functional>
#include <vector>

#include "base/result.h"
#include "graph/weights.h"
#include "host/model_file.h"
#include "shard/load_list.h"

namespace sinew {

// Reads this rank's slices, and only those, into its tensors. Besides the tensors it needs memory
// for the largest slice and one read window (kReadWindowBytes): a slice is complete before a device
// lays it out.
//
// Chunks shorter than a page are read in spans that include the gaps, because the system reads
// whole pages anyway. `progress` is told the bytes loaded so far after each tensor.
//
// `inspect`, if given, sees every slice between its reading and its laying out.
inline constexpr std::uint64_t kReadWindowBytes = 4u << 20;
using SliceInspector = std::function<Status(const LoadItem&, std::span<std::byte>)>;
Status load_weights(const ModelFile& file, const std::vector<LoadItem>& items,
                    const Weights& weights, const std::function<void(std::uint64_t)>& progress,
                    const SliceInspector& inspect = {});

// The packed bytes of one slice, at `into` (item.bytes.total() bytes).
Status read_slice(const ModelFile& file, const LoadItem& item, std::span<std::byte> into);

}  // namespace sinew
