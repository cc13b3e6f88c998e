#include "engine/slice_hash.h"

#include <xxhash.h>

#include <algorithm>
#include <memory>

namespace sinew {
namespace {

std::uint64_t block_count(const LoadItem& item) {
  return (item.bytes.total() + kHashBlockBytes - 1) / kHashBlockBytes;
}

struct FreeState {
  void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
};

}  // namespace

std::vector<std::vector<std::uint32_t>> choose_blocks(const std::vector<LoadItem>& items,
                                                      HashScope scope) {
  std::uint64_t total = 0;
  for (const LoadItem& item : items) total += block_count(item);
  const std::uint64_t stride =
      scope == HashScope::kSample
          ? std::max<std::uint64_t>(1, (total + kSampleBlocks - 1) / kSampleBlocks)
          : 1;
  std::vector<std::vector<std::uint32_t>> chosen(items.size());
  if (scope == HashScope::kNone) return chosen;
  std::uint64_t next = 0;
  for (std::size_t i = 0; i < items.size(); ++i)
    for (std::uint64_t block = 0; block < block_count(items[i]); ++block, ++next)
      if (next % stride == 0) chosen[i].push_back(static_cast<std::uint32_t>(block));
  return chosen;
}

std::vector<std::uint64_t> hash_packed(std::span<const std::byte> slice,
                                       const std::vector<std::uint32_t>& blocks) {
  std::vector<std::uint64_t> hashes;
  for (const std::uint32_t block : blocks) {
    const std::uint64_t begin = block * kHashBlockBytes;
    const auto bytes = slice.subspan(begin, std::min(kHashBlockBytes, slice.size() - begin));
    hashes.push_back(XXH3_64bits(bytes.data(), bytes.size()));
  }
  return hashes;
}

std::uint64_t file_position(const LoadItem& item, std::uint64_t packed) {
  const SliceBytes& slice = item.bytes;
  return item.file_offset + slice.offset + packed / slice.chunk_bytes * slice.stride_bytes +
         packed % slice.chunk_bytes;
}

std::vector<std::uint64_t> hash_from_file(const ModelFile& file, const LoadItem& item,
                                          const std::vector<std::uint32_t>& blocks) {
  const ByteSpan bytes = file.parts[item.part].bytes();
  const std::unique_ptr<XXH3_state_t, FreeState> state(XXH3_createState());
  std::vector<std::uint64_t> hashes;
  for (const std::uint32_t block : blocks) {
    XXH3_64bits_reset(state.get());
    std::uint64_t packed = block * kHashBlockBytes;
    const std::uint64_t end = std::min(packed + kHashBlockBytes, item.bytes.total());
    while (packed < end) {
      const std::uint64_t in_chunk =
          item.bytes.chunk_bytes - packed % item.bytes.chunk_bytes;  // to the chunk's end
      const std::uint64_t length = std::min(in_chunk, end - packed);
      XXH3_64bits_update(state.get(), bytes.data() + file_position(item, packed), length);
      packed += length;
    }
    hashes.push_back(XXH3_64bits_digest(state.get()));
  }
  return hashes;
}

Status compare_hashes(const ModelFile& file, const std::vector<LoadItem>& items, HashScope scope,
                      Rank rank, const std::vector<SliceHash>& held,
                      const std::function<bool()>& stop) {
  if (held.size() != items.size())
    return fail(ErrorCode::kIntegrity,
                "rank {} holds {} slices, the plan gives it {}: run the same version of sinew and "
                "the same model everywhere",
                rank, held.size(), items.size());
  const auto chosen = choose_blocks(items, scope);
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (stop()) return fail(ErrorCode::kCancelled, "stopped by a signal");
    const LoadItem& item = items[i];
    if (held[i].tensor != item.name || held[i].blocks.size() != chosen[i].size())
      return fail(ErrorCode::kIntegrity,
                  "rank {} holds '{}' ({} blocks) where the plan has '{}' ({}): run the same "
                  "version of sinew and the same model everywhere",
                  rank, held[i].tensor, held[i].blocks.size(), item.name, chosen[i].size());
    const std::vector<std::uint64_t> expected = hash_from_file(file, item, chosen[i]);
    const auto differs =
        std::mismatch(expected.begin(), expected.end(), held[i].blocks.begin()).first;
    if (differs == expected.end()) continue;
    const std::uint64_t begin =
        chosen[i][static_cast<std::size_t>(differs - expected.begin())] * kHashBlockBytes;
    const std::uint64_t end = std::min(begin + kHashBlockBytes, item.bytes.total());
    return fail(ErrorCode::kIntegrity,
                "rank {}: tensor '{}' is not what the file has, in bytes {} to {} of its slice "
                "(bytes {} to {} of {}): compare sha256sum of the file on that rank's machine; if "
                "it is equal, test the machine's memory",
                rank, item.name, begin, end - 1, file_position(item, begin),
                file_position(item, end - 1), file.parts[item.part].path());
  }
  return {};
}

}  // namespace sinew
