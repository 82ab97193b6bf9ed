// Sends each kind of request once, with all of its usual parameters, and prints its name when it is answered.
import OpenAI, { toFile } from "openai";

const client = new OpenAI({ organization: "us", project: "red", maxRetries: 0 });
const { batches, chat, completions, embeddings, files, fineTuning, models, uploads } = client;
const { jobs } = fineTuning;
const { graders } = fineTuning.alpha;
const expires = { anchor: "created_at", seconds: 3600 };
const asked = { model: "tiny", messages: [{ role: "user", content: "hello" }] };
const tool = { type: "function", function: { name: "weather", parameters: { type: "object" } } };
const grader = { type: "string_check", name: "same", operation: "eq", input: "{{a}}", reference: "{{b}}" };
const form = { type: "json_schema", json_schema: { name: "a", schema: { type: "object" } } };
const url = "/v1/chat/completions";

async function file() {
  return toFile(Buffer.from('{"prompt": "a", "completion": "b"}\n'), "train.jsonl");
}

const calls = {
  "files.create": async () => files.create({ file: await file(), purpose: "fine-tune", expires_after: expires }),
  "files.list": () => files.list({ purpose: "batch", limit: 5, after: "file-1", order: "asc" }),
  "files.retrieve": () => files.retrieve("file-1"),
  "files.content": () => files.content("file-1"),
  "files.delete": () => files.delete("file-1"),
  "uploads.create": () =>
    uploads.create({ bytes: 35, filename: "train.jsonl", mime_type: "text/jsonl", purpose: "fine-tune", expires_after: expires }),
  "uploads.parts.create": async () => uploads.parts.create("upload-1", { data: await file() }),
  "uploads.complete": () => uploads.complete("upload-1", { part_ids: ["part-1", "part-2"], md5: "0".repeat(32) }),
  "uploads.cancel": () => uploads.cancel("upload-1"),
  "jobs.create": () =>
    jobs.create({
      training_file: "file-1",
      validation_file: "file-2",
      model: "tiny",
      suffix: "docs",
      seed: 7,
      method: { type: "supervised", supervised: { hyperparameters: { n_epochs: "auto", batch_size: 4 } } },
      metadata: { team: "red" },
    }),
  "jobs.list": () => jobs.list({ limit: 3, after: "ftjob-1", metadata: { team: "red" } }),
  "jobs.retrieve": () => jobs.retrieve("ftjob-1"),
  "jobs.cancel": () => jobs.cancel("ftjob-1"),
  "jobs.pause": () => jobs.pause("ftjob-1"),
  "jobs.resume": () => jobs.resume("ftjob-1"),
  "jobs.listEvents": () => jobs.listEvents("ftjob-1", { limit: 5, after: "ftevent-1" }),
  "jobs.checkpoints.list": () => jobs.checkpoints.list("ftjob-1", { limit: 5, after: "ckpt-1" }),
  "graders.validate": () => graders.validate({ grader }),
  "graders.run": () => graders.run({ grader, model_sample: "a", item: { b: "a" } }),
  "chat.completions.create": () => chat.completions.create({ ...asked, temperature: 0.5, seed: 1 }),
  "chat.completions.create, streamed": async () => {
    const options = { stream: true, stream_options: { include_usage: true }, n: 2, stop: ["a"], logit_bias: { 5: -1 } };
    for await (const chunk of await chat.completions.create({ ...asked, ...options })) void chunk;
  },
  "chat.completions.create, with tools": () =>
    chat.completions.create({ ...asked, tools: [tool], tool_choice: "auto", parallel_tool_calls: false, logprobs: true, top_logprobs: 2 }),
  "chat.completions.create, in a form": () => chat.completions.create({ ...asked, response_format: form }),
  "completions.create": () => completions.create({ model: "tiny", prompt: "hello", max_tokens: 4 }),
  "completions.create, of tokens": () => completions.create({ model: "tiny", prompt: [[1, 2], [3]], logprobs: 1, echo: false, best_of: 1 }),
  "embeddings.create": () => embeddings.create({ model: "tiny", input: ["a", "b"] }),
  "embeddings.create, as numbers": () => embeddings.create({ model: "tiny", input: [[1, 2]], encoding_format: "float", dimensions: 1 }),
  "moderations.create": () => client.moderations.create({ input: "a" }),
  "responses.create": () => client.responses.create({ model: "tiny", input: "a" }),
  "batches.create": () =>
    batches.create({
      input_file_id: "file-1",
      endpoint: url,
      completion_window: "24h",
      metadata: { team: "red" },
      output_expires_after: expires,
    }),
  "batches.list": () => batches.list({ limit: 5 }),
  "batches.retrieve": () => batches.retrieve("batch-1"),
  "batches.cancel": () => batches.cancel("batch-1"),
  "models.list": () => models.list(),
  "models.retrieve": () => models.retrieve("ft:tiny:default:docs:3f9c2a1b"),
  "models.delete": () => models.delete("ft:tiny:default:docs:3f9c2a1b"),
};

for (const [kind, call] of Object.entries(calls)) {
  await call();
  console.log(kind);
}
