"""A stand-in for the model of a corpus run: fast, and every answer tells which texts ran together."""

import json
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.support.models import ROOT
from tiny_transformer.corpus_engines import Processes
from tiny_transformer.corpus_run import Answerer, Answers, Block, Corpus, Engine
from tiny_transformer.data.rows import Answer, RowFile
from tiny_transformer.generation import GenerationOptions
from tiny_transformer.text_model import TextModel


@dataclass(frozen=True)
class Echo(Answerer):
    """Answers with the text, the row and what ran beside it; a row may ask for a notice or for the process's end."""

    seconds: float = 0.0  # that a block takes
    mortal: bool = True  # whether the text "die" ends the process, as a lack of memory would

    def open(self) -> TextModel:
        return None  # type: ignore[return-value]

    def answers(self, model: TextModel, block: Block) -> Answers:
        time.sleep(self.seconds)
        if self.mortal and "die" in block.texts:
            os.kill(os.getpid(), signal.SIGKILL)
        rows: list[Answer] = []
        digest = block.digest[:8]
        for row, text in enumerate(block.texts, block.first):
            answer = f"{text}|{row}|{digest}" if text else ""
            rows.append(None if text is None else [answer, "too long"] if text == "long" else [answer])
        return Answers(rows, len(rows))


def echo_corpus(
    folder: Path,
    out: Path,
    *inputs: str | Path,
    seconds: float = 0.0,
    column: str | None = None,
    mortal: bool = True,
) -> Corpus:
    """A run over files, with a model folder that is only hashed."""
    answerer = Echo(folder, "numpy", None, GenerationOptions(), seconds=seconds, mortal=mortal)
    return Corpus(answerer, tuple(RowFile.of(path, None, column, "generated") for path in inputs), out)


def finish(corpus: Corpus, engine: Engine | int = 1) -> dict[str, bytes]:
    """Run to the end, on an engine or on so many processes; every file of the folder."""
    corpus.run(Processes(engine) if isinstance(engine, int) else engine, lambda n_rows: None, lambda progress: None)
    return {path.name: path.read_bytes() for path in sorted(corpus.out.iterdir())}


def shipped_sources(path: Path, count: int) -> Path:
    """A file of sentences that the shipped translator was measured on."""
    lines = (ROOT / "checkpoints/translate/evaluation.jsonl").read_text(encoding="utf-8").splitlines()
    path.write_text("".join(f"{json.loads(line)['source']}\n" for line in lines[:count]), encoding="utf-8")
    return path


def wait_for(true: Callable[[], bool]) -> None:
    """Until something holds; two minutes at most."""
    start = time.monotonic()
    while not true():
        assert time.monotonic() - start < 120
        time.sleep(0.02)
