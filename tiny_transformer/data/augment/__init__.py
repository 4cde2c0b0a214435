"""Augmentation: the named transforms that a source of a recipe may list, with their parameters.

A transform is a frozen value. The makers of examples apply the transforms of a source in the order of `TRANSFORMS`,
whatever their order in the recipe. Variant 0 of a source is its text as it stands, unless a docstring says otherwise.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from tiny_transformer.checks import check_choice, check_number, check_whole
from tiny_transformer.config import JsonConfig, defaults_of, require

DIALOGUE_FORMATS = ("dialogues", "intents", "jokes", "questions", "stories")
_MOST_FILLED = 10_000  # pairs of one template
_MOST_JOINED = 1_000  # dialogues in one: far beyond any context, so that a typing error is noticed


@dataclass(frozen=True, kw_only=True)
class Transform(JsonConfig):
    """One way to make more examples, or other ones, of the same text."""

    name: str
    formats: ClassVar[tuple[str, ...]] = ()  # formats of sources that it applies to


@dataclass(frozen=True, kw_only=True)
class FillSlots(Transform):
    """Pairs are templates: each slot such as {date} or {person} gets a random value, in all variants and splits."""

    name: str = "fill_slots"
    formats: ClassVar[tuple[str, ...]] = ("pairs",)
    times: int = 10  # filled pairs of each template in each variant

    def __post_init__(self) -> None:
        check_whole("times", self.times, 1, _MOST_FILLED)


@dataclass(frozen=True, kw_only=True)
class SharedTransform(Transform):
    """A transform that some of the examples get."""

    share: float = 0.1  # of the examples

    def __post_init__(self) -> None:
        check_number("share", self.share, 0.0, 1.0)


@dataclass(frozen=True, kw_only=True)
class SubstituteNames(SharedTransform):
    """Names of people and places that stand on both sides of a pair become others."""

    name: str = "substitute_names"
    formats: ClassVar[tuple[str, ...]] = ("pairs",)


@dataclass(frozen=True, kw_only=True)
class SubstituteNumbers(SharedTransform):
    """Numbers that stand on both sides of a pair become others."""

    name: str = "substitute_numbers"
    formats: ClassVar[tuple[str, ...]] = ("pairs",)


@dataclass(frozen=True, kw_only=True)
class InsertCopies(SharedTransform):
    """An e-mail address, a URL or a code is put at the end of both sides of a pair."""

    name: str = "copies"
    formats: ClassVar[tuple[str, ...]] = ("pairs",)


@dataclass(frozen=True, kw_only=True)
class DropUmlauts(SharedTransform):
    """German sources are typed without umlauts and ß."""

    name: str = "umlauts"
    formats: ClassVar[tuple[str, ...]] = ("pairs",)


@dataclass(frozen=True, kw_only=True)
class CasePairs(SharedTransform):
    """The source in small letters, or without its last punctuation mark, or with another one."""

    name: str = "casing"
    formats: ClassVar[tuple[str, ...]] = ("pairs",)


@dataclass(frozen=True, kw_only=True)
class SwapSides(Transform):
    """Source and target of every pair are exchanged, in all variants and splits."""

    name: str = "swap"
    formats: ClassVar[tuple[str, ...]] = ("pairs",)


@dataclass(frozen=True, kw_only=True)
class Tag(Transform):
    """A text is put before every source, in all variants and splits: it tells one model which language is wanted."""

    name: str = "tag"
    formats: ClassVar[tuple[str, ...]] = ("pairs",)
    text: str = ""

    def __post_init__(self) -> None:
        require(bool(self.text), 'The transform tag puts a text before every source; give it one, such as "2de ".')


@dataclass(frozen=True, kw_only=True)
class AlternateRoles(Transform):
    """In every other variant the first speaker of a dialogue without roles is the assistant, not the user."""

    name: str = "alternate_roles"
    formats: ClassVar[tuple[str, ...]] = ("dialogues",)


@dataclass(frozen=True, kw_only=True)
class GiveWay(Transform):
    """Phrasings that another source of the recipe answers are left to that source, in all variants and splits."""

    name: str = "give_way"
    formats: ClassVar[tuple[str, ...]] = ("intents", "questions")
    to: tuple[str, ...] = ()  # names of sources of intents or jokes

    def __post_init__(self) -> None:
        require(bool(self.to), 'The transform give_way needs the names of sources, such as to = ["own"].')


@dataclass(frozen=True, kw_only=True)
class Reanswer(Transform):
    """Some intents get another answer than the file's, in all variants and splits."""

    name: str = "reanswer"
    formats: ClassVar[tuple[str, ...]] = ("intents",)
    answers: dict[str, str] = field(default_factory=dict)  # the file's answer → ours


@dataclass(frozen=True, kw_only=True)
class Balance(Transform):
    """Phrasings of small intents are shown more than once."""

    name: str = "balance"
    formats: ClassVar[tuple[str, ...]] = ("intents",)
    strength: float = 1.0  # from 0, phrasings as often as they come, to 1, every intent as often as the largest

    def __post_init__(self) -> None:
        check_number("strength", self.strength, 0.0, 1.0)


@dataclass(frozen=True, kw_only=True)
class UseAnalogies(SharedTransform):
    """Some questions get a part of other words, as other phrasings of the intents suggest by analogy."""

    name: str = "analogies"
    formats: ClassVar[tuple[str, ...]] = ("intents",)


@dataclass(frozen=True, kw_only=True)
class Rephrase(Transform):
    """Questions and requests are spelled as other people would type them: contracted, without capitals, with slips."""

    name: str = "rephrase"
    formats: ClassVar[tuple[str, ...]] = ("intents", "jokes", "questions", "stories")


@dataclass(frozen=True, kw_only=True)
class Recast(Transform):
    """Stories have other animals, things and names."""

    name: str = "recast"
    formats: ClassVar[tuple[str, ...]] = ("stories",)


@dataclass(frozen=True, kw_only=True)
class Compose(Transform):
    """Several dialogues are joined into one, so that answers hold in later turns too: in training, in all variants."""

    name: str = "compose"
    formats: ClassVar[tuple[str, ...]] = DIALOGUE_FORMATS
    up_to: int = 2  # dialogues in one
    share: float = 0.5  # of the results that hold more than one dialogue
    interleave_with: str = ""  # dialogues below --data: some of the results hold a few turns of one of these too
    mix_with: tuple[str, ...] = ()  # names of sources of the recipe, whose dialogues are joined to this one's
    mixed: float = 0.5  # share of the joined dialogues that come from those

    def __post_init__(self) -> None:
        check_whole("up_to", self.up_to, 2, _MOST_JOINED)
        check_number("share", self.share, 0.0, 1.0)
        check_number("mixed", self.mixed, 0.0, 1.0)


_PAIRS = (FillSlots, SubstituteNames, SubstituteNumbers, InsertCopies, DropUmlauts, CasePairs, SwapSides, Tag)
_DIALOGUES = (AlternateRoles, GiveWay, Reanswer, Balance, UseAnalogies, Rephrase, Recast, Compose)
TRANSFORMS: dict[str, type[Transform]] = {kind.name: kind for kind in (*_PAIRS, *_DIALOGUES)}


def transforms_from(values: Any, where: Path | str) -> tuple[Transform, ...]:
    """The transforms that a recipe lists; an unknown name or parameter is refused."""
    require(
        isinstance(values, Sequence) and all(isinstance(item, Mapping) for item in values),
        '{where}: transforms must be a list of tables such as {{name = "rephrase"}}; correct it.',
        where=where,
    )
    found: list[Transform] = []
    for item in values:
        name = check_choice(f"{where}: the name of a transform", item.get("name"), tuple(TRANSFORMS))
        require(
            name not in [transform.name for transform in found],
            "{where} lists the transform {name} twice; remove one.",
            where=where,
            name=name,
        )
        kind = TRANSFORMS[name]
        found.append(kind.from_dict({**defaults_of(kind), **item}, where=f"{where}: transform {name}"))
    return tuple(found)
