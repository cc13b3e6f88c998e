#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "host/model_file.h"
#include "shard/load_list.h"

namespace sinew {

// Hashes by which a rank shows what it holds and the supervisor what the file says. A slice is
// hashed in blocks, so that a difference is found to within one of them.
inline constexpr std::uint64_t kHashBlockBytes = 1u << 20;

enum class HashScope : std::uint8_t {
  kNone,
  kSample,  // at most kSampleBlocks of a rank's blocks, spread evenly over its slices
  kAll,
};
inline constexpr std::uint64_t kSampleBlocks = 64;

// Which blocks of each slice of a load list are hashed, in order.
std::vector<std::vector<std::uint32_t>> choose_blocks(const std::vector<LoadItem>& items,
                                                      HashScope scope);

// One slice: XXH3, 64 bits, of each chosen block of its packed bytes.
struct SliceHash {
  std::string tensor;
  std::vector<std::uint64_t> blocks;
};

std::vector<std::uint64_t> hash_packed(std::span<const std::byte> slice,
                                       const std::vector<std::uint32_t>& blocks);
// The same from the mapped file: gathers the slice's chunks itself, apart from the loader's reads.
std::vector<std::uint64_t> hash_from_file(const ModelFile& file, const LoadItem& item,
                                          const std::vector<std::uint32_t>& blocks);
// Where byte `packed` of the slice lies in its file.
std::uint64_t file_position(const LoadItem& item, std::uint64_t packed);

// Ok if a rank's hashes are those of the file, else kIntegrity: rank, tensor, bytes, remedy.
// `stop` is asked after each slice; true ends with kCancelled.
Status compare_hashes(const ModelFile& file, const std::vector<LoadItem>& items, HashScope scope,
                      Rank rank, const std::vector<SliceHash>& held,
                      const std::function<bool()>& stop);

}  // namespace sinew
