"""The tiny models: a transformers configuration and the GGUF metadata that says the same.

The scalings of the rotary positions are those of the published models (contexts, factors, betas), so that the goldens
hold for them; only widths, layers and vocabularies are small. Every width that is cut is a multiple of 32 for at least
two ranks, and there are at least two key-value heads, except in latent attention, which keeps one for all.
"""

from dataclasses import dataclass
from typing import Callable

import vocabulary

VOCABULARY = 272
SIGMOID = 2  # of llama.cpp's expert_gating_func
SOFTMAX = 1


@dataclass(frozen=True)
class Family:
    name: str
    architecture: str  # of GGUF
    model: str  # class of transformers
    config: Callable[[], object]
    metadata: Callable[[object], dict]
    lengths: tuple = (17, 600)
    window: int = 0  # of sliding attention, tokens
    exact: float = 1e-3  # largest logit difference to llama.cpp in float32: sums in another order
    oracle_metadata: tuple = ()  # what llama.cpp wants beside what such files hold
    release: int = 4  # of transformers
    # Largest KL that rounding may cause at a kept position of a chosen prompt: 1e-6 to 1e-4 is noise, another choice of
    # experts 1e-3 and more.
    steady_kl: float = 1e-3
    # Where llama.cpp computes another model than the authors: the nearest configuration that both compute alike.
    oracle_config: Callable[[], object] | None = None


def common(config, pre, key_value_heads=None):
    size = config.vocab_size
    values = vocabulary.sentence_pieces(size) if pre == "spm" else vocabulary.byte_level(pre, size)
    values.update({
        "block_count": config.num_hidden_layers,
        "context_length": config.max_position_embeddings,
        "embedding_length": config.hidden_size,
        "feed_forward_length": config.intermediate_size,
        "vocab_size": size,
        "attention.head_count": config.num_attention_heads,
        "attention.head_count_kv": key_value_heads or config.num_key_value_heads,
        "attention.layer_norm_rms_epsilon": config.rms_norm_eps,
        "rope.freq_base": float(rope_theta(config)),
    })
    return values


def rope_theta(config):
    return config.rope_theta if hasattr(config, "rope_theta") else config.rope_parameters["rope_theta"]


def heads(size, rotary=None):
    return {"attention.key_length": size, "attention.value_length": size, "rope.dimension_count": rotary or size}


def yarn(config):
    scaling = config.rope_parameters if hasattr(config, "rope_parameters") else config.rope_scaling
    return {
        "rope.scaling.type": "yarn",
        "rope.scaling.factor": float(scaling["factor"]),
        "rope.scaling.original_context_length": scaling["original_max_position_embeddings"],
        "rope.scaling.yarn_beta_fast": float(scaling["beta_fast"]),
        "rope.scaling.yarn_beta_slow": float(scaling["beta_slow"]),
    }


def dense(**more):
    return dict(vocab_size=VOCABULARY, hidden_size=64, intermediate_size=128, num_hidden_layers=2,
                num_attention_heads=4, num_key_value_heads=2, rms_norm_eps=1e-6, tie_word_embeddings=False) | more


def llama3():
    from transformers import LlamaConfig
    return LlamaConfig(**dense(
        head_dim=32, rms_norm_eps=1e-5, max_position_embeddings=131072, rope_theta=500000.0,
        rope_scaling={"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                      "original_max_position_embeddings": 8192}))


def llama3_metadata(config):
    return common(config, "llama-bpe") | heads(config.head_dim)


def qwen2():
    from transformers import Qwen2Config
    return Qwen2Config(**dense(max_position_embeddings=32768, rope_theta=1000000.0, num_hidden_layers=3))


def qwen2_metadata(config):
    return common(config, "qwen2") | heads(config.hidden_size // config.num_attention_heads)


def qwen3():
    from transformers import Qwen3Config
    return Qwen3Config(**dense(head_dim=32, max_position_embeddings=40960, rope_theta=1000000.0,
                               tie_word_embeddings=True))


def qwen3_metadata(config):
    return common(config, "qwen2") | heads(config.head_dim)


def qwen3moe():
    from transformers import Qwen3MoeConfig
    return Qwen3MoeConfig(**dense(
        head_dim=32, max_position_embeddings=40960, rope_theta=1000000.0, num_experts=8, num_experts_per_tok=2,
        moe_intermediate_size=32, norm_topk_prob=True))


def qwen3moe_metadata(config):
    return common(config, "qwen2") | heads(config.head_dim) | {
        "expert_count": config.num_experts,
        "expert_used_count": config.num_experts_per_tok,
        "expert_feed_forward_length": config.moe_intermediate_size,
    }


def glm4moe():
    from transformers import Glm4MoeConfig
    return Glm4MoeConfig(**dense(
        num_hidden_layers=3, intermediate_size=64, max_position_embeddings=131072, rope_theta=1000000.0,
        rms_norm_eps=1e-5, attention_bias=True, use_qk_norm=True, partial_rotary_factor=0.5, first_k_dense_replace=1,
        n_routed_experts=6, num_experts_per_tok=2, n_shared_experts=1, moe_intermediate_size=32, n_group=1,
        topk_group=1, norm_topk_prob=True, routed_scaling_factor=2.5, head_dim=32))


def glm4moe_metadata(config):
    return common(config, "glm4") | heads(config.head_dim, config.head_dim // 2) | expert_scores(config) | {
        "expert_gating_func": SIGMOID,
    }


def expert_scores(config):
    return {
        "leading_dense_block_count": config.first_k_dense_replace,
        "expert_count": config.n_routed_experts,
        "expert_used_count": config.num_experts_per_tok,
        "expert_shared_count": config.n_shared_experts,
        "expert_feed_forward_length": config.moe_intermediate_size,
        "expert_weights_scale": float(config.routed_scaling_factor),
        "expert_weights_norm": config.norm_topk_prob,
        "expert_group_count": config.n_group,
        "expert_group_used_count": config.topk_group,
    }


def latent(**more):
    return dict(vocab_size=VOCABULARY, hidden_size=64, intermediate_size=64, num_hidden_layers=3,
                num_attention_heads=4, num_key_value_heads=4, qk_nope_head_dim=32, qk_rope_head_dim=16, v_head_dim=32,
                kv_lora_rank=32, n_routed_experts=8, num_experts_per_tok=2, n_shared_experts=1,
                moe_intermediate_size=32, first_k_dense_replace=1, rms_norm_eps=1e-6, rope_theta=10000.0,
                tie_word_embeddings=False) | more


def latent_metadata(config, pre):
    rotary, rank = config.qk_rope_head_dim, config.kv_lora_rank
    values = common(config, pre, key_value_heads=1) | expert_scores(config) | {
        "attention.kv_lora_rank": rank,
        "attention.key_length": rank + rotary,
        "attention.value_length": rank,
        "attention.key_length_mla": config.qk_nope_head_dim + rotary,
        "attention.value_length_mla": config.v_head_dim,
        "rope.dimension_count": rotary,
    }
    if config.q_lora_rank is not None:
        values["attention.q_lora_rank"] = config.q_lora_rank
    return values


def deepseek3():
    from transformers import DeepseekV3Config
    return DeepseekV3Config(**latent(
        q_lora_rank=48, n_group=4, topk_group=2, norm_topk_prob=True, routed_scaling_factor=2.5,
        max_position_embeddings=163840,
        rope_scaling={"rope_type": "yarn", "factor": 40.0, "original_max_position_embeddings": 4096,
                      "beta_fast": 32.0, "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0}))


def deepseek3_metadata(config):
    return latent_metadata(config, "deepseek-v3") | yarn(config) | {
        "expert_gating_func": SIGMOID,
        # A tenth of mscale_all_dim: what llama.cpp's converter writes and its reader multiplies by ten.
        "rope.scaling.yarn_log_multiplier": 0.1 * config.rope_scaling["mscale_all_dim"],
    }


def deepseek2_lite():
    # transformers 4 leaves out the attention scale that goes with V2's YaRN (README.md).
    from transformers import DeepseekV2Config
    return DeepseekV2Config(**latent(
        num_hidden_layers=2, q_lora_rank=None, n_group=1, topk_group=1, topk_method="greedy", norm_topk_prob=False,
        routed_scaling_factor=1.0, n_shared_experts=2, max_position_embeddings=163840,
        rope_parameters={"rope_type": "yarn", "rope_theta": 10000.0, "factor": 40.0,
                         "original_max_position_embeddings": 4096, "beta_fast": 32.0, "beta_slow": 1.0,
                         "mscale": 0.707, "mscale_all_dim": 0.707}))


def deepseek2_metadata(config):
    return latent_metadata(config, "deepseek-llm") | yarn(config) | {
        "expert_gating_func": SOFTMAX,
        "rope.scaling.yarn_log_multiplier": 0.1 * config.rope_parameters["mscale_all_dim"],
    }


def deepseek2(**more):
    # Groups are chosen by their best expert; llama.cpp adds up the best two, so it is asked without groups.
    from transformers import DeepseekV2Config
    return DeepseekV2Config(**(latent(
        num_hidden_layers=2, q_lora_rank=48, n_routed_experts=12, num_experts_per_tok=3, n_group=4, topk_group=2,
        topk_method="group_limited_greedy", norm_topk_prob=False, routed_scaling_factor=4.0, n_shared_experts=2,
        max_position_embeddings=163840,
        rope_parameters={"rope_type": "yarn", "rope_theta": 10000.0, "factor": 40.0,
                         "original_max_position_embeddings": 4096, "beta_fast": 32.0, "beta_slow": 1.0,
                         "mscale": 0.707, "mscale_all_dim": 0.707}) | more))


def deepseek2_without_groups():
    return deepseek2(n_group=1, topk_group=1, topk_method="greedy")


def deepseek32():
    from transformers import DeepseekV32Config
    # The indexer keeps 256 tokens of 600. It has eight heads, for a token's score is exactly 0 where no head's product
    # is positive, and which of tied tokens is chosen is nobody's promise.
    return DeepseekV32Config(**latent(
        num_hidden_layers=2, q_lora_rank=48, n_group=4, topk_group=2, norm_topk_prob=True, routed_scaling_factor=2.5,
        index_topk=256, index_head_dim=64, index_n_heads=8, max_position_embeddings=163840,
        rope_parameters={"rope_type": "yarn", "rope_theta": 10000.0, "factor": 40.0,
                         "original_max_position_embeddings": 4096, "beta_fast": 32.0, "beta_slow": 1.0, "mscale": 1.0,
                         "mscale_all_dim": 1.0}))


def deepseek32_metadata(config):
    return latent_metadata(config, "deepseek-v3") | yarn(config) | {
        "expert_gating_func": SIGMOID,
        "rope.scaling.yarn_log_multiplier": 0.1 * config.rope_parameters["mscale_all_dim"],
        "attention.indexer.head_count": config.index_n_heads,
        "attention.indexer.key_length": config.index_head_dim,
        "attention.indexer.top_k": config.index_topk,
    }


def gpt_oss(truncate=False):
    from transformers import GptOssConfig
    # "truncate" is false in the published model; GGUF cannot say so, and llama.cpp truncates (README.md).
    return GptOssConfig(**dense(
        head_dim=32, intermediate_size=32, num_local_experts=8,
        num_experts_per_tok=2, sliding_window=128, rms_norm_eps=1e-5, rope_theta=150000.0, attention_bias=True,
        max_position_embeddings=131072,
        rope_scaling={"rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": truncate,
                      "original_max_position_embeddings": 4096}))


def gpt_oss_metadata(config):
    return common(config, "gpt-4o") | heads(config.head_dim) | yarn(config) | {
        "attention.sliding_window": config.sliding_window,
        "expert_count": config.num_local_experts,
        "expert_used_count": config.num_experts_per_tok,
        "expert_feed_forward_length": config.intermediate_size,
    }


def gemma3():
    from transformers import Gemma3TextConfig
    # Six layers: five of the window, then one that sees everything.
    return Gemma3TextConfig(**dense(
        hidden_size=32, head_dim=32, intermediate_size=64, num_hidden_layers=6, query_pre_attn_scalar=32,
        sliding_window=128, rope_theta=1000000.0, rope_local_base_freq=10000.0, tie_word_embeddings=True,
        max_position_embeddings=32768, vocab_size=320))


def gemma3_metadata(config):
    return common(config, "spm") | heads(config.head_dim) | {
        "attention.sliding_window": config.sliding_window,
        "rope.freq_base_swa": float(config.rope_local_base_freq),
    }


def minimax_m2():
    from transformers import MiniMaxM2Config
    return MiniMaxM2Config(**dense(
        head_dim=32, intermediate_size=32, num_local_experts=8, num_experts_per_tok=2, max_position_embeddings=196608,
        rope_parameters={"rope_type": "default", "rope_theta": 5000000.0, "partial_rotary_factor": 0.5}))


def minimax_m2_metadata(config):
    return common(config, "minimax-m2") | heads(config.head_dim, config.head_dim // 2) | {
        "expert_count": config.num_local_experts,
        "expert_used_count": config.num_experts_per_tok,
        "expert_feed_forward_length": config.intermediate_size,
        "expert_gating_func": SIGMOID,
    }


FAMILIES = [
    Family("llama3", "llama", "LlamaForCausalLM", llama3, llama3_metadata, (17, 600, 2100)),
    Family("deepseek3", "deepseek2", "DeepseekV3ForCausalLM", deepseek3, deepseek3_metadata, (17, 600, 2100)),
    Family("deepseek2-lite", "deepseek2", "DeepseekV2ForCausalLM", deepseek2_lite, deepseek2_metadata,
           # llama.cpp takes a file of 26 or 27 layers to be without q_lora_rank, and asks all others for it.
           oracle_metadata=(("attention.q_lora_rank", 0),), release=5),
    Family("deepseek2", "deepseek2", "DeepseekV2ForCausalLM", deepseek2, deepseek2_metadata, release=5,
           oracle_config=deepseek2_without_groups),
    Family("qwen2", "qwen2", "Qwen2ForCausalLM", qwen2, qwen2_metadata),
    Family("qwen3", "qwen3", "Qwen3ForCausalLM", qwen3, qwen3_metadata),
    Family("qwen3moe", "qwen3moe", "Qwen3MoeForCausalLM", qwen3moe, qwen3moe_metadata),
    Family("glm4moe", "glm4moe", "Glm4MoeForCausalLM", glm4moe, glm4moe_metadata),
    Family("gpt-oss", "gpt-oss", "GptOssForCausalLM", gpt_oss, gpt_oss_metadata, (17, 600, 2100), 128,
           oracle_config=lambda: gpt_oss(truncate=True)),
    Family("gemma3", "gemma3", "Gemma3ForCausalLM", gemma3, gemma3_metadata, (17, 600), 128,
           exact=2e-2),  # ggml's GELU is a table of F16: relative steps of 2^-11 in each layer
    Family("deepseek32", "deepseek32", "DeepseekV32ForCausalLM", deepseek32, deepseek32_metadata, release=5,
           exact=0.1,  # one of the 256 chosen tokens may be nearly tied with another even in float32,
           steady_kl=2e-2),  # and rounding always exchanges a few
    Family("minimax-m2", "minimax-m2", "MiniMaxM2ForCausalLM", minimax_m2, minimax_m2_metadata, release=5),
]
