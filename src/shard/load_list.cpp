#include "shard/load_list.h"

#include <algorithm>

namespace sinew {

std::vector<LoadItem> make_load_list(const std::vector<BoundTensor>& tensors, const Plan& plan,
                                     Rank rank) {
  std::vector<LoadItem> list;
  for (const BoundTensor& tensor : tensors) {
    const TensorInfo& info = *tensor.info;
    const auto part = plan.part(rank, tensor.decl);
    if (!part) continue;
    LoadItem item{tensor.decl.name, tensor.decl.use, info.type, tensor.decl.shape,
                  info.part,        info.offset,     {}};
    // Rearranged layouts have room for one row of each token in an expert, but where ranks hold
    // whole experts one expert stands for all that a rank lacks (graph/moe.cpp).
    if (plan.whole_experts && item.use == TensorUse::kExperts) item.use = TensorUse::kOther;
    item.shape[static_cast<std::size_t>(part->axis)] = part->range.size();
    item.bytes = slice_bytes(info, part->axis, part->range);
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

Status check_mirrored(const BoundTensor& tensor, const std::vector<std::vector<LoadItem>>& lists,
                      const Stage& stage) {
  for (auto rank = static_cast<std::size_t>(stage.first);
       rank < static_cast<std::size_t>(stage.first + stage.ranks); ++rank) {
    SINEW_ASSIGN(const LoadItem* const item, find_item(tensor, lists[rank], rank));
    if (item == nullptr || item->bytes.offset != 0 || item->bytes.total() != tensor.info->bytes)
      return fail(ErrorCode::kInternal, "rank {} does not hold all of mirrored tensor '{}'", rank,
                  tensor.decl.name);
  }
  return {};
}

Status check_split(const BoundTensor& tensor, const std::vector<std::vector<LoadItem>>& lists,
                   const Stage& stage) {
  std::vector<Interval> intervals;
  for (auto rank = static_cast<std::size_t>(stage.first);
       rank < static_cast<std::size_t>(stage.first + stage.ranks); ++rank) {
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

Status check_absent(const BoundTensor& tensor, const std::vector<std::vector<LoadItem>>& lists,
                    const Stage& stage) {
  for (auto rank = static_cast<std::size_t>(stage.first);
       rank < static_cast<std::size_t>(stage.first + stage.ranks); ++rank) {
    SINEW_ASSIGN(const LoadItem* const item, find_item(tensor, lists[rank], rank));
    if (item != nullptr)
      return fail(ErrorCode::kInternal, "rank {} holds tensor '{}', which its stage does not need",
                  rank, tensor.decl.name);
  }
  return {};
}

}  // namespace

Status check_coverage(const std::vector<BoundTensor>& tensors, const Plan& plan,
                      const std::vector<std::vector<LoadItem>>& lists) {
  for (const BoundTensor& tensor : tensors)
    for (const Stage& stage : plan.stages)
      if (!plan.needed(stage, tensor.decl))
        SINEW_TRY(check_absent(tensor, lists, stage));
      else
        SINEW_TRY(plan.rule(tensor.decl).mirrored ? check_mirrored(tensor, lists, stage)
                                                  : check_split(tensor, lists, stage));
  return {};
}

}  // namespace sinew
