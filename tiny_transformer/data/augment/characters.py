"""The same story with another cast: a fox becomes a rabbit and Lily becomes Mia, all through.

A story whose hero changes from telling to telling can only be learned by listening to what was asked for.
"""

import random
import re
from functools import cache

# Whoever walks stays on the ground and whoever flies keeps wings: a cast is exchanged within its line.
CASTS = tuple(
    tuple(line.split())
    for line in (
        "fox lion mouse rabbit bear dog cat wolf tiger elephant monkey squirrel deer horse cow pig sheep goat donkey "
        "hare badger hedgehog raccoon giraffe zebra camel kitten puppy bunny lamb pony kangaroo panda koala leopard "
        "hamster mole lizard snake tortoise",
        "bird owl crow eagle sparrow parrot swan goose peacock rooster hen pigeon robin raven stork hawk magpie "
        "flamingo duckling woodpecker",
        "whale dolphin shark turtle otter beaver frog crocodile seal penguin octopus crab walrus jellyfish starfish",
        "bee ant spider cricket grasshopper ladybug butterfly beetle dragonfly caterpillar snail firefly worm",
        "dragon unicorn fairy witch wizard giant pirate robot knight ghost mermaid monster elf dwarf alien troll",
        "farmer fisherman hunter teacher doctor baker tailor painter gardener sailor carpenter shepherd firefighter "
        "astronaut princess prince king queen",
        "ball kite doll balloon drum puzzle teddy whistle yo-yo marble",
        "car truck bike boat train tractor rocket bus airplane ship",
        "cake cookie apple pie sandwich banana carrot pear cherry pancake pumpkin muffin",
        "hat scarf coat ring necklace crown umbrella sweater glove",
        "forest jungle meadow desert valley garden island",
        "castle palace cottage tower hut cabin lighthouse",
        "Lily Lucy Mia Anna Sara Sally Sue Amy Emma Rosie Nina Ella Zoe Clara Molly Ruby Grace Ivy Jane Kate Maria "
        "Sophie Hannah Laura Julia Alice Eva Lena Olivia Nora",
        "Tim Tom Ben Max Sam Timmy Jack Bob John Leo Noah Oscar Finn Alex Henry Theo Luke Peter Oliver Felix David "
        "Paul Jonas Daniel Simon Adam Mark Nick Emil Charlie",
    )
)
# Whoever a story is about may also become one of these: people ask for a story about anything.
_ANYONE = """
acrobat actor alligator anchor angel antelope apron armadillo artist baboon backpack badge barber basket bat bathtub
bee bell bench bicycle bison blanket book boot bottle bowl box boy brick bridge broom brother bubble bucket buffalo
button cactus camera candle canoe captain caravan cello chair chameleon cheetah chef chicken chimpanzee chipmunk
clock cloud clown coconut coin comet compass computer cook cowboy coyote crayon creature cucumber cup cupcake
cushion dancer daisy detective diamond dinosaur diver doorbell dolphin donut doughnut dragon dragonfly dreamer drum
eagle egg elephant elf emperor engine explorer falcon feather ferret fish flag flamingo flea flower flute fork
fountain friend gardener gazelle genie gerbil ghost giant girl glacier gnome goblin goldfish gorilla grandfather
grandmother grape guitar gull hammer hammock harp hedgehog helicopter hero hippo hippopotamus house iguana inventor
jacket jackal jaguar jar jellyfish juggler kettle key king kiwi knight koala ladder ladybug lamp lantern leaf lemon
lemur letter library lighthouse llama lobster locomotive lollipop magician magnet mailman mammoth map meerkat melon
mermaid minstrel mirror mitten monster moon moose mosquito moth motorbike mountain mug mushroom musician needle nest
newt ninja nurse oak octopus onion orange orangutan ostrich oven ox panther parachute parrot peach peanut pebble
pelican pen pencil penguin phoenix piano pickle pillow pilot pineapple pizza planet plum policeman pony porcupine
postman pot potato princess professor puffin puma pumpkin puppet pyramid queen rainbow raindrop rat reindeer rhino
river robot rose salamander salmon sandcastle satellite saxophone scarecrow scientist scooter seagull seahorse
shadow sheriff shoe singer sister skateboard skeleton skunk sled sloth snowflake snowman sock soldier spaceship
spoon star statue stone strawberry submarine suitcase sun sunflower superhero table tadpole taxi teacup teapot
telephone telescope termite thief thimble tiger toad toaster tomato toothbrush tortoise toy tractor trampoline
treasure tree troll trumpet tulip turnip twig typewriter umbrella unicorn vacuum vampire vegetable village violin
volcano vulture wagon waiter walrus watermelon weasel whale wheel windmill wombat worm yak yeti zebra zombie
zookeeper
"""
HEROES = tuple(_ANYONE.split())
_N_HEROES = 2  # those that a story names first
_ANY_HERO_SHARE = 0.25  # of them become anyone; the others stay in their line
_PLURALS = {
    "mouse": "mice",
    "goose": "geese",
    "deer": "deer",
    "sheep": "sheep",
    "fisherman": "fishermen",
    "wolf": "wolves",
    "dwarf": "dwarves",
    "elf": "elves",
    "thief": "thieves",
    "leaf": "leaves",
    "fish": "fish",
    "goldfish": "goldfish",
    "jellyfish": "jellyfish",
    "starfish": "starfish",
    "firefly": "fireflies",
    "postman": "postmen",
    "mailman": "mailmen",
    "policeman": "policemen",
    "snowman": "snowmen",
    "firefighter": "firefighters",
    "tomato": "tomatoes",
    "potato": "potatoes",
    "volcano": "volcanoes",
    "hero": "heroes",
    "superhero": "superheroes",
    "ox": "oxen",
    "bison": "bison",
    "salmon": "salmon",
    "moose": "moose",
}
_NO_VOWEL_SOUND = ("uni", "uku")  # "a unicorn", "a ukulele"
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
    heroes = dict.fromkeys(_singular(word) for word in re.findall(r"[a-z]+", story) if word in roles)
    for hero in list(heroes)[:_N_HEROES]:
        if rng.random() < _ANY_HERO_SHARE:
            strangers = [who for who in HEROES if who not in words and who not in roles.values()]
            roles |= dict(_forms(hero, rng.choice(strangers)))
    return _WORDS.sub(lambda found: _exchanged(found, roles), story) if roles else story


@cache
def _singular(noun: str) -> str:
    """The form in which a cast names whoever is called `noun` in a story."""
    return next(who for cast in CASTS for who in cast if noun in (who, plural(who)))


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
        article = article[0] + ("n" if takes_an(new) else "") + article[len(article.rstrip()) :]
    return article + new


def takes_an(noun: str) -> bool:
    """Whether it is "an" before a noun."""
    return noun[0] in "aeiouAEIOU" and not noun.lower().startswith(_NO_VOWEL_SOUND)
