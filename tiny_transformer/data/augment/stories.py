"""Stories as answers to requests: what a story is about, how people ask for it, and whether a reply is one."""

import random
import re
from collections import Counter
from functools import cache

from tiny_transformer.data.augment.characters import CASTS, HEROES, plural, takes_an
from tiny_transformer.data.augment.small_talk import as_typed
from tiny_transformer.data.records import Dialogue, plain_words, split_of, turns
from tiny_transformer.evaluation import is_story

ABOUT = (
    "Tell me a story about {}.",
    "Can you tell me a story about {}?",
    "Could you tell me a short story about {}?",
    "Please tell me a story about {}.",
    "I would like to hear a story about {}.",
    "I'd love a story about {}.",
    "Do you know a story about {}?",
    "Make up a story about {}.",
    "Write a story about {}.",
    "A story about {}, please.",
    "Let me hear a story about {}.",
    "Have you got a story about {}?",
    "My daughter wants a story about {}.",
    "Tell us a bedtime story about {}.",
    "Invent a tale about {}!",
    "What about a story with {}?",
    "Tell me a tale about {}.",
    "Tell me a fairy tale about {}.",
    "Tell me a little story with {} in it.",
    "Tell me something about {}, as a story.",
    "Tell my kids a story about {}.",
    "Tell me about {} in a story.",
    "Can you make up a tale with {}?",
    "Can you write me a story about {}?",
    "Can you invent a story about {}?",
    "Can I have a story about {}?",
    "Could I hear a tale of {}?",
    "Would you tell me a story about {}?",
    "Will you write a short story about {}?",
    "Do you have a story about {}?",
    "Story about {} please",
    "Story about {}",
    "Short story about {}",
    "A tale of {}",
    "A bedtime story about {}, please.",
    "Now a story about {}.",
    "And now one about {}.",
    "Nice! Now tell me a story about {}.",
    "Next, a story about {}!",
    "Okay, then tell me a story about {}.",
    "How about a story about {}?",
    "How about a tale with {}?",
    "I want a story about {}.",
    "I want to hear about {}.",
    "I need a bedtime story about {}.",
    "I'd like a story with {}.",
    "I would love to read a story about {}.",
    "We want a story about {}!",
    "My son loves {}. Tell him a story about that!",
    "My little girl likes {}, do you have a story?",
    "Give me a story about {}.",
    "Create a story with {}.",
    "Imagine a story about {}.",
    "Write me a short tale about {}.",
    "Write a children's story about {}.",
    "Please write something about {}, a story for children.",
    "Please, a story with {}!",
    "Let's have a story about {}.",
    "Let's hear the story of {}.",
    "Read me a story about {}.",
    "Have you ever heard a story about {}?",
    "Once upon a time there was {}, go on!",
    "Surprise me with a story about {}.",
    "Another story, this time about {}.",
    "Can the next story be about {}?",
    "Hello! Tell me a story about {}.",
)
ANY = (
    "Tell me a story.",
    "Can you tell me a story?",
    "Please tell me a story.",
    "I would like to hear a story.",
    "Do you know any stories?",
    "Tell me a bedtime story.",
    "Story time!",
    "Tell me a short story.",
    "Tell me a tale.",
    "Tell me a fairy tale.",
    "Tell us a story!",
    "Tell my kids a story.",
    "Could you tell me a bedtime story?",
    "Would you read me a story?",
    "Read me a story.",
    "Write a story.",
    "Write me a short story.",
    "Make up a story.",
    "Make up a story for me, please.",
    "Can you make up a story?",
    "Can you write stories?",
    "Invent a story.",
    "I want a story.",
    "I want a bedtime story.",
    "I'd like a story, please.",
    "I need a story for my children.",
    "I can't sleep, tell me a story.",
    "I'm bored, tell me a story.",
    "Do you have a story for me?",
    "Have you got a bedtime story?",
    "Do you know a good story?",
    "Give me a story.",
    "How about a story?",
    "What about a little story?",
    "Let me hear a story.",
    "Let's hear a story.",
    "A story, please.",
    "Story please",
    "Story!",
    "Now a story.",
    "Then tell me a story.",
    "Okay, tell me a story.",
    "My daughter wants a bedtime story.",
    "Surprise me with a story.",
    "Tell me any story you like.",
    "Hi, can you tell me a story?",
    "Another story, please.",
    "Another story!",
    "Tell me another story.",
    "Can you tell me another story?",
    "One more story.",
    "One more story, please!",
    "I want to hear one more story.",
    "Do you know another story?",
    "Tell me a different story.",
    "Tell me a new story.",
    "More stories, please.",
    "Next story!",
)
# After a story these ask for one more; after a joke, for a joke. A story may be too long to stay in the context, so
# that they stand alone: then they ask for a story too.
BARE = ("Another one.", "Another one, please.", "One more.", "One more, please!", "Tell me another one.", "Again!")
REQUESTS_HELD_OUT = {"dev": 0.08, "test": 0.16}  # shares of the forms above that no story is asked for by in training
ANY_SHARE, BARE_SHARE = 0.18, 0.02  # of the requests name no thing, and not even a story

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


def story_dialogue(story: str, title: str, rng: random.Random, *, rephrased: bool = False) -> Dialogue:
    """The request and the story; another `rng` state asks in other words, for another thing in it."""
    story = story.replace("**", "")  # nobody speaks in bold type
    things = topics(story)
    draw = rng.random()
    if title and (not things or draw < 0.5):
        form, thing = rng.choice(request_forms(ABOUT)), _mid_sentence(title)
    elif things and draw >= ANY_SHARE + BARE_SHARE:
        form, thing = rng.choice(request_forms(ABOUT)), _choose(things, rng)
    else:
        form, thing = rng.choice(BARE if draw < BARE_SHARE else request_forms(ANY)), ""
    if rephrased:
        typed = as_typed(form, rng, lambda text: split_of(text, REQUESTS_HELD_OUT) == "train")
        form = typed if typed.count("{}") == form.count("{}") else form
        thing = thing.lower() if form.islower() else thing.upper() if form.isupper() else thing
    return turns((form.replace("{}", thing), story))


@cache
def request_forms(forms: tuple[str, ...], split: str = "train") -> tuple[str, ...]:
    """Those of some forms of a request that belong to a split."""
    return tuple(form for form in forms if split_of(form, REQUESTS_HELD_OUT) == split)


def fitting_request(request: str, previous: str, rng: random.Random) -> str:
    """A request for a story that can stand after the previous reply: "another one" after a joke is no such request."""
    unfit = previous and not is_story(previous) and plain_words(request) in _BARE_WORDS
    return rng.choice(request_forms(ANY)) if unfit else request


_BARE_WORDS = frozenset(map(plain_words, BARE))


def story_requests(split: str, count: int) -> list[tuple[str, tuple[str, ...]]]:
    """Requests in held-out forms, and the things they name: none in one of eight, two in every third of the others."""
    found: list[tuple[str, tuple[str, ...]]] = []
    known = sorted({who for cast in CASTS for who in cast if who.islower()} | set(HEROES))
    for number in range(count):
        rng = random.Random(f"{split} story {number}")
        things = () if number % 8 == 0 else tuple(rng.sample(known, 2 if number % 3 == 0 else 1))
        form = rng.choice(request_forms(ABOUT if things else ANY, split))
        found.append((form.replace("{}", " and ".join(_with_article(thing, True) for thing in things)), things))
    return found


_ADJECTIVES = """
little big brave clever tiny lonely funny happy sad shy lost friendly hungry sleepy old young magic blue green
golden silly curious kind lazy naughty small
"""
_QUALITIES = tuple(_ADJECTIVES.split())
_SIMPLE = re.compile(r"(?:an?|the) ([a-z-]+)$")


def _choose(things: list[str], rng: random.Random) -> str:
    draw = rng.random()
    count = 3 if draw < _THREE_SHARE else 2 if draw < _THREE_SHARE + _TWO_SHARE else 1
    *others, last = [_mention(thing, rng) for thing in rng.sample(things[:4], min(count, len(things)))]
    return f"{', '.join(others)} and {last}" if others else last


def _mention(thing: str, rng: random.Random) -> str:
    """A thing as one may ask for it: "a fox", "my fox", "a brave fox", "foxes", "fox"; "Mia" for "a girl named Mia"."""
    draw = rng.random()
    _, named, name = thing.partition(" named ")
    if named:
        return name if draw < 0.35 else thing
    found = _SIMPLE.match(thing)
    if not found:
        return thing
    noun = found.group(1)
    if draw < 0.55:
        return _with_article(noun, True)
    if draw < 0.7:
        return _with_article(rng.choice(_QUALITIES), True) + " " + noun
    if draw < 0.76:
        return f"my {noun}"
    return plural(noun) if draw < 0.8 else noun if draw < 0.84 else thing


def _with_article(noun: str, indefinite: bool) -> str:
    if noun.endswith("s") and not noun.endswith(("ss", "us")):  # several of them
        return noun
    if not indefinite:
        return f"the {noun}"
    return f"an {noun}" if takes_an(noun) else f"a {noun}"


def _mid_sentence(title: str) -> str:
    """A title inside a sentence: no closing punctuation, a small article."""
    title = title.strip().rstrip(".!?")
    first, _, rest = title.partition(" ")
    return f"{first.lower()} {rest}" if rest and first in ("A", "An", "The", "How", "Why", "My") else title
