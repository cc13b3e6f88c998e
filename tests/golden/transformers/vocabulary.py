"""Vocabularies that are just large enough to be valid: the goldens give token ids, nobody reads text."""

MERGES = ["t h", "h e", "i n", "e r", "a n"]
NORMAL, UNKNOWN, CONTROL, UNUSED, BYTE = 1, 2, 3, 5, 6  # of tokenizer.ggml.token_type


def byte_letters():
    """GPT-2's letters for the 256 bytes: printable Latin-1 stands for itself, the others for U+0100 onwards."""
    printable = set(range(33, 127)) | set(range(161, 173)) | set(range(174, 256))
    letters, following = [], 0x100
    for byte in range(256):
        if byte in printable:
            letters.append(chr(byte))
        else:
            letters.append(chr(following))
            following += 1
    return letters


def byte_level(pre, size):
    """A byte-level BPE vocabulary for the pre-tokeniser `pre`, as GGUF metadata."""
    tokens = byte_letters() + [merge.replace(" ", "") for merge in MERGES]
    types = [NORMAL] * len(tokens)
    bos, eos = len(tokens), len(tokens) + 1
    tokens += ["<bos>", "<eos>"]
    types += [CONTROL] * 2
    while len(tokens) < size:
        tokens.append(f"<unused{len(tokens)}>")
        types.append(UNUSED)
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": types,
        "tokenizer.ggml.merges": MERGES,
        "tokenizer.ggml.bos_token_id": bos,
        "tokenizer.ggml.eos_token_id": eos,
        "tokenizer.ggml.add_bos_token": True,
    }


def sentence_pieces(size):
    """A SentencePiece-style vocabulary with byte fall-back, as Gemma's files have."""
    tokens = ["<pad>", "<eos>", "<bos>", "<unk>"] + [f"<0x{byte:02X}>" for byte in range(256)]
    types = [CONTROL, CONTROL, CONTROL, UNKNOWN] + [BYTE] * 256
    scores = [0.0] * len(tokens)
    for piece in ["\u2581", *"abcdefghijklmnopqrstuvwxyz"]:
        tokens.append(piece)
        types.append(NORMAL)
        scores.append(-float(len(tokens)))
    while len(tokens) < size:
        tokens.append(f"<unused{len(tokens)}>")
        types.append(UNUSED)
        scores.append(0.0)
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.pre": "default",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.scores": scores,
        "tokenizer.ggml.token_type": types,
        "tokenizer.ggml.bos_token_id": 2,
        "tokenizer.ggml.eos_token_id": 1,
        "tokenizer.ggml.unknown_token_id": 3,
        "tokenizer.ggml.padding_token_id": 0,
        "tokenizer.ggml.add_bos_token": True,
        "tokenizer.ggml.add_eos_token": False,
        "tokenizer.ggml.add_space_prefix": False,
    }
