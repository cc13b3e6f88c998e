#!/usr/bin/env python3
"""Writes the trained model as GGUF, architecture "deepseek2": sinew-tiny-f16.gguf and sinew-tiny-q8_0.gguf.

   export.py [--model model.pt] [--dir .]
Needs gguf-py of llama.cpp: the package "gguf", or its folder in the environment variable GGUF_PY.
"""

import argparse, os, sys

if os.environ.get("GGUF_PY"):
    sys.path.insert(0, os.environ["GGUF_PY"])
import numpy as np, torch, gguf
import tokenizer, train

HERE = os.path.dirname(os.path.abspath(__file__))
Q = gguf.GGMLQuantizationType


def tensors(m):
    """(name, float32 array, keep in F32): every tensor of the file, in file order. NumPy order: the last dimension is the fastest."""
    n = lambda t: t.detach().float().numpy()
    yield "token_embd.weight", n(m.token_embd), False
    for i, b in enumerate(m.blk):
        a, f, p = b.attn, b.ffn, f"blk.{i}."
        yield p + "attn_norm.weight", n(b.attn_norm.weight), True
        yield p + "attn_q_a.weight", n(a.q_a), False
        yield p + "attn_q_a_norm.weight", n(a.q_a_norm.weight), True
        yield p + "attn_q_b.weight", n(a.q_b), False
        yield p + "attn_kv_a_mqa.weight", n(a.kv_a_mqa), False
        yield p + "attn_kv_a_norm.weight", n(a.kv_a_norm.weight), True
        yield p + "attn_k_b.weight", n(a.k_b), False
        yield p + "attn_v_b.weight", n(a.v_b), False
        yield p + "attn_output.weight", n(a.output), False
        yield p + "ffn_norm.weight", n(b.ffn_norm.weight), True
        if isinstance(f, train.Dense):
            parts = [("ffn_%s.weight", f)]
        else:
            yield p + "ffn_gate_inp.weight", n(f.gate_inp), True
            yield p + "exp_probs_b.bias", n(f.bias), True
            parts = [("ffn_%s_exps.weight", f), ("ffn_%s_shexp.weight", f.shexp)]
        for name, part in parts:
            for k in ("gate", "up", "down"):
                yield p + name % k, n(getattr(part, k)), False
    yield "output_norm.weight", n(m.output_norm.weight), True
    yield "output.weight", n(m.output), False


def write(path, m, tok, q8):
    c = m.c
    w = gguf.GGUFWriter(path, "deepseek2")
    w.add_type(gguf.GGUFType.MODEL)
    w.add_name("sinew-tiny")
    w.add_author("Sinew")
    w.add_license("mit")
    w.add_languages(["en"])
    w.add_description(
        "Tiny demo and test model of Sinew: DeepSeek-V3 architecture, trained on generated stories and short chats. Not for real use."
    )
    w.add_file_type(gguf.LlamaFileType.MOSTLY_Q8_0 if q8 else gguf.LlamaFileType.MOSTLY_F16)
    w.add_context_length(c["context"])
    w.add_embedding_length(c["hidden"])
    w.add_block_count(c["layers"])
    w.add_feed_forward_length(c["ff"])
    w.add_head_count(c["heads"])
    w.add_head_count_kv(1)
    w.add_rope_freq_base(c["rope_base"])
    w.add_layer_norm_rms_eps(c["eps"])
    w.add_leading_dense_block_count(c["dense"])
    w.add_vocab_size(c["vocab"])
    w.add_q_lora_rank(c["q_lora"])
    w.add_kv_lora_rank(c["kv_lora"])
    w.add_key_length(c["kv_lora"] + c["rope"])
    w.add_value_length(c["kv_lora"])
    w.add_key_length_mla(c["nope"] + c["rope"])
    w.add_value_length_mla(c["v"])
    w.add_rope_dimension_count(c["rope"])
    w.add_expert_feed_forward_length(c["moe_ff"])
    w.add_expert_count(c["experts"])
    w.add_expert_used_count(c["topk"])
    w.add_expert_shared_count(c["shared"])
    w.add_expert_weights_scale(c["scale"])
    w.add_expert_weights_norm(True)
    w.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)
    w.add_expert_group_count(c["groups"])
    w.add_expert_group_used_count(c["topk_groups"])
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("deepseek-v3")
    w.add_token_list(tok.tokens)
    w.add_token_types(
        [gguf.TokenType.CONTROL] * len(tokenizer.SPECIAL)
        + [gguf.TokenType.NORMAL] * (len(tok.tokens) - len(tokenizer.SPECIAL))
    )
    w.add_token_merges([f"{a} {b}" for a, b in tok.merges])
    w.add_bos_token_id(tokenizer.BOS)
    w.add_eos_token_id(tokenizer.EOS)
    w.add_pad_token_id(tokenizer.PAD)
    w.add_add_bos_token(True)
    w.add_add_eos_token(False)
    w.add_chat_template(tokenizer.TEMPLATE)
    for name, a, keep in tensors(m):
        if keep:
            w.add_tensor(name, np.ascontiguousarray(a, np.float32))
        elif q8:
            w.add_tensor(
                name, gguf.quants.quantize(np.ascontiguousarray(a), Q.Q8_0), raw_dtype=Q.Q8_0
            )
        else:
            w.add_tensor(name, a.astype(np.float16))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def read_back(path):
    """The model whose float32 weights are the (dequantised) ones of a written file."""
    m = train.Model()
    r = {t.name: t for t in gguf.GGUFReader(path).tensors}
    with torch.no_grad():
        for (name, a, _), p in zip(tensors(m), order(m)):
            t = r[name]
            p.copy_(
                torch.from_numpy(
                    gguf.quants.dequantize(t.data, t.tensor_type).reshape(a.shape).copy()
                )
            )
    return m.eval()


def order(m):  # the parameters behind tensors(), in its order
    yield m.token_embd
    for b in m.blk:
        a, f = b.attn, b.ffn
        yield from (
            b.attn_norm.weight,
            a.q_a,
            a.q_a_norm.weight,
            a.q_b,
            a.kv_a_mqa,
            a.kv_a_norm.weight,
            a.k_b,
            a.v_b,
            a.output,
            b.ffn_norm.weight,
        )
        if isinstance(f, train.MoE):
            yield from (
                f.gate_inp,
                f.bias,
                f.gate,
                f.up,
                f.down,
                f.shexp.gate,
                f.shexp.up,
                f.shexp.down,
            )
        else:
            yield from (f.gate, f.up, f.down)
    yield m.output_norm.weight
    yield m.output


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--model", default=os.path.join(HERE, "model.pt"))
    p.add_argument("--dir", default=HERE)
    a = p.parse_args()
    m = train.Model()
    m.load_state_dict(torch.load(a.model)["model"])
    m.eval()
    tok = tokenizer.Tokenizer()
    for q8 in (False, True):
        f = os.path.join(a.dir, "sinew-tiny-%s.gguf" % ("q8_0" if q8 else "f16"))
        write(f, m, tok, q8)
        print(os.path.basename(f), os.path.getsize(f), "bytes")
