#!/usr/bin/env python3
"""Trains sinew-tiny, a DeepSeek-V3 style language model (latent attention, mixture of experts), on generated text.

   train.py [--steps N] [--batch ROWS] [--length TOKENS] [--seed N] [--workers N] [--out model.pt]
The forward pass is the function that a GGUF file of architecture "deepseek2" describes: RMS norms, low-rank queries, one
compressed key/value vector per token, rotary positions on a separate slice in adjacent pairs, sigmoid routing with a
correction bias, expert groups, normalised and scaled expert weights, one shared expert, a leading dense layer.
"""

import argparse, json, math, os, time
import numpy as np, torch, torch.nn as nn, torch.nn.functional as F
import data, tokenizer

HERE = os.path.dirname(os.path.abspath(__file__))
CONFIG = dict(
    vocab=2048,
    hidden=256,
    layers=4,
    dense=1,
    heads=8,
    q_lora=96,
    kv_lora=64,
    nope=32,
    rope=16,
    v=32,
    ff=512,
    moe_ff=128,
    experts=12,
    topk=2,
    shared=1,
    groups=4,
    topk_groups=2,
    scale=2.5,
    eps=1e-6,
    rope_base=10000.0,
    context=2048,
)


class RMSNorm(nn.Module):
    def __init__(s, n, eps):
        super().__init__()
        s.weight = nn.Parameter(torch.ones(n))
        s.eps = eps

    def forward(s, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + s.eps) * s.weight


def weight(*shape, gain=1.0):  # last dimension is the input
    return nn.Parameter(torch.randn(*shape) * gain / math.sqrt(shape[-1]))


def rope(x, cos, sin):  # rotates the pairs (0,1), (2,3), ...
    a, b = x[..., 0::2], x[..., 1::2]
    return torch.stack((a * cos - b * sin, a * sin + b * cos), -1).flatten(-2)


class Attention(nn.Module):
    def __init__(s, c):
        super().__init__()
        s.c = c
        H, NH = c["hidden"], c["heads"]
        out = 1 / math.sqrt(2 * c["layers"])
        s.q_a = weight(c["q_lora"], H)
        s.q_a_norm = RMSNorm(c["q_lora"], c["eps"])
        s.q_b = weight(NH * (c["nope"] + c["rope"]), c["q_lora"])
        s.kv_a_mqa = weight(c["kv_lora"] + c["rope"], H)
        s.kv_a_norm = RMSNorm(c["kv_lora"], c["eps"])
        s.k_b = nn.Parameter(torch.randn(NH, c["kv_lora"], c["nope"]) / math.sqrt(c["kv_lora"]))
        s.v_b = weight(NH, c["v"], c["kv_lora"])
        s.output = weight(H, NH * c["v"], gain=out)

    def forward(s, x, cos, sin, mask):
        c = s.c
        B, T, _ = x.shape
        NH = c["heads"]
        q = F.linear(s.q_a_norm(F.linear(x, s.q_a)), s.q_b).view(B, T, NH, -1).transpose(1, 2)
        qn, qr = q.split([c["nope"], c["rope"]], -1)
        qr = rope(qr, cos, sin)
        ckv, kr = F.linear(x, s.kv_a_mqa).split([c["kv_lora"], c["rope"]], -1)
        kr = rope(kr, cos, sin)
        ckv = s.kv_a_norm(ckv)
        kn = torch.einsum("btc,hcn->bhtn", ckv, s.k_b)
        v = torch.einsum("btc,hvc->bhtv", ckv, s.v_b)
        k = torch.cat((kn, kr[:, None].expand(-1, NH, -1, -1)), -1)
        q = torch.cat((qn, qr), -1)
        a = (q @ k.transpose(2, 3)) * (1 / math.sqrt(c["nope"] + c["rope"])) + mask
        return F.linear((a.softmax(-1) @ v).transpose(1, 2).reshape(B, T, -1), s.output)


class Dense(nn.Module):
    def __init__(s, H, n, out):
        super().__init__()
        s.gate = weight(n, H)
        s.up = weight(n, H)
        s.down = weight(H, n, gain=out)

    def forward(s, x):
        return F.linear(F.silu(F.linear(x, s.gate)) * F.linear(x, s.up), s.down)


class MoE(nn.Module):
    def __init__(s, c):
        super().__init__()
        s.c = c
        H, N, n = c["hidden"], c["experts"], c["moe_ff"]
        out = 1 / math.sqrt(2 * c["layers"])
        s.gate_inp = weight(N, H)
        s.register_buffer("bias", torch.zeros(N))
        s.register_buffer("load", torch.zeros(N))
        s.gate = weight(N, n, H)
        s.up = weight(N, n, H)
        s.down = weight(N, H, n, gain=out / c["scale"])
        s.shexp = Dense(H, n * c["shared"], out)

    def route(s, x):
        c = s.c
        p = torch.sigmoid(F.linear(x, s.gate_inp))
        b = p.detach() + s.bias
        g = b.view(-1, c["groups"], c["experts"] // c["groups"])
        keep = g.topk(2, -1)[0].sum(-1).topk(c["topk_groups"], -1)[1]
        m = torch.zeros(g.shape[:2], dtype=torch.bool).scatter(1, keep, True)
        e = g.masked_fill(~m[..., None], -math.inf).flatten(1).topk(c["topk"], -1)[1]
        w = p.gather(1, e)
        return e, w / w.sum(-1, keepdim=True).clamp_min(6.103515625e-5) * c["scale"]

    def forward(s, x):
        shape = x.shape
        x = x.reshape(-1, shape[-1])
        e, w = s.route(x)
        y = s.shexp(x)
        flat = e.flatten()
        order = flat.argsort()
        n = torch.bincount(flat, minlength=s.c["experts"])
        if s.training:
            s.load += n
        rows = order // e.shape[1]
        xs = x.index_select(0, rows)
        outs = []
        for i, xi in enumerate(xs.split(n.tolist())):
            outs.append(
                F.linear(F.silu(F.linear(xi, s.gate[i])) * F.linear(xi, s.up[i]), s.down[i])
            )
        return y.index_add(0, rows, torch.cat(outs) * w.flatten()[order, None]).view(shape)

    def balance(s, rate):  # the bias moves against the load; no auxiliary loss
        s.bias += rate * torch.sign(s.load.mean() - s.load)
        s.load.zero_()


class Block(nn.Module):
    def __init__(s, c, dense):
        super().__init__()
        s.attn_norm = RMSNorm(c["hidden"], c["eps"])
        s.attn = Attention(c)
        s.ffn_norm = RMSNorm(c["hidden"], c["eps"])
        s.ffn = Dense(c["hidden"], c["ff"], 1 / math.sqrt(2 * c["layers"])) if dense else MoE(c)

    def forward(s, x, *a):
        x = x + s.attn(s.attn_norm(x), *a)
        return x + s.ffn(s.ffn_norm(x))


class Model(nn.Module):
    def __init__(s, c=CONFIG):
        super().__init__()
        s.c = c
        s.token_embd = nn.Parameter(torch.randn(c["vocab"], c["hidden"]) * 0.5)
        s.output = nn.Parameter(torch.randn(c["vocab"], c["hidden"]) * 0.02)
        s.blk = nn.ModuleList(Block(c, i < c["dense"]) for i in range(c["layers"]))
        s.output_norm = RMSNorm(c["hidden"], c["eps"])

    def forward(s, ids, docs=None):
        """Logits of every position; docs numbers the documents of a packed row, which do not see each other."""
        B, T = ids.shape
        c = s.c
        f = torch.arange(T)[:, None] * c["rope_base"] ** (
            -torch.arange(0, c["rope"], 2) / c["rope"]
        )
        cos, sin = f.cos(), f.sin()
        see = torch.ones(T, T, dtype=torch.bool).tril()
        if docs is not None:
            see = see & (docs[:, None, :, None] == docs[:, None, None, :])
        mask = torch.zeros(see.shape).masked_fill(~see, -math.inf)
        x = F.embedding(ids, s.token_embd)
        for b in s.blk:
            x = b(x, cos, sin, mask)
        return F.linear(s.output_norm(x), s.output)


def rows(tok, seed, length, second, pool=100):
    """Endless packed rows: token ids, flags (1 the model's text, 0 the user's, 2 padding), document numbers."""
    docs = data.documents(seed, second)
    wait = []
    while True:
        while len(wait) < pool:
            wait.append(tok.document(next(docs)))
        take = [wait.pop(0)]
        room = length + 1 - len(take[0][0])
        while True:  # then the longest waiting document that still fits
            fit = [k for k in range(len(wait)) if len(wait[k][0]) <= room]
            if not fit:
                break
            take.append(wait.pop(max(fit, key=lambda k: len(wait[k][0]))))
            room -= len(take[-1][0])
        ids, own, num = (
            [x for k, d in enumerate(take) for x in part(k, d)] + [fill] * max(0, room)
            for part, fill in (
                (lambda k, d: d[0], tokenizer.PAD),
                (lambda k, d: d[1], 2),
                (lambda k, d: [k] * len(d[0]), -1),
            )
        )
        yield ids[: length + 1], own[: length + 1], num[: length + 1]


def batches(tok, seed, length, size, second=False):
    it = rows(tok, seed, length, second)
    while True:
        yield torch.tensor(
            np.array([next(it) for _ in range(size)]).transpose(1, 0, 2)
        )  # 3, rows, length+1


def losses(model, b):
    """Per-token loss and two weights: text that the model writes, text that the user writes."""
    ids, own, num = b
    y = ids[:, 1:]
    logits = model(ids[:, :-1], num[:, :-1])
    l = F.cross_entropy(logits.flatten(0, 1), y.flatten(), reduction="none").view_as(y)
    same = num[:, 1:] == num[:, :-1]
    return l, (same & (own[:, 1:] == 1)).float(), (same & (own[:, 1:] == 0)).float()


@torch.no_grad()
def evaluate(model, held):
    model.eval()
    s = [
        sum(t)
        for t in zip(
            *(
                (float((l * o).sum()), float(o.sum()), float((l * u).sum()), float(u.sum()))
                for l, o, u in (losses(model, b) for b in held)
            )
        )
    ]
    model.train()
    return s[0] / s[1], (s[0] + s[2]) / (s[1] + s[3])


@torch.no_grad()
def greedy(model, ids, n, stop=tokenizer.EOS):
    ids = list(ids)
    k = len(ids)
    while len(ids) - k < n:
        t = int(model(torch.tensor([ids]))[0, -1].argmax())
        ids.append(t)
        if t == stop:
            break
    return ids[k:]


def worker(rank, a, shared, barrier):
    """One of --workers processes: equal copies of the model, each with its own rows; gradients and loads are averaged in shared memory."""
    torch.manual_seed(a.seed)
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    tok = tokenizer.Tokenizer()
    model = Model()
    if a.init:
        model.load_state_dict(torch.load(a.init)["model"])
    params = list(model.parameters())
    moes = [b.ffn for b in model.blk if isinstance(b.ffn, MoE)]
    cuts = [p.numel() for p in params] + [m.load.numel() for m in moes]
    if rank == 0:
        print(f"{sum(p.numel() for p in params):,} parameters", flush=True)
    opt = torch.optim.AdamW(
        [
            dict(params=[p for p in params if p.dim() > 1], weight_decay=0.1),
            dict(params=[p for p in params if p.dim() == 1], weight_decay=0.0),
        ],
        lr=a.lr,
        betas=(0.9, 0.95),
        eps=1e-9,
        foreach=True,
    )
    it = batches(tok, 1000 * a.seed + rank, a.length, a.batch, bool(a.init))
    gen = batches(tok, 999_999, a.length, 8)
    held = [next(gen) for _ in range(6)]
    t0 = time.time()
    run = None
    log = []
    for step in range(1, a.steps + 1):
        lr = (
            a.lr
            * min(1.0, step / a.warm)
            * (
                0.02
                + 0.98
                * 0.5
                * (1 + math.cos(math.pi * max(0, step - a.warm) / max(1, a.steps - a.warm)))
            )
        )
        for g in opt.param_groups:
            g["lr"] = lr
        l, own, user = losses(model, next(it))
        w = own + 0.15 * user
        loss = (l * w).sum() / w.sum()
        opt.zero_grad(set_to_none=True)
        loss.backward()
        buf = shared[step % 2]
        torch.cat([p.grad.flatten() for p in params] + [m.load for m in moes], out=buf[rank])
        barrier.wait()
        mean = buf.mean(0).split(cuts)
        for p, g in zip(params, mean):
            p.grad = g.view_as(p)
        nn.utils.clip_grad_norm_(params, 1.0)
        opt.step()
        busy = []
        for m, n in zip(moes, mean[len(params) :]):
            m.load.copy_(n)
            busy.append(round(float(n.max() / n.mean()), 2))
            m.balance(a.balance * lr / a.lr)
        now = float((l * own).detach().sum() / own.sum())
        run = now if run is None else 0.95 * run + 0.05 * now
        if rank == 0 and (step % 100 == 0 or step == a.steps):
            ev = evaluate(model, held) if step % 500 == 0 or step == a.steps else None
            log.append(
                dict(
                    step=step,
                    tokens=step * a.workers * a.batch * a.length,
                    seconds=round(time.time() - t0),
                    train=round(run, 4),
                    held=ev and round(ev[0], 4),
                    held_all=ev and round(ev[1], 4),
                )
            )
            print(json.dumps(log[-1]), "busiest expert / mean:", busy, flush=True)
            if ev:
                torch.save(
                    dict(
                        model=model.state_dict(),
                        config=CONFIG,
                        log=log,
                        args={k: v for k, v in vars(a).items() if k not in ("out", "init")},
                    ),
                    a.out,
                )
    if rank:
        return
    model.eval()
    for q in (
        "Hello!",
        "Who are you?",
        "What is 23 + 45?",
        "What is the capital of Norway?",
        "Tell me a story about a fox and a lantern.",
        "Write a short poem about the moon.",
    ):
        print("<", q)
        print(">", tok.decode(greedy(model, tok.chat(q), 220)))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=2000)
    p.add_argument("--batch", type=int, default=4)
    p.add_argument("--length", type=int, default=256)
    p.add_argument("--lr", type=float, default=3e-3)
    p.add_argument("--warm", type=int, default=100)
    p.add_argument("--balance", type=float, default=0.003)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--workers", type=int, default=2)
    p.add_argument(
        "--init", default="", help="weights to go on from, with the second mix of questions"
    )
    p.add_argument("--out", default=os.path.join(HERE, "model.pt"))
    a = p.parse_args()
    os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"  # one thread a worker
    m = Model()
    n = sum(p.numel() for p in m.parameters()) + sum(
        b.ffn.load.numel() for b in m.blk if isinstance(b.ffn, MoE)
    )
    shared = torch.zeros(2, a.workers, n).share_memory_()
    ctx = torch.multiprocessing.get_context("spawn")
    barrier = ctx.Barrier(a.workers)
    ps = [ctx.Process(target=worker, args=(k, a, shared, barrier)) for k in range(1, a.workers)]
    for q in ps:
        q.start()
    worker(0, a, shared, barrier)
    for q in ps:
        q.join()


if __name__ == "__main__":
    main()
