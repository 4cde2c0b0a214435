// The language of a text, guessed from its script and its common words; it says nothing where it is not sure.
// The same rules and words as tiny_transformer/generation/language.py, which says where they come from.

// What Python calls a letter, a space and a word: \p{L} and numbers that are no digits, no U+FEFF, no combining mark.
export const SPACE = "\\t-\\r\\x1c-\\x20\\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000";
export const LETTER = "[\\p{L}\\p{Nl}\\p{No}]";
const ENOUGH = 2_000; // characters: more of them would not change the guess
const LATIN = /[A-Za-zÀ-ɏḀ-ỿ]/gu;
const LETTERS = new RegExp(LETTER, "gu");
const WORD = new RegExp(`${LETTER}+(?:['’]${LETTER}+)?`, "gu");
const ADDRESS = /:\/\/|@|^www\./u;

// Words that are frequent in one language and hardly occur in the others.
const COMMON = {
  en: `
    the to you is of that it this have my for are don't what and your his she with like i'm know want can has how
    did there him about it's very think they can't had from didn't get when going why good would were you're been
    but come just doesn't than who i'll where need got never tell should could take said some much i've too people
    isn't really does many that's any something say our only anything made he's always told give went speak look
    before or into eat again must every tomorrow thought what's asked doing other ever yesterday leave their we're
    everything won't these find came them nothing wanted saw believe already understand done things because knows
    wants even gave wasn't away often couldn't wrong happened same yet which being looks remember hear knew
    everyone you'll hello thank thanks yes goodbye not we be if out her here he's let's goes haven't she's they're
    wouldn't shouldn't aren't there's i'd i he was will do me us an as at all on by one time so in a those we've
    he'd its am no then
  `,
  de: `
    ich ist nicht sie das du zu es er der ein dass wir habe mir auf sich mit den und eine wie mich ihr haben sind
    kann von einen für dem als sein bin dich dir hast noch um im aus nach hier wird uns sehr wenn etwas meine mein
    weiß warum mehr schon tun ihn bist vor werden gehen gut keine werde immer wurde bitte hatte diese muss nur
    nichts viel wo seine möchte zum dieses über machen ihm heute nie können bei aber sagen einem alle würde oder
    mal euch deine viele hätte alles gerne kein des ihre einer dieser sagte gibt jetzt gerade kannst sehen ihnen
    mag wer müssen wollte wissen einmal geht auch wirklich zur kommen dein seinen wieder macht glaube willst wäre
    wann kommt waren gestern bis konnte gemacht ob einfach doch habt ins zwei kam ging ab dort könnte ohne niemand
    soll sagt seit ganz oft vielleicht jemand selbst durch wohl sollten seid die was war hat will so in an man am
    da ja nein danke hallo guten welche welcher her los hin stark
  `,
  fr: `
    le la les des une est et je tu il elle nous vous ils elles pas ne que qui dans pour avec sur ce cette mais
    très suis es êtes sont avez avons ont mon ma mes ton ta ses du au aux c'est j'ai n'est d'un d'une l'on où
    bonjour merci oui être avoir fait comme bien plus aussi quand comment pourquoi un a on me
  `,
  es: `
    el la los las una es y yo tú él ella nosotros ustedes no que qué en para con por pero muy soy eres está están
    estoy mi tu su lo se del al como cómo más también cuando dónde gracias hola sí hay tiene tengo quiero puede
    fue un donde a me he
  `,
  it: `
    il lo la gli una è e io tu lui lei noi voi non che di per con su ma molto sono sei siamo mio tuo suo del della
    nel alla come anche quando dove grazie ciao sì questo questa ho hai ha abbiamo perché più un a i
  `,
  pt: `
    o os as uma é e eu tu ele ela nós você vocês não que em para com por mas muito sou és está estou meu minha seu
    sua do da no na dos das como também quando onde obrigado obrigada olá sim tem tenho foi um a me
  `,
  nl: `
    het een is en ik jij hij zij wij jullie niet dat die van voor met op maar heel ben bent zijn heb hebt heeft
    mijn jouw naar hoe wat waar waarom ook nog wel geen goed dank hallo ja nee kan wil moet deze dit er de we me
    was in
  `,
  nordic: `
    jag är och att det inte en ett på som för med av har hade vi ni de han hon mig dig sig vad hur var när tack
    hej jeg er ikke og på som til af har hvad hvordan hvor hvorfor tak hun dig mig os den være et mycket meget
  `,
  pl: `
    jest nie się na że to jak co czy ja ty on ona my wy oni mam masz ma dla ale bardzo jestem jesteś są był była
    dziękuję proszę dzień dobry tak w z do po gdzie kiedy dlaczego
  `,
  tr: `
    bir ve bu için çok ben sen biz siz onlar değil ne nasıl nerede neden var yok evet hayır teşekkür merhaba ama
    gibi daha mi mı mu
  `,
};
const ALONE = new Set("hello goodbye yes thanks what where why who how when".split(" ")); // English at once
// Letters that tell words of the two apart.
const LOOKS = {
  en: new RegExp(
    "ed$|y$|^c[^h]|ea|ce|ou|sh|ai|ct|ow|oo|gh|ve$|ci|ov|cr|w$|p$|ui|cu|wh|ds$|th|ake|ye|oi|cc|ard|c$|oa|ple|tc|abl" +
    "|ful|wn|eed|dd|eet|eep|wr|ul$|ir$|x$|ws|ss$|ons?$|kes$|ings?$|'",
    "u",
  ),
  de: new RegExp(
    "[äöüß]|sch|cht|ich|ei|[^e]hl|^z|tz|uf$|^ver|en$|zu|ig$|lt|gt|kt|nz|rz|hm|ieb|hw|sst|zt|chs|nnt|pf|hst|ün|uh" +
    "|mt|kr|ku|^ka|ko|z$|äu|ung|^ge|he$|ehr|ahr|ohn",
    "u",
  ),
};
export const WORDS = Object.fromEntries(
  Object.entries(COMMON).map(([language, words]) => [language, new Set(words.trim().split(/\s+/))]),
);

/** "en", "de", "zh", "ja" or "other"; null where that is not sure. */
export function guess(text) {
  const words = Array.from(text).slice(0, ENOUGH).join("").split(new RegExp(`[${SPACE}]+`, "u"));
  text = words.filter((word) => word && !ADDRESS.test(word)).join(" ");
  const characters = Array.from(text);
  const han = characters.filter(isHan).length;
  const kana = characters.filter(isKana).length;
  const letters = count(text, LETTERS);
  if (!letters) return null;
  if (5 * kana > han + kana) return 2 * (han + kana) > letters ? "ja" : null; // a Chinese text may hold a の
  if (han) return han / letters >= 0.3 ? "zh" : null;
  if (2 * count(text, LATIN) < letters) return "other";
  return byWords(new Set((text.match(WORD) ?? []).map((word) => word.toLowerCase().replaceAll("’", "'"))));
}

/** The language that knows clearly more of the words than any other; "ha ha" is one word. */
function byWords(words) {
  if (words.size === 1) return ALONE.has([...words][0]) ? "en" : null;
  const known = Object.fromEntries(Object.keys(WORDS).map((language) => [language, 0]));
  for (const word of words) {
    const owners = Object.keys(WORDS).filter((language) => WORDS[language].has(word));
    for (const language of owners) known[language]++;
    const looks = owners.length ? [] : Object.keys(LOOKS).filter((language) => LOOKS[language].test(word));
    if (looks.length === 1) known[looks[0]]++;
  }
  const [best, second] = Object.keys(known).sort((a, b) => known[b] - known[a]);
  const sure = known[best] >= 2 && known[best] >= 2 * known[second] && 3 * known[best] >= words.size;
  const other = WORDS[best === "de" ? "en" : "de"];
  if (!sure || ![...words].some((word) => WORDS[best].has(word) && !other.has(word))) return null;
  return best === "en" || best === "de" ? best : "other";
}

function count(text, pattern) {
  return text.match(pattern)?.length ?? 0;
}

/** Whether a character is Han, with the extensions; kana and hangul are not. */
export function isHan(character) {
  const code = character.codePointAt(0);
  return (
    (code >= 0x4e00 && code <= 0x9fff) ||
    (code >= 0x3400 && code <= 0x4dbf) ||
    (code >= 0xf900 && code <= 0xfaff) ||
    (code >= 0x20000 && code <= 0x3134f)
  );
}

/** Whether a character is one of the two Japanese syllabaries. */
export function isKana(character) {
  const code = character.codePointAt(0);
  return (code >= 0x3041 && code <= 0x30ff) || (code >= 0xff66 && code <= 0xff9f);
}
