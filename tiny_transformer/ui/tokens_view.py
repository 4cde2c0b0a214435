"""Tokens as chips: what was read, and what was written with how sure the model was of it."""

import html

from tiny_transformer.ui.inside import Look, Written
from tiny_transformer.ui.languages import Language
from tiny_transformer.ui.markup import notes, said, section
from tiny_transformer.ui.strings import say

# A chip opens the list of its alternatives; an alternative asks the server to go on from it. The list then closes,
# so the keyboard is led back to the chip.
SCRIPT = """
element.addEventListener('click', (event) => {
  const other = event.target.closest('[data-id]');
  if (other) {
    trigger('select', {place: Number(other.dataset.place), id: Number(other.dataset.id)});
    element.querySelector(`[data-chip="${other.dataset.place}"]`).focus();
    return;
  }
  const chip = event.target.closest('[data-chip]');
  if (!chip) return;
  const open = chip.getAttribute('aria-expanded') === 'true';
  element.querySelectorAll('[data-chip]').forEach((c) => c.setAttribute('aria-expanded', 'false'));
  element.querySelectorAll('[data-panel]').forEach((p) => { p.hidden = true; });
  if (open) return;
  chip.setAttribute('aria-expanded', 'true');
  const panel = element.querySelector(`[data-panel="${chip.dataset.chip}"]`);
  if (panel) panel.hidden = false;
});
"""


def read_chips(look: Look, language: Language) -> str:
    """How the text was cut."""
    chips = "".join(f'<li class="tt-chip">{html.escape(token)}</li>' for token in look.read)
    body = f'<ol class="tt-chips">{chips}</ol>{notes(look.notices, language)}'
    return section(say(language, "inside_read"), body, said(language, "inside_read_info"))


def written_chips(look: Look, language: Language) -> str:
    """The answer, coloured by doubt; each token with a list of alternatives that stays closed until asked for."""
    chips = "".join(_chip(place, token, language) for place, token in enumerate(look.written))
    panels = "".join(_panel(place, token, language) for place, token in enumerate(look.written))
    ends = said(language, "inside_sure"), said(language, "inside_unsure")
    legend = f'<p class="tt-legend" aria-hidden="true">{ends[0]}<i></i>{ends[1]}</p>'
    body = f'{legend}<ol class="tt-chips">{chips}</ol>{panels}'
    return section(say(language, "inside_written"), body, said(language, "inside_written_info"))


def _chip(place: int, token: Written, language: Language) -> str:
    name = html.escape(token.chosen.text)
    words = html.escape(
        say(language, "inside_token", token=token.chosen.text, percent=percent(token.chosen.probability))
    )
    return (
        f'<li><button type="button" class="tt-chip" data-chip="{place}" aria-expanded="false" title="{words}" '
        f'aria-label="{words}" style="--doubt:{1 - token.chosen.probability:.3f}">{name}</button></li>'
    )


def _panel(place: int, token: Written, language: Language) -> str:
    rows = "".join(
        f'<li><button type="button" data-place="{place}" data-id="{choice.id}"'
        f"{' class=tt-chosen' if choice.id == token.chosen.id else ''}>"
        f"<span>{html.escape(choice.text)}</span><i style='width:{100 * choice.probability:.1f}%'></i>"
        f"<b>{percent(choice.probability)}</b></button></li>"
        for choice in token.alternatives
    )
    title = said(language, "alternatives", token=token.chosen.text)
    return (
        f'<div class="tt-panel" data-panel="{place}" hidden><h4>{title}</h4>'
        f'<p class="tt-intro">{said(language, "alternatives_info")}</p><ol>{rows}</ol></div>'
    )


def percent(probability: float) -> str:
    """A probability as a reader wants it: 83 %, 0.4 %, < 0.1 %."""
    value = 100 * probability
    if value < 0.1:
        return "< 0.1 %"
    return f"{value:.0f} %" if value >= 10 else f"{value:.1f} %"
