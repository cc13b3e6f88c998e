// render.mjs JOBS OUT : as render.py, through @huggingface/jinja.
import fs from 'node:fs';
import { Template } from '@huggingface/jinja';

const [jobsPath, outPath] = process.argv.slice(2);
const jobs = JSON.parse(fs.readFileSync(jobsPath, 'utf8'));

// The package reads the clock by itself: for it, time stands still.
const RealDate = Date;
globalThis.Date = class extends RealDate {
  constructor(...given) {
    super(...(given.length === 0 ? [jobs.now] : given));
  }
};

function render(template, variables) {
  try {
    return { text: template.render(variables) };
  } catch (error) {
    return { error: String(error.message) };
  }
}

const lines = [];
for (const job of jobs.templates) {
  let template, broken;
  try {
    template = new Template(fs.readFileSync(job.file, 'utf8'));
  } catch (error) {
    broken = { error: String(error.message), syntax: true };
  }
  for (const one of jobs.cases) {
    const variables = { bos_token: job.bos, eos_token: job.eos, ...structuredClone(one.variables) };
    lines.push(JSON.stringify({ template: job.name, case: one.name, ...(broken ?? render(template, variables)) }));
  }
}
fs.writeFileSync(outPath, lines.map((line) => line + '\n').join(''));
