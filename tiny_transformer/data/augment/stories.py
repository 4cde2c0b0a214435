"""The same story with another cast: a fox becomes a rabbit and Lily becomes Mia, all through.

A story whose hero changes from telling to telling can only be learned by listening to what was asked for.
"""

import random
import re
from collections import Counter
from functools import cache

from tiny_transformer.data.records import Dialogue, turns

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


ABOUT = (
    "Tell me a story about {}.",
    "Tell me a story about {}",
    "Can you tell me a story about {}?",
    "Could you tell me a short story about {}?",
    "Please tell me a story about {}.",
    "I would like to hear a story about {}.",
    "I'd love a story about {}.",
    "Do you know a story about {}?",
    "Make up a story about {}.",
    "Write a story about {}.",
    "tell me a story about {}",
    "A story about {}, please.",
    "Let me hear a story about {}.",
    "Have you got a story about {}?",
    "My daughter wants a story about {}.",
    "Tell us a bedtime story about {}.",
    "Invent a tale about {}!",
    "What about a story with {}?",
)
ANY = (
    "Tell me a story.",
    "Tell me a story",
    "Can you tell me a story?",
    "Please tell me a story.",
    "I would like to hear a story.",
    "Do you know any stories?",
    "Tell me a bedtime story.",
    "Story time!",
)
ANY_SHARE = 0.15  # of the requests name no thing

_TWO_SHARE, _THREE_SHARE = 0.35, 0.1  # of the others name two things, or three
_OPENING = 160  # characters in which a story must name a thing to be asked for by it

_NAMED = re.compile(r"\b(?:a|an)\s+(?:[a-z]+,?\s+){0,3}?([a-z]+)\s+(?:named|called)\s+([A-Z][a-z]+)\b")
# Where a noun ends: an adjective stands before another word instead.
_VERBS = "was is had has were would said went came saw met ran felt took got gave knew thought found"
_JOINTS = "and or to in of with who that for on at as but"
_NOUN = re.compile(
    rf"\b([a-z]+)(?=[.,!?;:]|\s+(?:\w+ed|{'|'.join((_VERBS + ' ' + _JOINTS).split())})\b)", re.IGNORECASE
)
_NOUN_PHRASE = re.compile(r"\b(a|an|the|his|her|their)\s+(?:[a-z]+ly\s+)?([a-z]+)\b(?:\s+([a-z]+)\b)?", re.IGNORECASE)
# Words that follow an article and yet are not what a story is about.
_FILLERS = """
day time way moment morning night evening end story lot bit few little big small old young new great good bad
beautiful wise kind other same first last next whole very many more most best better right left top bottom side
and of in on at to was were is had with who that which but for from as by one two three long happy sad brave
proud swift clever lovely strong tall nice special tiny huge warm cold dark bright ground world place thing
things something home years year days life name idea middle rest sun sky heart eyes head hand hands face
mom dad own favorite wonderful lesson moral importance power value fun loud magical vast dense lush
then while mighty gentle peaceful majestic crisp quiet far once so not he she they it his her their
"""
_NOT_A_TOPIC = frozenset(_FILLERS.split())


def topics(story: str) -> list[str]:
    """The things a story begins with and comes back to, as one would name them: "a fox", "a girl named Mia", "the sea".

    What comes up late is not asked for: a model that is to learn from it learns to begin with something else.
    """
    phrases = [(a.lower(), first.lower(), second.lower()) for a, first, second in _NOUN_PHRASE.findall(story)]
    direct = {first for _, first, _ in phrases}  # words that an article stands right before
    counts: Counter[str] = Counter()
    indefinite: set[str] = set()
    for article, first, second in phrases:
        # "a clever fox": the first word is an adjective if another place says "the fox".
        noun = second if first in _NOT_A_TOPIC or second in direct else first
        if len(noun) < 3 or noun in _NOT_A_TOPIC:
            continue
        counts[noun] += 1
        if article in ("a", "an"):
            indefinite.add(noun)
    nouns = {found.lower() for found in _NOUN.findall(story)} & set(re.findall(r"[a-z]+", story[:_OPENING].lower()))
    ranked = sorted((noun for noun in counts if noun in nouns), key=lambda noun: -counts[noun])
    frequent = [noun for noun in ranked if counts[noun] >= 2][:4] or ranked[:1]
    named = [f"{_with_article(noun, True)} named {name}" for noun, name in _NAMED.findall(story[:_OPENING])[:1]]
    heroes = {noun for noun, _ in _NAMED.findall(story[:_OPENING])[:1]}
    return [*named, *(_with_article(noun, noun in indefinite) for noun in frequent if noun not in heroes)]


def story_dialogue(story: str, title: str, rng: random.Random) -> Dialogue:
    """The request and the story; another `rng` state asks in other words, for another thing in it."""
    story = story.replace("**", "")  # nobody speaks in bold type
    things = topics(story)
    if title and (not things or rng.random() < 0.5):
        request = rng.choice(ABOUT).format(_mid_sentence(title))
    elif things and rng.random() >= ANY_SHARE:
        request = rng.choice(ABOUT).format(_choose(things, rng))
    else:
        request = rng.choice(ANY)
    return turns((request, story))


def _choose(things: list[str], rng: random.Random) -> str:
    draw = rng.random()
    count = 3 if draw < _THREE_SHARE else 2 if draw < _THREE_SHARE + _TWO_SHARE else 1
    *others, last = rng.sample(things[:4], min(count, len(things)))
    return f"{', '.join(others)} and {last}" if others else last


def _with_article(noun: str, indefinite: bool) -> str:
    if noun.endswith("s") and not noun.endswith("ss"):
        return noun
    if not indefinite:
        return f"the {noun}"
    return f"an {noun}" if noun[0] in "aeiou" else f"a {noun}"


def _mid_sentence(title: str) -> str:
    """A title inside a sentence: no closing punctuation, a small article."""
    title = title.strip().rstrip(".!?")
    first, _, rest = title.partition(" ")
    return f"{first.lower()} {rest}" if rest and first in ("A", "An", "The", "How", "Why", "My") else title
