#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "gguf/reader.h"

namespace sinew {

// The model families that Sinew can run; each has its keys and tensor table (model/) and a forward
// pass (graph/). model/families.h says which architectures of files they serve.
enum class Family : std::uint8_t {
  kLlama,      // Llama 2 and 3, Mistral, SmolLM2, Mixtral
  kQwen2,      // Qwen 2 and 2.5
  kQwen3,      // Qwen 3, dense and with experts
  kGlm4Moe,    // GLM-4.5, 4.6, 4.7
  kGptOss,     // gpt-oss
  kMiniMax,    // MiniMax-M2
  kGemma3,     // Gemma 3, text
  kDeepseek2,  // DeepSeek V2, V3, R1, V3.1, Moonlight, Kimi K2
  kDeepseek32  // DeepSeek V3.2, GLM 5: the same with sparse attention
};

// Rotary position embedding, as ggml_rope_ext takes it (ggml.h), with YaRN (arXiv:2309.00071).
struct RopeSpec {
  int dimensions = 0;  // rotated elements of a head
  // Which elements turn together: neighbours, or (as in GPT-NeoX) those half the dimensions apart.
  bool neox = false;
  float base = 10000.0F;
  float scale = 1.0F;             // 1 / factor of the extension
  float extrapolation = 0.0F;     // 1 with YaRN, else 0
  float attention_factor = 1.0F;  // multiplies sine and cosine
  float beta_fast = 32.0F;
  float beta_slow = 1.0F;
  int original_context = 0;
  // Of each pair of elements, what its frequency is divided by; empty: nothing, or what the file's
  // rope_freqs.weight says.
  std::vector<float> divisors;
};

// What joins the two branches of a gated feed-forward.
enum class Activation : std::uint8_t {
  kSwiglu,         // silu(gate) * up
  kGeglu,          // gelu(gate) * up
  kClampedSwiglu,  // gpt-oss: gate * sigmoid(1.702 gate) * (up + 1), both held within 7
};

// Mixture of experts; `count` 0 means that every layer is dense.
struct ExpertSpec {
  enum class Gating : std::uint8_t {
    kSoftmax,
    kSigmoid,
    kSoftmaxOfChosen,  // experts are chosen by their logits, then softmax over those
  };
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
  int kv_rank = 0;          // latent elements of a token; 0: the model has no latent attention
  int nope_dimensions = 0;  // of a key without position
  // The file keeps the projection from the latent to keys and values as one matrix, which cannot be
  // absorbed into the queries: keys and values of each head are computed and cached.
  bool expanded = false;
};

// Sparse attention (DeepSeek-V3.2-Exp's technical report, section 1): in each layer a small indexer
// scores the cells that a token may see, and all heads look at the best ones only.
struct IndexerSpec {
  int heads = 0;       // 0: the model has no indexer
  int dimensions = 0;  // of an index query's head and of the one index key of a token
  int chosen = 0;      // cells that a token looks at
  RopeSpec rope;       // of the first elements of index queries and keys
  // Layers with an indexer of their own; the others look at what the layer before has chosen.
  std::vector<bool> layers;
};

// Layers that look back at the last `size` tokens only.
struct WindowSpec {
  int size = 0;  // 0: no layer is windowed
  std::vector<bool> layers;
  RopeSpec rope;  // of those layers
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
  float embedding_scale = 1.0F;  // multiplies the token embeddings
  int heads = 0;
  int kv_heads = 0;              // one index of Dimension::kHeads is one of these and its queries
  int key_dimensions = 0;        // of a head; with latent attention: nope + rotary
  int value_dimensions = 0;      // of a head
  float attention_scale = 1.0F;  // multiplies query x key
  int feed_forward = 0;          // width of a dense layer
  Activation activation = Activation::kSwiglu;
  RopeSpec rope;
  WindowSpec window;
  ExpertSpec experts;
  LatentSpec latent;
  IndexerSpec indexer;
  float logit_cap = 0.0F;    // c: logits become c tanh(logits / c); 0: they stay
  bool tied_output = false;  // the output layer is the embedding

  bool dense(int layer) const { return experts.count == 0 || layer < experts.dense_layers; }
  bool windowed(int layer) const {
    return window.size > 0 && window.layers[static_cast<std::size_t>(layer)];
  }
  const RopeSpec& rope_of(int layer) const { return windowed(layer) ? window.rope : rope; }
  bool indexes(int layer) const {
    return indexer.heads > 0 && indexer.layers[static_cast<std::size_t>(layer)];
  }
  // False for layers that need what the layer before has chosen, so that no stage begins with them.
  bool may_begin_stage(int layer) const { return indexer.heads == 0 || indexes(layer); }
  // True if heads share one cached latent per token.
  bool caches_latent() const { return latent.kv_rank > 0 && !latent.expanded; }
  // Elements that one layer caches for one token when `kv_head_count` of its key-value heads are
  // held: of keys (with a latent: the latent and its rotary key), and of values.
  std::int64_t cached_keys(int kv_head_count) const;
  std::int64_t cached_values(int kv_head_count) const;
  // Elements of the index key, which is cached as F16 whatever the type of the others.
  std::int64_t cached_index_keys(int layer, int kv_head_count) const;
};

// Reads and checks the metadata. kUnsupported for an architecture that no Family serves (the
// message lists those that are served) or a variant of it that is not implemented; kInvalidFile for
// values that contradict each other.
Result<ModelSpec> read_spec(const GgufModel& model);

}  // namespace sinew
