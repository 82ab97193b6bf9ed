// OpenAI's client for Node: a file, a fine-tuning, answers, a stream, vectors and a batch. The arguments are the file and the model.
import assert from "node:assert/strict";
import { createReadStream, readFileSync } from "node:fs";

import OpenAI, { BadRequestError, NotFoundError, toFile } from "openai";

const [path, model] = process.argv.slice(2);
const client = new OpenAI({ timeout: 150_000 });
const messages = [{ role: "user", content: "def f1(x):" }];

async function fineTuned() {
  const uploaded = await client.files.create({ file: createReadStream(path), purpose: "fine-tune" });
  assert.deepEqual([uploaded.object, uploaded.bytes], ["file", readFileSync(path).length]);
  const data = await client.files.waitForProcessing(uploaded.id, { pollInterval: 200, maxWait: 60_000 });
  assert.equal(data.status, "processed", data.status_details);
  assert.equal(await (await client.files.content(data.id)).text(), readFileSync(path, "utf8"));

  let job = await client.fineTuning.jobs.create({
    training_file: data.id,
    model,
    suffix: "node",
    seed: 7,
    method: { type: "supervised", supervised: { hyperparameters: { n_epochs: 1, batch_size: 4 } } },
    metadata: { team: "node" },
  });
  await assert.rejects(client.files.delete(data.id), (error) => error.status === 409);
  while (!["succeeded", "failed", "cancelled"].includes(job.status)) {
    await pause();
    job = await client.fineTuning.jobs.retrieve(job.id);
  }
  assert.equal(job.status, "succeeded", JSON.stringify(job.error));
  assert.equal(job.hyperparameters.batch_size, 4);

  const events = await collected(client.fineTuning.jobs.listEvents(job.id, { limit: 2 }));
  assert.deepEqual(new Set(events.map((event) => event.type)), new Set(["message", "metrics"]));
  const checkpoints = await collected(client.fineTuning.jobs.checkpoints.list(job.id));
  assert.equal(checkpoints[0].fine_tuned_model_checkpoint, `${job.fine_tuned_model}:ckpt-step-${checkpoints[0].step_number}`);
  const listed = await collected(client.fineTuning.jobs.list({ metadata: { team: "node" } }));
  assert.ok(listed.some((each) => each.id === job.id));
  assert.equal((await client.files.delete(data.id)).deleted, true);
  return job.fine_tuned_model;
}

async function answers(name) {
  const asked = { model: name, messages, max_tokens: 8, temperature: 0 };
  const answer = await client.chat.completions.create(asked);
  assert.equal(answer.choices[0].message.role, "assistant");
  assert.ok(answer.usage.completion_tokens <= 8);

  let streamed = "";
  let usage = null;
  for await (const chunk of await client.chat.completions.create({ ...asked, stream: true, stream_options: { include_usage: true } })) {
    streamed += chunk.choices[0]?.delta.content ?? "";
    usage = chunk.usage ?? usage;
  }
  assert.equal(streamed, answer.choices[0].message.content);
  assert.equal(usage.completion_tokens, answer.usage.completion_tokens);

  const collecting = client.chat.completions.stream(asked);
  assert.equal(await collecting.finalContent(), streamed);
  const completion = await client.completions.create({ model: name, prompt: "def f1(x):", max_tokens: 4 });
  assert.equal(completion.object, "text_completion");
}

async function structured() {
  const schema = {
    type: "object",
    properties: { kind: { enum: ["bug", "feature"] } },
    required: ["kind"],
    additionalProperties: false,
  };
  const answer = await client.chat.completions.parse({
    model,
    messages,
    max_tokens: 60,
    response_format: { type: "json_schema", json_schema: { name: "report", schema, strict: true } },
  });
  assert.ok(["bug", "feature"].includes(JSON.parse(answer.choices[0].message.content).kind));
}

async function vectors() {
  const inputs = ["one text", "another"];
  const encoded = await client.embeddings.create({ model, input: inputs });
  const numbers = await client.embeddings.create({ model, input: inputs, encoding_format: "float" });
  assert.equal(encoded.data.length, 2);
  assert.ok(encoded.data[0].embedding.length > 1);
  assert.ok(encoded.data[1].embedding.every((number, at) => Math.abs(number - numbers.data[1].embedding[at]) < 1e-3));
}

async function batch() {
  const url = "/v1/chat/completions";
  const lines = ["first", "second"].map(
    (custom_id) => `${JSON.stringify({ custom_id, method: "POST", url, body: { model, messages, max_tokens: 4 } })}\n`,
  );
  const file = await client.files.create({ file: await toFile(Buffer.from(lines.join("")), "requests.jsonl"), purpose: "batch" });
  let batch = await client.batches.create({ input_file_id: file.id, endpoint: url, completion_window: "24h" });
  while (["validating", "in_progress", "finalizing"].includes(batch.status)) {
    await pause();
    batch = await client.batches.retrieve(batch.id);
  }
  assert.equal(batch.status, "completed", JSON.stringify(batch.errors));
  assert.deepEqual(batch.request_counts, { total: 2, completed: 2, failed: 0 });
  const answers = (await (await client.files.content(batch.output_file_id)).text()).trim().split("\n");
  assert.deepEqual(answers.map((line) => JSON.parse(line).custom_id), ["first", "second"]);
  assert.equal(JSON.parse(answers[0]).response.body.object, "chat.completion");
  assert.ok((await collected(client.batches.list({ limit: 1 }))).some((each) => each.id === batch.id));
  await assert.rejects(client.batches.cancel(batch.id), (error) => error.status === 409);
}

async function refusals() {
  await assert.rejects(client.chat.completions.create({ model: "no-model", messages }), NotFoundError);
  await assert.rejects(
    client.chat.completions.create({ model, messages, temperature: 3 }),
    (error) => error instanceof BadRequestError && error.param === "temperature",
  );
}

function pause() {
  return new Promise((passed) => setTimeout(passed, 300));
}

async function collected(list) {
  const all = [];
  for await (const each of list) all.push(each);
  return all;
}

const made = await fineTuned();
const { response } = await client.models.list().withResponse();
assert.ok(response.headers.get("x-request-id"));
assert.equal((await client.models.retrieve(made)).id, made);
await batch(); // before replicas, which take devices
await answers(made);
await structured();
await vectors();
await refusals();
assert.equal((await client.models.delete(made)).deleted, true);
console.log(`done ${made}`);
