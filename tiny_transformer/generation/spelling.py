"""A sentence as the texts have it that a translator learned from: not in capitals alone, and with its umlauts.

Whoever has no umlauts on the keyboard types Tuer or Strasse. Which word is meant the vocabulary knows: Tür is a token,
Tuer takes three. So a word gets its umlauts back where it needs no more tokens with them, and ß where it needs fewer.
"""

import re
from itertools import combinations

from tiny_transformer.tokenizer import Tokenizer

_FEWEST_SHOUTED = 5  # letters of a sentence in capitals: USA and NATO are no shouting
_CAPITAL = re.compile("[A-ZÄÖÜ]")
_WORD = re.compile("[A-Za-zÀ-ÿ]+")
_LETTERS = {"ae": "ä", "oe": "ö", "ue": "ü", "Ae": "Ä", "Oe": "Ö", "Ue": "Ü", "ss": "ß"}
_TYPED = re.compile("[AaOo]e|(?<![aeqAEQ])ue|Ue|ss")  # not the u of neue, teuer and quer
_MOST_TYPED = 4  # places of one word that are tried: 16 spellings
_AS_MEANT = re.compile(r"[äöüÄÖÜß@/\\0-9]")  # the keyboard has them, or it is an address or a code


def usual_spelling(sentence: str, tokenizer: Tokenizer, languages: tuple[str, ...]) -> str:
    """The sentence as it is usually written; `languages` are those that the translator reads."""
    sentence = without_capitals(sentence)
    return with_umlauts(sentence, tokenizer) if "de" in languages else sentence


def without_capitals(sentence: str) -> str:
    """A sentence or a long word in capitals alone, in small letters; abbreviations and codes as they are."""
    capitals = list(_CAPITAL.finditer(sentence))
    if len(capitals) < _FEWEST_SHOUTED or len(capitals) < sum(map(str.isalpha, sentence)):
        return sentence
    first = capitals[0].end()
    return sentence[:first] + sentence[first:].lower()


def with_umlauts(sentence: str, tokenizer: Tokenizer) -> str:
    """German without umlauts, with them; a sentence that has one was typed as it is meant."""
    if _AS_MEANT.search(sentence) or not _TYPED.search(sentence):
        return sentence
    return _WORD.sub(lambda word: _respelled(word.group(), tokenizer), sentence)


def _respelled(word: str, tokenizer: Tokenizer) -> str:
    places = list(_TYPED.finditer(word))[:_MOST_TYPED]
    spellings = [word]
    for n in range(1, len(places) + 1):
        for chosen in combinations(places, n):
            spelled = word
            for place in reversed(chosen):
                spelled = spelled[: place.start()] + _LETTERS[place.group()] + spelled[place.end() :]
            spellings.append(spelled)
    # Behind a space, as most words stand. Of two with as many tokens: no ß, uel as in aktuell, and the most umlauts.
    return min(spellings, key=lambda s: (len(tokenizer.encode(f" {s}")), s.count("ß") + s.count("ül"), len(s)))
