#include "transport/shm_segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <random>
#include <utility>

#include "base/assert.h"

namespace sinew {
namespace {

constexpr std::uint32_t kSegmentMagic = 0x48574e53;  // "SNWH"

std::size_t segment_bytes(int ranks) {
  return sizeof(shm::Header) + static_cast<std::size_t>(ranks * (ranks - 1)) * sizeof(shm::Ring);
}

tl::unexpected<Error> system_failure(std::string_view what) {
  return fail(ErrorCode::kIo, "shared memory: {}: {}", what, std::strerror(errno));
}

#ifdef __linux__

Result<int> open_anonymous(std::size_t bytes) {
  const int fd = memfd_create("sinew", MFD_ALLOW_SEALING);
  if (fd < 0) return system_failure("memfd_create");
  // Sealed, or a peer that shrinks the file would end this process with SIGBUS.
  if (ftruncate(fd, static_cast<off_t>(bytes)) != 0 ||
      fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    auto failure = system_failure("sizing the memfd");
    close(fd);
    return failure;
  }
  return fd;
}

bool is_sealed(int fd) {
  const int seals = fcntl(fd, F_GET_SEALS);
  return seals >= 0 && (seals & F_SEAL_SHRINK) != 0;
}

#else

Result<int> open_anonymous(std::size_t bytes) {
  std::random_device random;
  const auto name = fmt::format("/sinew-{:08x}{:08x}", random(), random());
  const int fd = shm_open(name.c_str(), O_RDWR | O_CREAT | O_EXCL, 0600);
  if (fd < 0) return system_failure("shm_open");
  // The name goes at once, so that no way of ending leaves one behind.
  if (shm_unlink(name.c_str()) != 0 || ftruncate(fd, static_cast<off_t>(bytes)) != 0 ||
      fcntl(fd, F_SETFD, 0) != 0) {
    auto failure = system_failure("sizing the segment");
    close(fd);
    return failure;
  }
  return fd;
}

bool is_sealed(int) {
  return true;
}

#endif

Status check_ranks(int ranks) {
  if (ranks >= 1 && ranks <= kRankCountMax) return {};
  return fail(ErrorCode::kUsage, "{} ranks: a group has 1 to {}", ranks, kRankCountMax);
}

}  // namespace

struct ShmSegment::Mapping {
  int fd = -1;
  int ranks = 0;
  void* memory = MAP_FAILED;
  std::size_t bytes = 0;

  Mapping(int descriptor, int rank_count)
      : fd(descriptor), ranks(rank_count), bytes(segment_bytes(rank_count)) {
    memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  }
  ~Mapping() {
    if (memory != MAP_FAILED) munmap(memory, bytes);
    close(fd);
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
};

ShmSegment::ShmSegment(std::shared_ptr<const Mapping> mapping) : mapping_(std::move(mapping)) {}

Result<ShmSegment> ShmSegment::create(int ranks) {
  SINEW_TRY(check_ranks(ranks));
  SINEW_ASSIGN(const int fd, open_anonymous(segment_bytes(ranks)));
  ShmSegment segment(std::make_shared<const Mapping>(fd, ranks));
  if (segment.mapping_->memory == MAP_FAILED) return system_failure("mmap");
  // The kernel hands out zeroes, which is the first state of every ring and bell.
  shm::Header& header = segment.header();
  header.magic = kSegmentMagic;
  header.ranks = static_cast<std::uint32_t>(ranks);
  header.ring_bytes = shm::kRingBytes;
  return segment;
}

Result<ShmSegment> ShmSegment::adopt(int fd, int ranks) {
  Status usable = check_ranks(ranks);
  struct stat info {};
  if (usable && (fstat(fd, &info) != 0 || !is_sealed(fd))) {
    usable = fail(ErrorCode::kProtocol, "descriptor {} is not a shared segment", fd);
  }
  const std::size_t expected = usable ? segment_bytes(ranks) : 0;
  // Some systems round a segment up to whole pages.
  if (usable && (info.st_size < static_cast<off_t>(expected))) {
    usable = fail(ErrorCode::kProtocol, "the shared segment has {} bytes, {} ranks need {}",
                  info.st_size, ranks, expected);
  }
  if (!usable) {
    close(fd);
    return fail(std::move(usable).error());
  }
  ShmSegment segment(std::make_shared<const Mapping>(fd, ranks));
  if (segment.mapping_->memory == MAP_FAILED) return system_failure("mmap");
  const shm::Header& header = segment.header();
  if (header.magic != kSegmentMagic || header.ranks != static_cast<std::uint32_t>(ranks) ||
      header.ring_bytes != shm::kRingBytes) {
    return fail(ErrorCode::kProtocol,
                "the shared segment is for {} ranks with rings of {} bytes (magic {:#010x}), "
                "expected {} ranks with rings of {}",
                header.ranks, header.ring_bytes, header.magic, ranks, shm::kRingBytes);
  }
  return segment;
}

void ShmSegment::renew() const {
  for (shm::RankState& state : header().rank_states) {
    state.attached = 0;
    state.bell = 0;
    state.sleeping = 0;
  }
  for (int from = 0; from < ranks(); ++from) {
    for (int to = 0; to < ranks(); ++to) {
      if (from == to) continue;
      shm::Ring& each = ring(from, to);
      each.tail = 0;
      each.head = 0;
      each.closed = 0;
    }
  }
}

int ShmSegment::fd() const {
  return mapping_->fd;
}
int ShmSegment::ranks() const {
  return mapping_->ranks;
}

shm::Header& ShmSegment::header() const {
  return *static_cast<shm::Header*>(mapping_->memory);
}

shm::Ring& ShmSegment::ring(int from, int to) const {
  SINEW_ASSERT(from != to && from >= 0 && to >= 0 && from < ranks() && to < ranks());
  const int index = from * (ranks() - 1) + (to > from ? to - 1 : to);
  auto* rings = reinterpret_cast<shm::Ring*>(&header() + 1);
  return rings[index];
}

}  // namespace sinew
