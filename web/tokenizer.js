// Byte-level BPE: reads the tokenizer.json that this project writes, and gives the ids that Python gives.
import { ModelError } from "./errors.js";

// White space as Rust's tokenizers know it: JavaScript's \s takes U+FEFF in and leaves U+0085 out.
const SPACE = "\\t-\\r\\x20\\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000";
const WORD = new RegExp(
  `'(?:[sdmt]|ll|ve|re)| ?\\p{L}+| ?\\p{N}+| ?[^${SPACE}\\p{L}\\p{N}]+|[${SPACE}]+(?![^${SPACE}])|[${SPACE}]+`,
  "gu",
);
const DIGIT_OR_REST = /\p{N}|\P{N}+/gu; // every digit is a piece of its own
const LONE_SURROGATE = /\p{Surrogate}/u;
const MAX_KNOWN_WORDS = 50_000; // their ids are kept: a text repeats its words
const ROLES = ["user", "assistant", "system"];

/** Text to ids and back. Special tokens are ids only: no text can produce them. */
export class Tokenizer {
  /** `json` is the parsed tokenizer.json; a model may write only the first `outputSize` tokens. */
  constructor(json, outputSize = 0) {
    const { vocab, merges } = json.model;
    this.size = Object.keys(vocab).length;
    this.outputSize = Math.min(outputSize || this.size, this.size);
    this.special = new Map(json.added_tokens.map((token) => [token.id, token.content]));
    const idOf = (content) => json.added_tokens.find((token) => token.content === content)?.id;
    this.padId = idOf("<pad>");
    this.bosId = idOf("<bos>");
    this.eosId = idOf("<eos>");
    this.roles = Object.fromEntries(ROLES.map((role) => [role, idOf(`<${role}>`)]));
    const characters = byteCharacters();
    const byteOf = new Map(characters.map((character, byte) => [character, byte]));
    this.byteIds = characters.map((character) => vocab[character]);
    this.bytes = Array(this.size);
    for (const [token, id] of Object.entries(vocab)) {
      this.bytes[id] = Uint8Array.from(this.special.has(id) ? [] : token, (character) => byteOf.get(character));
    }
    // Both ids of a pair as one number → the merge's rank and the id that it makes.
    this.merges = new Map();
    this.mergedFrom = new Map();
    merges.forEach((merge, rank) => {
      const [left, right] = (Array.isArray(merge) ? merge : merge.split(" ")).map((token) => vocab[token]);
      const id = vocab[(Array.isArray(merge) ? merge : merge.split(" ")).join("")];
      this.merges.set(left * this.size + right, { rank, id });
      if (!this.mergedFrom.has(id)) this.mergedFrom.set(id, [left, right]);
    });
    this.splitsDigits = (json.pre_tokenizer.pretokenizers ?? []).some((part) => part.type === "Digits");
    this.known = new Map();
    this.utf8 = new TextEncoder();
  }

  /** The ids of a text; with `target` those of a text to write, all of them below the output size. */
  encode(text, { target = false } = {}) {
    if (typeof text !== "string") {
      throw new ModelError("Expected text, not {kind}; pass a string.", { kind: typeof text });
    }
    if (LONE_SURROGATE.test(text)) {
      throw new ModelError("The text holds half of a character (a lone surrogate); remove it.");
    }
    const pieces = this.splitsDigits ? (text.match(DIGIT_OR_REST) ?? []) : [text];
    const ids = pieces.flatMap((piece) => (piece.match(WORD) ?? []).flatMap((word) => this.#ofWord(word)));
    return target && this.outputSize < this.size ? this.#writable(ids) : ids;
  }

  /** The text of ids: special tokens vanish, bytes that are no character become U+FFFD. */
  decode(ids) {
    const decoder = this.decoder();
    return ids.map((id) => decoder.push(id)).join("") + decoder.finish();
  }

  /** Joins tokens into text as they come, and never gives out part of a character. */
  decoder() {
    const utf8 = new TextDecoder("utf-8", { ignoreBOM: true });
    return { push: (id) => utf8.decode(this.bytes[id], { stream: true }), finish: () => utf8.decode() };
  }

  /** A token as a reader may see it: its text, or the name of a special token. */
  name(id) {
    return this.special.get(id) ?? this.decode([id]);
  }

  /** One turn of a dialogue: the role's token, the text, the end. */
  encodeTurn({ role, content }) {
    return [this.roles[role], ...this.encode(content), this.eosId];
  }

  #ofWord(word) {
    const known = this.known.get(word);
    if (known) return known;
    const ids = this.#merged(Array.from(this.utf8.encode(word), (byte) => this.byteIds[byte]));
    if (this.known.size < MAX_KNOWN_WORDS) this.known.set(word, ids);
    return ids;
  }

  /** Neighbors are merged, the pair of the lowest rank first and of equals the leftmost, while there is a pair. */
  #merged(ids) {
    for (;;) {
      let best = Infinity;
      for (let i = 0; i + 1 < ids.length; i++) best = Math.min(best, this.#rank(ids[i], ids[i + 1]));
      if (best === Infinity) return ids;
      // One pass merges all pairs of this rank, so that a word of 10,000 letters takes no 10,000 passes.
      const merged = [];
      let at = 0;
      while (at < ids.length) {
        if (at + 1 < ids.length && this.#rank(ids[at], ids[at + 1]) === best) {
          merged.push(this.merges.get(ids[at] * this.size + ids[at + 1]).id);
          at += 2;
          const before = merged.length > 1 ? this.#rank(merged.at(-2), merged.at(-1)) : Infinity;
          const after = at < ids.length ? this.#rank(merged.at(-1), ids[at]) : Infinity;
          if (Math.min(before, after) < best) break; // the new token's own pair comes first
        } else {
          merged.push(ids[at++]);
        }
      }
      ids = merged.concat(ids.slice(at));
    }
  }

  #rank(left, right) {
    return this.merges.get(left * this.size + right)?.rank ?? Infinity;
  }

  /** Each token that cannot be written, taken apart along its merges until all its parts can be. */
  #writable(ids) {
    const written = [];
    const waiting = [...ids].reverse();
    while (waiting.length) {
      const id = waiting.pop();
      if (id < this.outputSize) written.push(id);
      else waiting.push(...this.#parts(id).reverse());
    }
    return written;
  }

  #parts(id) {
    return [...(this.mergedFrom.get(id) ?? Array.from(this.bytes[id], (byte) => this.byteIds[byte]))];
  }
}

/** The printable stand-in of each byte in byte-level BPE, by byte value. */
function byteCharacters() {
  let next = 0x100;
  const printable = (byte) => (byte > 0x20 && byte < 0x7f) || (byte > 0xa0 && byte < 0xad) || byte > 0xad;
  return Array.from({ length: 256 }, (_, byte) => String.fromCharCode(printable(byte) ? byte : next++));
}
