"""Reading our Markdown pages: headings, code blocks, links, and the names that Python files define."""

import ast
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"!?\[([^\]]*)\]\(([^)\s]+)\)")


@dataclass(frozen=True)
class Block:
    """One fenced block."""

    language: str
    body: str

    def without_comments(self) -> str:
        """What runs: comments may be in the page's own language."""
        return re.sub(r"(^|\s+)# .*$", "", self.body, flags=re.MULTILINE)


@dataclass(frozen=True)
class Page:
    """A Markdown page of the repository."""

    path: Path

    @property
    def text(self) -> str:
        return self.path.read_text(encoding="utf-8")

    @property
    def front_matter(self) -> dict[str, str]:
        head = re.match(r"---\n(.*?)\n---\n", self.text, re.DOTALL)
        assert head, f"{self.path} has no front matter"
        return dict(line.split(": ", 1) for line in head[1].splitlines())

    @property
    def prose(self) -> str:
        """The text without front matter and code."""
        return _FENCE.sub("", re.sub(r"\A---\n.*?\n---\n", "", self.text, flags=re.DOTALL))

    @property
    def blocks(self) -> list[Block]:
        return [Block(language, body) for language, body in _FENCE.findall(self.text)]

    @property
    def languages(self) -> set[str]:
        """The languages of the code blocks."""
        return {block.language for block in self.blocks}

    @property
    def headings(self) -> list[tuple[int, str]]:
        return [(len(marks), title) for marks, title in re.findall(r"^(#+) (.+)$", self.prose, re.MULTILINE)]

    @property
    def anchors(self) -> set[str]:
        """The fragments GitHub makes of the headings."""
        return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for _, title in self.headings}

    @property
    def links(self) -> list[tuple[str, str]]:
        """(text, target) of every link and picture that stays in the repository."""
        return [(text, target) for text, target in _LINK.findall(self.prose) if "://" not in target]

    def section(self, title: str) -> str:
        """What stands under a heading, up to the next of the same level."""
        found = re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", self.text, re.MULTILINE | re.DOTALL)
        assert found, f"{self.path} has no section {title!r}"
        return found[1]

    def target(self, link: str) -> Path:
        """The file or folder a link leads to."""
        file = link.partition("#")[0]
        return (self.path.parent / file).resolve() if file else self.path


@cache
def defined_names(path: Path) -> frozenset[str]:
    """Every function, class, constant, `Class.method` and `Class.attribute` a Python file defines."""
    names: set[str] = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        names |= _bound(node)
        if isinstance(node, ast.ClassDef):
            members = {name for child in node.body for name in _bound(child)} | _attributes(node)
            names |= {f"{node.name}.{member}" for member in members}
    return frozenset(names)


def _bound(node: ast.stmt) -> set[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return {node.name}
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return {target.id for target in targets if isinstance(target, ast.Name)}


def _attributes(class_: ast.ClassDef) -> set[str]:
    """What methods assign to `self`."""
    return {
        node.attr
        for node in ast.walk(class_)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and ast.unparse(node.value) == "self"
    }
