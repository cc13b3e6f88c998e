// Throughput of the loops that every all-reduce runs: adding vectors, and changing their type. The
// lengths are those of a decode step (28 KB) and of a piece of a prefill (32 KB of a longer
// vector).
#include <benchmark/benchmark.h>

#include <array>
#include <vector>

#include "collective/reduce.h"

namespace {

using namespace sinew;

void sum(benchmark::State& state) {
  const auto type = static_cast<WireType>(state.range(0));
  const auto ranks = static_cast<std::size_t>(state.range(1));
  const auto count = static_cast<std::size_t>(state.range(2)) / sizeof(float);
  const std::vector<float> values(count, 1.5f);
  std::vector<std::vector<std::byte>> vectors(ranks);
  std::vector<const std::byte*> sources;
  for (auto& vector : vectors) {
    vector.resize(count * wire_width(type));
    to_wire(values, type, vector.data());
    sources.push_back(vector.data());
  }
  std::vector<float> out(count);
  for ([[maybe_unused]] const auto step : state) {
    sum_in_order(sources, type, out.data(), count);
    benchmark::DoNotOptimize(out.data());
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(ranks * count * 4));
}

void round_to_wire(benchmark::State& state) {
  const auto type = static_cast<WireType>(state.range(0));
  const std::vector<float> values(static_cast<std::size_t>(state.range(1)) / 4, 1.5f);
  std::vector<std::byte> wire(values.size() * wire_width(type));
  for ([[maybe_unused]] const auto step : state) {
    benchmark::DoNotOptimize(to_wire(values, type, wire.data()));
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * state.range(1));
}

void widen_from_wire(benchmark::State& state) {
  const auto type = static_cast<WireType>(state.range(0));
  std::vector<float> values(static_cast<std::size_t>(state.range(1)) / 4, 1.5f);
  std::vector<std::byte> wire(values.size() * wire_width(type));
  to_wire(values, type, wire.data());
  for ([[maybe_unused]] const auto step : state) {
    from_wire(wire.data(), type, values);
    benchmark::DoNotOptimize(values.data());
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * state.range(1));
}

// First argument: f32 0, bf16 1, f16 2.
BENCHMARK(sum)->ArgsProduct({{0, 1, 2}, {2, 4}, {28 << 10, 256 << 10}});
BENCHMARK(round_to_wire)->ArgsProduct({{1, 2}, {28 << 10}});
BENCHMARK(widen_from_wire)->ArgsProduct({{1, 2}, {28 << 10}});

}  // namespace

BENCHMARK_MAIN();
