"""A source of a recipe: one body of text, and how examples are made of it."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self, TypeVar

from tiny_transformer.checks import check_choice, check_number
from tiny_transformer.config import JsonConfig, defaults_of, require
from tiny_transformer.data.augment import TRANSFORMS, Compose, GiveWay, Transform, transforms_from
from tiny_transformer.data.records import FORMATS

SPLITS = ("train", "dev", "test")
_T = TypeVar("_T", bound=Transform)


@dataclass(frozen=True, kw_only=True)
class Source(JsonConfig):
    """One body of text, and how examples are made of it."""

    name: str = ""  # how phases and reports call it
    path: str = ""  # below --data: a file, a folder, `name.{en,de}` for two parallel files, or hf://datasets/…
    format: str = "pairs"
    split: str = "train"  # dev and test files are never trained on
    repeat: float = 1.0  # times per epoch; a fraction is drawn anew each epoch
    held_out: dict[str, float] = field(default_factory=dict)  # {dev = 0.05, test = 0.1}: shares kept out of training
    evaluated: bool = True  # False: what is held out of it is only left out, and no model is asked for it
    loss_on: str = "replies"  # dialogues: learn the assistant's turns alone, or "all"
    reply: str = ""  # questions: what the assistant says to each of them
    keep: str = ""  # a regular expression, case ignored: of questions, stories and sources only what matches is used
    leave_out: str = ""  # a regular expression, case ignored: examples with a text that matches are not used
    transforms: tuple[Transform, ...] = ()  # augmentation; in a recipe [{name = "rephrase"}, …]
    packing: bool = False  # several documents per row, which see those before them; or several pairs, which do not
    bpe_dropout: float = 0.0  # chance to skip a merge in what is only read (Provilkov et al. 2020); variant 0 is clean
    licence: str = ""  # this and the next two go into the model card
    attribution: str = ""
    url: str = ""
    variants: int = 1  # how many differently tokenized or transformed copies; epoch e reads copy e mod variants

    def __post_init__(self) -> None:
        check_choice("format", self.format, tuple(FORMATS))
        check_choice("split", self.split, SPLITS)
        check_choice("loss_on", self.loss_on, ("replies", "all"))
        check_number("repeat", self.repeat, 0.0)
        check_number("variants", self.variants, 1)
        check_number("bpe_dropout", self.bpe_dropout, 0.0, 1.0)
        require(
            not self.bpe_dropout or (self.format != "text" and self.loss_on != "all"),
            "bpe_dropout respells what is only read, and of {source} everything is learned; leave it out.",
            source=self.label,
        )
        for name, pattern in (("keep", self.keep), ("leave_out", self.leave_out)):
            require(
                _is_pattern(pattern),
                "{name} of {source} is no regular expression; correct it.",
                name=name,
                source=self.label,
            )
        require(
            bool(self.reply) == (self.format == "questions"),
            "A source of questions needs a reply, and no other has one; correct {source}.",
            source=self.label,
        )
        for split, share in self.held_out.items():
            check_choice("held_out", split, SPLITS[1:])
            check_number(f"held_out.{split}", share, 0.0, 1.0)
        require(
            sum(self.held_out.values()) < 1.0, "held_out of {source} leaves nothing to train on.", source=self.label
        )
        for transform in self.transforms:
            require(
                self.format in transform.formats,
                "The transform {transform} is for {formats}, but {source} has the format {format}; remove it.",
                transform=transform.name,
                formats=" or ".join(transform.formats),
                source=self.label,
                format=self.format,
            )

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], *, where: Path | str = "the config") -> Self:
        """Build from a mapping that has exactly the keys of this class; each transform is a table with a name."""
        source = super().from_dict({**values, "transforms": ()}, where=where)
        return replace(source, transforms=transforms_from(values["transforms"], where))

    @property
    def label(self) -> str:
        """How a sentence calls it."""
        return self.name or self.path or self.format

    @property
    def is_pairs(self) -> bool:
        """Whether an example is a source and a target, to be translated."""
        return FORMATS[self.format].is_pairs

    def transform(self, kind: type[_T]) -> _T | None:
        """The transform of a kind, where the source has one."""
        return next((transform for transform in self.transforms if isinstance(transform, kind)), None)

    def without(self, kind: type[Transform]) -> "Source":
        """The same source without the transform of a kind."""
        return replace(self, transforms=tuple(t for t in self.transforms if not isinstance(t, kind)))


def named_sources(source: Source) -> tuple[str, ...]:
    """The names of other sources that the transforms of a source read."""
    compose, give_way = source.transform(Compose), source.transform(GiveWay)
    return (*(compose.mix_with if compose is not None else ()), *(give_way.to if give_way is not None else ()))


@dataclass(frozen=True, kw_only=True)
class FormerAugmentation(JsonConfig):
    """The settings that sources had before there were transforms: older recipes and `training.json` hold them."""

    swap: bool = False
    roles: str = "first-is-user"
    balance: float = 0.0
    analogies: float = 0.0
    rephrase: bool = False
    recast: bool = False
    compose: int = 1
    compose_share: float = 0.5
    amid: str = ""

    def transforms(self, data_format: str) -> list[dict[str, Any]]:
        """The transforms that do the same; settings that had no effect on this format are dropped."""
        check_choice("roles", self.roles, ("first-is-user", "alternate"))
        check_number("compose", self.compose, 1)
        found: list[tuple[bool, dict[str, Any]]] = [
            (self.swap, {"name": "swap"}),
            (self.roles == "alternate", {"name": "alternate_roles"}),
            (self.balance != 0.0, {"name": "balance", "strength": self.balance}),
            (self.analogies != 0.0 and self.rephrase, {"name": "analogies", "share": self.analogies}),
            (self.rephrase, {"name": "rephrase"}),
            (self.recast, {"name": "recast"}),
            (
                self.compose > 1,
                {
                    "name": "compose",
                    "up_to": self.compose,
                    "share": self.compose_share,
                    "interleave_with": self.amid,
                },
            ),
        ]
        return [values for wanted, values in found if wanted and data_format in TRANSFORMS[values["name"]].formats]


_RENAMED = {"before": "amid", "judged": "evaluated"}  # former names of settings


def migrated(values: Mapping[str, Any], where: str) -> dict[str, Any]:
    """A source's settings with former names and former augmentation settings brought to their present form."""
    for former, name in _RENAMED.items():
        require(
            not (former in values and name in values),
            "{where} has {former} and {name}, which are the same setting; remove one.",
            where=where,
            former=former,
            name=name,
        )
    values = {_RENAMED.get(name, name): value for name, value in values.items()}
    defaults = defaults_of(FormerAugmentation)
    former_values = {name: values.pop(name) for name in defaults if name in values}
    if former_values:
        require(
            "transforms" not in values,
            "{where} has {former} beside transforms, which took its place; change the transforms instead.",
            where=where,
            former=next(iter(former_values)),
        )
        former_settings = FormerAugmentation.from_dict({**defaults, **former_values}, where=where)
        values["transforms"] = former_settings.transforms(values.get("format", "pairs"))
    return values


def _is_pattern(text: str) -> bool:
    try:
        re.compile(text)
    except (re.error, OverflowError, RecursionError):
        return False
    return True
