"""The three rings: imports point inward only, each heavy library has its place, and a new file is placed on purpose."""

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.models import ROOT

# Ring 0 needs numpy at most, ring 1 one heavy library each, ring 2 are tools and faces. A folder stands for
# all files in it. A file that is not here fails the test: decide where it belongs.
RINGS = {
    0: (
        "tiny_transformer/__init__.py",
        "tiny_transformer/atomic.py",
        "tiny_transformer/backends/__init__.py",
        "tiny_transformer/backends/base.py",
        "tiny_transformer/backends/graph_file.py",
        "tiny_transformer/bundle.py",
        "tiny_transformer/config.py",
        "tiny_transformer/errors.py",
        "tiny_transformer/evaluation.py",
        "tiny_transformer/generation/",
        "tiny_transformer/hub.py",
        "tiny_transformer/parity/",
        "tiny_transformer/text_model.py",
        "tiny_transformer/tokenizer.py",
        "tiny_transformer/weights.py",
    ),
    1: (
        "tiny_transformer/backends/cuda_graphs.py",
        "tiny_transformer/backends/eager.py",
        "tiny_transformer/backends/cuda_buffers.py",
        "tiny_transformer/backends/onnx_runtime.py",
        "tiny_transformer/backends/torchscript.py",
        "tiny_transformer/data/",
        "tiny_transformer/model/",
        "tiny_transformer/training/",
    ),
    2: (
        "app.py",
        "export/",
        "tiny_transformer/__main__.py",
        "tiny_transformer/cli.py",
        "tiny_transformer/commands/",
        "tiny_transformer/ui/",
    ),
}

# The one place of ring 0 that opens ring 1: the registry imports the backend that was asked for.
DOORS = ("tiny_transformer/backends/__init__.py",)

# Who may import a library at the top of a file, and who only inside a function, where it is needed.
AT_TOP = {
    "gradio": ("app.py", "tiny_transformer/ui/"),
    "huggingface_hub": ("export/",),
    "jinja2": ("export/",),
    "onnx": ("export/",),
    "onnxruntime": ("tiny_transformer/backends/onnx_runtime.py", "export/"),
    "onnxscript": ("export/",),
    "starlette": ("tiny_transformer/ui/",),
    "tokenizers": ("tiny_transformer/tokenizer.py", "tiny_transformer/data/encoding.py"),
    "torch": (
        "tiny_transformer/model/",
        "tiny_transformer/training/",
        "tiny_transformer/backends/cuda_graphs.py",
        "tiny_transformer/backends/eager.py",
        "tiny_transformer/backends/cuda_buffers.py",
        "tiny_transformer/backends/torchscript.py",
        "export/",
    ),
    "tqdm": ("tiny_transformer/training/", "export/"),
    "numpy": ("",),
}
INSIDE = {
    "torch": (
        "tiny_transformer/commands/",
        "tiny_transformer/backends/__init__.py",
        "tiny_transformer/ui/archive.py",  # the page may hand out a TorchScript archive
    ),
    "huggingface_hub": ("tiny_transformer/hub.py", "tiny_transformer/data/files.py", "export/"),
    "httpx2": ("tiny_transformer/hub.py", "export/"),
    "matplotlib": ("tiny_transformer/training/finish.py",),
    "sacrebleu": ("tiny_transformer/evaluation.py",),
    "spaces": ("tiny_transformer/ui/models.py",),
}

# Neighbours that must not know each other although the rings would let them.
STRANGERS = (
    ("tiny_transformer/model/", ("tiny_transformer.backends", "tiny_transformer.training", "tiny_transformer.parity")),
    ("tiny_transformer/backends/", ("tiny_transformer.training", "tiny_transformer.generation")),
    ("tiny_transformer/generation/", ("tiny_transformer.parity", "tiny_transformer.text_model")),
    ("tiny_transformer/cli.py", ("tiny_transformer.ui", "export")),
    ("tiny_transformer/commands/", ("tiny_transformer.ui", "export")),
    ("tiny_transformer/ui/", ("tiny_transformer.cli", "tiny_transformer.commands", "export", "app")),
    ("export/", ("tiny_transformer.ui", "tiny_transformer.commands", "app")),
    ("app.py", ("export", "tiny_transformer.commands")),
)


@dataclass(frozen=True)
class Import:
    file: str
    line: int
    name: str  # absolute dotted name; `from a import b` gives both a and a.b
    at_top: bool

    def __str__(self) -> str:
        return f"{self.file}:{self.line} imports {self.name}{'' if self.at_top else ' inside a function'}"


def sources() -> list[Path]:
    found = [path for folder in ("tiny_transformer", "export") for path in (ROOT / folder).rglob("*.py")]
    return sorted([*found, *ROOT.glob("*.py")])


def imports_of(path: Path) -> Iterator[Import]:
    file = path.relative_to(ROOT).as_posix()
    tree = ast.parse(path.read_text(encoding="utf-8"))
    # A try around an import, or TYPE_CHECKING, is still the top of the file as far as reading it goes;
    # only what stands inside a function waits until it is called.
    waiting = {
        id(node)
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for node in ast.walk(function)
    }
    waiting |= {
        id(node)
        for block in ast.walk(tree)
        if isinstance(block, ast.If) and isinstance(block.test, ast.Name) and block.test.id == "TYPE_CHECKING"
        for node in ast.walk(block)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            package = ".".join(path.relative_to(ROOT).parts[: -node.level]) if node.level else ""
            module = ".".join(part for part in (package, node.module) if part)
            names = [module, *(f"{module}.{alias.name}" for alias in node.names)]
        else:
            continue
        for name in names:
            yield Import(file, node.lineno, name, id(node) not in waiting)


IMPORTS = [found for path in sources() for found in imports_of(path)]


def is_under(file: str, places: tuple[str, ...]) -> bool:
    return any(file == place or ((place.endswith("/") or not place) and file.startswith(place)) for place in places)


def ring_of(file: str) -> int | None:
    rings = [ring for ring, places in RINGS.items() if is_under(file, places)]
    assert len(rings) < 2, f"{file} is in two rings"
    return rings[0] if rings else None


def file_of(name: str) -> str | None:
    """The file of ours that a dotted name stands for, if it is one."""
    path = ROOT / name.replace(".", "/")
    if path.with_suffix(".py").is_file():
        return path.with_suffix(".py").relative_to(ROOT).as_posix()
    return (path / "__init__.py").relative_to(ROOT).as_posix() if (path / "__init__.py").is_file() else None


def test_every_file_has_its_ring() -> None:
    homeless = [file for path in sources() if ring_of(file := path.relative_to(ROOT).as_posix()) is None]
    assert not homeless, f"decide in which ring of tests/test_layering.py these belong: {homeless}"


def test_every_place_exists() -> None:
    """A table of places that are gone would hold nothing."""
    places = {place for table in (RINGS, AT_TOP, INSIDE) for group in table.values() for place in group}
    places |= {place for place, _ in STRANGERS} | set(DOORS)
    gone = sorted(place for place in places if not (ROOT / place).exists())
    assert not gone


def test_imports_point_inward() -> None:
    wrong = []
    for found in IMPORTS:
        target = file_of(found.name)
        if target is None:
            continue
        own, other = ring_of(found.file), ring_of(target)
        assert own is not None
        assert other is not None
        opened = is_under(found.file, DOORS) and not found.at_top and other == 1
        if other > own and not opened:
            wrong.append(f"{found}: ring {own} may not import ring {other}")
    assert not wrong


def test_neighbours_that_must_not_know_each_other_do_not() -> None:
    wrong = [
        str(found)
        for found in IMPORTS
        for place, names in STRANGERS
        if is_under(found.file, (place,))
        and any(found.name == name or found.name.startswith(f"{name}.") for name in names)
    ]
    assert not wrong


def test_export_imports_itself_relatively() -> None:
    """In the wheel the package is `tiny_transformer.export`; an absolute `export` would be somebody else's."""
    for path in (ROOT / "export").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
            assert not any(name.split(".")[0] == "export" for name in names), path


def test_every_library_has_its_place() -> None:
    ours = {"tiny_transformer", "export", "app"}
    wrong = []
    for found in IMPORTS:
        library = found.name.split(".")[0]
        if library in ours or library in sys.stdlib_module_names:
            continue
        allowed = AT_TOP.get(library, ())
        if not found.at_top:
            allowed += INSIDE.get(library, ())
        if not is_under(found.file, allowed):
            wrong.append(str(found))
    assert not wrong


def test_every_library_is_declared() -> None:
    """What is imported is asked for in pyproject.toml, under the extra that needs it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    asked = [*project["dependencies"], *(line for extra in project["optional-dependencies"].values() for line in extra)]
    declared = {re.split(r"[\[<>=!~ ]", line)[0].lower().replace("-", "_") for line in asked}
    brought = {"spaces"}  # by the one platform that has a use for it
    for library in {*AT_TOP, *INSIDE} - brought:
        assert library in declared, library


def test_no_file_shadows_a_library() -> None:
    libraries = {*sys.stdlib_module_names, *AT_TOP, *INSIDE, "safetensors"}
    shadowing = [
        path.relative_to(ROOT).as_posix()
        for path in sources()
        if (path.parent.name if path.stem == "__init__" else path.stem) in libraries
    ]
    assert not shadowing


@pytest.mark.parametrize("fault", ["import torch", "import gradio", "from tiny_transformer.model import build_model"])
def test_the_test_would_notice(tmp_path: Path, fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same rules on a tree with one bad line: they must fail."""
    module = sys.modules[__name__]
    bad = tmp_path / "tiny_transformer" / "config.py"
    bad.parent.mkdir()
    bad.write_text(f"def innocent() -> None:\n    pass\n\n\n{fault}\n")
    monkeypatch.setattr(module, "ROOT", tmp_path)
    found = list(imports_of(bad))
    monkeypatch.undo()
    monkeypatch.setattr(module, "IMPORTS", found)
    noticing = test_imports_point_inward if "tiny_transformer" in fault else test_every_library_has_its_place
    with pytest.raises(AssertionError):
        noticing()
