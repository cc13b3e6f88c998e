// jobs.mjs CONVERSATIONS TEMPLATES CONFIGS OUT_FOLDER : writes OUT_FOLDER/jobs.json, what all renderers do: every
// *.jinja of the folder TEMPLATES, and the template of every tokenizer_config.json under the folder CONFIGS, with every
// conversation, with and without the generation prompt.
import fs from 'node:fs';
import path from 'node:path';

const [conversationsPath, templates, configs, out] = process.argv.slice(2);
const recorded = JSON.parse(fs.readFileSync(conversationsPath, 'utf8'));

const jobs = fs.readdirSync(templates).filter((name) => name.endsWith('.jinja')).sort().map((name) => ({
  name: name.replace(/\.jinja$/, ''), file: path.join(templates, name), bos: '<s>', eos: '</s>',
}));
const text = (token) => (typeof token === 'string' ? token : token?.content ?? '');
for (const name of fs.readdirSync(configs).sort()) {
  const config = JSON.parse(fs.readFileSync(path.join(configs, name), 'utf8'));
  if (typeof config.chat_template !== 'string') continue;
  const file = path.join(out, name.replace(/\.json$/, '.jinja'));
  fs.writeFileSync(file, config.chat_template);
  jobs.push({ name: `npm/${name.replace(/\.json$/, '')}`, file, bos: text(config.bos_token), eos: text(config.eos_token) });
}

// As transformers calls a template: tools and documents are always there, and none if not given.
const cases = recorded.cases.flatMap((one) => [true, false].map((prompt) => ({
  name: `${one.name}${prompt ? '+prompt' : ''}`,
  variables: {
    messages: one.messages, tools: one.tools ? recorded.tools : null, documents: null, add_generation_prompt: prompt,
    ...one.variables,
  },
})));
fs.writeFileSync(path.join(out, 'jobs.json'), JSON.stringify({ now: recorded.now, templates: jobs, cases }));
