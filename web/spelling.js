// A sentence as the texts have it that a translator learned from: not in capitals alone, and with its umlauts. The rules
// of generation/spelling.py, which says why each is there.

const FEWEST_SHOUTED = 5; // letters of a sentence in capitals: USA and NATO are no shouting
const CAPITAL = /[A-ZÄÖÜ]/gu;
const WORD = /[A-Za-zÀ-ÿ]+/gu;
const LETTERS = { ae: "ä", oe: "ö", ue: "ü", Ae: "Ä", Oe: "Ö", Ue: "Ü", ss: "ß" };
const TYPED = /[AaOo]e|(?<![aeqAEQ])ue|Ue|ss/gu; // not the u of neue, teuer and quer
const MOST_TYPED = 4; // places of one word that are tried: 16 spellings
const AS_MEANT = /[äöüÄÖÜß@/\\0-9]/u; // the keyboard has them, or it is an address or a code

/** The sentence as it is usually written; `languages` are those that the translator reads. */
export function usualSpelling(sentence, tokenizer, languages) {
  sentence = withoutCapitals(sentence);
  return languages.includes("de") ? withUmlauts(sentence, tokenizer) : sentence;
}

/** A sentence or a long word in capitals alone, in small letters; abbreviations and codes as they are. */
function withoutCapitals(sentence) {
  const nCapitals = sentence.match(CAPITAL)?.length ?? 0;
  if (nCapitals < FEWEST_SHOUTED || nCapitals < (sentence.match(/\p{L}/gu)?.length ?? 0)) return sentence;
  const first = sentence.search(CAPITAL) + 1;
  return sentence.slice(0, first) + sentence.slice(first).toLowerCase();
}

/** German without umlauts, with them; a sentence that has one was typed as it is meant. */
function withUmlauts(sentence, tokenizer) {
  if (AS_MEANT.test(sentence) || sentence.search(TYPED) < 0) return sentence;
  return sentence.replace(WORD, (word) => respelled(word, tokenizer));
}

function respelled(word, tokenizer) {
  const places = [...word.matchAll(TYPED)].slice(0, MOST_TYPED);
  const spellings = subsets(places).map((chosen) =>
    chosen.reduceRight(
      (spelled, { 0: typed, index }) => spelled.slice(0, index) + LETTERS[typed] + spelled.slice(index + typed.length),
      word,
    ),
  );
  // Behind a space, as most words stand. Of two with as many tokens: no ß, uel as in aktuell, and the most umlauts.
  const cost = (s) => [tokenizer.encode(` ${s}`).length, s.split("ß").length + s.split("ül").length, s.length];
  const ranked = spellings.map((spelling) => ({ spelling, cost: cost(spelling) }));
  const compare = (a, b) => a[0] - b[0] || a[1] - b[1] || a[2] - b[2];
  return ranked.sort((a, b) => compare(a.cost, b.cost))[0].spelling; // of equals the first
}

/** All subsets: of none, of one, of two and so on, those of earlier members first. */
function subsets(members) {
  const ofSize = (size, from) =>
    size === 0 ? [[]] : members.flatMap((member, i) => (i < from ? [] : ofSize(size - 1, i + 1).map((s) => [member, ...s])));
  return [[], ...members].flatMap((_, size) => ofSize(size, 0));
}
