"""Imports point one way: no circle, no layer that knows a later one, heavy libraries only where they are declared."""

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from tests.support.models import ROOT

# A part (a folder, or a file of the package's top level) may import parts of earlier lines, and itself.
LAYERS = (
    ("__init__", "errors", "atomic", "position_tables"),
    ("checks", "tokenizer", "weights"),
    ("config",),
    ("bundle", "evaluation", "inner_values"),
    ("model", "data", "training_record", "accepted_answers"),
    ("backends",),
    ("generation",),
    ("parity",),
    ("hub",),
    ("text_model",),
    ("corpus_run",),
    ("corpus_engines",),
    ("training",),
    ("cli",),
    ("commands", "ui", "export"),  # these do not know each other
    ("__main__", "app"),
)
# What installs without torch must not import it, nor anything that does; backends are opened by name instead.
TORCH_PARTS = ("model", "training", "export", "commands")
TORCH_FILES = {f"backends/{name}.py" for name in ("cuda_buffers", "cuda_graphs", "eager", "torchscript")}
# Where a heavy library may be imported at the top of a file; elsewhere only inside the function that needs it.
AT_TOP = {
    "gradio": ("ui",),
    "huggingface_hub": ("export",),
    "jinja2": ("export",),
    "onnx": ("export",),
    "onnxruntime": ("backends", "export"),
    "starlette": ("ui",),
    "tokenizers": ("tokenizer", "data"),
    "torch": ("model", "training", "backends", "export"),
    "tqdm": ("training", "export"),
}
ANYWHERE = {"numpy"}
ON_A_SPACE = {"spaces"}  # comes with Hugging Face's ZeroGPU machines, and is on no other


@dataclass(frozen=True)
class Import:
    file: str  # below the checkout
    line: int
    name: str  # absolute dotted name; `from a import b` gives a.b where that is a module, else a
    at_top: bool

    def __str__(self) -> str:
        return f"{self.file}:{self.line} imports {self.name}{'' if self.at_top else ' inside a function'}"


def sources(root: Path) -> list[Path]:
    return sorted([*(root / "tiny_transformer").rglob("*.py"), *(root / "export").rglob("*.py"), *root.glob("*.py")])


def imports_of(path: Path, root: Path) -> Iterator[Import]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    functions = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)]
    inside = {id(node) for function in functions for node in ast.walk(function)}
    types = [n for n in ast.walk(tree) if isinstance(n, ast.If) and ast.unparse(n.test) == "TYPE_CHECKING"]
    for_types = {id(node) for block in types for node in ast.walk(block)}
    for node in ast.walk(tree):
        if id(node) in for_types:
            continue
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            package = ".".join(path.relative_to(root).parts[: -node.level]) if node.level else ""
            module = ".".join(part for part in (package, node.module) if part)
            full = [f"{module}.{alias.name}" for alias in node.names]
            names = [name if is_module(name, root) else module for name in full]
        for name in names:
            yield Import(path.relative_to(root).as_posix(), node.lineno, name, id(node) not in inside)


def is_module(name: str, root: Path) -> bool:
    path = root / name.replace(".", "/")
    return path.with_suffix(".py").is_file() or (path / "__init__.py").is_file()


def part_of(name: str) -> str | None:
    """The part that a dotted name of ours belongs to."""
    first, *rest = name.split(".")
    if first == "tiny_transformer":
        return rest[0] if rest else "__init__"
    return first if first in ("export", "app") else None


def module_of(file: str) -> str:
    return file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def layer_of(part: str) -> int:
    found = [number for number, parts in enumerate(LAYERS) if part in parts]
    assert found, f"decide in which layer of tests/test_layering.py {part} belongs"
    return found[0]


def upward(found: list[Import]) -> list[str]:
    """The imports that reach a later layer, or a neighbor in the same one."""
    wrong = []
    for one in found:
        own, other = part_of(module_of(one.file)), part_of(one.name)
        if own is None or other is None or own == other:
            continue
        if layer_of(other) >= layer_of(own):
            wrong.append(str(one))
    return wrong


def misplaced(found: list[Import]) -> list[str]:
    """Heavy libraries at the top of a file that has no business with them."""
    wrong, heavy = [], libraries() - ANYWHERE
    for one in found:
        library, part = one.name.split(".")[0], part_of(module_of(one.file))
        if one.at_top and library in heavy and part not in AT_TOP.get(library, ()):
            wrong.append(str(one))
    return wrong


@cache
def all_imports() -> list[Import]:
    """Those of the product; two seconds of work, which a worker that runs other tests need not do."""
    return [found for path in sources(ROOT) for found in imports_of(path, ROOT)]


def libraries() -> set[str]:
    """Those that the product imports, by the names of their modules."""
    ours = {"tiny_transformer", "export", "app"}
    return {found.name.split(".")[0] for found in all_imports()} - ours - set(sys.stdlib_module_names)


def test_imports_point_to_earlier_layers() -> None:
    assert not upward(all_imports())


def test_every_part_of_the_table_exists() -> None:
    package = ROOT / "tiny_transformer"
    for part in {part for parts in LAYERS for part in parts}:
        assert any(path.exists() for path in (package / part, package / f"{part}.py", ROOT / part, ROOT / f"{part}.py"))


def test_there_is_no_circle() -> None:
    edges: dict[str, set[str]] = {}
    for one in all_imports():
        if part_of(one.name):
            edges.setdefault(module_of(one.file), set()).add(one.name)
    done: set[str] = set()

    def visit(module: str, above: tuple[str, ...]) -> None:
        assert module not in above, " → ".join((*above[above.index(module) :], module))
        if module not in done:
            for other in edges.get(module, set()) - {module}:
                visit(other, (*above, module))
            done.add(module)

    for module in list(edges):
        visit(module, ())


def test_what_installs_without_torch_never_imports_it() -> None:
    wrong = []
    for one in all_imports():
        part = part_of(module_of(one.file))
        with_torch = part in TORCH_PARTS or one.file.removeprefix("tiny_transformer/") in TORCH_FILES
        reaches = f"{one.name.replace('.', '/').removeprefix('tiny_transformer/')}.py" in TORCH_FILES
        reaches |= part_of(one.name) in ("model", "training") or one.name.split(".")[0] == "torch"
        if one.at_top and reaches and not with_torch:
            wrong.append(str(one))
    assert not wrong


def test_heavy_libraries_are_imported_where_they_are_needed() -> None:
    assert not misplaced(all_imports())


def test_export_imports_itself_relatively() -> None:
    """In the wheel the package is `tiny_transformer.export`; an absolute `export` would be another project's."""
    for path in (ROOT / "export").rglob("*.py"):
        assert not re.search(r"^\s*(from|import) export\b", path.read_text(encoding="utf-8"), flags=re.MULTILINE), path


def declared() -> set[str]:
    """The packages that pyproject.toml names, by the name they are imported under."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    lines = [*project["dependencies"], *(line for name in extras if name != "dev" for line in extras[name])]
    names = {re.split(r"[\[<>=!~; ]", line)[0].lower().replace("-", "_") for line in lines}
    return {"yaml" if name == "pyyaml" else name for name in names}


def test_every_library_that_is_imported_is_declared() -> None:
    assert not libraries() - ON_A_SPACE - declared()


def test_every_library_that_is_declared_is_imported() -> None:
    """`matplotlib`, `onnxscript` and the benchmarks' peers are used by other libraries, or by `benchmarks/`."""
    for_others = {"tiny_transformer", "onnxscript", "ctranslate2", "onnxruntime_genai", "transformers"}
    assert not declared() - libraries() - for_others


def test_no_file_shadows_a_library() -> None:
    names = {path.parent.name if path.stem == "__init__" else path.stem for path in sources(ROOT)}
    assert not names & ({*sys.stdlib_module_names, *libraries()} - {"__main__"})


def test_no_file_name_stands_twice() -> None:
    names = [path.name for path in sources(ROOT) if path.stem not in ("__init__", "__main__")]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    ("fault", "check"),
    [("import torch", misplaced), ("import gradio", misplaced), ("from tiny_transformer.ui import page", upward)],
)
def test_a_bad_import_would_be_noticed(tmp_path: Path, fault: str, check: object) -> None:
    bad = tmp_path / "tiny_transformer" / "config.py"
    bad.parent.mkdir()
    bad.write_text(f"def innocent() -> None:\n    pass\n\n\n{fault}\n")
    (tmp_path / "tiny_transformer" / "ui").mkdir()
    assert callable(check)
    assert check(list(imports_of(bad, tmp_path)))
