"""A translator's figures beside those of published systems on the same public test set."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tiny_transformer.training_record import TrainingRecord

TEST_SET = "tatoeba-test-v2021-08-07"
TEST_SETS_URL = "https://github.com/Helsinki-NLP/OPUS-MT-testsets"


@dataclass(frozen=True)
class PublicSet:
    """One language pair of the public test set, as our data has it."""

    name: str
    file: str
    sha256: str  # of the text
    title: str
    published_as: str
    left_out: int


@dataclass(frozen=True)
class System:
    """A published system and its figures by the name of the set."""

    name: str
    url: str
    parameters: str
    bleu: Mapping[str, str]


def published() -> tuple[list[PublicSet], list[System]]:
    """The sets and the systems of published.toml."""
    values = tomllib.loads(Path(__file__).with_name("published.toml").read_text(encoding="utf-8"))
    return [PublicSet(**item) for item in values["sets"]], [System(**item) for item in values["systems"]]


def beside_published(record: TrainingRecord, name: str, parameters: int) -> tuple[list[list[str]], str]:
    """The rows of a table, the head first, and a note to it; no rows for a model without figures on these sets."""
    sets, systems = published()
    found = {f.data: f"{f.value:.2f}" for f in record.figures if f.metric == "bleu" and f.split == "test"}
    # A file of the user's own may have the same name.
    measured = [s for s in sets if s.name in found and record.data.get(s.file) == s.sha256]
    if not measured:
        return [], ""
    rows = [["BLEU", "parameters", *(s.title for s in measured)]]
    rows.append([name, f"{parameters / 1e6:.1f} M", *(f"**{found[s.name]}**" for s in measured)])
    for system in systems:
        figures = [system.bleu.get(s.name, "") for s in measured]
        if any(figures):
            rows.append([f"[{system.name}]({system.url})", system.parameters, *figures])
    less = " and ".join(f"{s.left_out} of {s.published_as}" for s in measured)
    note = f"The test set is [{TEST_SET}]({TEST_SETS_URL}); ours has the published lines less {less}."
    return rows, note
