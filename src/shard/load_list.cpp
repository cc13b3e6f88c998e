#include "shard/load_list.h"

#include <algorithm>

namespace sinew {

std::vector<LoadItem> make_load_list(const std::vector<BoundTensor>& tensors, const Plan& plan,
                                     Rank rank) {
  std::vector<LoadItem> list;
  for (const BoundTensor& tensor : tensors) {
    const TensorInfo& info = *tensor.info;
    const SplitRule& rule = tensor.decl.split;
    LoadItem item{tensor.decl.name, tensor.decl.use, info.type, tensor.decl.shape,
                  info.part,        info.offset,     {}};
    if (rule.mirrored) {
      item.bytes = slice_bytes(info, 3, {0, tensor.decl.shape[3]});
    } else {
      const IndexRange range = plan.range(rank, rule.dimension);
      if (range.size() == 0) continue;
      const IndexRange elements{range.begin * rule.elements_per_index,
                                range.end * rule.elements_per_index};
      item.shape[static_cast<std::size_t>(rule.axis)] = elements.size();
      item.bytes = slice_bytes(info, rule.axis, elements);
    }
    list.push_back(std::move(item));
  }
  std::stable_sort(list.begin(), list.end(), [](const LoadItem& a, const LoadItem& b) {
    return std::pair(a.part, a.file_offset) < std::pair(b.part, b.file_offset);
  });
  return list;
}

namespace {

struct Interval {
  std::uint64_t begin;
  std::uint64_t end;
  Rank rank;
};

// What a rank reads of the tensor. Null if it is nothing; an error if it reads twice or elsewhere.
Result<const LoadItem*> find_item(const BoundTensor& tensor, const std::vector<LoadItem>& list,
                                  std::size_t rank) {
  const LoadItem* found = nullptr;
  for (const LoadItem& item : list) {
    if (item.name != tensor.decl.name) continue;
    if (found != nullptr)
      return fail(ErrorCode::kInternal, "rank {} reads tensor '{}' twice", rank, item.name);
    if (item.part != tensor.info->part || item.file_offset != tensor.info->offset ||
        item.type != tensor.info->type)
      return fail(ErrorCode::kInternal, "rank {} reads tensor '{}' at byte {} of part {}, not {}",
                  rank, item.name, item.file_offset, item.part, tensor.info->offset);
    found = &item;
  }
  return found;
}

Status check_mirrored(const BoundTensor& tensor, const std::vector<std::vector<LoadItem>>& lists) {
  for (std::size_t rank = 0; rank < lists.size(); ++rank) {
    SINEW_ASSIGN(const LoadItem* const item, find_item(tensor, lists[rank], rank));
    if (item == nullptr || item->bytes.offset != 0 || item->bytes.total() != tensor.info->bytes)
      return fail(ErrorCode::kInternal, "rank {} does not hold all of mirrored tensor '{}'", rank,
                  tensor.decl.name);
  }
  return {};
}

Status check_split(const BoundTensor& tensor, const std::vector<std::vector<LoadItem>>& lists) {
  std::vector<Interval> intervals;
  for (std::size_t rank = 0; rank < lists.size(); ++rank) {
    SINEW_ASSIGN(const LoadItem* const item, find_item(tensor, lists[rank], rank));
    if (item == nullptr) continue;
    for (std::uint64_t i = 0; i < item->bytes.count; ++i) {
      const std::uint64_t begin = item->bytes.offset + i * item->bytes.stride_bytes;
      intervals.push_back({begin, begin + item->bytes.chunk_bytes, static_cast<Rank>(rank)});
    }
  }
  std::sort(intervals.begin(), intervals.end(),
            [](const Interval& a, const Interval& b) { return a.begin < b.begin; });
  std::uint64_t next = 0;
  for (const Interval& interval : intervals) {
    if (interval.begin != next)
      return fail(ErrorCode::kInternal, "byte {} of tensor '{}' is held {} (rank {})",
                  std::min(next, interval.begin), tensor.decl.name,
                  interval.begin > next ? "by no rank" : "twice", interval.rank);
    next = interval.end;
  }
  if (next != tensor.info->bytes)
    return fail(ErrorCode::kInternal, "tensor '{}' is held up to byte {} of {}", tensor.decl.name,
                next, tensor.info->bytes);
  return {};
}

}  // namespace

Status check_coverage(const std::vector<BoundTensor>& tensors,
                      const std::vector<std::vector<LoadItem>>& lists) {
  for (const BoundTensor& tensor : tensors)
    SINEW_TRY(tensor.decl.split.mirrored ? check_mirrored(tensor, lists)
                                         : check_split(tensor, lists));
  return {};
}

}  // namespace sinew
