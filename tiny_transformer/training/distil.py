"""Sequence-level distillation (Kim and Rush 2016): a larger model translates the sources a smaller one learns from.

What the teacher says is simpler and more regular than what people wrote, so a small model learns more of it.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tqdm import tqdm

from tiny_transformer import atomic
from tiny_transformer.bundle import WEIGHTS, sha256
from tiny_transformer.errors import DataError, InputError
from tiny_transformer.generation import Generated, GenerationOptions, generate_ids
from tiny_transformer.generation.prompt import Prompt, prompt_for
from tiny_transformer.generation.text import text_of
from tiny_transformer.text_model import TextModel
from tiny_transformer.tokenizer import Tokenizer
from tiny_transformer.training.files import DataFile, locate
from tiny_transformer.training.records import Faults, on_one_line, read_records
from tiny_transformer.training.sources import plain_words

Said = tuple[str, str]  # a source, and what the teacher says to it


@dataclass(frozen=True)
class Distillation:
    """A teacher, what it is asked, and what it must not say."""

    teacher: TextModel
    sources: tuple[str, ...]
    options: GenerationOptions
    forbidden: frozenset[str] = frozenset()  # sentences of dev and test, as `plain_words` spells them
    batch_rows: int = 512  # hypotheses the teacher works on at once

    def __post_init__(self) -> None:
        if self.teacher.task != "translate":
            raise InputError(f"The teacher is for {self.teacher.task}, not for translation; name a translator.")
        if self.batch_rows < 1:
            raise InputError(f"--batch-rows is {self.batch_rows}; choose a number of at least 1.")

    @property
    def signature(self) -> dict[str, Any]:
        """What the answers depend on: an unfinished file goes on only if all of it is the same."""
        options = asdict(self.options)
        return {
            "teacher": sha256(self.teacher.bundle.folder / WEIGHTS),
            "sources": hashlib.sha256("\n".join(self.sources).encode()).hexdigest(),
            "options": json.loads(json.dumps(options)),
        }


def tab_separated(said: Sequence[Said]) -> list[str]:
    """The lines of a TSV file."""
    return [f"{source}\t{target}" for source, target in said]


def distil(
    work: Distillation,
    out: Path,
    *,
    overwrite: bool = False,
    lines: Callable[[Sequence[Said]], list[str]] = tab_separated,
) -> list[str]:
    """Write all that the teacher says, put into `lines`, which are given back too. A killed run goes on."""
    if out.exists() and not overwrite:
        raise DataError(f"{out} is there already; add --overwrite to replace it.")
    partial = out.with_name(out.name + ".partial")
    done = _resumed(partial, work.signature)
    prompts = [prompt_for(work.teacher.bundle, source) for source in work.sources]
    # A source the teacher could read only a part of would get half a translation.
    done |= {i: [] for i, prompt in enumerate(prompts) if prompt.notices}
    left = sorted((i for i in range(len(prompts)) if i not in done), key=lambda i: prompts[i].n_tokens)
    rows = max(1, work.batch_rows // work.options.num_beams)
    with (
        partial.open("a", encoding="utf-8") as file,
        tqdm(total=len(prompts), initial=len(done), unit="sentence", disable=None) as bar,
    ):
        for first in range(0, len(left), rows):
            places = left[first : first + rows]
            for i, targets in zip(places, _answers(work, [prompts[i] for i in places], places), strict=True):
                done[i] = targets
                file.write(json.dumps([i, targets], ensure_ascii=False) + "\n")
            file.flush()
            bar.update(len(places))
    said = [(work.sources[i], target) for i in range(len(prompts)) for target in _kept(done[i], work.forbidden)]
    if not said:
        raise DataError(f"The teacher gave no usable target for {len(prompts):,} sources; look at it with generate.")
    written = lines(said)
    atomic.write_file(out, "".join(line + "\n" for line in written))
    partial.unlink()
    return written


def read_sources(paths: Iterable[str]) -> tuple[str, ...]:
    """The first side of pairs, or the lines of a .txt file; each text once, in order."""
    found: dict[str, None] = {}
    for path in paths:
        faults = Faults()
        for unit in locate(path):
            for text in _texts(unit, faults, side=0):
                found.setdefault(on_one_line(text))
        faults.settle(path)
    return tuple(found)


def read_forbidden(paths: Iterable[str]) -> frozenset[str]:
    """Every target of these files, without regard to case and punctuation."""
    found: set[str] = set()
    for path in paths:
        faults = Faults()
        found |= {plain_words(text) for unit in locate(path) for text in _texts(unit, faults, side=1)}
        faults.settle(path)
    return frozenset(found)


def _texts(unit: tuple[DataFile, ...], faults: Faults, side: int) -> Iterator[str]:
    if unit[0].path.suffix != ".txt":
        for pair in read_records(unit, "pairs", faults):
            yield pair[side]
        return
    for document in read_records(unit, "text", faults):
        yield from document.splitlines()


def _answers(work: Distillation, prompts: Sequence[Prompt], numbers: Sequence[int]) -> list[list[str]]:
    """All that the teacher says to each prompt; what did not come to its end is left out."""
    special, tokenizer = work.teacher.bundle.generation, work.teacher.tokenizer
    found = generate_ids(
        work.teacher.backend,
        [prompt.prefix for prompt in prompts],
        [prompt.source for prompt in prompts if prompt.source is not None],
        work.options,
        eos_id=special.eos_id,
        pad_id=special.pad_id,
        rows=numbers,
    )
    return [_whole_texts((best, *best.others), tokenizer) for best in found]


def _whole_texts(found: Sequence[Generated], tokenizer: Tokenizer) -> list[str]:
    return [text_of(tokenizer, one.ids) for one in found if one.finish_reason == "eos"]


def _kept(targets: Sequence[str], forbidden: frozenset[str]) -> list[str]:
    """Different texts on one line each, none of them a sentence the student will be judged by."""
    lines = dict.fromkeys(map(on_one_line, targets))
    return [line for line in lines if line and plain_words(line) not in forbidden]


def _resumed(partial: Path, signature: dict[str, Any]) -> dict[int, list[str]]:
    """What an unfinished file holds already; a new one gets its first line."""
    partial.parent.mkdir(parents=True, exist_ok=True)
    done: dict[int, list[str]] = {}
    whole: list[str] = []
    # A kill may cut a character in two.
    for line in partial.read_text(encoding="utf-8", errors="replace").split("\n")[:-1] if partial.is_file() else ():
        try:
            value = json.loads(line)
        except ValueError:
            break  # cut short by a kill
        if not whole and value != signature:
            raise DataError(f"{partial} was begun with another teacher, data or options; remove it to start anew.")
        if whole:
            done[value[0]] = value[1]
        whole.append(line)
    atomic.write_file(partial, "".join(line + "\n" for line in whole or [json.dumps(signature)]))
    return done
