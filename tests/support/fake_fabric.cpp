#include "support/fake_fabric.h"

#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <new>

#include "base/log.h"

namespace sinew::testing {

// Zeroes, which the kernel hands out, are the first state of everything; pages that no message
// touches cost nothing.
FakeFabric::FakeFabric(FakeStack stack, int machines, int cables, bool crossed) {
  // Makes the logger before there are threads: its library, which the thread sanitizer does not see
  // into, would make it in the first one that logs.
  spdlog::set_level(spdlog::level::warn);
  void* memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED || machines > kFakeMachinesMax || cables > kFakeCablesMax) std::abort();
  shared_ = static_cast<Shared*>(memory);
  shared_->stack = stack;
  shared_->machines = machines;
  shared_->cables = cables;
  shared_->crossed = crossed;
  shared_->gid_index = 1;
  shared_->capture_from = -1;
}

FakeFabric::~FakeFabric() {
  munmap(shared_, sizeof(Shared));
}

void FakeFabric::set_faults(const FakeFaults& faults) {
  shared_->seed = faults.seed;
  shared_->loss = faults.loss;
  shared_->duplicate = faults.duplicate;
  shared_->corrupt = faults.corrupt;
  shared_->late = faults.late;
  shared_->late_by_us = static_cast<std::uint32_t>(faults.late_by.count());
}

void FakeFabric::fail(int machine, VerbsCall call, int error_number, int times) {
  shared_->failures[machine][static_cast<std::size_t>(call)] =
      static_cast<std::uint32_t>(error_number) << 16 | static_cast<std::uint32_t>(times);
}

void FakeFabric::set_port(int machine, int cable, bool up) {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  shared_->down_since[machine][cable] =
      up ? 0 : std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
}

void FakeFabric::silence(int machine) {
  shared_->silent[machine] = true;
}

void FakeFabric::remove_devices() {
  shared_->no_devices = true;
}

void FakeFabric::set_gid_index(std::uint32_t index) {
  shared_->gid_index = index;
}

void FakeFabric::capture(int machine) {
  shared_->capture_from = machine;
}

std::vector<std::byte> FakeFabric::captured() const {
  return {shared_->captured, shared_->captured + shared_->captured_bytes};
}

void FakeFabric::inject(int machine, std::span<const std::byte> message) {
  for (Shared::Queue& queue : shared_->queues) {
    if (queue.state != Shared::kSends || queue.machine != static_cast<std::uint32_t>(machine))
      continue;
    std::copy(message.begin(), message.end(), queue.injected_data);
    queue.injected_bytes = static_cast<std::uint32_t>(message.size());
    queue.injected = 1;
  }
}

FakeCounts FakeFabric::counts() const {
  return {shared_->sent,      shared_->lost,    shared_->duplicated,
          shared_->corrupted, shared_->delayed, shared_->met_no_receive};
}

std::uint32_t FakeFabric::violations() const {
  return shared_->violations;
}

std::string FakeFabric::first_violation() const {
  return shared_->first_violation;
}

int FakeFabric::leaks() const {
  return shared_->objects;
}

}  // namespace sinew::testing
