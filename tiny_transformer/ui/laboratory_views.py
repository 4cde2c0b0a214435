"""The laboratory as HTML: a token's odds under sliders, attention maps, one head step by step, layer by layer.

Long rows of numbers go to the browser as bytes, and `laboratory.js` draws them.
"""

import base64
import html
import json
from collections.abc import Sequence

import numpy as np

from tiny_transformer.ui.i18n import Language, say
from tiny_transformer.ui.inspection import Maps, Written
from tiny_transformer.ui.laboratory import LensRow, Steps
from tiny_transformer.ui.markup import percent, said, table

N_NUMBERS = 8  # of a vector, written out


def ask(**question: object) -> str:
    """The attribute of a button that asks the server; `laboratory.js` sends it on."""
    return f"data-ask='{html.escape(json.dumps(question))}'"


def strip(values: np.ndarray, largest: float | None = None) -> str:
    """A row of numbers as colors: one below zero, another above; `largest` is that of full color."""
    scale = max(float(np.abs(values).max()) if largest is None else largest, 1e-9)
    levels = np.clip(np.rint(values / scale * 127), -127, 127).astype(np.int8)
    return f'<canvas class="tt-strip" data-strip="{_bytes(levels)}" aria-hidden="true"></canvas>'


def signed_map(values: np.ndarray, title: str) -> str:
    """A table of numbers from -1 to 1 as colors."""
    levels = np.clip(np.rint(values * 127), -127, 127).astype(np.int8)
    return (
        f'<canvas class="tt-signed" role="img" aria-label="{html.escape(title)}" data-strip="{_bytes(levels)}" '
        f'data-columns="{values.shape[1]}"></canvas>'
    )


def numbers(values: np.ndarray) -> str:
    """The first numbers of a vector, as text."""
    words = ", ".join(written_out(value) for value in values[:N_NUMBERS].tolist())
    return f'<span class="tt-numbers">[{words}{", …" if len(values) > N_NUMBERS else ""}]</span>'


def written_out(value: float) -> str:
    """A number of a vector as a reader wants it."""
    return f"{value:.2f}".replace("-", "−")


def _bytes(array: np.ndarray) -> str:
    return base64.b64encode(np.ascontiguousarray(array).tobytes()).decode("ascii")


# The distribution of one token


def odds_panel(token: Written, logits: np.ndarray, position: int, language: Language) -> str:
    """The likeliest tokens at a position of the answer, and sliders that change their chances in the browser.

    All logits come along, highest first: temperature, top-k and top-p never change their order.
    """
    order = np.sort(logits)[::-1].astype("<f4")
    rows = ""
    ranked = [*enumerate(token.alternatives)]
    if token.chosen.id not in [choice.id for choice in token.alternatives]:
        ranked.append((int((logits > logits[token.chosen.id]).sum()), token.chosen))
    for rank, choice in ranked:
        mark = ' class="tt-chosen"' if choice.id == token.chosen.id else ""
        rows += (
            f'<li><button type="button"{mark} data-id="{choice.id}" data-rank="{rank}" '
            f"{ask(position=position, id=choice.id)}><span>{html.escape(choice.text)}</span><i></i>"
            f"<b>{percent(choice.probability)}</b></button></li>"
        )
    others = said(language, "odds_others", n=f"{len(order) - len(ranked):,}")
    rows += f'<li class="tt-others"><span>{others}</span><i></i><b></b></li>'
    knobs = _knob("temperature", 0, 2, 0.05, 1, language) + _knob("top_k", 0, 100, 1, 0, language)
    knobs += _knob("top_p", 0.05, 1, 0.05, 1, language)
    n = f"{len(order):,}"
    words = {"all": say(language, "odds_all", n=n), "some": say(language, "odds_some", n=n, kept="{kept}")}
    words["off"] = say(language, "odds_off")
    title = said(language, "odds_title", n=position + 1, token=token.chosen.text)
    return (
        f'<section class="tt-section tt-odds" data-logits="{_bytes(order)}" '
        f'data-sentences="{html.escape(json.dumps(words))}"><h3>{title}</h3>'
        f'<div class="tt-odds-two"><div class="tt-panel"><p class="tt-intro">{said(language, "alternatives_info")}</p>'
        f'<ol>{rows}</ol></div><div class="tt-knobs"><p class="tt-intro">{said(language, "odds_info")}</p>{knobs}'
        f'<p class="tt-kept" role="status"></p></div></div></section>'
    )


def _knob(name: str, low: float, high: float, step: float, value: float, language: Language) -> str:
    return (
        f'<label class="tt-knob"><span>{said(language, name)}</span><output></output>'
        f'<input type="range" data-knob="{name}" min="{low}" max="{high}" step="{step}" value="{value}"></label>'
    )


# Attention maps


def head_grid(weights: np.ndarray, kind: str, layer: int, head: int | None, language: Language) -> str:
    """Every head of every layer small, and a button (weights L H T S)."""
    shown = (
        weights[:, :, 1:] if kind == "decoder" and weights.shape[2] > 1 else weights
    )  # its first row is always 100 %
    scale = np.maximum(shown.max(axis=(2, 3), keepdims=True), 1e-9)
    levels = np.clip(np.rint(weights / scale * 255), 0, 255).astype(np.uint8)
    rows = ""
    for i, heads in enumerate(levels):
        cells = "".join(
            f'<td><button type="button" class="tt-thumb" aria-pressed="{str((i, h) == (layer, head)).lower()}" '
            f'tabindex="{0 if (i, h) == (layer, head or 0) else -1}" '
            f'aria-label="{said(language, "lab_head", layer=i + 1, head=h + 1)}" {ask(layer=i + 1, head=h + 1)}>'
            f'<canvas data-heat="{_bytes(picture)}" data-columns="{picture.shape[1]}" aria-hidden="true"></canvas>'
            f"</button></td>"
            for h, picture in enumerate(heads)
        )
        rows += f'<tr><th scope="row">{said(language, "attention_layer")} {i + 1}</th>{cells}</tr>'
    heads_named = "".join(
        f'<th scope="col">{said(language, "attention_head")} {h + 1}</th>' for h in range(weights.shape[1])
    )
    return (
        f'<p class="tt-intro">{said(language, "grid_info")}</p><div class="tt-scroll">'
        f'<table class="tt-grid" role="grid" aria-label="{said(language, "grid_label")}">'
        f"<thead><tr><td></td>{heads_named}</tr></thead><tbody>{rows}</tbody></table></div>"
    )


def attention_table(maps: Maps, chosen: np.ndarray, kind: str, language: Language) -> str:
    """One head (T S) large: names that stay in sight, the value at the pointer, and the strongest links as text.

    A table of the role grid is one stop of the Tab key; inside it the arrow keys of `laboratory.js` lead on.
    """
    rows, columns = maps.rows, maps.columns
    trivial = kind == "decoder" and len(chosen) > 1  # the first token can only look at itself
    strongest = max(float(chosen[1:].max() if trivial else chosen.max()), 1e-9)
    heads = "".join(f'<th scope="col"><span>{html.escape(name)}</span></th>' for name in columns)
    body = ""
    for r, row in enumerate(chosen):
        cells = "".join(
            f'<td data-v="{value:.4f}" style="--w:{min(value / strongest, 1):.2f}"></td>'
            if kind != "decoder" or c <= r
            else "<td></td>"
            for c, value in enumerate(row.tolist())
        )
        name = f'<button type="button" tabindex="{-1 if r else 0}" {ask(query=r)}>{html.escape(rows[r])}</button>'
        body += f'<tr><th scope="row">{name}</th>{cells}</tr>'
    links = "".join(
        f"<li>{html.escape(_link(rows[r], columns[int(row.argmax())], float(row.max()), language))}</li>"
        for r, row in enumerate(chosen)
    )
    legend = f'<p class="tt-legend tt-heat" aria-hidden="true">0 %<i></i>{percent(strongest)}</p>'
    link = html.escape(say(language, "attention_link", row="{row}", column="{column}", percent="{percent}"))
    return (
        f'<div class="tt-map">{legend}<div class="tt-scroll tt-tall"><table class="tt-heatmap" role="grid" '
        f'data-link="{link}" aria-label="{said(language, "attention")}">'
        f"<thead><tr><td></td>{heads}</tr></thead><tbody>{body}</tbody></table></div>"
        f"<details><summary>{said(language, 'attention_strongest')}</summary><ul>{links}</ul></details></div>"
    )


def _link(row: str, column: str, weight: float, language: Language) -> str:
    return say(language, "attention_link", row=row, column=column, percent=percent(weight))


# One head step by step

STAGES = ("query", "keys", "scores", "mask", "softmax", "sum")


def steps_view(steps: Steps, kind: str, layer: int, head: int, language: Language) -> str:
    """What a head does for one token, in six stages that the visitor steps through."""
    width = len(steps.query)
    largest = float(max(np.abs(steps.keys).max(), np.abs(steps.query).max()))
    of_values = float(np.abs(steps.values).max())
    most = max(float(steps.weights.max()), 1e-9)
    rows = ""
    for i, name in enumerate(steps.names):
        seen = bool(steps.visible[i])
        weight = float(steps.weights[i])
        masked = written_out(float(steps.scores[i])) if seen else "−∞"
        rows += (
            f'<tr{"" if seen else " class=tt-hidden"}><th scope="row">{html.escape(name)}</th>'
            f'<td class="tt-s2">{strip(steps.keys[i], largest)}</td>'
            f'<td class="tt-s3">{written_out(float(steps.scores[i]))}</td>'
            f'<td class="tt-s4">{masked}</td><td class="tt-s5"><i style="width:{100 * weight / most:.0f}%"></i>'
            f"<b>{percent(weight) if seen else '0 %'}</b></td>"
            f'<td class="tt-s6">{strip(steps.values[i], of_values)}</td></tr>'
        )
    heads = ("step_token", "step_key", "step_score", "step_mask", "step_weight", "step_value")
    columns = "".join(
        f'<th scope="col"{f" class=tt-s{i + 1}" if i else ""}>{said(language, key)}</th>' for i, key in enumerate(heads)
    )
    best = int(steps.weights.argmax())
    product = float(steps.query @ steps.keys[best])
    terms = " + ".join(
        f"{written_out(q)} × {written_out(k)}"
        for q, k in zip(steps.query[:3].tolist(), steps.keys[best][:3].tolist(), strict=True)
    )
    scaled = f"{written_out(product)} / √{width} = {written_out(float(steps.scores[best]))}"
    formula = f"{terms} + … = {written_out(product)};  {scaled}"
    stages = "".join(
        f'<button type="button" data-stage-to="{n}" aria-current="{"step" if n == len(STAGES) else "false"}">'
        f"<b>{n}</b> {said(language, f'stage_{stage}')}</button>"
        for n, stage in enumerate(STAGES, 1)
    )
    hidden = "stage_mask_info" if kind == "decoder" else "stage_mask_none"
    words = [
        said(language, "stage_query_info", token=steps.asking, n=width),
        said(language, "stage_keys_info"),
        said(language, "stage_scores_info", token=steps.names[best], n=width),
        said(language, hidden),
        said(language, "stage_softmax_info"),
        said(language, "stage_sum_info", n=width),
    ]
    told = "".join(f'<p class="tt-told" data-stage-words="{n}">{sentence}</p>' for n, sentence in enumerate(words, 1))
    left = f'<p class="tt-note">{said(language, "steps_cut", n=steps.n_left_out)}</p>' if steps.n_left_out else ""
    place = said(language, "lab_head", layer=layer + 1, head=head + 1)
    writing = f" ({said(language, 'steps_writing', token=steps.writing)})" if steps.writing else ""
    return (
        f'<section class="tt-section tt-steps" data-stage="{len(STAGES)}">'
        f'<p class="tt-intro">{said(language, "steps_info")}</p>'
        f"<h3>{said(language, f'attention_{kind}')} · {place} · {html.escape(steps.asking)}{writing}</h3>"
        f'<div class="tt-stages" role="group" aria-label="{said(language, "steps")}">{stages}'
        f'<button type="button" class="tt-play" data-play>▶ {said(language, "steps_play")}</button></div>'
        f'<div role="status">{told}</div>'
        f'<p class="tt-vector"><span>{said(language, "step_query")}</span>{strip(steps.query, largest)}'
        f'{numbers(steps.query)}</p><p class="tt-formula tt-s3">q · k = {formula}</p>{left}'
        f'<div class="tt-scroll" tabindex="0"><table class="tt-steps-table"><thead><tr>{columns}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div>"
        f'<p class="tt-vector tt-s6"><span>{said(language, "step_result")}</span>{strip(steps.result)}'
        f"{numbers(steps.result)}</p></section>"
    )


# Layer by layer


def lens_overview(rows: Sequence[Sequence[LensRow]], written: Sequence[Written], language: Language) -> str:
    """The best token after each layer (rows) at each position of the answer (columns); a cell chooses its column."""
    heads = "".join(
        f'<th scope="col"><button type="button" tabindex="{-1 if i else 0}" {ask(position=i)}>'
        f"{html.escape(token.chosen.text)}</button></th>"
        for i, token in enumerate(written)
    )
    body = ""
    for n, cells in enumerate(rows):
        columns = ""
        for i, cell in enumerate(cells):
            best = cell.best[0]
            same = " tt-same" if best.id == written[i].chosen.id else ""
            words = html.escape(say(language, "inside_token", token=best.text, percent=percent(best.probability)))
            columns += (
                f'<td class="tt-cell{same}" data-words="{words}" style="--w:{best.probability:.2f}">'
                f"{html.escape(best.text)}</td>"
            )
        body += f'<tr><th scope="row">{_layer_name(n, language)}</th>{columns}</tr>'
    written_as = said(language, "lens_written")
    return (
        f'<section class="tt-section"><p class="tt-intro">{said(language, "lens_info")}</p>'
        f'<div class="tt-scroll"><table class="tt-lens" role="grid" aria-label="{said(language, "lens")}">'
        f'<thead><tr><th scope="col">{written_as}</th>'
        f"{heads}</tr></thead><tbody>{body}</tbody></table></div></section>"
    )


def lens_table(rows: Sequence[LensRow], token: Written, language: Language) -> str:
    """The best tokens after each layer at one position, and where the token that was written stands."""
    lines = []
    for n, row in enumerate(rows):
        cells = "".join(
            f'<td class="tt-cell{" tt-same" if c.id == token.chosen.id else ""}" style="--w:{c.probability:.2f}">'
            f"{html.escape(c.text)} <small>{percent(c.probability)}</small></td>"
            for c in row.best
        )
        own = f"<td>{said(language, 'lens_rank', rank=f'{row.rank:,}', percent=percent(row.probability))}</td>"
        lines.append(f'<tr><th scope="row">{_layer_name(n, language)}</th>{own}{cells}</tr>')
    heads = [say(language, "lens_layer"), say(language, "lens_own", token=token.chosen.text)]
    heads += [say(language, "lens_best", n=n + 1) for n in range(len(rows[0].best))]
    title = said(language, "lens_title", token=token.chosen.text)
    return f'<section class="tt-section tt-lens-one"><h3>{title}</h3>{table(heads, lines)}</section>'


def _layer_name(n: int, language: Language) -> str:
    return said(language, "lens_layer_n", n=n) if n else said(language, "box_embedding")
