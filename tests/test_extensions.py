"""The worked examples of CONTRIBUTING.md apply to this checkout, stay small, and do what they are for.

Each `docs/examples/extensions/NAME.patch` begins with a line `Check: python ...`: a command that fails before the patch
and passes after it, run in a patched copy of the checkout. What comes before the first `diff` line is for readers.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.models import ROOT

FOLDER = ROOT / "docs" / "examples" / "extensions"
# How many files of the product an extension of each kind may touch.
LIMITS = {"decoding-option": 4, "backend": 4, "position-encoding": 5, "tab": 3, "data-format": 3}
PRODUCT = ("tiny_transformer/", "export/", "app.py")
COPIED = ("tiny_transformer", "export", "tests", "docs", "benchmarks")
PATCHES = sorted(FOLDER.glob("*.patch"))


def touched(patch: str) -> set[str]:
    """Every file that a patch changes, adds or removes."""
    names = re.findall(r"^(?:---|\+\+\+) (?:[ab]/)?(\S+)", patch, re.MULTILINE)
    return {name for name in names if name != "/dev/null"}


def check_of(patch: str) -> list[str]:
    """The command of the header, with this interpreter."""
    found = re.search(r"^Check: python (.+)$", patch.partition("\ndiff ")[0], re.MULTILINE)
    assert found, "the patch has no line `Check: python ...` before its first diff"
    return [sys.executable, *shlex.split(found[1])]


def copy_checkout(folder: Path) -> None:
    """What Python reads, without models, results and pictures."""
    leave_out = shutil.ignore_patterns("__pycache__", "*.png", "results", "extensions")
    for name in COPIED:
        shutil.copytree(ROOT / name, folder / name, ignore=leave_out)
    for path in [*ROOT.glob("*.py"), *ROOT.glob("*.toml"), *ROOT.glob("*.md")]:
        shutil.copy(path, folder / path.name)


def run(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    # The copy alone: git must not find a repository above it, nor Python this checkout.
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "PYTHONPATH"))}
    environment |= {"GIT_CEILING_DIRECTORIES": str(folder.parent), "PYTHONPATH": str(folder)}
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=300
    )


def extend(name: str, patch: str, folder: Path, *, without: bool = True) -> None:
    """Apply one patch to a copy of the checkout; its check must pass then, and fail `without` it."""
    product = sorted(file for file in touched(patch) if file.startswith(PRODUCT))
    assert len(product) <= LIMITS[name], f"{name} touches {len(product)} files of the product: {', '.join(product)}"
    folder.mkdir()
    copy_checkout(folder)
    if without:
        assert run(check_of(patch), folder).returncode != 0, f"{name}: the check passes without the patch"
    (folder / "extension.patch").write_text(patch, encoding="utf-8")
    applied = run(["git", "apply", "extension.patch"], folder)
    assert applied.returncode == 0, f"{name} does not apply; make the patch again:\n{applied.stderr}"
    done = run(check_of(patch), folder)
    assert done.returncode == 0, f"{name}: the check fails:\n{done.stdout}{done.stderr}"


@pytest.mark.long
@pytest.mark.parametrize("without", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["with", "without-too"])
@pytest.mark.parametrize("path", PATCHES, ids=lambda path: path.stem)
def test_the_example_applies_and_works(path: Path, without: bool, tmp_path: Path) -> None:
    extend(path.stem, path.read_text(encoding="utf-8"), tmp_path / "checkout", without=without)


def test_every_example_is_of_a_known_kind_and_explained() -> None:
    names = {path.stem for path in PATCHES}
    assert names <= LIMITS.keys()
    guide = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    for name in LIMITS:
        placeholder = f"<!-- example: {name.replace('-', ' ')} -->"
        assert (f"{name}.patch" in guide) == (name in names), f"{name}: CONTRIBUTING.md and the patches disagree"
        assert (placeholder in guide) == (name not in names)


def new_files(*names: str, check: str = 'python -c "import tiny_transformer.new_0"') -> str:
    added = [
        f"diff --git a/{n} b/{n}\nnew file mode 100644\n--- /dev/null\n+++ b/{n}\n@@ -0,0 +1 @@\n+x = 1\n"
        for n in names
    ]
    return f"Check: {check}\n\n" + "".join(added)


@pytest.mark.parametrize(
    ("patch", "complaint"),
    [
        (new_files(*(f"tiny_transformer/new_{i}.py" for i in range(4))), "touches 4 files"),
        (new_files("tiny_transformer/new_0.py", check='python -c "pass"'), "passes without the patch"),
        (new_files("tiny_transformer/new_0.py", check='python -c "import nothing_1"'), "the check fails"),
        (new_files("tiny_transformer/config.py"), "does not apply"),
        (new_files("tiny_transformer/new_0.py").replace("Check:", "Chock:"), "has no line `Check"),
    ],
)
def test_an_example_that_is_stale_or_large_is_caught(patch: str, complaint: str, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=complaint):
        extend("tab", patch, tmp_path / "checkout")


def test_a_small_example_passes(tmp_path: Path) -> None:
    extend("tab", new_files("tiny_transformer/new_0.py", "tests/test_new.py"), tmp_path / "checkout")
