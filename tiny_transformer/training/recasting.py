"""The same story with another cast: a fox becomes a rabbit and Lily becomes Mia, all through.

A story whose hero changes from telling to telling can only be learnt by listening to what was asked for.
"""

import random
import re
from functools import cache

# Whoever walks stays on the ground and whoever flies keeps wings: a cast is exchanged within its line.
CASTS = tuple(
    tuple(line.split())
    for line in (
        "fox lion mouse rabbit bear dog cat wolf tiger elephant monkey squirrel deer horse cow pig sheep goat donkey "
        "hare badger hedgehog raccoon giraffe zebra camel kitten puppy bunny lamb pony",
        "bird owl crow eagle sparrow parrot swan goose peacock rooster hen pigeon robin",
        "whale dolphin shark turtle otter beaver frog crocodile seal penguin",
        "bee ant spider cricket grasshopper ladybug butterfly beetle",
        "dragon unicorn fairy witch wizard giant pirate robot knight ghost",
        "farmer fisherman hunter teacher doctor baker tailor painter gardener",
        "ball kite doll balloon drum puzzle teddy whistle",
        "car truck bike boat train tractor rocket",
        "cake cookie apple pie sandwich banana carrot pear",
        "hat scarf coat ring necklace crown umbrella",
        "Lily Lucy Mia Anna Sara Sally Sue Amy Emma Rosie Nina Ella Zoe Clara Molly Ruby Grace Ivy Jane Kate",
        "Tim Tom Ben Max Sam Timmy Jack Bob John Leo Noah Oscar Finn Alex Henry Theo Luke Peter Oliver Felix",
    )
)
_PLURALS = {
    "mouse": "mice",
    "goose": "geese",
    "deer": "deer",
    "sheep": "sheep",
    "fisherman": "fishermen",
    "wolf": "wolves",
}
_WORDS = re.compile(r"\b([Aa]n?\s+)?\b([A-Za-z]+)\b")
# "cannot bear" and "to duck" are no animals.
_VERB = re.compile(r"\b(to|can|can't|cannot|could|couldn't|not|will|would|must)\s+$", re.IGNORECASE)


def recast(story: str, rng: random.Random) -> str:
    """The story with everyone of a known cast exchanged for someone who is not in it yet."""
    words = set(re.findall(r"[A-Za-z]+", story))
    roles: dict[str, str] = {}
    for cast in CASTS:
        present = [who for who in cast if words & {form for form, _ in _forms(who, who)}]
        absent = [who for who in cast if who not in present]
        for old, new in zip(present, rng.sample(absent, min(len(present), len(absent))), strict=False):
            roles |= dict(_forms(old, new))
    return _WORDS.sub(lambda found: _exchanged(found, roles), story) if roles else story


def plural(noun: str) -> str:
    """More than one of them."""
    if noun in _PLURALS:
        return _PLURALS[noun]
    if noun.endswith("y") and noun[-2] not in "aeiou":
        return noun[:-1] + "ies"
    return noun + ("es" if noun.endswith(("s", "x", "ch", "sh")) else "s")


@cache
def _forms(old: str, new: str) -> tuple[tuple[str, str], ...]:
    """One and several, small and with a capital; a name has one form."""
    if old[0].isupper():
        return ((old, new),)
    pairs = ((plural(old), plural(new)), (old, new))
    return tuple(form for a, b in pairs for form in ((a, b), (a.capitalize(), b.capitalize())))


def _exchanged(found: re.Match[str], roles: dict[str, str]) -> str:
    article, word = found.group(1) or "", found.group(2)
    if word not in roles or _VERB.search(found.string[max(0, found.start() - 12) : found.start()]):
        return found.group()
    new = roles[word]
    if article:
        sounds_like_a_vowel = new[0] in "aeiouAEIOU" and new != "unicorn"
        article = article[0] + ("n" if sounds_like_a_vowel else "") + article[len(article.rstrip()) :]
    return article + new
