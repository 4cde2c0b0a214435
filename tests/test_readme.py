"""README and docs say what is so: commands parse, code runs, links lead somewhere, both languages keep step."""

import argparse
import contextlib
import importlib
import importlib.util
import io
import re
import shlex
import tomllib
from pathlib import Path
from typing import Any

import pytest

from docs import make_cli
from tests.support.documents import ROOT, Block, Page, defined_names
from tiny_transformer import backends, bundle
from tiny_transformer.commands.init import random_bundle
from tiny_transformer.config import preset

README, CHAPTER = Page(ROOT / "README.md"), Page(ROOT / "docs/paper-to-code.md")
CHINESE = {page: Page(page.path.with_suffix(".zh-CN.md")) for page in (README, CHAPTER)}
PAGES = [Page(path) for folder in (ROOT, ROOT / "docs") for path in sorted(folder.glob("*.md"))]
# The reading path is a program with arguments; tests/test_reading_path.py runs it.
NOT_RUN_HERE = [*CHINESE.values(), Page(ROOT / "docs/reading-path.md")]
RUNNING = [page for page in PAGES if page not in NOT_RUN_HERE and page.languages >= {"python"}]
each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.path.name)

PARSERS = {"tiny_transformer": "tiny_transformer.cli", "export": "export.commands"}
# Where the examples keep their random models, and what the tests put there instead.
EXAMPLES = {"/tmp/random-gpt": "tiny-gpt", "/tmp/random": "tiny"}
OTHER_PROGRAMS = {
    "git",
    "cd",
    "echo",
    "printf",
    "pip",
    "hf",
    "ruff",
    "mypy",
    "pytest",
    "pre-commit",
    "node",
    "ray",
    "npm",
}


def shell_lines(page: Page) -> list[str]:
    """Every command of a page's bash blocks, comments removed, the stages of a pipe apart."""
    lines = [
        line for block in page.blocks if block.language == "bash" for line in block.without_comments().splitlines()
    ]
    return [stage.strip() for line in lines for stage in line.split(" | ") if stage.strip()]


def parser_of(program: str) -> argparse.ArgumentParser:
    parser = importlib.import_module(PARSERS[program]).build_parser()
    assert isinstance(parser, argparse.ArgumentParser)
    return parser


def test_the_readme_is_short() -> None:
    assert len(README.text.encode()) <= 12_000
    assert len(README.text.splitlines()) <= 170


def test_front_matter_is_that_of_a_space_with_the_pinned_gradio() -> None:
    matter = README.front_matter
    pinned = re.search(r"^gradio==(.+)$", (ROOT / "requirements.txt").read_text(), re.MULTILINE)
    assert pinned
    assert matter["sdk_version"].strip('"') == pinned[1]
    assert {key: matter[key] for key in ("sdk", "app_file", "license", "python_version")} == {
        "sdk": "gradio",
        "app_file": "app.py",
        "license": "apache-2.0",
        "python_version": '"3.12"',
    }
    assert len(matter["short_description"]) <= 60, "the Hub refuses longer ones"
    assert matter.keys() >= {"title", "emoji", "colorFrom", "colorTo", "pinned"}


def test_the_first_screen_has_the_two_commands() -> None:
    first = README.text.split("\n## ")[0]
    for command in ("make app", "make test"):
        assert re.search(rf"^{command}\b", first, re.MULTILINE)


def test_every_page_is_linked_from_the_readme() -> None:
    linked = {README.target(link) for _, link in README.links}
    assert [
        page.path.name for page in PAGES if page not in (README, CHINESE[CHAPTER]) and page.path not in linked
    ] == []


def test_the_extras_are_those_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    named = re.findall(r"^pip install '\.\[(\w+)\]'", README.text, re.MULTILINE)
    assert sorted([*named, "dev"]) == sorted(project["optional-dependencies"])


@each_page
def test_every_command_parses(page: Page) -> None:
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for line in shell_lines(page):
        words = shlex.split(line)
        match words:
            case ["make", target]:
                assert target in targets, line
            case ["python", "-m", ("tiny_transformer" | "export") as program, *arguments]:
                parser_of(program).parse_args(arguments)
            case ["python", "-m", module, *_]:
                assert importlib.util.find_spec(module), line
            case ["python", script, *_]:
                assert (ROOT / script).is_file(), line
            case _:
                assert words[0] in OTHER_PROGRAMS, f"the test cannot check: {line}"


def test_the_page_about_the_command_line_is_the_one_that_the_parsers_make() -> None:
    assert make_cli.PAGE.read_text(encoding="utf-8") == make_cli.page(), "stale: run python -m docs.make_cli"


@pytest.mark.parametrize("program", PARSERS)
def test_every_subcommand_says_what_it_does_and_shows_itself(program: str) -> None:
    """The help is the first line of the command's module, which must be about the command."""
    for name, parser in make_cli.subcommands(parser_of(program)).items():
        assert parser.description, name
        assert parser.description[0].islower(), f"the first line of {name}'s module does not start with `{name}`: "
        assert make_cli.example(parser).startswith(f"python -m {program} {name} "), f"{name} --help has no example"


@each_page
def test_python_compiles(page: Page) -> None:
    for block in page.blocks:
        if block.language == "python":
            compile(block.body, page.path.name, "exec")


@each_page
def test_links_and_symbols_resolve(page: Page) -> None:
    for text, link in page.links:
        target = page.target(link)
        assert target.exists(), f"{link} leads nowhere"
        assert target.is_relative_to(ROOT)
        anchor = link.partition("#")[2]
        assert not anchor or anchor in Page(target).anchors, f"{link} has no such heading"
        name = text.strip("`")
        if target.suffix == ".py" and text != name:
            is_path = link.endswith(name) or link.endswith(f"{name}__init__.py")
            assert is_path or name in defined_names(target), f"{link} defines no {name}"


@pytest.mark.parametrize("page", CHINESE, ids=lambda page: page.path.name)
def test_the_chinese_page_has_the_same_code(page: Page) -> None:
    twin = CHINESE[page]
    runs = [[(block.language, block.without_comments()) for block in side.blocks] for side in (page, twin)]
    assert runs[0] == runs[1]
    assert all(re.search(r"[一-鿿]", title) for _, title in twin.headings[1:]), "headings are translated"


def test_the_chinese_chapter_keeps_step() -> None:
    twin = CHINESE[CHAPTER]
    assert [level for level, _ in CHAPTER.headings] == [level for level, _ in twin.headings]
    files = [
        sorted(link for _, link in side.links if ".md" not in link and "#" not in link) for side in (CHAPTER, twin)
    ]
    assert files[0] == files[1], "both lead to the same files"


def figures(page: Page) -> list[list[str]]:
    """The numbers of each table row that has some."""
    rows = (re.findall(r"\d+(?:\.\d+)?(?:e-\d+)?", row) for row in page.text.splitlines() if row.startswith("|"))
    return [numbers for numbers in rows if numbers]


def test_the_chinese_readme_has_the_same_figures() -> None:
    assert figures(README) == figures(CHINESE[README])


def test_the_table_of_a_model_folder_has_every_file_of_the_contract() -> None:
    names = {file.name for file in bundle.FILES}
    page = Page(ROOT / "docs/model-folder.md")
    rows = re.findall(r"^\| (`[\w.]+\.\w+`.*?) \|", page.text, re.MULTILINE)
    assert set(re.findall(r"`([^`]+)`", "".join(rows))) == names


def test_the_table_of_backends_has_every_backend() -> None:
    page = Page(ROOT / "docs/backends.md")
    assert set(re.findall(r"^\| `([\w-]+)` \|", page.text, re.MULTILINE)) >= set(backends.NAMES)


def test_figure_one_is_one_step_away() -> None:
    """Every part of the paper's figure 1 is a link to its file and class."""
    table = CHAPTER.section("Figure 1, part by part")
    for part in ("Input Embedding", "Positional Encoding", "Multi-Head Attention", "Masked Multi-Head Attention",
                 "Add & Norm", "Feed Forward", "Linear", "Softmax", "shifted right", "Nx"):  # fmt: skip
        row = next((row for row in table.splitlines() if part in row), "")
        assert re.search(r"\[`\w[\w.]*`\]\(\.\./tiny_transformer/.*\.py\)", row), f"{part} has no link"


def run_blocks(blocks: list[Block]) -> None:
    """Run Python blocks in one namespace; a text block after one is what it must print."""
    namespace: dict[str, Any] = {}
    printed = ""
    for block in blocks:
        if block.language == "text":
            assert printed == block.body
        elif block.language == "python":
            with contextlib.redirect_stdout(io.StringIO()) as output:
                exec(compile(block.body, "documentation", "exec"), namespace)
            printed = output.getvalue()


@pytest.mark.long
@pytest.mark.parametrize("page", RUNNING, ids=lambda page: page.path.name)
def test_the_page_runs_and_prints_what_it_says(page: Page, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    blocks = page.blocks
    for path, name in EXAMPLES.items():
        if any(f'"{path}"' in block.body for block in blocks):
            config = preset(name)
            random_bundle(tmp_path / name, config, "translate" if config.is_encoder_decoder else "chat")
            blocks = [Block(b.language, b.body.replace(f'"{path}"', f'"{tmp_path / name}"')) for b in blocks]
    run_blocks(blocks)


def test_the_running_pages_are_those_with_examples() -> None:
    assert {page.path.name for page in RUNNING} >= {"README.md", "paper-to-code.md", "model-folder.md"}
