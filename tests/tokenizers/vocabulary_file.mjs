// Writes a tokenizer.json as a GGUF file that has a vocabulary and nothing else, the way llama.cpp's
// converter spells it.

const types = { uint32: 4, int32: 5, float32: 6, bool: 7, string: 8, array: 9 };
const kinds = { normal: 1, unknown: 2, control: 3, userDefined: 4, unused: 5, byte: 6 };

class GgufWriter {
  parts = [];
  count = 0;

  number(type, value) {
    const bytes = Buffer.alloc(type === 'uint64' ? 8 : type === 'bool' ? 1 : 4);
    if (type === 'uint64') bytes.writeBigUInt64LE(BigInt(value));
    else if (type === 'float32') bytes.writeFloatLE(value);
    else if (type === 'int32') bytes.writeInt32LE(value);
    else if (type === 'bool') bytes[0] = value ? 1 : 0;
    else bytes.writeUInt32LE(value);
    this.parts.push(bytes);
  }
  string(text) {
    const bytes = Buffer.from(text, 'utf8');
    this.number('uint64', bytes.length);
    this.parts.push(bytes);
  }
  value(type, value) {
    if (type === 'string') this.string(value);
    else this.number(type, value);
  }
  add(key, type, value) {
    this.string(key);
    this.number('uint32', types[Array.isArray(value) ? 'array' : type]);
    if (Array.isArray(value)) {
      this.number('uint32', types[type]);
      this.number('uint64', value.length);
      for (const one of value) this.value(type, one);
    } else {
      this.value(type, value);
    }
    ++this.count;
  }
  bytes() {
    const head = Buffer.alloc(24);
    head.write('GGUF', 'latin1');
    head.writeUInt32LE(3, 4);
    head.writeBigUInt64LE(0n, 8);
    head.writeBigUInt64LE(BigInt(this.count), 16);
    return Buffer.concat([head, ...this.parts]);
  }
}

// Tokens and their kinds, by id.
function tokensOf(tokenizer, byPieces) {
  const tokens = [];
  const set = (id, text, kind) => { tokens[id] = { text, kind }; };
  for (const [text, id] of Object.entries(tokenizer.model.vocab)) {
    const isByte = byPieces && /^<0x[0-9A-F]{2}>$/.test(text);
    set(id, text, isByte ? kinds.byte : kinds.normal);
  }
  for (const { id, content, special } of tokenizer.added_tokens) {
    const unknown = content === tokenizer.model.unk_token;
    if (special) set(id, content, unknown ? kinds.unknown : kinds.control);
    else set(id, byPieces ? content.replaceAll('\u2581', ' ') : content, kinds.userDefined);
  }
  for (let id = 0; id < tokens.length; ++id) tokens[id] ??= { text: `[PAD${id}]`, kind: kinds.unused };
  return tokens;
}

// tokenizer.json has merges instead of SentencePiece's scores, in the order of the scores: the first
// merge that makes a piece gives its rank.
function scoresOf(tokenizer, count) {
  const scores = Array(count).fill(0);
  tokenizer.model.merges.forEach((merge, rank) => {
    const id = tokenizer.model.vocab[Array.isArray(merge) ? merge.join('') : merge.replace(' ', '')];
    if (scores[id] === 0) scores[id] = -1 - rank;
  });
  return scores;
}

// settings: { pre } for byte-level BPE, { spacePrefix } for SentencePiece.
export function vocabularyFile(tokenizer, settings) {
  const byPieces = settings.pre === undefined;
  const tokens = tokensOf(tokenizer, byPieces);
  const file = new GgufWriter();
  // llama.cpp loads a vocabulary only of an architecture that it knows.
  file.add('general.architecture', 'string', 'llama');
  for (const [key, value] of [['context_length', 8], ['embedding_length', 8], ['block_count', 1], ['feed_forward_length', 8],
                              ['attention.head_count', 1], ['rope.dimension_count', 8]]) {
    file.add(`llama.${key}`, 'uint32', value);
  }
  file.add('llama.attention.layer_norm_rms_epsilon', 'float32', 1e-5);
  file.add('tokenizer.ggml.model', 'string', byPieces ? 'llama' : 'gpt2');
  file.add('tokenizer.ggml.tokens', 'string', tokens.map(({ text }) => text));
  file.add('tokenizer.ggml.token_type', 'int32', tokens.map(({ kind }) => kind));
  if (byPieces) {
    file.add('tokenizer.ggml.scores', 'float32', scoresOf(tokenizer, tokens.length));
    file.add('tokenizer.ggml.add_space_prefix', 'bool', settings.spacePrefix);
  } else {
    file.add('tokenizer.ggml.pre', 'string', settings.pre);
    file.add('tokenizer.ggml.merges', 'string', tokenizer.model.merges.map((pair) => (Array.isArray(pair) ? pair.join(' ') : pair)));
  }
  return file.bytes();
}
