// ONNX Runtime in WebAssembly: the folder's own graphs, and the cache of keys and values that goes from step to step.
// Shapes: B rows, T new tokens, S source, H heads, C cache slots, K head width, V outputs.
import { ModelError } from "./errors.js";

const INT8_OPTIONS = { extra: { session: { disable_quant_qdq: "1" } } };

/** The names of a backend's files. In 8 bits the weights are half the download, and become float when opened. */
const FILES = {
  web: { weights: "model.safetensors", encoder: "encoder_model.onnx", decoder: "decoder_model.onnx" },
  "web-int8": {
    weights: "model_int8.safetensors",
    encoder: "encoder_model_web.onnx",
    decoder: "decoder_model_web.onnx",
  },
};
export const BACKENDS = Object.keys(FILES);
const INSIDE = "inside.onnx";

let runtime; // one for all models: its WebAssembly is compiled once

/** Import the runtime, and hand it the WebAssembly file that was checked. */
async function openRuntime(store, folder, threads) {
  const described = new URL("./runtime.json", import.meta.url);
  const { script, binary, sha256 } = JSON.parse(new TextDecoder().decode(await store.plain(described)));
  const base = folder ?? defaultFolder();
  const ort = await import(new URL(script, base).href);
  ort.env.wasm.wasmBinary = await store.other(new URL(binary, base), sha256[binary]);
  ort.env.wasm.numThreads = threads;
  ort.env.logLevel = "error";
  return ort;
}

/** In Node the npm package; in a page the folder `runtime` beside these modules. */
function defaultFolder() {
  const inNode = globalThis.process?.versions?.node !== undefined;
  return inNode ? import.meta.resolve("onnxruntime-web/wasm") : new URL("./runtime/", import.meta.url);
}

/** Runs a model of a folder. A state that was handed to `step` or `reorder` is consumed. */
export class WebBackend {
  #ort;
  #store;
  #files;
  #sessions = new Map();
  #opening = new Map();

  /** `threads` above 1 need a page that is cross-origin isolated. */
  static async open(store, config, { name = "web", runtimeFolder, threads = 1 } = {}) {
    if (!FILES[name]) {
      throw new ModelError("There is no backend {name}; choose {names}.", { name, names: BACKENDS.join(", ") });
    }
    const backend = new WebBackend();
    backend.name = name;
    backend.config = config;
    backend.nOutputs = config.output_vocab_size || config.vocab_size;
    backend.hasEncoder = config.architecture === "encoder-decoder";
    backend.#store = store;
    backend.#files = FILES[name];
    runtime ??= openRuntime(store, runtimeFolder, threads).catch((error) => {
      runtime = undefined;
      throw error;
    });
    const weights = store.bytes(FILES[name].weights); // begins while the runtime comes
    [backend.#ort, backend.weights] = await Promise.all([runtime, weights]);
    if (backend.hasEncoder) await backend.#session(FILES[name].encoder);
    await backend.#session(FILES[name].decoder);
    if (!store.has(INSIDE)) backend.weights = null; // all graphs are open
    return backend;
  }

  /** Read source and prefix (rows of ids); logits (B arrays of V) after each row's last token, and the state. */
  async start(prefix, source) {
    const width = Math.max(...prefix.map((row) => row.length));
    const state = {
      past: this.#emptyPast(prefix.length),
      memory: await this.#encoded(source),
      lengths: prefix.map(() => 0),
    };
    const logits = await this.#decoded(prefix.map((row) => padded(row, width)), state);
    // Slots past a row's own length now hold keys of padding: they are written over before any query sees them.
    state.lengths = prefix.map((row) => row.length);
    return [prefix.map((row, i) => this.#at(logits, i * width + row.length - 1)), state];
  }

  /** Add tokens (B T) to every row; logits after the last. T > 1 for a single row only. */
  async step(ids, state) {
    const width = ids[0].length;
    const logits = await this.#decoded(ids, state);
    state.lengths = state.lengths.map((length) => length + width);
    return [ids.map((_, i) => this.#at(logits, (i + 1) * width - 1)), state];
  }

  /** The state whose row i was row rows[i]; rows may be repeated or left out. */
  reorder(state, rows) {
    const moved = (tensors) =>
      Object.fromEntries(Object.entries(tensors).map(([name, tensor]) => [name, this.#rows(tensor, rows)]));
    return { past: moved(state.past), memory: moved(state.memory), lengths: rows.map((row) => state.lengths[row]) };
  }

  /** A state of one row cut back to its first tokens: the next step writes behind them. */
  cutBack(state, length) {
    return { ...state, lengths: [length] };
  }

  /** Logits (B T V, flat) of a whole target at once; values at padding mean nothing. */
  async logits(target, source) {
    const width = Math.max(...target.map((row) => row.length));
    const memory = await this.#encoded(source);
    const state = { past: this.#emptyPast(target.length), memory, lengths: target.map(() => 0) };
    return this.#decoded(target.map((row) => padded(row, width)), state);
  }

  /** Every attention weight of one pass: `{ decoder, encoder, cross }`, each `{ data, dims }` (L B H T S). */
  async attention(target, source) {
    if (this.name !== "web") {
      throw new ModelError("The model was loaded in 8 bits, which have no attention maps; load it on web.");
    }
    const session = await this.#session(INSIDE);
    const ids = this.#ints(rectangle(target));
    const feeds = source
      ? { input_ids: this.#ints(rectangle(source)), attention_mask: this.#mask(source), decoder_input_ids: ids }
      : { input_ids: ids };
    feeds.lens_positions = new this.#ort.Tensor("int64", BigInt64Array.of(0n), [1]); // whose logits are not asked for
    for (const { name, type, shape } of session.inputMetadata) {
      if (type !== "bool") continue; // a switch for each head and layer: all are on
      feeds[name] = new this.#ort.Tensor("bool", new Uint8Array(shape.reduce((a, b) => a * b)).fill(1), shape);
    }
    const found = await session.run(feeds, session.outputNames.filter((name) => name.endsWith("_attentions")));
    const map = (kind) => {
      const tensor = found[`${kind}_attentions`];
      return tensor ? { data: tensor.data, dims: [...tensor.dims] } : null;
    };
    return { encoder: map("encoder"), decoder: map("decoder"), cross: map("cross") };
  }

  /** Give the memory back. */
  async close() {
    const sessions = [...this.#sessions.values()];
    this.#sessions.clear();
    this.weights = null;
    for (const session of sessions) await session.release();
  }

  /** The encoder's keys and values under the decoder's names, and the mask; nothing without a source. */
  async #encoded(source) {
    if (!source) return {};
    const session = await this.#session(this.#files.encoder);
    const mask = this.#mask(source);
    const found = await session.run({ input_ids: this.#ints(rectangle(source)), attention_mask: mask });
    const memory = Object.entries(found).map(([name, tensor]) => [name.replace("present.", "past_key_values."), tensor]);
    return { ...Object.fromEntries(memory), encoder_attention_mask: mask };
  }

  /** Run new tokens (B T) behind each row's length; logits B T V, flat. The state's cache grows by them. */
  async #decoded(rows, state) {
    const session = await this.#session(this.#files.decoder);
    const positions = rows.map((row, i) => row.map((_, t) => state.lengths[i] + t));
    const feeds = { input_ids: this.#ints(rows), position_ids: this.#ints(positions), ...state.past, ...state.memory };
    const found = await session.run(feeds);
    for (const name of Object.keys(state.past)) state.past[name] = found[name.replace("past_key_values.", "present.")];
    return found.logits.data;
  }

  #emptyPast(nRows) {
    const { n_decoder_layers: nLayers, n_heads: nHeads, d_model: width } = this.config;
    const part = this.hasEncoder ? ".decoder" : "";
    const dims = [nRows, nHeads, 0, width / nHeads];
    const past = {};
    for (let layer = 0; layer < nLayers; layer++) {
      for (const kind of ["key", "value"]) {
        past[`past_key_values.${layer}${part}.${kind}`] = new this.#ort.Tensor("float32", new Float32Array(0), dims);
      }
    }
    return past;
  }

  #rows(tensor, rows) {
    const [, ...rest] = tensor.dims;
    const size = rest.reduce((a, b) => a * b, 1);
    const data = new tensor.data.constructor(rows.length * size);
    rows.forEach((row, i) => data.set(tensor.data.subarray(row * size, (row + 1) * size), i * size));
    return new this.#ort.Tensor(tensor.type, data, [rows.length, ...rest]);
  }

  #at(logits, place) {
    return logits.subarray(place * this.nOutputs, (place + 1) * this.nOutputs);
  }

  #mask(rows) {
    const width = Math.max(...rows.map((row) => row.length));
    return this.#ints(rows.map((row) => padded(row.map(() => 1), width)));
  }

  #ints(rows) {
    const data = new BigInt64Array(rows.length * rows[0].length);
    rows.flat().forEach((value, i) => (data[i] = BigInt(value)));
    return new this.#ort.Tensor("int64", data, [rows.length, rows[0].length]);
  }

  /** The session of one graph, opened when it is first wanted. */
  async #session(graph) {
    if (this.#sessions.has(graph)) return this.#sessions.get(graph);
    if (!this.#opening.has(graph)) this.#opening.set(graph, this.#opened(graph));
    try {
      this.#sessions.set(graph, await this.#opening.get(graph));
    } finally {
      this.#opening.delete(graph);
    }
    return this.#sessions.get(graph);
  }

  async #opened(graph) {
    const bytes = await this.#store.bytes(graph);
    try {
      return await this.#ort.InferenceSession.create(bytes, {
        executionProviders: ["wasm"],
        externalData: [{ path: this.#files.weights, data: this.weights }],
        ...(this.name === "web-int8" ? INT8_OPTIONS : {}),
      });
    } catch (error) {
      const reason = String(error.message ?? error).split("\n")[0];
      throw new ModelError("The runtime cannot open {file} ({reason}); load the page again.", { file: graph, reason });
    }
  }
}

function padded(row, width) {
  return row.length < width ? [...row, ...Array(width - row.length).fill(0)] : row;
}

function rectangle(rows) {
  const width = Math.max(...rows.map((row) => row.length));
  return rows.map((row) => padded(row, width));
}
