"""What the look inside shows of a model: the attention that was chosen, and its positions."""

from tiny_transformer.text_model import TextModel
from tiny_transformer.ui.heatmap import attention_map, signed_map, thumbnail
from tiny_transformer.ui.inside import Maps, position_table
from tiny_transformer.ui.languages import Language
from tiny_transformer.ui.markup import said, section
from tiny_transformer.ui.strings import say

AVERAGE, ALL = "average", "all"  # instead of the number of one head


def attention_pictures(maps: Maps, kind: str, layer: int, head: str, language: Language) -> str:
    """The chosen head large, or every head small."""
    weights = maps.weights[layer - 1]  # H T S
    if head == ALL:
        names = [f"{say(language, 'attention_head')} {n}" for n in range(1, len(weights) + 1)]
        pictures = "".join(thumbnail(w, name) for w, name in zip(weights, names, strict=True))
        body = f'<div class="tt-heads">{pictures}</div>'
    else:
        chosen = weights.mean(axis=0) if head == AVERAGE else weights[int(head) - 1]
        body = attention_map(chosen, maps.rows, maps.columns, language)
    cut = f'<p class="tt-note">{said(language, "shown_cut", n=len(maps.rows))}</p>' if maps.cut else ""
    return f'<p class="tt-intro">{said(language, f"attention_{kind}_info")}</p>{cut}{body}'


def position_picture(model: TextModel, language: Language) -> str:
    """The positional encoding of the first positions."""
    table = position_table(model)
    words = say(language, f"positions_{model.config.positions}")
    body = ""
    if table is not None:
        axes = said(language, "positions_axes")
        body = f'<div class="tt-scroll">{signed_map(table, words)}</div><p class="tt-words">{axes}</p>'
    return section(say(language, "positions"), body, said(language, f"positions_{model.config.positions}"))
