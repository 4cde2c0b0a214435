"""The language of a text, guessed from its script and its common words: English, German, Chinese, Japanese or another.

It says nothing where it is not sure, since a single word, a name or a number belongs to many languages. The figures of
its mistakes stand in `tests/generation/test_language.py`.
"""

import re

_LATIN = re.compile(r"[A-Za-zÀ-ɏḀ-ỿ]")
_LETTER = re.compile(r"[^\W\d_]")
_WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)?")
_ADDRESS = re.compile(r"://|@|^www\.")
_ENOUGH = 2_000  # characters: more of them would not change the guess

# Words that are frequent in one language and hardly occur in the others. Those of English and German were taken from
# the sentence pairs that the translator learns from, by frequency, less all nouns and whatever German borrows.
_COMMON = {
    "en": """
    the to you is of that it this have my for are don't what and your his she with like i'm know want can has how did
    there him about it's very think they can't had from didn't get when going why good would were you're been but come
    just doesn't than who i'll where need got never tell should could take said some much i've too people isn't really
    does many that's any something say our only anything made he's always told give went speak look before or into eat
    again must every tomorrow thought what's asked doing other ever yesterday leave their we're everything won't these
    find came them nothing wanted saw believe already understand done things because knows wants even gave wasn't away
    often couldn't wrong happened same yet which being looks remember hear knew everyone you'll hello thank thanks yes
    goodbye not we be if out her here he's let's goes haven't she's they're wouldn't shouldn't aren't there's i'd
    i he was will do me us an as at all on by one time so in a those we've he'd its am no then
    """,
    "de": """
    ich ist nicht sie das du zu es er der ein dass wir habe mir auf sich mit den und eine wie mich ihr haben sind kann
    von einen für dem als sein bin dich dir hast noch um im aus nach hier wird uns sehr wenn etwas meine mein weiß warum
    mehr schon tun ihn bist vor werden gehen gut keine werde immer wurde bitte hatte diese muss nur nichts viel wo seine
    möchte zum dieses über machen ihm heute nie können bei aber sagen einem alle würde oder mal euch deine viele hätte
    alles gerne kein des ihre einer dieser sagte gibt jetzt gerade kannst sehen ihnen mag wer müssen wollte wissen
    einmal geht auch wirklich zur kommen dein seinen wieder macht glaube willst wäre wann kommt waren gestern bis konnte
    gemacht ob einfach doch habt ins zwei kam ging ab dort könnte ohne niemand soll sagt seit ganz oft vielleicht jemand
    selbst durch wohl sollten seid die was war hat will so in an man am da ja nein danke hallo guten welche welcher
    her los hin stark
    """,
    "fr": """
    le la les des une est et je tu il elle nous vous ils elles pas ne que qui dans pour avec sur ce cette mais très suis
    es êtes sont avez avons ont mon ma mes ton ta ses du au aux c'est j'ai n'est d'un d'une l'on où bonjour merci oui
    être avoir fait comme bien plus aussi quand comment pourquoi un a on me
    """,
    "es": """
    el la los las una es y yo tú él ella nosotros ustedes no que qué en para con por pero muy soy eres está están estoy
    mi tu su lo se del al como cómo más también cuando dónde gracias hola sí hay tiene tengo quiero puede fue un donde a
    me he
    """,
    "it": """
    il lo la gli una è e io tu lui lei noi voi non che di per con su ma molto sono sei siamo mio tuo suo del della nel
    alla come anche quando dove grazie ciao sì questo questa ho hai ha abbiamo perché più un a i
    """,
    "pt": """
    o os as uma é e eu tu ele ela nós você vocês não que em para com por mas muito sou és está estou meu minha seu sua
    do da no na dos das como também quando onde obrigado obrigada olá sim tem tenho foi um a me
    """,
    "nl": """
    het een is en ik jij hij zij wij jullie niet dat die van voor met op maar heel ben bent zijn heb hebt heeft mijn
    jouw naar hoe wat waar waarom ook nog wel geen goed dank hallo ja nee kan wil moet deze dit er de we me was in
    """,
    "nordic": """
    jag är och att det inte en ett på som för med av har hade vi ni de han hon mig dig sig vad hur var när tack hej
    jeg er ikke og på som til af har hvad hvordan hvor hvorfor tak hun dig mig os den være et mycket meget
    """,
    "pl": """
    jest nie się na że to jak co czy ja ty on ona my wy oni mam masz ma dla ale bardzo jestem jesteś są był była
    dziękuję proszę dzień dobry tak w z do po gdzie kiedy dlaczego
    """,
    "tr": """
    bir ve bu için çok ben sen biz siz onlar değil ne nasıl nerede neden var yok evet hayır teşekkür merhaba ama gibi
    daha mi mı mu
    """,
}
_ALONE = frozenset(
    ["hello", "goodbye", "yes", "thanks", "what", "where", "why", "who", "how", "when"]
)  # English at once
# Letters that tell words of the two apart, found in the same way among the words that are not above.
_LETTERS = {
    "en": re.compile(
        r"ed$|y$|^c[^h]|ea|ce|ou|sh|ai|ct|ow|oo|gh|ve$|ci|ov|cr|w$|p$|ui|cu|wh|ds$|th|ake|ye|oi|cc|ard|c$|oa|ple|tc|abl"
        r"|ful|wn|eed|dd|eet|eep|wr|ul$|ir$|x$|ws|ss$|ons?$|kes$|ings?$|'"
    ),
    "de": re.compile(
        r"[äöüß]|sch|cht|ich|ei|[^e]hl|^z|tz|uf$|^ver|en$|zu|ig$|lt|gt|kt|nz|rz|hm|ieb|hw|sst|zt|chs|nnt|pf|hst|ün|uh|mt"
        r"|kr|ku|^ka|ko|z$|äu|ung|^ge|he$|ehr|ahr|ohn"
    ),
}
_WORDS = {language: frozenset(words.split()) for language, words in _COMMON.items()}


def guess(text: str) -> str | None:
    """en, de, zh, ja or other; None where that is not sure."""
    text = " ".join(word for word in text[:_ENOUGH].split() if not _ADDRESS.search(word))
    han, kana = sum(map(is_han, text)), sum(map(is_kana, text))
    latin, letters = len(_LATIN.findall(text)), len(_LETTER.findall(text))
    if not letters:
        return None
    if 5 * kana > han + kana:  # a Chinese text may hold a の
        return "ja" if 2 * (han + kana) > letters else None
    if han:
        return "zh" if han_share(text) >= 0.3 else None
    if 2 * latin < letters:
        return "other"
    return _by_words({word.lower().replace("’", "'") for word in _WORD.findall(text)})


def _by_words(words: set[str]) -> str | None:
    """The language that knows clearly more of the words than any other; "ha ha" is one word."""
    if len(words) == 1:
        return "en" if words <= _ALONE else None
    known = {language: sum(word in common for word in words) for language, common in _WORDS.items()}
    for word in words:
        if not any(word in common for common in _WORDS.values()):
            looks = [language for language, letters in _LETTERS.items() if letters.search(word)]
            if len(looks) == 1:
                known[looks[0]] += 1
    best, second = sorted(known, key=lambda language: -known[language])[:2]
    sure = known[best] >= 2 and known[best] >= 2 * known[second] and 3 * known[best] >= len(words)
    own = _WORDS[best] - _WORDS["en" if best == "de" else "de"]
    if not sure or not any(word in own for word in words):
        return None
    return best if best in ("en", "de") else "other"


def han_share(text: str) -> float:
    """Han characters among the letters of a text, from 0 to 1."""
    letters = len(_LETTER.findall(text))
    return sum(map(is_han, text)) / letters if letters else 0.0


# Compared, not matched: a pattern of so many characters takes 4 to 15 ms to compile.
def is_han(character: str) -> bool:
    """Whether a character is Han, with the extensions; kana and hangul are not."""
    return (
        "\u4e00" <= character <= "\u9fff"
        or "\u3400" <= character <= "\u4dbf"
        or "\uf900" <= character <= "\ufaff"
        or "\U00020000" <= character <= "\U0003134f"
    )


def is_kana(character: str) -> bool:
    """Whether a character is one of the two Japanese syllabaries."""
    return "\u3041" <= character <= "\u30ff" or "\uff66" <= character <= "\uff9f"
