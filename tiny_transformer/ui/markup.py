"""The few shapes of HTML that the tabs are made of; whatever comes from outside is escaped here or before."""

import html
from collections.abc import Iterable, Sequence

from tiny_transformer.ui.languages import Language
from tiny_transformer.ui.notices import translated
from tiny_transformer.ui.strings import say


def said(language: Language, key: str, **values: object) -> str:
    """A sentence of ours, escaped with its values."""
    return html.escape(say(language, key, **values))


def section(title: str, body: str, intro: str = "") -> str:
    """A part of a tab with its heading; body and intro are HTML already."""
    words = f'<p class="tt-intro">{intro}</p>' if intro else ""
    return f'<section class="tt-section"><h3>{html.escape(title)}</h3>{words}{body}</section>'


def empty(words: object) -> str:
    """What stands where something will be."""
    return f'<p class="tt-empty">{words}</p>'


def notes(notices: Iterable[str], language: Language) -> str:
    """What the library wants the visitor to know."""
    return "".join(f'<p class="tt-note">{html.escape(translated(notice, language))}</p>' for notice in notices)


def table(heads: Sequence[str], rows: Iterable[str], *, stacks: bool = False) -> str:
    """A table under plain headings; rows are HTML already. Where it does not fit it scrolls, or its cells stack."""
    head = "".join(f'<th scope="col">{html.escape(cell)}</th>' for cell in heads)
    return (
        f'<div class="tt-scroll" tabindex="0"><table class="tt-table{" tt-stack" if stacks else ""}">'
        f"<thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
    )


def row(cells: Iterable[str]) -> str:
    """A row of plain text."""
    return "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in cells) + "</tr>"
