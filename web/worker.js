// The worker of a page: owns one model, so that the page stays responsive while it computes.
// In: { id, call: "open" | "generate" | "attention" | "stop" | "close", … }. Out: { id, event, … } while a call runs,
// and { id, value } or { id, error } at its end. "stop" names the call to end and has no answer of its own.
import { openModel } from "./model.js";

let model;
const running = new Map(); // id of a call → its AbortController

const CALLS = {
  async open({ url, options }, signal, event) {
    const onProgress = (progress) => event("progress", progress);
    model = await openModel(url, { ...options, signal, onProgress });
    const { config, generation, report, task } = model;
    return { config, generation, report, task, backend: model.backend.name };
  },
  generate: ({ content, options }, signal, event) =>
    model.generate(content, options, { signal, onToken: (token) => event("token", token) }),
  attention: ({ content, answer }) => model.attention(content, answer),
  close: () => model?.close(),
};

self.onmessage = async ({ data }) => {
  const { id, call } = data;
  if (call === "stop") return void running.get(id)?.abort();
  const controller = new AbortController();
  running.set(id, controller);
  const event = (name, value) => self.postMessage({ id, event: name, value });
  try {
    self.postMessage({ id, value: await CALLS[call](data, controller.signal, event) });
  } catch ({ name, message, template, values }) {
    self.postMessage({ id, error: { name, message, template, values } });
  } finally {
    running.delete(id);
  }
};
