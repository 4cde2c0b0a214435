"""The models of the comparison, made once: ours with random weights, and everyone's copy of them.

What is kept lies under a hash of what it was made from: graphs of an older exporter, or a peer's copy of older weights,
would be measured as if they were today's.
"""

import hashlib
import sys
from collections.abc import Iterable
from pathlib import Path

from tiny_transformer.bundle import CONFIG, WEIGHTS, WEIGHTS_INT8, Bundle, sha256
from tiny_transformer.commands.init import random_bundle

from .comparison import ROOT
from .engines import ENTRIES, Entry
from .shapes import Shape

OURS = "tiny_transformer"


def make(models: Path, shape: Shape, entries: Iterable[str]) -> dict[str, Path]:
    """The folder of each entry that can hold this shape; what is there already stays."""
    entries = list(entries)
    ours = models / shape.name / f"{OURS}-{_of_files(sorted((ROOT / 'export').glob('*.py')))}"
    if not ours.is_dir():
        print(f"making {shape.name}: {shape.says}", file=sys.stderr)
        random_bundle(ours, shape.config, "translate" if shape.config.is_encoder_decoder else "chat")
    if any(ENTRIES[name].graphs for name in entries) and not (ours / WEIGHTS_INT8).is_file():
        from export.quantize import export_int8

        export_int8(ours)
    return copies(models / shape.name, Bundle.open(ours), entries)


def copies(folder: Path, bundle: Bundle, entries: Iterable[str]) -> dict[str, Path]:
    """Every entry's own form of our model, below `folder`."""
    found: dict[str, Path] = {}
    for name in entries:
        entry = ENTRIES[name]
        if bundle.config.architecture not in entry.architectures:
            continue
        found[name] = bundle.folder if entry.ours else folder / f"{entry.module}-{_of_files(_made_from(bundle, entry))}"
        if not found[name].is_dir():
            print(f"converting for {entry.module}", file=sys.stderr)
            entry.code.convert(bundle, found[name])
    return found


def _made_from(bundle: Bundle, entry: Entry) -> list[Path]:
    """The weights; if it runs our graphs, these and their 8-bit weights too."""
    names = [CONFIG, WEIGHTS]
    if entry.graphs:
        names += sorted(name for name in bundle.files() if name.endswith(".onnx") or name == WEIGHTS_INT8)
    return [bundle.folder / name for name in names]


def _of_files(paths: Iterable[Path]) -> str:
    """A few letters that change with the files."""
    return hashlib.sha256("".join(map(sha256, paths)).encode()).hexdigest()[:12]
