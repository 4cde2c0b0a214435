"""Data for the first lesson: random words, to be written backwards."""

import random
from collections.abc import Iterator

N_WORDS = 20_000
LONGEST = 10
_SEED = 2017


def reversed_words() -> Iterator[str]:
    """Different words of 3 to 10 letters, always the same ones; the task is to reverse each."""
    rng = random.Random(_SEED)
    seen: set[str] = set()
    while len(seen) < N_WORDS:
        word = "".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.randint(3, LONGEST)))
        if word not in seen:
            seen.add(word)
            yield word
