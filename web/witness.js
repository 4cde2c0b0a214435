// The witness: runs what the judge in Python asks for, through the modules that visitors run, in a page or in Node.
// It asks GET call, and answers POST answer: the length of a JSON header, the header, then arrays of float32.
import { completeOptions, streamTokens } from "./generation.js";
import { openModel } from "./model.js";

const states = new Map(); // number → state of the backend
let last = 0;
let model;

function kept(state) {
  states.set(++last, state);
  return last;
}

const CALLS = {
  async open({ url, backend, threads }) {
    model = await openModel(url, { backend, threads });
    return { value: globalThis.navigator?.userAgent ?? `Node ${process.version}` };
  },
  async start({ prefix, source }) {
    const [rows, state] = await model.backend.start(prefix, source);
    return { value: kept(state), arrays: [stacked(rows)] };
  },
  async step({ ids, state }) {
    const [rows, next] = await model.backend.step(ids, states.get(state));
    states.set(state, next);
    return { value: state, arrays: [stacked(rows)] };
  },
  reorder: ({ state, rows }) => ({ value: kept(model.backend.reorder(states.get(state), rows)) }),
  async logits({ target, source }) {
    const data = await model.backend.logits(target, source);
    const width = Math.max(...target.map((row) => row.length));
    return { arrays: [{ data, dims: [target.length, width, model.backend.nOutputs] }] };
  },
  async attention({ target, source }) {
    const { encoder, decoder, cross } = await model.backend.attention(target, source);
    return { arrays: source ? [encoder, decoder, cross] : [decoder] };
  },
  async continued({ prefix, source, options }) {
    const settings = { tokenizer: model.tokenizer, eosId: model.generation.eos_id, stream: 0 };
    settings.kept = { ids: [], state: null };
    const ids = [];
    const complete = completeOptions(options, model.generation);
    for await (const { id } of streamTokens(model.backend, { prefix, source }, complete, settings)) ids.push(id);
    return { value: ids };
  },
  async generate({ content, options, split }) {
    const { text, tokens, finishReason } = await model.generate(content, options, { split });
    return { value: { text, ids: tokens.map(({ id }) => id), logprobs: tokens.map((t) => t.logprob), finishReason } };
  },
};

function stacked(rows) {
  const data = new Float32Array(rows.length * rows[0].length);
  rows.forEach((row, i) => data.set(row, i * row.length));
  return { data, dims: [rows.length, rows[0].length] };
}

function packed({ value = null, arrays = [], error = null }) {
  const header = new TextEncoder().encode(JSON.stringify({ value, error, dims: arrays.map(({ dims }) => dims) }));
  const parts = [new Uint32Array([header.length]), header, ...arrays.map(({ data }) => data)];
  return new Blob(parts);
}

async function answer({ call, forget, ...values }) {
  for (const state of forget) states.delete(state);
  try {
    return packed(await CALLS[call](values));
  } catch (error) {
    return packed({ error: String(error.message ?? error) });
  }
}

/** Answer calls until the judge goes away. */
export async function serve(base) {
  for (;;) {
    const response = await fetch(new URL("call", base)).catch(() => null);
    if (!response || response.status === 410) return; // the judge is done
    if (response.status === 204) continue; // nothing to do yet
    await fetch(new URL("answer", base), { method: "POST", body: await answer(await response.json()) });
  }
}

const [address] = globalThis.process?.argv?.slice(2) ?? [];
serve(address ?? globalThis.location.href);
