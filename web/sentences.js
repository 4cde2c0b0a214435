// A text cut into sentences by rules for German, Chinese and English: the rules of generation/sentences.py, which says
// why each is there. Places are counted in characters, as in Python, so that windows and halves fall alike; what comes
// out are spans of UTF-16 units, as JavaScript slices strings.
import { LETTER, SPACE, isHan, isKana } from "./language.js";

const ENDS = "。！？；｡"; // these end a sentence whatever follows
const CLOSING = "\"'”“’‘»«›‹)]}」』）】〉》〕］";
const OPENING = "\"'„“‚‘»«›‹([{「『（【〈《¿¡";
const BRACKETS = { ")": "(", "]": "[", "}": "{", "）": "（", "】": "【", "］": "［", "〕": "〔" };
const GOES_ON = ",，、;:：)]）】.!?…"; // no sentence begins with one of these
const LINE = /[^\n\r\v\f\x1c-\x1e\x85\u2028\u2029]+/gu;
const RUN = new RegExp(`(?<marks>[.!?…${ENDS}]+)(?<closing>[${CLOSING.replace(/[\]\\)}]/g, "\\$&")}]*)`, "gu");
const WORD_CHARACTER = "[\\p{L}\\p{N}_]";
const SMILE = new RegExp(
  `(?:[ \\t]*(?:[\\u{1f300}-\\u{1faff}\\u2600-\\u27bf][\\ufe0f\\u200d]*|[:;]-?[)(DP](?!${WORD_CHARACTER})))+`,
  "uy",
);
const SPOKEN = /[^，。！？,.!?：:；…不没沒]{0,8}(?:[说說问問喊叫答]|(?<!知)道)/uy;
const ADDRESS_PART = /[!-~]+/gu; // an address is ASCII without spaces
const LAST_WORD = new RegExp(`[^${SPACE}"'„“”‚‘’»«›‹(\\[{「『（【,;:/]+$`, "u");
const WORD = new RegExp(`${LETTER}+`, "uy");
const MARKER = /(?:[-–—*•·▪‣]|(?<number>\p{Nd}{1,3}\.)|\p{Nd}{1,3}\))[ \t]+/uy;
const WINDOW = 80; // characters that a rule looks back or ahead
const IS_SPACE = new RegExp(`^[${SPACE}]$`, "u");
const isSpace = (character) => IS_SPACE.test(character);
const isUpper = (character) => /^\p{Uppercase}$/u.test(character);
const isLower = (character) => /^\p{Lowercase}$/u.test(character);
const isDecimal = (text) => /^\p{Nd}+$/u.test(text);
const isAlpha = (text) => /^\p{L}+$/u.test(text);
const isAsian = (character) => isHan(character) || isKana(character);
const words = (text) => new Set(text.trim().split(/\s+/));

// A sentence goes on after these: titles, measures, references.
export const ABBREVIATIONS = words(`
  abb abt allg anm aufl bd betr bspw bzgl bzw ca co dipl dr ebd einschl engl entspr evtl exkl fa fam ff fig fr franz
  frl geb gegr gest ggf ggfs hl hr hrn hrsg inkl ing insb jh kap lat lt mind mio mr mrd mrs ms mtl nr phil prof rd rev
  sgt sog st std südl tel ugs verh versch vgl vol vorm vs wg zit zzgl capt col approx dept cf
`);
// A sentence may end with these: a capital letter after them says so.
export const MAY_END = words("usw usf etc inc ltd corp jr sen a.m p.m u.s u.s.a");
export const BEFORE_NUMBER = words(
  "jan feb mär apr jun jul aug sep sept okt oct nov dez dec no str art abs tab max min",
);
export const AFTER_ORDINAL = words(
  "januar jänner februar märz april mai juni juli august september oktober november dezember jahrhundert",
);
export const BEFORE_ORDINAL = words(`
  am der die das dem den des im zum zur vom beim bis ab seit jeder jede jedes jeden jedem ein eine einen einem einer
  mein meine meinen meinem meiner dein deine deinen sein seine seinen seinem seiner ihr ihre ihren ihrem unser unsere
  unseren euer eure und oder nach vor
`);
// The capital letter after one of these is no initial of a name: "Das ist Plan B. Er …"
export const LETTERED = words("plan vitamin typ klasse punkt teil block gruppe option variante fall team type class");

/** A text whose places are characters. */
export class Characters {
  #units = null; // character → its first UTF-16 unit; null where every character is one unit

  constructor(text) {
    this.text = text;
    this.all = Array.from(text);
    this.length = this.all.length;
    if (this.length < text.length) {
      let at = 0;
      this.#units = this.all.map((character) => (at += character.length) - character.length);
      this.#units.push(text.length);
    }
  }

  /** The UTF-16 unit at which a character begins. */
  unit(place) {
    return this.#units ? this.#units[place] : place;
  }

  /** The character that begins at a UTF-16 unit. */
  place(unit) {
    if (!this.#units) return unit;
    let [low, high] = [0, this.#units.length - 1];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.#units[middle] < unit) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  slice(start, end = this.length) {
    return this.text.slice(this.unit(start), this.unit(Math.min(end, this.length)));
  }

  /** The matches of a pattern between two places, as `{ start, end, groups, text }`; a sticky one is at `start`. */
  matches(pattern, start, end = this.length) {
    const text = this.text.slice(0, this.unit(end));
    const found = [];
    const moving = new RegExp(pattern.source, pattern.flags);
    moving.lastIndex = this.unit(start);
    for (let match = moving.exec(text); match; match = pattern.sticky ? null : moving.exec(text)) {
      const at = this.place(match.index);
      found.push({ start: at, end: this.place(moving.lastIndex), groups: match.groups ?? {}, text: match[0] });
    }
    return found;
  }

  /** Two places moved inward over white space. */
  stripped(start, end) {
    while (start < end && isSpace(this.all[start])) start++;
    while (end > start && isSpace(this.all[end - 1])) end--;
    return { start, end };
  }
}

/** The sentences of a text as `{ start, end }`, in order: every character but white space belongs to one. */
export function split(text) {
  const characters = new Characters(text);
  return sentencesOf(characters).map(({ start, end }) => ({ start: characters.unit(start), end: characters.unit(end) }));
}

/** The same, with places that are characters. */
export function sentencesOf(text) {
  return text.matches(LINE, 0).flatMap((line) => ofLine(text, text.stripped(line.start, line.end)));
}

/** Where a sentence begins behind "- " or "1. " at the start of its line; its own start where there is none. */
export function behindListMarker(text, sentence) {
  let lineStart = sentence.start;
  while (lineStart && " \t".includes(text.all[lineStart - 1])) lineStart--;
  if (lineStart && text.all[lineStart - 1].search(LINE) === 0) return sentence.start;
  const [marker] = text.matches(MARKER, sentence.start, sentence.end);
  if (!marker || marker.end === sentence.end) return sentence.start;
  const [next] = text.matches(WORD, marker.end, sentence.end);
  if (marker.groups.number && next && AFTER_ORDINAL.has(next.text.toLowerCase())) return sentence.start; // 1. Mai
  return marker.end;
}

function ofLine(text, { start, end }) {
  const found = [];
  for (const run of text.matches(RUN, start, end)) {
    const [smile] = text.matches(SMILE, run.end, end);
    const stop = smile ? smile.end : run.end;
    if (start < stop && stop < end && endsSentence(text, { start, end }, run, stop)) {
      found.push({ start, end: stop });
      start = text.stripped(stop, end).start;
    }
  }
  if (start < end) found.push({ start, end });
  return found;
}

/** Whether `run` ends the sentence that begins at `rest.start`; the line goes on after `stop`. */
function endsSentence(text, rest, run, stop) {
  const { marks, closing } = run.groups;
  const following = text.stripped(stop, rest.end).start;
  if (GOES_ON.includes(text.all[following])) return false;
  const bracket = Array.from(closing).find((mark) => mark in BRACKETS);
  if (bracket && text.all[rest.start] !== BRACKETS[bracket]) return false; // an aside within the sentence
  const before = text.slice(Math.max(rest.start, run.start - 1), run.start);
  const after = firstLetter(text, following, rest.end);
  const ellipsis = marks !== "." && /^[.…]*$/u.test(marks);
  const asian = isAsian(before) || isAsian(after);
  if (ellipsis && asian) return run.start - rest.start >= 5; // "我……我不知道" stammers
  if (asian || Array.from(marks).some((mark) => ENDS.includes(mark))) {
    return !(closing && following === run.end && text.matches(SPOKEN, following, rest.end).length);
  }
  if (following === run.end) {
    return isUpper(after) && !inAddress(text, rest, run) && (marks !== "." || endsWord(text, rest, run));
  }
  if (ellipsis) return !isLower(after) && before !== "" && !isSpace(before);
  if (marks !== ".") return !(closing && isLower(after)); // "Komm!" rief er
  return closing ? !isLower(after) : pointEnds(text, rest, run.start, following, after);
}

/** What the next sentence would begin with, without its opening quotation marks. */
function firstLetter(text, start, end) {
  for (let i = start; i < Math.min(end, start + WINDOW); i++) {
    if (!OPENING.includes(text.all[i]) && !isSpace(text.all[i])) return text.all[i];
  }
  return text.all[start];
}

/** Whether the marks stand inside a web or mail address. */
function inAddress(text, rest, run) {
  const first = Math.max(rest.start, run.start - WINDOW);
  const parts = text.slice(first, Math.min(rest.end, run.end + WINDOW)).matchAll(ADDRESS_PART);
  const place = text.unit(run.start) - text.unit(first);
  const found = [...parts].find((part) => part.index <= place && place < part.index + part[0].length)?.[0] ?? "";
  return found.includes("://") || found.includes("@") || found.startsWith("www.");
}

/** Whether a point with a letter behind it ends a sentence: "Hallo.Wie geht's?", but not "z.B. Äpfel". */
function endsWord(text, rest, run) {
  const word = wordBefore(text, rest.start, run.start);
  const short = Array.from(word).length < 2 || ABBREVIATIONS.has(word.toLowerCase());
  return isAlpha(word) && isLower(Array.from(word).at(-1)) && !short && !isUpper(text.all[run.end + 1] ?? "");
}

function wordBefore(text, start, end) {
  return text.slice(Math.max(start, end - WINDOW), end).match(LAST_WORD)?.[0] ?? "";
}

/** Whether a single point with a space behind it ends a sentence. */
function pointEnds(text, rest, point, following, after) {
  const word = wordBefore(text, rest.start, point);
  const length = Array.from(word).length;
  const lower = word.toLowerCase();
  const first = point - length === rest.start;
  // Who writes no capital at the start of a sentence writes none at the next.
  const begins = !isLower(after) || isLower(text.all[rest.start]);
  const previous = wordBefore(text, rest.start, text.stripped(rest.start, point - length).end).toLowerCase();
  if (isDecimal(word) && length <= 2) {
    const [next] = text.matches(WORD, following, Math.min(rest.end, following + WINDOW));
    const ordinal = BEFORE_ORDINAL.has(previous) || (next && AFTER_ORDINAL.has(next.text.toLowerCase()));
    return !(first || ordinal || isLower(after));
  }
  if (MAY_END.has(lower)) return isUpper(after);
  if (length === 1 && isAlpha(word)) {
    return begins && isUpper(word) && !first && (word === "I" || LETTERED.has(previous));
  }
  if (word.includes(".") && word.split(".").every((part) => Array.from(part).length <= 2 && !isDecimal(part))) {
    return false; // z.B. and d.h.
  }
  if (ABBREVIATIONS.has(lower)) return false;
  if (BEFORE_NUMBER.has(lower) || lower.endsWith("str")) return begins && !isDecimal(after);
  return begins;
}
