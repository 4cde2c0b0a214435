// A text as a translator reads it, sentence by sentence, and what stands between the sentences kept: the rules of
// generation/segments.py.
import { sentence } from "./errors.js";
import { SPACE, guess } from "./language.js";
import { Characters, behindListMarker, sentencesOf } from "./sentences.js";

const WITHOUT_SPACES = ["zh", "ja"]; // languages that put none between sentences
const NAMES = { en: "English", de: "German", zh: "Chinese" };
// Where a sentence that is too long may be cut, the best places first: behind these.
const CUTS = [`[;:；：][${SPACE}]*`, `[,，、][${SPACE}]*|[${SPACE}][–—-][${SPACE}]`, `[${SPACE}]+`].map(
  (pattern) => new RegExp(pattern, "gu"),
);
const BLANK = new RegExp(`^[${SPACE}]*$`, "u");
const LINE_BREAK = /[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]/u;

/**
 * The segments of a text: `{ segments, after, notices }`, each segment `{ start, end, before, prompt }` with `before` for
 * what the result has in front of it, and no prompt where it is copied. `prompt(text)` gives the prompt of a part.
 */
export function segmented(content, generation, prompt) {
  const text = new Characters(content);
  let spans = sentencesOf(text);
  if (spans.length > 1) spans = spans.map((span) => ({ start: behindListMarker(text, span), end: span.end }));
  else spans = [{ start: 0, end: text.length }];
  let languages = spans.map((span) => guess(text.slice(span.start, span.end)));
  if (spans.length > 1) languages = languages.map((language) => language ?? guess(content));
  const segments = [];
  const notices = [];
  let done = 0;
  spans.forEach((span, i) => {
    let parts = fitting(text, span, prompt); // refuses what is no text
    if (isCopied(text.slice(span.start, span.end), languages[i], generation)) parts = [{ ...span, prompt: null }];
    if (parts.length > 1) {
      const template =
        "A sentence is longer than the {limit} tokens that the model reads; it was translated in {n} parts.";
      notices.push(sentence(template, { limit: generation.max_source_tokens - 1, n: parts.length }));
    }
    for (const part of parts) {
      const before = separator(text.slice(done, part.start), !segments.length, generation.target_language);
      segments.push({ start: text.unit(part.start), end: text.unit(part.end), before, prompt: part.prompt });
      done = part.end;
    }
  });
  notices.push(...languageNotices(languages, generation));
  return { segments, after: text.slice(done), notices };
}

/** Whether there is nothing to translate; a model that does not say its languages translates everything. */
function isCopied(text, language, generation) {
  if (!generation.source_languages.length || BLANK.test(text)) return false;
  return isTarget(language, generation) || !/[\p{L}\p{N}]/u.test(text);
}

function isTarget(language, { target_language: target, source_languages: sources }) {
  return language === target && !sources.includes(language);
}

/** What the result has where the text has `gap`. */
function separator(gap, first, language) {
  if (first || !BLANK.test(gap) || LINE_BREAK.test(gap)) return gap;
  return WITHOUT_SPACES.includes(language) ? "" : " ";
}

/** The span with its prompt, or its parts where the model would not read all of it: halved until each part fits. */
function fitting(text, span, prompt) {
  const found = prompt(text.slice(span.start, span.end));
  if (!found.notices.length || span.end - span.start < 2) return [{ ...span, prompt: found }];
  const middle = cut(text, span);
  return [
    [span.start, middle],
    [middle, span.end],
  ].flatMap(([start, end]) => {
    const part = text.stripped(start, end);
    return part.start < part.end ? fitting(text, part, prompt) : [];
  });
}

/** The best place near the middle. */
function cut(text, span) {
  const middle = Math.floor((span.start + span.end) / 2);
  const reach = Math.floor((span.end - span.start) / 4);
  for (const pattern of CUTS) {
    const places = text.matches(pattern, middle - reach, middle + reach).map((match) => match.end);
    const nearest = places.sort((a, b) => Math.abs(a - middle) - Math.abs(b - middle))[0];
    if (nearest !== undefined) return nearest;
  }
  return middle;
}

/** What a reader should know about the languages of the sentences; nothing if the model does not say its own. */
function languageNotices(languages, generation) {
  const { source_languages: sources, target_language: target } = generation;
  if (!sources.length) return [];
  const notices = [];
  const nCopied = languages.filter((language) => isTarget(language, generation)).length;
  const total = languages.length;
  if (nCopied === total) {
    notices.push(sentence("This looks like {language}; it is returned unchanged.", { language: named(target) }));
  } else if (nCopied) {
    const template = "Returned unchanged, since they look like {language}: {n} of {total} sentences.";
    notices.push(sentence(template, { language: named(target), n: nCopied, total }));
  }
  const nKnown = languages.filter((l) => l === null || sources.includes(l) || isTarget(l, generation)).length;
  if (2 * (total - nKnown) >= total) {
    const names = sources.map(named).reduce((first, second) => sentence("{first} or {second}", { first, second }));
    const template = "This does not look like {languages}, which this model translates.";
    notices.push(sentence(template, { languages: names }));
  }
  return notices;
}

/** A notice where a message is in another language than the chat model's. */
export function speechNotices(message, { target_language: language }) {
  if (!language || [null, language].includes(guess(message))) return [];
  return [sentence("This does not look like {language}, which this model speaks.", { language: named(language) })];
}

function named(language) {
  return sentence(NAMES[language] ?? language);
}
