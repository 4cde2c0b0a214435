"""A text token by token: how it was cut, how likely each choice was, what else there was, where it looked.

Shapes: L layers, H heads, T target, S source, V vocabulary.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tiny_transformer.backends.base import Batch
from tiny_transformer.errors import Sentence
from tiny_transformer.generation import GenerationOptions, Request, stream_ids
from tiny_transformer.generation.prompt import Prompt
from tiny_transformer.generation.sampling import likeliest, log_normalizer
from tiny_transformer.generation.sentences import split
from tiny_transformer.position_tables import rotary_table, sinusoidal_table
from tiny_transformer.text_model import TextModel
from tiny_transformer.tokenizer import Message, Tokenizer

MAX_WRITTEN = 48  # tokens; a map of more has cells too small to see
MAX_SHOWN = 64
N_ALTERNATIVES = 8


@dataclass(frozen=True)
class Choice:
    """One token that was, or could have been, chosen."""

    id: int
    text: str
    probability: float


@dataclass(frozen=True)
class Written:
    """One token of the answer, and the likeliest tokens at its position (it may be among them)."""

    chosen: Choice
    alternatives: tuple[Choice, ...]


@dataclass(frozen=True)
class Inspection:
    """What the model read and wrote."""

    read: tuple[str, ...]  # the source, or the dialogue of a decoder-only model
    written: tuple[Written, ...]
    logits: np.ndarray  # T V, at the position of each token of the answer
    notices: tuple[Sentence, ...] = ()

    @property
    def ids(self) -> list[int]:
        """The answer, its end token included where there is one."""
        return [token.chosen.id for token in self.written]

    def cut(self) -> "Inspection":
        """The same, where the answer goes on."""
        notice = Sentence("This shows the first {n} tokens of the answer.", n=len(self.written))
        return replace(self, notices=(*self.notices, notice))


@dataclass(frozen=True)
class Maps:
    """One kind of attention: weights of every layer and head, and the names of rows and columns."""

    weights: np.ndarray  # L H T S (or T T, S S)
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    cut: bool  # whether more tokens were read than are shown


def prompt_of(model: TextModel, content: str | Sequence[Message], room: int = MAX_WRITTEN) -> Prompt:
    """What the model reads for an answer of at most `room` tokens.

    A translator reads one sentence at a time: here it is the first that it translates, as translation spells it.
    """
    prompts = model.stream_tokens(content, max_new_tokens=room).prompts
    if not prompts:
        return model.prompt(content)  # a text that needs no translation can be looked into, as a whole
    n_sentences = len(split(content)) if model.task == "translate" and isinstance(content, str) else 1
    if n_sentences < 2:
        return prompts[0]
    notice = Sentence("This shows the first of {n} sentences.", n=n_sentences)
    return replace(prompts[0], notices=(notice, *prompts[0].notices))


def inspect_answer(
    model: TextModel, prompt: Prompt, start: Sequence[int] = (), should_stop: Callable[[], bool] | None = None
) -> Inspection:
    """Write greedily on from `start`, then look at the whole."""
    ids = list(start)
    if not ids or ids[-1] != model.bundle.generation.eos_id:
        ids += _continued(model, prompt, ids, should_stop)
    found = read_answer(model, prompt, ids)
    return found if ids[-1] == model.bundle.generation.eos_id else found.cut()


def read_answer(model: TextModel, prompt: Prompt, ids: Sequence[int]) -> Inspection:
    """An answer that is there already, its first tokens if it is long: one pass gives every token's probability."""
    shown = ids[:MAX_WRITTEN]
    logits = _logits(model, prompt, shown)
    written = tuple(_written(model.tokenizer, i, row) for i, row in zip(shown, _softmax(logits), strict=True))
    read = prompt.prefix if prompt.source is None else prompt.source
    found = Inspection(visible_tokens(model.tokenizer, read), written, logits, prompt.notices)
    return found if len(shown) == len(ids) else found.cut()


def chances(model: TextModel, prompt: Prompt, ids: Sequence[int]) -> list[float]:
    """How likely a model finds each token of an answer, given those before it."""
    return [float(row[i]) for i, row in zip(ids, _softmax(_logits(model, prompt, ids)), strict=True)]


def attention_maps(model: TextModel, prompt: Prompt, ids: Sequence[int], kind: str) -> Maps:
    """The weights of one pass over text and answer; `kind` is encoder, decoder or cross."""
    target = [*prompt.prefix, *ids][: model.config.max_length]
    source = None if prompt.source is None else Batch.of([prompt.source])
    arrays = model.backend.attention(Batch.of([target]), source)
    weights = {"encoder": arrays.encoder, "decoder": arrays.decoder, "cross": arrays.cross}[kind]
    assert weights is not None, f"a model without an encoder has no {kind} attention"
    names = visible_tokens(model.tokenizer, target)
    sources = visible_tokens(model.tokenizer, prompt.source or ())
    if kind == "cross":
        # A row reads one token and writes the next; an alignment is about what is written.
        names = names[1:]
        weights = weights[:, :, :, :-1]
    rows, columns = {"encoder": (sources, sources), "decoder": (names, names), "cross": (names, sources)}[kind]
    shown = weights[:, 0, :, :MAX_SHOWN, :MAX_SHOWN]  # L H T S
    cut = max(len(rows), len(columns)) > MAX_SHOWN
    return Maps(shown, rows[:MAX_SHOWN], columns[:MAX_SHOWN], cut)


def kinds_of(model: TextModel) -> tuple[str, ...]:
    """The kinds of attention a model has, the most telling first."""
    return ("cross", "encoder", "decoder") if model.config.is_encoder_decoder else ("decoder",)


def n_layers(model: TextModel, kind: str) -> int:
    """Layers of one kind of attention."""
    return model.config.n_encoder_layers if kind == "encoder" else model.config.n_decoder_layers


def position_table(model: TextModel, length: int = MAX_SHOWN) -> np.ndarray | None:
    """The positional encoding, rows of positions scaled into -1 … 1; None where there is none."""
    config = model.config
    length = min(length, config.max_length)
    if config.positions == "none":
        return None
    if config.positions == "learned":
        table = model.bundle.weights()["embedding.positions"][:length].astype(np.float64)
        return table / np.abs(table).max()
    if config.positions == "rotary":
        return rotary_table(length, config.d_head)[:, : config.d_head // 2]  # the cosines; the sines come behind them
    return sinusoidal_table(length, config.d_model)


def visible_tokens(tokenizer: Tokenizer, ids: Sequence[int]) -> tuple[str, ...]:
    """Tokens as a reader can tell them apart: spaces marked, special ones named, half characters as bytes."""
    special = {i: f"⟨{role}⟩" for role, i in tokenizer.roles.items()}
    special |= {tokenizer.pad_id: "⟨pad⟩", tokenizer.bos_id: "⟨start⟩", tokenizer.eos_id: "⟨end⟩"}
    return tuple(special.get(i) or _visible(tokenizer.token_bytes(i)) for i in ids)


def _visible(token: bytes) -> str:
    try:
        text = token.decode("utf-8").translate({0x20: "␣", 0x0A: "⏎", 0x09: "⇥"})
    except UnicodeDecodeError:
        text = ""
    return text if text.isprintable() and text else token.hex(" ").upper()


def _continued(
    model: TextModel, prompt: Prompt, start: Sequence[int], should_stop: Callable[[], bool] | None
) -> list[int]:
    room = MAX_WRITTEN - len(start)
    if room < 1:
        return []
    generation = model.bundle.generation
    options = GenerationOptions.from_keywords({"max_new_tokens": room}, generation)
    begun = replace(prompt, prefix=(*prompt.prefix, *start))
    request = Request.of([begun], options, generation, should_stop=should_stop)
    return [token.id for token in stream_ids(model.backend, request)]


def _logits(model: TextModel, prompt: Prompt, ids: Sequence[int]) -> np.ndarray:
    """The model's own scores at the position of every id, T V."""
    target = [*prompt.prefix, *ids][:-1]
    source = None if prompt.source is None else Batch.of([prompt.source])
    return model.backend.logits(Batch.of([target]), source)[0, len(prompt.prefix) - 1 :]


def _softmax(logits: np.ndarray) -> np.ndarray:
    logits = logits.astype(np.float64)
    shares: np.ndarray = np.exp(logits - log_normalizer(logits)[:, None])
    return shares


def _written(tokenizer: Tokenizer, chosen: int, row: np.ndarray) -> Written:
    best = [int(i) for i in likeliest(row, N_ALTERNATIVES)]
    names = visible_tokens(tokenizer, [chosen, *best])
    choices = [Choice(i, name, float(row[i])) for i, name in zip([chosen, *best], names, strict=True)]
    return Written(choices[0], tuple(choices[1:]))
