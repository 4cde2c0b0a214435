"""README and chapter say what is so: commands parse, code runs, links lead somewhere, both languages keep step."""

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

from tests.support.documents import ROOT, Block, Page, defined_names
from tiny_transformer import bundle
from tiny_transformer.commands.init import random_bundle
from tiny_transformer.config import preset

README, CHAPTER = Page(ROOT / "README.md"), Page(ROOT / "docs/paper-to-code.md")
TWINS = {page: Page(page.path.with_suffix(".zh-CN.md")) for page in (README, CHAPTER)}
PAGES = [*TWINS, *TWINS.values()]
each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.path.name)
each_twin = pytest.mark.parametrize(("page", "twin"), TWINS.items(), ids=lambda page: page.path.name)

MAP = {README: "Map of the code", TWINS[README]: "代码地图"}
PARSERS = {"tiny_transformer": "tiny_transformer.cli", "export": "export.commands"}
# Where the README's examples keep their random models, and what the tests put there instead.
EXAMPLES = {"/tmp/random-gpt": "tiny-gpt", "/tmp/random": "tiny"}


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


def subcommands(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    actions = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    return dict(actions[0].choices)


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
    first = README.text.split("\n## ")[0] + README.text.split("\n## ")[1]
    for command in ("make app", "make test"):
        assert re.search(rf"^{command}\b", first, re.MULTILINE)


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
            case _:
                assert words[0] in {"git", "cd", "echo", "printf", "pip", "hf"}, f"the test cannot judge: {line}"


@pytest.mark.parametrize("program", PARSERS)
def test_readme_and_help_agree(program: str) -> None:
    """Each subcommand stands in the README with the very example and words of its help."""
    shown = "\n".join(block.body for block in README.blocks if block.language == "bash")
    for name, parser in subcommands(parser_of(program)).items():
        example = re.search(rf"^ +(python -m {program} {name}\b.*)$", parser.format_help(), re.MULTILINE)
        assert example, f"{program} {name} --help has no example"
        assert f"# {parser.description}\n{example[1]}\n" in shown, f"README lacks the example of {program} {name}"


@each_page
def test_python_compiles(page: Page) -> None:
    blocks = [block for block in page.blocks if block.language == "python"]
    assert blocks
    for block in blocks:
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
            is_place = link.endswith(name) or link.endswith(f"{name}__init__.py")
            assert is_place or name in defined_names(target), f"{link} defines no {name}"


@each_twin
def test_the_chinese_page_keeps_step(page: Page, twin: Page) -> None:
    assert [level for level, _ in page.headings] == [level for level, _ in twin.headings]
    assert all(re.search(r"[一-鿿]", title) for _, title in twin.headings[1:]), "headings are translated"
    runs = [[(block.language, block.without_comments()) for block in side.blocks] for side in (page, twin)]
    assert runs[0] == runs[1]
    places = [sorted(link for _, link in side.links if ".md" not in link and "#" not in link) for side in (page, twin)]
    assert places[0] == places[1], "both lead to the same files"


@pytest.mark.parametrize("page", MAP, ids=lambda page: page.path.name)
def test_the_map_has_every_file_once(page: Page) -> None:
    section = page.section(MAP[page])
    mapped = re.findall(r"\(((?:tiny_transformer|export)/[^)]*\.py)\)", section)
    tree = [
        str(path.relative_to(ROOT)) for top in ("tiny_transformer", "export") for path in (ROOT / top).rglob("*.py")
    ]
    assert sorted(set(tree) - set(mapped)) == [], "the map lacks these files; give each a row"
    assert sorted(set(mapped) - set(tree)) == [], "the map names files that are gone"
    assert len(mapped) == len(set(mapped)), "the map names a file twice"
    for row in section.splitlines():
        if ".py)" in row:
            assert len(row.rpartition(" | ")[0]) < len(row) - 8, f"no clause: {row}"


@pytest.mark.parametrize("page", MAP, ids=lambda page: page.path.name)
def test_the_table_of_a_model_folder_has_every_file_of_the_contract(page: Page) -> None:
    names = {*bundle.REQUIRED, *bundle.DERIVED, *bundle.UNHASHED, bundle.EVALUATION, bundle.TRAINING}
    rows = re.findall(r"^\| (`[\w.]+\.\w+`.*?) \|", page.text, re.MULTILINE)
    assert set(re.findall(r"`([^`]+)`", "".join(rows))) == names


def test_figure_one_is_one_step_away() -> None:
    """Every part of the paper's figure 1 is a link to its file and class."""
    table = README.section("Figure 1, part by part")
    for part in ("Input Embedding", "Positional Encoding", "Multi-Head Attention", "Masked Multi-Head Attention",
                 "Add & Norm", "Feed Forward", "Linear", "Softmax", "shifted right", "Nx"):  # fmt: skip
        row = next((row for row in table.splitlines() if part in row), "")
        assert re.search(r"\[`\w[\w.]*`\]\(tiny_transformer/.*\.py\)", row), f"{part} has no link"


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


def test_the_chapter_runs_and_prints_what_it_says() -> None:
    run_blocks(CHAPTER.blocks)


def test_the_readme_runs(tmp_path: Path) -> None:
    blocks = [block for block in README.blocks if block.language == "python"]
    for place, name in EXAMPLES.items():
        config = preset(name)
        folder = tmp_path / name
        random_bundle(folder, config, "translate" if config.is_encoder_decoder else "chat")
        blocks = [Block("python", block.body.replace(f'"{place}"', f'"{folder}"')) for block in blocks]
    assert not any(place in block.body for block in blocks for place in EXAMPLES)
    run_blocks(blocks)
