// The API as the users' own client library sees it. SINEW_URL is the server, such as http://127.0.0.1:8080.
import assert from 'node:assert/strict';
import { before, test } from 'node:test';
import OpenAI from 'openai';

const url = process.env.SINEW_URL;
assert.ok(url, 'SINEW_URL is not set');

const limit = { timeout: 60_000 };
const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: 'none', maxRetries: 0, timeout: 50_000 });
const messages = [{ role: 'user', content: 'Hello!' }];
const greedy = { messages, temperature: 0, max_tokens: 12 };
let model;

before(async () => {
  const page = await client.models.list();
  model = page.data[0].id;
}, limit);

test('models: list and retrieve agree', limit, async () => {
  const retrieved = await client.models.retrieve(model);
  assert.equal(retrieved.id, model);
  assert.equal(retrieved.object, 'model');
});

test('chat: a whole answer', limit, async () => {
  const answer = await client.chat.completions.create({ model, ...greedy });
  assert.equal(answer.object, 'chat.completion');
  assert.equal(answer.choices.length, 1);
  assert.equal(answer.choices[0].message.role, 'assistant');
  assert.ok(answer.choices[0].message.content.length > 0);
  assert.ok(['stop', 'length'].includes(answer.choices[0].finish_reason));
  assert.ok(answer.usage.completion_tokens <= 12);
  assert.equal(
    answer.usage.total_tokens,
    answer.usage.prompt_tokens + answer.usage.completion_tokens,
  );
});

test('chat: a stream says the same, with usage when asked', limit, async () => {
  const whole = await client.chat.completions.create({ model, ...greedy });
  const stream = await client.chat.completions.create({
    model,
    ...greedy,
    stream: true,
    stream_options: { include_usage: true },
  });
  let text = '';
  let usage = null;
  const ends = [];
  for await (const chunk of stream) {
    if (chunk.usage) usage = chunk.usage;
    const choice = chunk.choices[0];
    if (!choice) continue;
    text += choice.delta.content ?? '';
    if (choice.finish_reason) ends.push(choice.finish_reason);
  }
  assert.equal(text, whole.choices[0].message.content);
  assert.deepEqual(ends, [whole.choices[0].finish_reason]);
  assert.equal(usage.completion_tokens, whole.usage.completion_tokens);
});

test('chat: the stream helper collects the final message', limit, async () => {
  const runner = client.chat.completions.stream({ model, ...greedy });
  const final = await runner.finalChatCompletion();
  assert.ok(final.choices[0].message.content.length > 0);
});

test('chat: the same seed gives the same answer', limit, async () => {
  const ask = async () => {
    const answer = await client.chat.completions.create({ model, messages, seed: 11, max_tokens: 12 });
    return answer.choices[0].message.content;
  };
  assert.equal(await ask(), await ask());
});

test('chat: max_tokens ends with "length"', limit, async () => {
  const answer = await client.chat.completions.create({ model, ...greedy, max_tokens: 1 });
  assert.equal(answer.choices[0].finish_reason, 'length');
  assert.equal(answer.usage.completion_tokens, 1);
});

test('chat: content parts and a system message', limit, async () => {
  const answer = await client.chat.completions.create({
    model,
    temperature: 0,
    max_tokens: 4,
    messages: [
      { role: 'system', content: 'Be brief.' },
      { role: 'user', content: [{ type: 'text', text: 'Hello' }, { type: 'text', text: '!' }] },
    ],
  });
  assert.ok(answer.usage.prompt_tokens > 0);
});

test('errors: each has its class, code and field', limit, async () => {
  const failure = (body) => client.chat.completions.create({ model, messages, ...body });
  await assert.rejects(failure({ model: 'no-such-model' }), (error) => {
    assert.ok(error instanceof OpenAI.NotFoundError);
    assert.equal(error.code, 'model_not_found');
    return true;
  });
  await assert.rejects(failure({ temperature: -1 }), (error) => {
    assert.ok(error instanceof OpenAI.BadRequestError);
    assert.equal(error.param, 'temperature');
    return true;
  });
  await assert.rejects(failure({ tools: [{ type: 'function', function: { name: 'f' } }] }), (error) => {
    assert.ok(error instanceof OpenAI.BadRequestError);
    assert.equal(error.param, 'tools');
    return true;
  });
  await assert.rejects(failure({ messages: [] }), OpenAI.BadRequestError);
  await assert.rejects(
    failure({ messages: [{ role: 'user', content: 'zebra '.repeat(100_000) }] }),
    (error) => {
      assert.ok(error instanceof OpenAI.BadRequestError);
      assert.equal(error.code, 'context_length_exceeded');
      return true;
    },
  );
  await assert.rejects(client.models.retrieve('no-such-model'), OpenAI.NotFoundError);
});

test('abort: the stream ends, and the server is free for the next request', limit, async () => {
  const stream = await client.chat.completions.create({
    model,
    messages,
    stream: true,
    ignore_eos: true,
  });
  for await (const chunk of stream) {
    if (chunk.choices[0]?.delta.content) break; // the client library closes the connection
  }
  const answer = await client.chat.completions.create({ model, ...greedy, max_tokens: 1 });
  assert.equal(answer.choices[0].finish_reason, 'length');
});

test('concurrency: six requests at once are all answered', limit, async () => {
  const asks = Array.from({ length: 6 }, () =>
    client.chat.completions.create({ model, ...greedy, max_tokens: 3 }),
  );
  const answers = await Promise.all(asks);
  const texts = new Set(answers.map((answer) => answer.choices[0].message.content));
  assert.equal(texts.size, 1);
});

test('health: ok', limit, async () => {
  const response = await fetch(`${url}/health`);
  assert.equal(response.status, 200);
  assert.equal((await response.json()).status, 'ok');
});
