"""Tensors and metadata of a transformers model in the names and layouts that GGUF readers expect.

Two kinds of layout differ from the checkpoint's: the architecture `llama` rotates neighbouring elements where
transformers rotates halves, so the rows of its q and k are reordered; and latent attention keeps kv_b as two
tensors, of which the key's is transposed, because it multiplies the query and not the cached latent vector.
"""

import math
import re

import numpy as np
import torch

# Parts of a layer. The first pattern that matches a whole name is taken.
NAMES = [
    (r"input_layernorm\.weight", "attn_norm.weight"),
    (r"self_attn\.(q|k|v)_proj\.(weight|bias)", r"attn_\1.\2"),
    (r"self_attn\.o_proj\.(weight|bias)", r"attn_output.\1"),
    (r"self_attn\.(q|k)_norm\.weight", r"attn_\1_norm.weight"),
    (r"self_attn\.sinks", "attn_sinks.weight"),
    (r"self_attn\.q_(a|b)_proj\.weight", r"attn_q_\1.weight"),
    (r"self_attn\.q_a_layernorm\.weight", "attn_q_a_norm.weight"),
    (r"self_attn\.kv_a_proj_with_mqa\.weight", "attn_kv_a_mqa.weight"),
    (r"self_attn\.kv_a_layernorm\.weight", "attn_kv_a_norm.weight"),
    (r"self_attn\.indexer\.wq_b\.weight", "indexer.attn_q_b.weight"),
    (r"self_attn\.indexer\.wk\.weight", "indexer.attn_k.weight"),
    (r"self_attn\.indexer\.k_norm\.(weight|bias)", r"indexer.k_norm.\1"),
    (r"self_attn\.indexer\.weights_proj\.weight", "indexer.proj.weight"),
    (r"mlp\.(gate|up|down)_proj\.weight", r"ffn_\1.weight"),
    (r"mlp\.shared_experts\.(gate|up|down)_proj\.weight", r"ffn_\1_shexp.weight"),
    (r"mlp\.(?:gate|router)\.(weight|bias)", r"ffn_gate_inp.\1"),
    (r"mlp\.(?:gate\.)?e_score_correction_bias", "exp_probs_b.bias"),
    (r"pre_feedforward_layernorm\.weight", "ffn_norm.weight"),
    (r"post_feedforward_layernorm\.weight", "post_ffw_norm.weight"),
]
ENDS = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}
# Where the norm in front of the feed-forward part is called one of attention.
POST_ATTENTION = {"gemma3": "post_attention_norm", "gpt-oss": "post_attention_norm", "glm4moe": "post_attention_norm"}
EXPERT = re.compile(r"mlp\.experts\.(\d+)\.(gate|up|down)_proj\.weight")


def neighbours_from_halves(rows, heads):
    """Element i of a head's first half and i of its second become neighbours."""
    head = rows.shape[0] // heads
    return rows.reshape(heads, 2, head // 2, *rows.shape[1:]).swapaxes(1, 2).reshape(rows.shape)


def split_latent(weight, config):
    """kv_b -> (attn_k_b, attn_v_b): [heads, latent, nope] and [heads, value, latent]."""
    nope, value = config.qk_nope_head_dim, config.v_head_dim
    parts = weight.reshape(config.num_attention_heads, nope + value, -1)
    return parts[:, :nope].swapaxes(1, 2), parts[:, nope:]


def split_interleaved_experts(part, tensor):
    """gpt-oss keeps x @ W with gate and up in alternate columns; GGUF keeps rows of outputs, apart."""
    bias = part.endswith("_bias")
    suffix = "bias" if bias else "weight"
    rows = tensor if bias else tensor.swapaxes(1, 2)
    if "gate_up" not in part:
        return {f"ffn_down_exps.{suffix}": rows}
    return {f"ffn_gate_exps.{suffix}": rows[:, ::2], f"ffn_up_exps.{suffix}": rows[:, 1::2]}


def split_stacked_experts(part, tensor):
    """transformers 5 keeps [expert, output, input] as GGUF does, with the rows of gate above those of up."""
    if "gate_up" not in part:
        return {"ffn_down_exps.weight": tensor}
    gate, up = tensor.chunk(2, dim=1)
    return {"ffn_gate_exps.weight": gate, "ffn_up_exps.weight": up}


def frequency_factors(config):
    """What llama3's scaling divides each rotary frequency by (Llama 3.1's report and config.json)."""
    scaling, head = config.rope_scaling, config.head_dim
    low, high, factor = scaling["low_freq_factor"], scaling["high_freq_factor"], scaling["factor"]
    context = scaling["original_max_position_embeddings"]
    factors = []
    for i in range(head // 2):
        turns = context / (2 * math.pi * config.rope_theta ** (2 * i / head))
        smooth = min(max((turns - low) / (high - low), 0.0), 1.0)
        factors.append(1.0 / ((1.0 - smooth) / factor + smooth))
    return torch.tensor(factors)


def layer_tensors(family, config, part, tensor):
    """The GGUF tensors of one tensor of a layer."""
    if part == "self_attn.kv_b_proj.weight":
        key, value = split_latent(tensor, config)
        return {"attn_k_b.weight": key, "attn_v_b.weight": value}
    if re.fullmatch(r"mlp\.experts\.(gate_up|down)_proj(_bias)?", part):
        split = split_interleaved_experts if family.architecture == "gpt-oss" else split_stacked_experts
        return split(part, tensor)
    if part == "post_attention_layernorm.weight":
        return {POST_ATTENTION.get(family.architecture, "ffn_norm") + ".weight": tensor}
    if family.architecture == "llama" and (match := re.fullmatch(r"self_attn\.(q|k)_proj\.weight", part)):
        heads = config.num_attention_heads if match[1] == "q" else config.num_key_value_heads
        tensor = neighbours_from_halves(tensor, heads)
    for pattern, name in NAMES:
        if re.fullmatch(pattern, part):
            return {re.sub(pattern, name, part): tensor}
    raise SystemExit(f"{family.name}: '{part}' has no name in a GGUF file; add it to NAMES")


def tensors(family, config, state):
    """name -> float32 tensor, for the whole model."""
    found, experts = {}, {}
    for name, tensor in state.items():
        if family.architecture == "gemma3" and name.endswith("norm.weight"):
            tensor = tensor + 1.0  # transformers multiplies by 1 + weight
        if name in ENDS:
            if not (name == "lm_head.weight" and config.tie_word_embeddings):
                found[ENDS[name]] = tensor
            continue
        layer, part = re.fullmatch(r"model\.layers\.(\d+)\.(.*)", name).groups()
        if match := EXPERT.fullmatch(part):
            experts.setdefault(f"blk.{layer}.ffn_{match[2]}_exps.weight", {})[int(match[1])] = tensor
            continue
        for key, value in layer_tensors(family, config, part, tensor).items():
            found[f"blk.{layer}.{key}"] = value
    for key, parts in experts.items():
        found[key] = torch.stack([parts[i] for i in range(len(parts))])
    if family.name == "llama3":
        found["rope_freqs.weight"] = frequency_factors(config)
    return found


def is_matrix(name, tensor):
    """Matrices may be F16. The router and everything that is added or multiplied element by element stay F32."""
    return tensor.ndim >= 2 and not name.endswith(".bias") and "ffn_gate_inp" not in name


def stored(name, tensor, half):
    array = tensor.detach().contiguous().numpy().astype(np.float32)
    return array.astype(np.float16) if half and is_matrix(name, tensor) else array


def write(path, family, config, state, half, more=()):
    """half: matrices in F16, else everything in F32. more: further metadata."""
    import gguf

    writer = gguf.GGUFWriter(path, family.architecture)
    writer.add_string("general.name", f"{family.name}-random")
    writer.add_uint32("general.file_type", 1 if half else 0)
    for key, value in (family.metadata(config) | dict(more)).items():
        name = key if key.startswith(("tokenizer.", "general.")) else f"{family.architecture}.{key}"
        if isinstance(value, bool):
            writer.add_bool(name, value)
        elif isinstance(value, int):
            writer.add_uint32(name, value)
        elif isinstance(value, float):
            writer.add_float32(name, value)
        elif isinstance(value, str):
            writer.add_string(name, value)
        else:
            writer.add_array(name, value)
    for name, tensor in sorted(tensors(family, config, state).items()):
        writer.add_tensor(name, stored(name, tensor, half))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
