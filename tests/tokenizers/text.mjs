// Mixed text for tokenizers, the same for the same seed: documents of a few KB, each of one kind.
// Only characters that Unicode 13 had, so that engines with other versions of it can be compared.

// A generator of numbers (mulberry32): the same on every machine, unlike Math.random.
export function randomNumbers(seed) {
  let state = seed >>> 0;
  return (limit) => {
    state = (state + 0x6d2b79f5) >>> 0;
    let x = Math.imul(state ^ (state >>> 15), state | 1);
    x ^= x + Math.imul(x ^ (x >>> 7), x | 61);
    return ((x ^ (x >>> 14)) >>> 0) % limit;
  };
}

const words = `the of and to in a is that for it as was with be by on not he his but at are this have from or had an they
which one you were all her she there would their we him been has when who will no more if out so up said what its about
than into them can only other time new some could these two may first then do any like my now over such our man me even
most made after also did many off before must well back through years where much your way down should because long each
just state those people too mister how little good world make very year still see own work men day get here between both
life being under three never know same last another while us might great go come since against right came take used
himself few house use place during high without again home around small however found mrs part school thought went say
general once upon every left war does got united number hand course water until always away public something fact less
though far put head think called set almost enough end took government night yet system better four nothing told eyes
city going president why days present point didn't look find asked second group later next room social business knew
program give half side face toward white five let young form given per order large several national important
tokenizer parallelism distributed bandwidth quantisation attention experts embedding vocabulary latency throughput
don't can't we'll they're I've she'd it's I'M YOU'LL Internet NATO iPhone McDonald JavaScript HTTPServer XMLParser
naïve café Zürich Ørsted señor façade Dvořák Łódź Straße œuvre`.split(/\s+/);

const identifiers = `index count buffer result value data size length name path node left right token model layer batch
head weight config status error message handler request response stream offset total_bytes maxLength getValue setItem
parse_header is_valid self this ctx tmp i j k n x y kMaxSize MAX_LEN _private __init__ std vector string`.split(/\s+/);

const codeLines = [
  (r, w) => `for (int ${w()} = 0; ${w()} < ${r(1000)}; ++${w()}) {`,
  (r, w) => `  const auto& ${w()} = ${w()}[${r(64)}];`,
  (r, w) => `def ${w()}(self, ${w()}: int, *args, **kwargs) -> None:`,
  (r, w) => `        return ${w()}.${w()}(${r(100)}, "${w()}")  # ${w()}`,
  (r, w) => `\tif err := ${w()}.${w()}(); err != nil {`,
  (r, w) => `\t\treturn fmt.Errorf("${w()}: %w", err)`,
  (r, w) => `import { ${w()}, ${w()} } from './${w()}/${w()}.js';`,
  (r, w) => `std::unordered_map<std::string, std::vector<${w()}>> ${w()}_;`,
  (r, w) => `SELECT ${w()}, COUNT(*) FROM ${w()} WHERE ${w()} >= ${r(9999)} GROUP BY 1;`,
  (r, w) => `<div class="${w()}" id='${w()}'>&nbsp;${w()}</div>`,
  (r, w) => `{"${w()}": ${r(1e6) / 1000}, "${w()}": [${r(10)}, null, true], "${w()}": "\\u00${(16 + r(200)).toString(16)}\\n"}`,
  (r, w) => `    ${w()} += (${w()} << ${r(31)}) ^ 0x${r(2 ** 31).toString(16).toUpperCase()}u; // ${w()}`,
  (r, w) => `$ git commit -m "${w()}: ${w()}" && make -j${r(16)} > /dev/null 2>&1`,
  () => '}',
  () => '    }',
  () => '',
  () => '\t\t}',
  (r) => '/'.repeat(r(40)) + ' ' + '-'.repeat(r(60)) + '=' .repeat(r(20)),
];

const pick = (random, list) => list[random(list.length)];
const between = (random, first, last) => first + random(last - first + 1);
const characters = (random, count, ranges) => {
  let text = '';
  for (let i = 0; i < count; ++i) text += String.fromCodePoint(between(random, ...pick(random, ranges)));
  return text;
};

// Each returns a stretch of some ten to some hundred characters.
export const kinds = {
  english: (random) => {
    let text = '';
    for (let i = 6 + random(14); i > 0; --i) {
      let word = pick(random, words);
      if (random(9) === 0) word = word[0].toUpperCase() + word.slice(1);
      if (random(40) === 0) word = word.toUpperCase();
      if (random(25) === 0) word = pick(random, words) + word;
      text += word + (random(9) === 0 ? pick(random, [', ', '; ', ': ', ' - ', ' (', ') ', '"', '... ', '/']) : ' ');
    }
    return text.trimEnd() + pick(random, ['. ', '.\n', '? ', '! ', '.\n\n', '.  ', '."\n']);
  },
  code: (random) => {
    const word = () => pick(random, identifiers);
    return '  '.repeat(random(6)) + pick(random, codeLines)(random, word) + pick(random, ['\n', '\n', '\n', '\n\n', '\r\n', ' \n']);
  },
  cjk: (random) =>
    characters(random, 4 + random(20), [[0x4e00, 0x9fa5], [0x4e00, 0x62ff], [0x3041, 0x3096], [0x30a1, 0x30fa]]) +
    pick(random, ['，', '。', '、', '！', '？', '：“', '”', '（', '）', ' ', '\n', '　', '2024年', 'GPU', '　　', '・', 'ー']),
  korean: (random) => characters(random, 2 + random(6), [[0xac00, 0xd7a3], [0xac00, 0xbfff], [0x3131, 0x318e]]) + pick(random, [' ', '. ', ' ', '은 ', '\n']),
  arabic: (random) =>
    characters(random, 2 + random(7), [[0x621, 0x64a], [0x621, 0x64a], [0x64b, 0x652], [0x671, 0x6d3], [0x660, 0x669], [0x6f0, 0x6f9]]) +
    pick(random, [' ', ' ', '، ', '؟ ', '\n', '\u200c', '\u200f']),
  hebrew: (random) => characters(random, 2 + random(6), [[0x5d0, 0x5ea], [0x5b0, 0x5bc], [0x5d0, 0x5ea]]) + pick(random, [' ', '. ', '\u05be']),
  hindi: (random) => characters(random, 2 + random(6), [[0x915, 0x939], [0x93e, 0x94d], [0x905, 0x914], [0x966, 0x96f], [0x901, 0x903]]) + pick(random, [' ', ' ', '। ', '\n', '\u200d']),
  thai: (random) => characters(random, 5 + random(20), [[0xe01, 0xe2e], [0xe30, 0xe3a], [0xe40, 0xe4e]]) + pick(random, ['', ' ', '\n']),
  cyrillic: (random) => {
    const word = characters(random, 2 + random(8), [[0x430, 0x44f], [0x430, 0x44f], [0x391, 0x3a1], [0x3b1, 0x3c9], [0x410, 0x42f]]);
    return word + pick(random, [' ', ' ', ', ', '. ', '\n']);
  },
  latin: (random) => characters(random, 2 + random(8), [[0x61, 0x7a], [0xc0, 0xd6], [0xd8, 0xf6], [0x100, 0x17e], [0x1e00, 0x1eff]]) + pick(random, [' ', ' ', "'s ", '. ', '-']),
  emoji: (random) => {
    const people = ['👩', '👨', '🧑', '👧', '👦'];
    return pick(random, [
      () => pick(random, people) + '\u200d' + pick(random, ['💻', '🚀', '🔬', '🌾', '⚕️', '✈️']),
      () => pick(random, people) + '\u200d' + pick(random, people) + '\u200d' + pick(random, people),
      () => String.fromCodePoint(between(random, 0x1f600, 0x1f64f)).repeat(1 + random(4)),
      () => '👍' + String.fromCodePoint(between(random, 0x1f3fb, 0x1f3ff)),
      () => String.fromCodePoint(between(random, 0x1f1e6, 0x1f1ff), between(random, 0x1f1e6, 0x1f1ff)),
      () => random(10) + '\ufe0f\u20e3',
      () => '❤️' + '\u200d' + '🔥',
      () => characters(random, 3, [[0x2190, 0x21ff], [0x2200, 0x22ff], [0x2500, 0x257f], [0x2600, 0x26ff], [0x1d400, 0x1d433]]),
    ])() + pick(random, ['', '', ' ', ' ok ', '\n']);
  },
  marks: (random) => {
    let text = '';
    for (let i = 2 + random(6); i > 0; --i) {
      text += pick(random, ['a', 'E', 'o', 'n', 'Z', ' ', '1', '.', 'Ж', 'α']);
      for (let k = random(4); k > 0; --k) text += String.fromCodePoint(between(random, 0x300, 0x36f));
    }
    return text + pick(random, [' ', '', '\u20dd', '\u0301 ', '\n\u0301']);
  },
  digits: (random) => {
    let digits = '';
    for (let i = 1 + random(14); i > 0; --i) digits += random(10);
    return pick(random, ['', ' ', '$', '-', '+', '0x', 'v', '1,', '½', '²', 'Ⅷ', '٣', '３']) + digits + pick(random, [' ', '.', ',', '%', 'kg ', '\n', ':', 'e+', '']);
  },
  spaces: (random) => {
    const one = pick(random, [' ', ' ', ' ', '\t', '\n', '\r\n', '\r', '\u00a0', '\u2003', '\u2009', '\u3000', '\u2028', '\u0085', '\u200b', '\u202f', '\v', '\f', '\ufeff']);
    return one.repeat(1 + random(random(10) === 0 ? 40 : 6)) + pick(random, ['', '', 'x', '.', 'Word', '7', '中', "'s"]);
  },
  control: (random) => characters(random, 1 + random(3), [[0x00, 0x1f], [0x7f, 0x9f]]) + pick(random, ['', ' ', 'a', 'text ', '\n']) + pick(random, ['', '\ufffd', '\ue000', '\uf8ff', '\ufffc', '\u180e', '\u2060', '\u00ad']),
  markers: (random) => pick(random, ['<s>', '</s>', '<|im_end|>', '<|endoftext|>', '<think>', '</think>', '<|eot_id|>', '[INST]', '<unk>', '<0x41>', '<bos>', '<|', '|>', '<｜User｜>', '<｜', '｜>', '▁', '▁▁the', '<end_of_turn>']) + pick(random, ['', ' ', 'user', '\n']),
};

const weights = { english: 5, code: 5, cjk: 3, korean: 1, arabic: 2, hebrew: 1, hindi: 2, thai: 1, cyrillic: 1, latin: 1, emoji: 2, marks: 1, digits: 1, spaces: 1, control: 1, markers: 1 };

// { kind, text } until there are `bytes` bytes of UTF-8; the last kind, "mixed", is all kinds in turn.
export function documents(seed, bytes) {
  const random = randomNumbers(seed);
  const choices = Object.entries(weights).flatMap(([kind, weight]) => Array(weight).fill(kind)).concat(['mixed', 'mixed', 'mixed']);
  const names = Object.keys(kinds);
  const list = [];
  for (let size = 0; size < bytes; ) {
    const kind = pick(random, choices);
    const limit = 500 + random(4000);
    let text = '';
    while (text.length < limit) text += kinds[kind === 'mixed' ? pick(random, names) : kind](random);
    list.push({ kind, text });
    size += Buffer.byteLength(text);
  }
  return list;
}
