// A loaded model: text in, text out, over a backend; used by Node directly and by a page through the worker.
import { WebBackend } from "./backend.js";
import { TextAssembler, completeOptions, streamTokens } from "./generation.js";
import { promptFor } from "./prompt.js";
import { ModelStore } from "./store.js";
import { Tokenizer } from "./tokenizer.js";

/** Open a model folder at an address. */
export async function openModel(url, { onProgress, signal, backend = "web", runtime, threads = 1 } = {}) {
  const store = await new ModelStore(url, { onProgress, signal }).open();
  const [config, generation] = await Promise.all([store.json("config.json"), store.json("generation.json")]);
  const [tokenizer, opened] = await Promise.all([
    store.json("tokenizer.json").then((json) => new Tokenizer(json, config.output_vocab_size)),
    WebBackend.open(store, config, { name: backend, runtimeFolder: runtime, threads }),
  ]);
  return new TextModel(config, generation, tokenizer, opened, store.report);
}

/** One call at a time: a second waits for the first. */
export class TextModel {
  #kept = { ids: [], state: null }; // the cache of the last text, for the next turn of a dialogue
  #busy = Promise.resolve();

  constructor(config, generation, tokenizer, backend, report) {
    this.config = config;
    this.generation = generation;
    this.tokenizer = tokenizer;
    this.backend = backend;
    this.report = report;
  }

  /** What the model is for: translate, chat or complete. */
  get task() {
    return this.generation.task;
  }

  /**
   * Translate, answer or continue, by the model's task; a chat model also takes a list of turns `{ role, content }`.
   * Gives `{ text, tokens, finishReason, notices }`. `onToken({ text, token })` is called for every token, with the text
   * that may be shown now. `signal` ends the work with an AbortError.
   */
  async generate(content, given = {}, { onToken, signal } = {}) {
    const before = this.#busy;
    let done;
    this.#busy = new Promise((resolve) => (done = resolve));
    await before;
    try {
      signal?.throwIfAborted();
      return await this.#generated(content, given, onToken, signal);
    } finally {
      done();
    }
  }

  async #generated(content, given, onToken, signal) {
    const { tokenizer, generation, config } = this;
    const options = completeOptions(given, generation);
    const prompt = promptFor(tokenizer, config, generation, content, { maxNewTokens: options.max_new_tokens });
    const assembler = new TextAssembler(tokenizer, options.stop);
    const result = { text: "", tokens: [], finishReason: "eos", notices: prompt.notices };
    const settings = { tokenizer, eosId: generation.eos_id, kept: this.#kept, signal };
    for await (const { finishReason, ...token } of streamTokens(this.backend, prompt, options, settings)) {
      let text = finishReason === "eos" ? "" : assembler.push(token.id);
      if (finishReason) {
        result.finishReason = finishReason;
        text += assembler.finish();
      }
      const named = { ...token, text: tokenizer.name(token.id) };
      named.alternatives = token.alternatives.map((other) => ({ ...other, text: tokenizer.name(other.id) }));
      result.text += text;
      if (finishReason !== "eos") result.tokens.push(named);
      onToken?.({ text, token: named });
    }
    return result;
  }

  /** Give the memory back. */
  async close() {
    await this.#busy;
    this.#kept = { ids: [], state: null };
    await this.backend.close();
  }
}
