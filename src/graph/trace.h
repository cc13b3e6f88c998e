#pragma once

#include <cstdint>

namespace sinew {

// What a step shows of its inside, for `sinew verify` (engine/verify.h).
enum class Trace : std::uint8_t {
  kOff,
  // A sketch of every token at every place where a layer's ranks have agreed, see kSketchRows.
  kOn,
  // The same, with every such sum multiplied by 1 + a little noise (inputs.noise): how far
  // rounding of that size moves this model's results.
  kNoisy,
};

// A sketch is a vector's product with this many rows of random signs. Differences keep their length
// in it (Johnson and Lindenstrauss): of |Sa - Sb| / |Sa| the standard deviation around
// |a - b| / |a| is about 1 / sqrt(2 rows) each, 25 % of it with 8 rows, so a few numbers stand for
// thousands of elements.
inline constexpr int kSketchRows = 8;

// Places of a layer that have noise of their own; later ones use the last one's.
inline constexpr int kNoisePlacesPerLayer = 3;

// Where a trace was taken.
struct TracePlace {
  int layer = 0;  // kEmbeddingLayer, a layer, or the number of layers for the final norm
  int part = 0;   // how many places of the layer come before: attention is 0, feed-forward 1
  friend bool operator==(const TracePlace&, const TracePlace&) = default;
  friend bool operator<(const TracePlace& a, const TracePlace& b) {
    return a.layer != b.layer ? a.layer < b.layer : a.part < b.part;
  }
};
inline constexpr int kEmbeddingLayer = -1;

}  // namespace sinew
