// A loaded model: text in, text out, over a backend; used by Node directly and by a page through the worker.
import { WebBackend } from "./backend.js";
import { TextAssembler, completeOptions, streamTokens } from "./generation.js";
import { promptFor } from "./prompt.js";
import { segmented, speechNotices } from "./segments.js";
import { usualSpelling } from "./spelling.js";
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
  #last = Promise.resolve();

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
   * Gives `{ text, tokens, finishReason, notices, sentences }`. `options` have the names of generation.json. A text of
   * any length is translated sentence by sentence; `split: false` makes the model read it as one.
   *
   * `onToken({ text, token })` is called for every token, with the text that may be shown now; where nothing had to be
   * translated, once without a token. `signal` ends the work with an AbortError.
   */
  generate(content, options = {}, { onToken, signal, split = true } = {}) {
    return this.#inTurn(() => this.#generated(content, options, { onToken, signal, split }));
  }

  /**
   * Every attention weight while the model reads a text and its answer (its own, unless given):
   * `{ source, target, maps }` with the tokens' texts, and `maps.decoder`, `.encoder`, `.cross` as `{ data, dims }`.
   */
  async attention(content, answer = null) {
    const prompt = this.#prompt(content, this.generation.max_new_tokens);
    const written = answer === null ? (await this.generate(content, {}, { split: false })).tokens : [];
    const ids = answer === null ? written.map((token) => token.id) : this.tokenizer.encode(answer, { target: true });
    const target = [...prompt.prefix, ...ids].slice(0, this.config.max_length);
    const maps = await this.#inTurn(() => this.backend.attention([target], prompt.source && [prompt.source]));
    const names = (row) => row.map((id) => this.tokenizer.name(id));
    return { source: prompt.source && names(prompt.source), target: names(target), maps, notices: prompt.notices };
  }

  /** Give the memory back. */
  close() {
    this.#kept = { ids: [], state: null };
    return this.#inTurn(() => this.backend.close());
  }

  /** Run when the calls before have ended, well or not. */
  #inTurn(work) {
    const found = this.#last.then(work);
    this.#last = found.catch(() => {});
    return found;
  }

  async #generated(content, given, { onToken, signal, split }) {
    signal?.throwIfAborted();
    const options = completeOptions(given, this.generation);
    const text = this.#segmented(content, options, split);
    const result = { text: "", tokens: [], finishReason: "eos", notices: text.notices, sentences: [] };
    let held = ""; // what stands between sentences waits for the token behind it
    let number = 0;
    for (const { start, end, before, prompt } of text.segments) {
      held += before;
      const begin = result.text.length + held.length;
      if (prompt) {
        const settings = { number: number++, held, onToken, signal };
        await this.#written(prompt, options, settings, result);
        held = "";
      } else {
        held += content.slice(start, end);
      }
      const target = { start: begin, end: result.text.length + held.length };
      result.sentences.push({ source: { start, end }, target, copied: !prompt });
      if (result.finishReason === "stop") break;
    }
    const rest = result.finishReason === "stop" ? "" : held + text.after;
    result.text += rest;
    if (rest || !result.tokens.length) onToken?.({ text: rest, token: null });
    if (!text.isSplit) result.sentences = [];
    return result;
  }

  /** Write what one prompt asks for into the result. */
  async #written(prompt, options, { number, held, onToken, signal }, result) {
    const { tokenizer, generation } = this;
    const assembler = new TextAssembler(tokenizer, options.stop);
    const stream = number * 2 ** 32; // of random numbers: each sentence has its own, as in Python
    const settings = { tokenizer, eosId: generation.eos_id, stream, kept: this.#kept, signal };
    const named = (token) => ({ ...token, text: tokenizer.name(token.id) });
    for await (const { finishReason, ...token } of streamTokens(this.backend, prompt, options, settings)) {
      let text = held + (finishReason === "eos" ? "" : assembler.push(token.id));
      held = "";
      if (finishReason) text += assembler.finish();
      const shown = { ...named(token), alternatives: token.alternatives.map(named) };
      result.text += text;
      if (finishReason !== "eos") result.tokens.push(shown);
      // Of several sentences, the first that did not come to its end says why; a stop string ends them all.
      if (finishReason === "stop" || (finishReason && result.finishReason === "eos")) result.finishReason = finishReason;
      onToken?.({ text, token: shown });
    }
  }

  #prompt(content, maxNewTokens) {
    const prompt = promptFor(this.tokenizer, this.config, this.generation, content, { maxNewTokens });
    if (this.task !== "chat") return prompt;
    const message = typeof content === "string" ? content : content.at(-1).content;
    return { ...prompt, notices: [...prompt.notices, ...speechNotices(message, this.generation)] };
  }

  /** A text's sentences, where the model translates; all else is read as one. */
  #segmented(content, options, split) {
    const prompt = (part) => this.#prompt(part, options.max_new_tokens);
    if (split && this.task === "translate" && typeof content === "string") {
      const spelled = (part) => usualSpelling(part, this.tokenizer, this.generation.source_languages);
      return { ...segmented(content, this.generation, (part) => prompt(spelled(part))), isSplit: true };
    }
    const whole = prompt(content);
    const segments = [{ start: 0, end: 0, before: "", prompt: whole }];
    return { segments, after: "", notices: whole.notices, isSplit: false };
  }
}
