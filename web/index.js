// A model folder of this project in a page or in Node: the same bytes, the same text as in Python.
import { ModelError } from "./errors.js";

export { ModelError };

/**
 * Load the model folder at an address; in Node a path will do. In a page a worker does the work, so that the page stays
 * responsive.
 *
 * `onProgress({ file, loaded, total })` counts bytes over all files; `backend` is "web" (default) or "web-int8" (half
 * the download); `signal` gives up; `runtime` is the address of the folder with the runtime's two files; `threads` above
 * 1 need a page that is cross-origin isolated; `worker: false` computes where the caller is.
 *
 * The model has `task`, `config`, `generation` and `report` (the values of config.json, generation.json and
 * parity.json), and:
 * `generate(text | turns, options, { onToken, signal })` → `{ text, tokens, finishReason, notices, sentences }`,
 * `attention(text | turns, answer)` → every attention weight, and `close()`.
 */
export async function loadModel(url, { worker = typeof Worker === "function", ...options } = {}) {
  if (worker) return WorkerModel.open(url, options);
  const { openModel } = await import("./model.js");
  return openModel(url, options);
}

/** The model in the worker, with the interface of a model here. */
class WorkerModel {
  #worker = new Worker(new URL("./worker.js", import.meta.url), { type: "module" });
  #waiting = new Map(); // id of a call → what to do with its answers
  #last = 0;

  static async open(url, { onProgress, signal, runtime, ...options }) {
    const model = new WorkerModel();
    model.#worker.onmessage = ({ data }) => model.#heard(data);
    model.#worker.onerror = (event) => model.#failed(event);
    const address = (value) => new URL(String(value), location.href).href; // a worker has another address
    if (runtime) options.runtime = address(runtime);
    try {
      const message = { call: "open", url: address(url), options };
      return Object.assign(model, await model.#call(message, { signal, events: { progress: onProgress } }));
    } catch (error) {
      model.#worker.terminate();
      throw error;
    }
  }

  generate(content, options = {}, { onToken, signal } = {}) {
    return this.#call({ call: "generate", content, options }, { signal, events: { token: onToken } });
  }

  attention(content, answer) {
    return this.#call({ call: "attention", content, answer });
  }

  async close() {
    await this.#call({ call: "close" });
    this.#worker.terminate();
  }

  #call(message, { signal, events = {} } = {}) {
    if (signal?.aborted) return Promise.reject(signal.reason);
    const id = ++this.#last;
    const stop = () => this.#worker.postMessage({ id, call: "stop" });
    signal?.addEventListener("abort", stop);
    const answer = new Promise((resolve, reject) => this.#waiting.set(id, { resolve, reject, events }));
    this.#worker.postMessage({ id, ...message });
    return answer.finally(() => {
      this.#waiting.delete(id);
      signal?.removeEventListener("abort", stop);
    });
  }

  #heard({ id, event, value, error }) {
    const call = this.#waiting.get(id);
    if (event) call?.events[event]?.(value);
    else if (error) call?.reject(revived(error));
    else call?.resolve(value);
  }

  /** The worker itself could not start, or broke. */
  #failed(event) {
    const error = new ModelError("The worker failed ({reason}); load the page again.", { reason: event.message ?? "" });
    for (const { reject } of this.#waiting.values()) reject(error);
  }
}

/** An error as it was in the worker. */
function revived({ name, message, template, values }) {
  if (name === "AbortError") return new DOMException(message, "AbortError");
  return template ? new ModelError(template, values) : Object.assign(new Error(message), { name });
}
