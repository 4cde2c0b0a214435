"""The reading path is complete: its files alone, in an empty folder, translate as the product does."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.models import ROOT
from tiny_transformer import load

PAGE = (ROOT / "docs/reading-path.md").read_text(encoding="utf-8")
FILES = re.findall(r"^\| \d+ \| \[`([\w/.]+)`\]\(\.\./([\w/.]+)\)", PAGE, flags=re.MULTILINE)
NUMPY_PROGRAM, TORCH_PROGRAM = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
TRANSLATE = ROOT / "checkpoints" / "translate"


def test_the_path_has_at_most_12_files_and_1200_lines() -> None:
    assert len(FILES) == len(set(FILES)) == PAGE.count("](../tiny_transformer/", 0, PAGE.index("## What to look for"))
    assert all(shown == linked for shown, linked in FILES)
    assert len(FILES) <= 12
    assert sum(len((ROOT / file).read_text(encoding="utf-8").splitlines()) for file, _ in FILES) <= 1200


@pytest.fixture
def path_alone(tmp_path: Path) -> Path:
    """A folder with the files of the path, and an empty __init__.py in each package."""
    for file, _ in FILES:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / file, tmp_path / file)
    for package in tmp_path.rglob("*"):
        if package.is_dir():
            (package / "__init__.py").touch()
    return tmp_path


@pytest.mark.long
@pytest.mark.parametrize("text", ["Wir gehen heute in den Park.", "Wo ist der Bahnhof?"])
@pytest.mark.parametrize("program", [NUMPY_PROGRAM, NUMPY_PROGRAM + TORCH_PROGRAM], ids=["numpy", "torch"])
def test_the_files_of_the_path_translate_as_the_product_does(path_alone: Path, program: str, text: str) -> None:
    (path_alone / "program.py").write_text(program, encoding="utf-8")
    # -P and no PYTHONPATH: the program finds its own folder and the installed libraries, nothing of the checkout.
    start = "import runpy, sys; sys.path.insert(0, '.'); sys.argv[0] = 'program.py'; runpy.run_path('program.py')"
    done = subprocess.run(
        [sys.executable, "-P", "-c", start, str(TRANSLATE), text],
        cwd=path_alone,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env={"PATH": "", "OPENBLAS_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    wanted = load(TRANSLATE, "eager").generate(text).text
    assert done.stdout.splitlines() == [wanted] * program.count("print(")


@pytest.mark.long
def test_a_file_that_is_missing_is_noticed(path_alone: Path) -> None:
    (path_alone / "tiny_transformer/model/attention.py").unlink()
    with pytest.raises(AssertionError, match=r"No module named 'tiny_transformer.model.attention'"):
        test_the_files_of_the_path_translate_as_the_product_does(path_alone, NUMPY_PROGRAM + TORCH_PROGRAM, "Hallo")
