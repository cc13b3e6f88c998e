#!/usr/bin/env python3
"""Byte-level BPE with the "deepseek-v3" pre-tokenizer: training, encoding, decoding.

   tokenizer.py [--vocab 2048] [--docs 20000] [--out tokenizer.json]     train on generated documents
Digits are never merged, so that every number is read digit by digit."""

import argparse, collections, json, os
import regex  # python3-regex: \\p{..} classes
import data

HERE = os.path.dirname(os.path.abspath(__file__))
BOS, EOS, PAD, USER, ASSISTANT = range(5)
SPECIAL = [
    "<｜begin▁of▁sentence｜>",
    "<｜end▁of▁sentence｜>",
    "<｜▁pad▁｜>",
    "<｜User｜>",
    "<｜Assistant｜>",
]
TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}{% if m['role'] == 'system' %}{{ m['content'] + '\\n\\n' }}"
    "{% elif m['role'] == 'user' %}{{ '<｜User｜>' + m['content'] }}"
    "{% elif m['role'] == 'assistant' %}{{ '<｜Assistant｜>' + m['content'] + '<｜end▁of▁sentence｜>' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<｜Assistant｜>' }}{% endif %}"
)
# The three expressions cut the text one after the other; pieces that one has matched are cut no further by the matches, the gaps are.
PRE = [
    regex.compile(e)
    for e in (
        r"\p{N}{1,3}",
        r"[一-龥぀-ゟ゠-ヿ]+",
        r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+""",
    )
]


def split(text):
    parts = [text]
    for e in PRE:
        nxt = []
        for p in parts:
            at = 0
            for m in e.finditer(p):
                if m.start() > at:
                    nxt.append(p[at : m.start()])
                if m.end() > m.start():
                    nxt.append(m.group())
                at = m.end()
            if at < len(p):
                nxt.append(p[at:])
        parts = nxt
    return parts


def byte_chars():  # the printable stand-ins of GPT-2 for the 256 bytes
    bs = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
    cs = bs[:]
    n = 0
    for b in range(256):
        if b not in bs:
            bs.append(b)
            cs.append(256 + n)
            n += 1
    return dict(zip(bs, map(chr, cs)))


B2C = byte_chars()
C2B = {c: b for b, c in B2C.items()}
chars = lambda piece: [B2C[b] for b in piece.encode("utf-8")]


def train(texts, vocab):
    count = collections.Counter(p for t in texts for p in split(t))
    words = [(chars(p), n) for p, n in count.items() if not any(c.isdigit() for c in p)]
    merges = []
    while len(SPECIAL) + 256 + len(merges) < vocab:
        pairs = collections.Counter()
        for w, n in words:
            for ab in zip(w, w[1:]):
                pairs[ab] += n
        if not pairs:
            break
        (a, b), n = max(pairs.items(), key=lambda kv: (kv[1], kv[0]))
        merges.append((a, b))
        for w, _ in words:
            i = 0
            while i < len(w) - 1:
                if w[i] == a and w[i + 1] == b:
                    w[i : i + 2] = [a + b]
                i += 1
    return merges


class Tokenizer:
    def __init__(self, path=os.path.join(HERE, "tokenizer.json")):
        j = json.load(open(path, encoding="utf-8"))
        self.merges = [tuple(m) for m in j["merges"]]
        self.tokens = SPECIAL + [B2C[b] for b in range(256)] + [a + b for a, b in self.merges]
        self.id = {t: i for i, t in enumerate(self.tokens)}
        self.rank = {m: i for i, m in enumerate(self.merges)}
        self.cache = {}
        self.special = regex.compile("(" + "|".join(map(regex.escape, SPECIAL)) + ")")

    def piece(self, p):
        if p not in self.cache:
            w = chars(p)
            while len(w) > 1:
                r, i = min((self.rank.get(ab, 1 << 30), i) for i, ab in enumerate(zip(w, w[1:])))
                if r == 1 << 30:
                    break
                w[i : i + 2] = [w[i] + w[i + 1]]
            self.cache[p] = [self.id[c] for c in w]
        return self.cache[p]

    def encode(self, text, special=False):
        out = []
        for part in self.special.split(text) if special else [text]:
            if special and part in SPECIAL:
                out.append(self.id[part])
            else:
                for p in split(part):
                    out += self.piece(p)
        return out

    def decode(self, ids):
        return bytes(C2B[c] for i in ids if i >= len(SPECIAL) for c in self.tokens[i]).decode(
            "utf-8", "replace"
        )

    def document(self, doc):
        """Token ids and, for each, whether it is the model's own text (1) or the user's (0)."""
        ids, own = [BOS], [0]
        for role, text in doc:
            t = self.encode(text + "\n\n" if role == "system" else text)
            head = {"user": [USER], "assistant": [ASSISTANT]}.get(role, [])
            tail = [EOS] if role in ("assistant", "text") else []
            ids += head + t + tail
            mine = role in ("assistant", "text")
            own += [0] * len(head) + [int(mine)] * (len(t) + len(tail))
        return ids, own

    def chat(self, *texts):  # user, assistant, user, ... -> prompt ids
        ids = [BOS]
        for i, t in enumerate(texts):
            ids += [USER] + self.encode(t) if i % 2 == 0 else [ASSISTANT] + self.encode(t) + [EOS]
        return ids + [ASSISTANT]


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--vocab", type=int, default=2048)
    p.add_argument("--docs", type=int, default=20000)
    p.add_argument("--out", default=os.path.join(HERE, "tokenizer.json"))
    a = p.parse_args()
    texts = [t for _, d in zip(range(a.docs), data.documents(7)) for _, t in d]
    m = train(texts, a.vocab)
    json.dump({"merges": m}, open(a.out, "w", encoding="utf-8"), ensure_ascii=False)
    t = Tokenizer(a.out)
    n = [len(t.document(d)[0]) for _, d in zip(range(2000), data.documents(8))]
    print(
        "vocab",
        len(t.tokens),
        "merges",
        len(m),
        "tokens per document: mean",
        sum(n) / len(n),
        "max",
        max(n),
    )
