"""The model itself as HTML: a map of its parts with their shapes, values and code, and switches that turn them off."""

import html
import math
from collections.abc import Sequence

import numpy as np

from tiny_transformer.config import ModelConfig
from tiny_transformer.generation.sampling import likeliest
from tiny_transformer.inner_values import attentions_of, stacks_of
from tiny_transformer.ui.i18n import Language, say
from tiny_transformer.ui.inspection import Inspection, Written, visible_tokens
from tiny_transformer.ui.laboratory import Box, BoxValues, Pass, boxes_of, code_of
from tiny_transformer.ui.laboratory_views import N_NUMBERS, ask, numbers, strip, written_out
from tiny_transformer.ui.markup import percent, said, table


def model_map(config: ModelConfig, chosen: str, language: Language) -> str:
    """The whole model: a box for each part, a row for each layer, with this model's shapes."""
    boxes = boxes_of(config)
    columns = ""
    for stack, (n_layers, _) in reversed(stacks_of(config).items()):
        layers = ""
        for i in reversed(range(n_layers)):
            parts = [box for box in boxes.values() if box.stack == stack and box.layer == i]
            buttons = "".join(_box_button(box, chosen, language) for box in parts)
            layers += f"<li><span>{said(language, 'attention_layer')} {i + 1}</span><div>{buttons}</div></li>"
        title = f"attention_{stack}" if config.is_encoder_decoder else "map_layers"
        # Data flows upwards, as in the paper's figure.
        columns += f'<div class="tt-stack-box"><h4>{said(language, title)}</h4><ol>{layers}</ol></div>'
    output, embedding = (_box_button(boxes[name], chosen, language) for name in ("output", "embedding"))
    facts = said(
        language,
        "map_facts",
        d_model=config.d_model,
        n_heads=config.n_heads,
        d_head=config.d_head,
        d_ff=f"{config.d_ff:,}",
    )
    return (
        f'<section class="tt-section"><p class="tt-intro">{said(language, "map_info")} {facts}</p>'
        f'<div class="tt-model-map"><div class="tt-end">{output}</div><p aria-hidden="true">↑</p>'
        f'<div class="tt-stacks">{columns}</div><p aria-hidden="true">↑</p><div class="tt-end">{embedding}</div></div>'
        f"</section>"
    )


def _box_button(box: Box, chosen: str, language: Language) -> str:
    return (
        f'<button type="button" class="tt-box tt-box-{box.key}" aria-pressed="{str(box.name == chosen).lower()}" '
        f"{ask(box=box.name)}><b>{said(language, f'box_{box.key}')}</b><small>{box.size}</small></button>"
    )


def box_view(box: Box, found: BoxValues, look: Pass, language: Language) -> str:
    """A box of the map: what it does, what it gave in this pass, and its code."""
    name = say(language, f"box_{box.key}")
    if box.layer is not None:
        title = f"attention_{box.stack}" if look.config.is_encoder_decoder else "map_layers"
        name = f"{say(language, title)} · {say(language, 'attention_layer')} {box.layer + 1} · {name}"
    row = found.rows[found.marked]
    token = found.names[found.marked]
    if box.key == "output":
        best = [int(i) for i in likeliest(row, N_NUMBERS)]
        named = zip(visible_tokens(look.tokenizer, best), row[best].tolist(), strict=True)
        items = "".join(f"<li><code>{html.escape(text)}</code> {written_out(score)}</li>" for text, score in named)
        values = f'<p>{said(language, "box_scores", token=token)}</p><ol class="tt-scores">{items}</ol>'
    else:
        largest = float(np.quantile(np.abs(found.rows), 0.99))  # a few numbers stand out by far
        rows = "".join(
            f'<tr{" class=tt-marked" if i == found.marked else ""}><th scope="row">{html.escape(text)}</th>'
            f"<td>{strip(values, largest)}</td></tr>"
            for i, (text, values) in enumerate(zip(found.names, found.rows, strict=True))
        )
        length = written_out(math.sqrt(float(np.square(row).sum())))
        words = said(language, "box_values", token=token, n=len(row), length=length)
        fires = "" if found.active is None else f" {said(language, 'box_active', percent=percent(found.active))}"
        values = (
            f"<p>{words} {numbers(row)}{fires}</p>"
            f'<div class="tt-scroll tt-tall" tabindex="0"><table class="tt-strips"><tbody>{rows}</tbody></table></div>'
        )
    place = html.escape(f"tiny_transformer/{box.file}")
    return (
        f'<section class="tt-section tt-box-view"><h3>{html.escape(name)}</h3>'
        f"<p>{said(language, f'box_{box.key}_info')}</p>"
        f'<p class="tt-intro">{said(language, "box_shape", weights=box.weights, shape=box.shape)}</p>{values}'
        f"<details><summary>{said(language, 'box_code')} <code>{place}</code>, <code>{box.code}</code></summary>"
        f'<pre class="tt-code" tabindex="0"><code>{html.escape(code_of(box))}</code></pre></details></section>'
    )


# Parts switched off


def switch_board(config: ModelConfig, language: Language) -> str:
    """A switch for every head and every layer; `laboratory.js` sends those that are off."""
    boards = ""
    for kind, (n_layers, _, _) in attentions_of(config).items():
        layered = kind in stacks_of(config)
        rows = ""
        for i in range(n_layers):
            cells = "".join(
                f"<td>{_switch(f'{kind}.{i}.{h}', say(language, 'lab_head', layer=i + 1, head=h + 1), str(h + 1))}</td>"
                for h in range(config.n_heads)
            )
            whole = say(language, "switch_layer", n=i + 1)
            first = _switch(f"{kind}.{i}", whole, whole) if layered else f"{said(language, 'attention_layer')} {i + 1}"
            rows += f'<tr><th scope="row">{first}</th>{cells}</tr>'
        title = said(language, f"switch_{kind}" if config.is_encoder_decoder else "switch_heads")
        boards += f'<div><h4>{title}</h4><table class="tt-board"><tbody>{rows}</tbody></table></div>'
    return (
        f'<section class="tt-section tt-switches"><p class="tt-intro">{said(language, "switch_info")}</p>'
        f'<div class="tt-boards">{boards}</div>'
        f'<p><button type="button" class="tt-all-on" data-all-on>{said(language, "switch_all_on")}</button></p>'
        "</section>"
    )


def _switch(part: str, label: str, text: str) -> str:
    return (
        f'<button type="button" class="tt-switch" data-part="{part}" aria-pressed="true" '
        f'aria-label="{html.escape(label)}">{html.escape(text)}</button>'
    )


def without_view(whole: Inspection, partial: Inspection, kept: Sequence[float], n_off: int, language: Language) -> str:
    """Two answers side by side; `kept` are the chances that the whole model's tokens have without the parts."""
    cards = ""
    for title, found in (("without_whole", whole), ("without_parts", partial)):
        chips = "".join(
            f'<li class="tt-chip tt-doubt" style="--doubt:{1 - token.chosen.probability:.3f}" '
            f'data-words="{html.escape(_chance(token, language))}">{html.escape(token.chosen.text)}</li>'
            for token in found.written
        )
        cards += (
            f'<div class="tt-lane"><h3>{said(language, title, n=n_off)}</h3><ol class="tt-chips">{chips}</ol></div>'
        )
    rows = [
        f'<tr><th scope="row">{html.escape(token.chosen.text)}</th><td>{_bar(token.chosen.probability)}</td>'
        f"<td>{_bar(chance)}</td></tr>"
        for token, chance in zip(whole.written, kept, strict=True)
    ]
    heads = [say(language, "without_token"), say(language, "without_whole"), say(language, "without_parts", n=n_off)]
    same = [t.chosen.id for t in whole.written] == [t.chosen.id for t in partial.written]
    verdict = said(language, "without_same" if same else "without_other")
    return (
        f'<section class="tt-section"><p class="tt-verdict{" tt-good" if same else ""}"><b>{verdict}</b></p>'
        f'<div class="tt-lanes">{cards}</div><h3>{said(language, "without_chances")}</h3>'
        f'<p class="tt-intro">{said(language, "without_chances_info")}</p>{table(heads, rows)}</section>'
    )


def _chance(token: Written, language: Language) -> str:
    return say(language, "inside_token", token=token.chosen.text, percent=percent(token.chosen.probability))


def _bar(probability: float) -> str:
    return f'<span class="tt-bar"><i style="width:{100 * probability:.1f}%"></i></span> {percent(probability)}'
