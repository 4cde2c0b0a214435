// The loop of generation: from logits to a token, from tokens to text, and when to end.
import { ModelError } from "./errors.js";
import { RowGenerator } from "./random.js";

/** Each option's default, range and kind; names as in Python and in generation.json. */
const OPTIONS = {
  temperature: { value: 0, low: 0, high: Infinity },
  max_new_tokens: { value: 128, low: 1, high: 1_048_576, whole: true },
  min_new_tokens: { value: 0, low: 0, high: 1_048_576, whole: true },
  top_k: { value: 0, low: 0, high: 1_048_576, whole: true },
  top_p: { value: 1, low: 0, high: 1, above: true },
  repetition_penalty: { value: 1, low: 0, high: 10, above: true },
  seed: { value: null, low: 0, high: Number.MAX_SAFE_INTEGER, whole: true },
  alternatives: { value: 0, low: 0, high: 1_048_576, whole: true },
};
const MAX_STOP_STRINGS = 64;

/** All options: the caller's, else the model's from generation.json, else the defaults. */
export function completeOptions(given = {}, generation = {}) {
  const unknown = Object.keys(given).filter((name) => !(name in OPTIONS) && name !== "stop");
  if (unknown.length) {
    const known = [...Object.keys(OPTIONS), "stop"].join(", ");
    throw new ModelError("There is no option {names}; choose among {known}.", { names: unknown.join(", "), known });
  }
  const options = { stop: stopStrings(given.stop ?? []) };
  for (const [name, { value, low, high, above, whole }] of Object.entries(OPTIONS)) {
    const chosen = given[name] ?? generation[name] ?? value;
    options[name] = chosen;
    if (chosen === null && value === null) continue;
    const inRange = typeof chosen === "number" && chosen <= high && (above ? chosen > low : chosen >= low);
    if (!inRange || chosen === Infinity || (whole && !Number.isInteger(chosen))) {
      throw new ModelError("{name} is {value}; choose from {low} to {high}.", { name, value: chosen, low, high });
    }
  }
  const { min_new_tokens: least, max_new_tokens: most } = options;
  if (least > most && given.max_new_tokens === undefined) options.max_new_tokens = least;
  else if (least > most) {
    const template = "min_new_tokens is {low}, above max_new_tokens {high}; lower it.";
    throw new ModelError(template, { low: least, high: most });
  }
  return options;
}

function stopStrings(value) {
  const strings = typeof value === "string" ? [value] : value;
  if (!Array.isArray(strings) || !strings.every((item) => typeof item === "string" && item)) {
    throw new ModelError("stop must be one string or a list of strings, none of them empty; correct it.");
  }
  if (strings.length > MAX_STOP_STRINGS) {
    const values = { n: strings.length, limit: MAX_STOP_STRINGS };
    throw new ModelError("stop has {n} strings; give at most {limit}.", values);
  }
  return strings;
}

/**
 * The tokens `{ id, logprob, alternatives, finishReason }` of one prompt, as they are chosen; the last one has a finish
 * reason: "eos" (the end token itself), "stop", "length" or "context". `stream` numbers the random numbers that are
 * drawn from. `kept` may hold a state of an earlier prompt; what both begin with is not read again.
 */
export async function* streamTokens(backend, prompt, options, { tokenizer, eosId, stream, kept, signal }) {
  const stop = new StopStrings(options.stop, tokenizer);
  const generator = options.temperature > 0 ? new RowGenerator(options.seed, stream) : null;
  const room = backend.config.max_length - prompt.prefix.length + 1; // the last token is never read again
  const limit = Math.min(options.max_new_tokens, room);
  const written = [];
  let logits = await read(backend, prompt, kept);
  for (;;) {
    const all = [...prompt.prefix, ...written];
    const id = choose(logits, options, eosId, all, written.length, generator);
    written.push(id);
    const normalizer = logNormalizer(logits);
    let finishReason = null;
    if (id === eosId) finishReason = "eos";
    else if (stop.completes(written)) finishReason = "stop";
    else if (written.length >= limit) finishReason = options.max_new_tokens <= room ? "length" : "context";
    const alternatives = likeliest(logits, options.alternatives).map((i) => ({ id: i, logprob: logits[i] - normalizer }));
    yield { id, logprob: logits[id] - normalizer, alternatives, finishReason };
    if (finishReason) return;
    await turn(); // a message that says stop is heard here
    signal?.throwIfAborted();
    const [rows, state] = await backend.step([[id]], kept.state);
    kept.state = state;
    kept.ids.push(id);
    logits = rows[0];
  }
}

/** Logits behind a prompt. Of a decoder's prompt only what is new is read: the cache holds the rest. */
async function read(backend, { prefix, source }, kept) {
  let shared = 0;
  while (!source && shared < Math.min(kept.ids.length, prefix.length - 1) && kept.ids[shared] === prefix[shared]) {
    shared++;
  }
  const [before, ids] = [kept.state, [...prefix]];
  kept.state = null; // a read that fails leaves nothing behind
  kept.ids = [];
  const [rows, state] =
    shared && before
      ? await backend.step([prefix.slice(shared)], backend.cutBack(before, shared))
      : await backend.start([prefix], source && [source]);
  kept.state = state;
  kept.ids = ids;
  return rows[0];
}

/** The next token of a row. `all` are the ids so far, the prompt's included. */
export function choose(logits, options, eosId, all, nNew, generator) {
  let scores = penalized(logits, options.repetition_penalty, eosId, all);
  if (nNew < options.min_new_tokens) {
    scores = scores.slice();
    scores[eosId] = -Infinity;
  }
  const id = generator ? draw(probabilities(scores, options), generator) : best(scores);
  if (!Number.isFinite(logits[id])) {
    throw new ModelError("The model's scores are not finite numbers; its weights are damaged, so restore them.");
  }
  return id;
}

/** The id of the highest score, the lower id of equals. */
function best(scores) {
  let found = 0;
  for (let i = 1; i < scores.length; i++) if (scores[i] > scores[found] || Number.isNaN(scores[i])) found = i;
  return found;
}

/** Tokens that the text being written has already, weakened (CTRL's rule); what stands before the last end is not. */
function penalized(logits, penalty, eosId, all) {
  if (penalty === 1) return logits;
  const rounded = Math.fround(penalty); // float32, as Python computes
  const scores = logits.slice();
  for (const id of new Set(all.slice(all.lastIndexOf(eosId) + 1))) {
    if (id < logits.length) scores[id] = logits[id] > 0 ? logits[id] / rounded : logits[id] * rounded;
  }
  return scores;
}

/** The distribution that a token is drawn from, in float64; temperature above 0. */
export function probabilities(scores, { temperature, top_k: topK, top_p: topP }) {
  const highest = scores.reduce((a, b) => Math.max(a, b), -Infinity);
  const least = topK > 0 && topK < scores.length ? scores.slice().sort().at(-topK) : -Infinity;
  const weights = Float64Array.from(scores, (score) => (score >= least ? Math.exp((score - highest) / temperature) : 0));
  return keepTopP(scaled(weights), topP);
}

function scaled(weights) {
  const sum = weights.reduce((a, b) => a + b, 0);
  return weights.map((weight) => weight / sum);
}

/** Only the likeliest tokens that together reach p. */
function keepTopP(chances, p) {
  if (p >= 1) return chances;
  // All tokens below (1 - p) / V together weigh less than 1 - p: none of them is needed to reach p.
  const descending = chances.filter((chance) => chance >= (1 - p) / chances.length).sort((a, b) => b - a);
  let [last, sum] = [0, descending[0]];
  while (sum < p && last + 1 < descending.length) sum += descending[++last];
  return scaled(chances.map((chance) => (chance >= descending[last] ? chance : 0)));
}

/** One token: a race in which each finishes at a time of Exp(p), won with probability p. Every token draws a time. */
function draw(chances, generator) {
  let [found, least] = [0, Infinity];
  for (let i = 0; i < chances.length; i++) {
    const time = generator.exponential() / chances[i];
    if (time < least) [found, least] = [i, time];
  }
  return found;
}

/** log Σ exp(logits): subtracted from a logit it gives the log-probability. */
export function logNormalizer(logits) {
  let highest = -Infinity;
  for (const logit of logits) if (logit > highest) highest = logit;
  let sum = 0;
  for (const logit of logits) sum += Math.exp(logit - highest);
  return highest + Math.log(sum);
}

/** The ids of the k highest logits, best first; of equals the lower id first. */
export function likeliest(logits, k) {
  const found = [];
  for (let id = 0; k && id < logits.length; id++) {
    if (found.length === k && !(logits[id] > logits[found[k - 1]])) continue;
    let at = found.length;
    while (at > 0 && logits[id] > logits[found[at - 1]]) at--;
    found.splice(at, 0, id);
    if (found.length > k) found.pop();
  }
  return found;
}

/** Tells whether the newest token completes a stop string. */
export class StopStrings {
  #stop;
  #longest;
  #tokenizer;

  constructor(stop, tokenizer) {
    // As Latin-1 strings of bytes, since a character, and so a stop string, may be spread over several tokens.
    this.#stop = stop.map((text) => byteString(new TextEncoder().encode(text)));
    this.#longest = Math.max(0, ...this.#stop.map((text) => text.length));
    this.#tokenizer = tokenizer;
  }

  completes(ids) {
    if (!this.#stop.length) return false;
    let tail = byteString(this.#tokenizer.bytes[ids.at(-1)]);
    const wanted = tail.length + this.#longest - 1;
    for (let i = ids.length - 2; i >= 0 && tail.length < wanted; i--) {
      tail = byteString(this.#tokenizer.bytes[ids[i]]) + tail;
    }
    return this.#stop.some((text) => tail.includes(text));
  }
}

function byteString(bytes) {
  return String.fromCharCode(...bytes);
}

/** Joins tokens into text; holds back what may turn out to be a stop string, and ends before one. */
export class TextAssembler {
  #decoder;
  #stop;
  #held = "";
  #ended = false;

  constructor(tokenizer, stop = []) {
    this.#decoder = tokenizer.decoder();
    this.#stop = stop;
  }

  /** The text that is certain with this token; often empty. */
  push(id) {
    return this.#certain(this.#decoder.push(id));
  }

  /** What was held back, now that nothing more comes. */
  finish() {
    const text = this.#certain(this.#decoder.finish()) + this.#held;
    this.#held = "";
    return text;
  }

  #certain(text) {
    if (this.#ended) return "";
    this.#held += text;
    const starts = this.#stop.map((stop) => this.#held.indexOf(stop)).filter((start) => start >= 0);
    if (starts.length) {
      this.#ended = true;
      return this.#release(Math.min(...starts), true);
    }
    return this.#release(this.#held.length - Math.max(0, ...this.#stop.map((stop) => overlap(this.#held, stop))));
  }

  #release(length, forget = false) {
    const certain = this.#held.slice(0, length);
    this.#held = forget ? "" : this.#held.slice(length);
    return certain;
  }
}

/** Length of the longest end of `text` that begins `stop`. */
function overlap(text, stop) {
  for (let n = Math.min(text.length, stop.length - 1); n > 0; n--) if (text.endsWith(stop.slice(0, n))) return n;
  return 0;
}

/** Let messages be heard: a promise alone would not, since the runtime's promises are kept at once. */
function turn() {
  return new Promise((resolve) => {
    if (globalThis.setImmediate) return void setImmediate(resolve);
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = () => {
      port1.close();
      resolve();
    };
    port2.postMessage(null);
  });
}
