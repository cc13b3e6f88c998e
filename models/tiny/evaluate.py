#!/usr/bin/env python3
"""Greedy accuracy of the model on fresh questions, by kind (exact match of the whole answer).

evaluate.py [--gguf sinew-tiny-q8_0.gguf] [--each 100]"""

import argparse, os, random
import torch
import data, export, tokenizer, train


def answers(m, tok, questions, n=80):
    """Greedy answers to many prompts at once; rows are padded on the right, which a causal model does not see."""
    rows = [tok.chat(*q) for q in questions]
    start = [len(r) for r in rows]
    live = set(range(len(rows)))
    with torch.no_grad():
        for _ in range(n):
            k = sorted(live)
            if not k:
                break
            width = max(len(rows[i]) for i in k)
            y = m(torch.tensor([rows[i] + [tokenizer.PAD] * (width - len(rows[i])) for i in k]))
            for j, i in enumerate(k):
                t = int(y[j, len(rows[i]) - 1].argmax())
                rows[i].append(t)
                if t == tokenizer.EOS:
                    live.discard(i)
    return [tok.decode(r[s:]) for r, s in zip(rows, start)]


def held_sum(r):
    a, b = data.num_sum(r, True)
    while a <= 10 and b <= 10:
        a, b = data.num_sum(r, True)
    return f"What is {a} + {b}?", f"{a} + {b} = {a+b}."


def unknown(r):
    q, _ = data.t_unknown(r)
    return q, data.DONT


if __name__ == "__main__":
    here = os.path.dirname(os.path.abspath(__file__))
    p = argparse.ArgumentParser()
    p.add_argument("--gguf", default=os.path.join(here, "sinew-tiny-q8_0.gguf"))
    p.add_argument("--each", type=int, default=100)
    a = p.parse_args()
    m = export.read_back(a.gguf)
    tok = tokenizer.Tokenizer()
    r = random.Random(4242)
    kinds = dict(
        sum_never_trained=held_sum,
        sum=data.t_sum,
        difference=data.t_sub,
        product=data.t_mul,
        count=data.t_count,
        next_number=data.t_next,
        bigger=data.t_bigger,
        capital=data.t_capital,
        opposite=data.t_opposite,
        plural=data.t_plural,
        colour=data.t_colour,
        day_month=data.t_day,
        sound_legs_spelling=data.t_misc,
        repeat=data.t_repeat,
        does_not_know=unknown,
    )
    for name, f in kinds.items():
        qa = [f(r) for _ in range(a.each)]
        got = [
            g
            for k in range(0, len(qa), 25)
            for g in answers(m, tok, [[q] for q, _ in qa[k : k + 25]])
        ]
        wrong = [
            (q, g) for (q, w), g in zip(qa, got) if g not in (w if isinstance(w, list) else [w])
        ]
        print(
            f"{name:22s} {len(qa) - len(wrong):4d} of {len(qa)}",
            "e.g. " + repr(wrong[0]) if wrong else "",
            flush=True,
        )
