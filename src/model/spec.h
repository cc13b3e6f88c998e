#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "gguf/reader.h"

namespace sinew {

// The model families that Sinew can run; each has a tensor table (model/) and a forward pass
// (graph/).
enum class Family : std::uint8_t { kLlama, kDeepseek2 };

// Rotary position embedding, as ggml_rope_ext takes it (ggml.h), with YaRN (arXiv:2309.00071).
struct RopeSpec {
  int dimensions = 0;  // rotated elements of a head
  float base = 10000.0F;
  float scale = 1.0F;             // 1 / factor of the extension
  float extrapolation = 0.0F;     // 1 with YaRN, else 0
  float attention_factor = 1.0F;  // multiplies sine and cosine
  float beta_fast = 32.0F;
  float beta_slow = 1.0F;
  int original_context = 0;
};

// Mixture of experts; `count` 0 means that every layer is dense.
struct ExpertSpec {
  enum class Gating : std::uint8_t { kSoftmax, kSigmoid };
  int count = 0;
  int used = 0;     // experts a token goes to
  int columns = 0;  // feed-forward width of one expert
  int shared = 0;   // experts that every token goes to, stored as one of `shared * columns`
  int groups = 1;   // experts are chosen among those of the best groups
  int groups_used = 1;
  Gating gating = Gating::kSoftmax;
  bool normalise = false;  // chosen weights sum to 1 before scaling
  float scale = 1.0F;
  int dense_layers = 0;  // leading layers with an ordinary feed-forward
};

// Multi-head latent attention (DeepSeek-V2, arXiv:2405.04434, section 2.1).
struct LatentSpec {
  int query_rank = 0;       // 0: queries are projected without a low-rank step
  int kv_rank = 0;          // latent elements cached per token, besides the rotary ones
  int nope_dimensions = 0;  // of a key without position
  int value_dimensions = 0;
};

// Everything about a model that its tensors' bytes do not say, in one value.
struct ModelSpec {
  Family family = Family::kLlama;
  std::string architecture;  // general.architecture
  std::string name;          // general.name, or the file's name
  int layers = 0;
  int embedding = 0;
  int vocabulary = 0;
  std::int64_t context_trained = 0;
  float rms_epsilon = 1e-5F;
  int heads = 0;
  int kv_heads = 0;
  int key_dimensions = 0;        // of a head; with latent attention: nope + rotary
  int value_dimensions = 0;      // of a head
  float attention_scale = 1.0F;  // multiplies query x key
  int feed_forward = 0;          // width of a dense layer
  RopeSpec rope;
  ExpertSpec experts;
  LatentSpec latent;
  bool tied_output = false;  // the output layer is the embedding

  bool dense(int layer) const { return experts.count == 0 || layer < experts.dense_layers; }
  // Elements that one layer caches for one token when `kv_head_count` of its key-value heads are
  // held.
  std::int64_t cached_elements(int kv_head_count) const;
};

// Reads and checks the metadata. kUnsupported for an architecture that is not a Family (the message
// lists those that are) or a variant of it that is not implemented; kInvalidFile for values that
// contradict each other.
Result<ModelSpec> read_spec(const GgufModel& model);

}  // namespace sinew
