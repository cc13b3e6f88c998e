#!/usr/bin/env python3
"""Makes the goldens of this folder: tiny random models as GGUF files, and transformers' logits for them.

    python3 -m venv VENV && VENV/bin/pip install -r requirements.txt   (another with requirements-5.txt)
    VENV/bin/python make.py --oracle ../../../build/dev/tests/support/sinew-oracle [--only FAMILY]

Writes for each family NAME.gguf (matrices in F16), NAME.logits (float32, one row of the vocabulary after another) and
NAME.json (prompts, positions of the rows, where it came from). transformers computes in float32 with eager attention,
on weights that F16 holds exactly. llama.cpp then computes the same logits twice: from a file in F32 with a float32
cache, which proves the conversion, and from the F16 file with its usual settings, which shows how much rounding moves
them. Where llama.cpp computes another model than its authors, it is asked for the nearest one that both compute alike,
with the same weights.
"""

import argparse
import hashlib
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
import transformers

import convert
from families import FAMILIES

HERE = Path(__file__).resolve().parent
SEED = 20251201
BYTES = 256  # ids that every vocabulary of ours has
# Rounding to F16 is a relative error of at most 2^-11 each time; a layer rounds its activations several times.
NOISE = 2.0**-10
NOISE_DRAWS = 4
ATTEMPTS = 40
# llama.cpp with its usual F16 cache, in ways that round differently.
ORACLE_SETTINGS = ([], ["--no-flash"], ["--chunk", "33"])


def normal(name, shape):
    """Normal numbers that depend on the tensor's name alone."""
    seed = int.from_bytes(hashlib.sha256(f"{SEED} {name}".encode()).digest()[:8], "little")
    return np.random.Generator(np.random.PCG64(seed)).standard_normal(shape).astype(np.float32)


def draw(family, config, name, shape):
    """Activations stay near 1, queries are twice as wide so that attention prefers some positions, and logits spread
    by about 3, so that a wrong position, head or expert shows."""
    values = normal(f"{family.name} {name}", shape)
    width = config.hidden_size
    if name.endswith(("norm.weight", "layernorm.weight")):
        return 0.1 * values + (0.0 if family.architecture == "gemma3" else 1.0)
    if name.endswith("embed_tokens.weight"):
        return values * (3.0 * width**-0.5 if config.tie_word_embeddings else 1.0)
    if name.endswith("lm_head.weight"):
        return values * 3.0 * width**-0.5
    if name.endswith("e_score_correction_bias"):
        return 0.1 * values
    if name.endswith(("sinks", "router.bias")):
        return values
    if name.endswith(("bias", "_bias")):
        return 0.3 * values
    # gpt-oss keeps experts as [expert, input, output]; all others have the inputs last.
    inputs = shape[1] if family.architecture == "gpt-oss" else shape[-1]
    query = name.endswith(("q_proj.weight", "q_b_proj.weight", "mlp.gate.weight", "router.weight"))
    return values * (2.0 if query else 1.0) * inputs**-0.5


def build(family, config):
    config._attn_implementation = "eager"
    torch.manual_seed(SEED)
    model = getattr(transformers, family.model)(config).float().eval()
    state = {}
    for name, tensor in model.state_dict().items():
        values = torch.from_numpy(draw(family, config, name, tuple(tensor.shape)))
        router = name.endswith(("mlp.gate.weight", "router.weight"))
        matrix = values.ndim >= 2 and not name.endswith("_bias") and not router
        state[name] = values.half().float() if matrix else values
    if config.tie_word_embeddings:
        state["lm_head.weight"] = state["model.embed_tokens.weight"]
    model.load_state_dict(state)
    return model, state


def positions_of(length, window):
    """Rows that are kept: the first, those around the border of the window, and the last 16."""
    chosen = {0, 1, 2, length // 2} | set(range(max(0, length - 16), length))
    for border in (window, 2 * window) if window else ():
        chosen |= {border - 1, border, border + 1}
    return sorted(p for p in chosen if p < length)


def logits(model, prompt, noise=0.0, seed=0):
    """Of every position. noise: relative deviation of random errors in the input of each layer."""
    generator = torch.Generator().manual_seed(seed)

    def disturb(_, inputs):
        hidden = inputs[0]
        return (hidden * (1.0 + noise * torch.randn(hidden.shape, generator=generator)), *inputs[1:])

    hooks = [layer.register_forward_pre_hook(disturb) for layer in model.model.layers] if noise else []
    with torch.no_grad():
        rows = model(torch.from_numpy(prompt.astype(np.int64))[None], use_cache=False).logits[0].numpy()
    for hook in hooks:
        hook.remove()
    return rows


def steady_prompt(family, models, length, positions):
    """Random tokens at whose kept positions no choice of experts is so close that rounding turns it: there the logits
    of another machine would be another model's. Only transformers is asked, never what is to be tested. Logits and
    their movement are those of the first model."""
    for attempt in range(ATTEMPTS):
        random = np.random.Generator(np.random.PCG64([SEED, length, attempt]))
        prompt = random.integers(0, BYTES, length).astype(np.int32)
        rows = [logits(model, prompt) for model in models]
        moved = []
        for model, own in zip(models, rows):
            moved.append(largest([difference(own[positions], logits(model, prompt, NOISE, seed)[positions])
                                  for seed in range(NOISE_DRAWS)]))
            if moved[-1]["max_kl"] >= family.steady_kl:
                break
        else:
            return prompt, rows, attempt, moved[0]
    raise SystemExit(f"{family.name}: no steady prompt of {length} tokens in {ATTEMPTS} attempts")


def oracle_logits(oracle, model, prompt, folder, more):
    tokens, out = folder / "tokens", folder / "out"
    tokens.write_bytes(prompt.tobytes())
    command = [oracle, "logits", model, "--tokens", tokens, "--out", out, "--all", "--ctx", len(prompt) + 1, *more]
    subprocess.run([str(part) for part in command], check=True, timeout=300)
    return np.fromfile(out, np.float32).reshape(len(prompt), -1)


def difference(reference, other):
    """Of rows of logits. KL(reference || other) is a position's; other_best counts positions."""
    def log_softmax(x):
        x = x.astype(np.float64)
        x = x - x.max(-1, keepdims=True)
        return x - np.log(np.exp(x).sum(-1, keepdims=True))
    p, q = log_softmax(reference), log_softmax(other)
    kl = (np.exp(p) * (p - q)).sum(-1)
    return {
        "max_logit_error": float(np.abs(reference - other).max()),
        "max_kl": float(kl.max()),
        "median_kl": float(np.median(kl)),
        "other_best": int((reference.argmax(-1) != other.argmax(-1)).sum()),
    }


def largest(differences):
    return {key: max(one[key] for one in differences) for key in differences[0]}


def script_hash():
    digest = hashlib.sha256()
    for name in ("make.py", "families.py", "convert.py", "vocabulary.py", "requirements.txt", "requirements-5.txt"):
        digest.update((HERE / name).read_bytes())
    return digest.hexdigest()


def report(family, length, attempt, rows, prompt):
    exact, rounded, noise = prompt["oracle_f32"], prompt["oracle_f16"], prompt["noise"]
    print(f"{family.name:15} {length:5} prompt {attempt:2}  logits' deviation {rows.std():.2f}"
          f"  f32: error {exact['max_logit_error']:.1e} KL {exact['max_kl']:.1e}"
          f"  f16: error {rounded['max_logit_error']:.4f} KL {rounded['max_kl']:.1e} median {rounded['median_kl']:.1e}"
          f" other best {rounded['other_best']}"
          f"  noise: error {noise['max_logit_error']:.4f} KL {noise['max_kl']:.1e} median {noise['median_kl']:.1e}",
          flush=True)


def make(family, oracle):
    config = family.config()
    model, state = build(family, config)
    oracle_config, oracle_model = config, model
    if family.oracle_config is not None:
        oracle_config = family.oracle_config()
        oracle_model, _ = build(family, oracle_config)
    path = HERE / f"{family.name}.gguf"
    convert.write(path, family, config, state, half=True)
    prompts, kept = [], []
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        usual, exact_file = folder / "usual.gguf", folder / "exact.gguf"
        convert.write(usual, family, oracle_config, state, half=True, more=family.oracle_metadata)
        convert.write(exact_file, family, oracle_config, state, half=False, more=family.oracle_metadata)
        for length in family.lengths:
            positions = positions_of(length, family.window)
            prompt, (rows, *others), attempt, moved = steady_prompt(
                family, [model] if oracle_model is model else [model, oracle_model], length, positions)
            both = others[0] if others else rows  # what llama.cpp shall compute
            exact = oracle_logits(oracle, exact_file, prompt, folder, ["--no-flash", "--f32-cache"])
            rounded = [difference(both[positions], oracle_logits(oracle, usual, prompt, folder, more)[positions])
                       for more in ORACLE_SETTINGS]
            kept.append(rows[positions])
            prompts.append({
                "tokens": prompt.tolist(),
                "positions": positions,
                "oracle_f32": difference(both, exact),
                "oracle_f16": largest(rounded),
                "noise": moved,
            })
            report(family, length, attempt, rows, prompts[-1])
    np.concatenate(kept).astype("<f4").tofile(HERE / f"{family.name}.logits")
    description = {
        "model": family.model,
        "architecture": family.architecture,
        "vocabulary": config.vocab_size,
        "made_with": {
            "python": sys.version.split()[0],
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "numpy": np.__version__,
            "scripts_sha256": script_hash(),
            "gguf_sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
            "seed": SEED,
        },
        "prompts": prompts,
    }
    (HERE / f"{family.name}.json").write_text(json.dumps(description) + "\n")
    return all(prompt["oracle_f32"]["max_logit_error"] < family.exact for prompt in prompts)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--oracle", required=True, help="the program sinew-oracle, of the dev build")
    parser.add_argument("--only", help="one family")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    wrong = []
    release = int(transformers.__version__.split(".")[0])
    for family in FAMILIES:
        if arguments.only not in (None, family.name):
            continue
        if family.release != release:
            print(f"{family.name:15} SKIP: wants transformers {family.release}, this is {release}")
        elif not make(family, arguments.oracle):
            wrong.append(family.name)
    if wrong:
        raise SystemExit(f"llama.cpp computes other logits in float32: {', '.join(wrong)}")


if __name__ == "__main__":
    main()
