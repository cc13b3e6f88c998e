// compare.mjs OURS JINJA2 HUGGINGFACE : three outputs of the renderers. What both references agree on must be ours
// too, to the byte; where they differ, ours must be one of the two; where the template itself refuses, our error must
// carry its words. One line a template, then a summary; status 1 if anything is wrong.
import fs from 'node:fs';

const read = (path) => new Map(fs.readFileSync(path, 'utf8').trim().split('\n').map((line) => {
  const row = JSON.parse(line);
  return [`${row.template}\t${row.case}`, row];
}));
const [ours, python, node] = process.argv.slice(2, 5).map(read);
const verbose = process.env.SINEW_VERBOSE === '1';

const same = (a, b) => (a.text === undefined) === (b.text === undefined) && a.text === b.text;
function judge(own, first, second) {
  if (!own) return 'no result';
  if (first.refusal && !(own.error ?? '').includes(first.error.replace(/[\r\n]/g, ' ')))
    return second.text === undefined || own.text !== second.text ? 'another refusal' : '';
  if (same(first, second)) return same(own, first) ? '' : 'differs from both references';
  return same(own, first) || same(own, second) ? '' : 'references differ, ours is neither';
}

const excerpt = (row, at) => JSON.stringify(row?.text?.slice(Math.max(0, at - 60), at + 100) ?? row?.error);
function report(own, first, second, why) {
  const [a, b] = [own?.text ?? '', first.text ?? second.text ?? ''];
  let at = 0;
  while (at < a.length && a[at] === b[at]) at += 1;
  console.log(`    ours        ${excerpt(own, at)}\n    jinja2      ${excerpt(first, at)}\n    huggingface ${excerpt(second, at)}`);
}

const templates = new Map();
for (const [key, first] of python) {
  const second = node.get(key);
  const own = ours.get(key);
  const entry = templates.get(first.template) ?? { cases: 0, texts: 0, disputed: [], bad: [] };
  templates.set(first.template, entry);
  entry.cases += 1;
  if (first.text !== undefined) entry.texts += 1;
  if (!same(first, second)) entry.disputed.push([first.case, same(own, first) ? 'as jinja2' : 'as huggingface']);
  const why = judge(own, first, second);
  if (why) entry.bad.push({ key, why, own, first, second });
}

let bad = 0, disputed = 0, cases = 0;
for (const [name, entry] of templates) {
  cases += entry.cases;
  disputed += entry.disputed.length;
  bad += entry.bad.length;
  const note = entry.disputed.length === 0 ? '' : `, references differ in ${entry.disputed.length}`;
  console.log(`${entry.bad.length === 0 ? 'ok    ' : 'NOT OK'} ${name}: ${entry.cases} cases, ${entry.texts} texts${note}`);
  if (verbose) for (const [one, whose] of entry.disputed) console.log(`    ${one}: ${whose}`);
  for (const { key, why, own, first, second } of entry.bad.slice(0, verbose ? undefined : 3)) {
    console.log(`  ${key.replace('\t', ' / ')}: ${why}`);
    report(own, first, second);
  }
}
console.log(`${templates.size} templates, ${cases} renderings, ${bad} wrong, ${disputed} on which the references differ`);
process.exit(bad === 0 && cases > 0 ? 0 : 1);
