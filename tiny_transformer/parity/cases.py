"""What is compared: shapes that find off-by-one faults, and every path a token can take.

Shapes: B batch, T target, S source, V vocabulary.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tiny_transformer.backends.base import Backend, Batch
from tiny_transformer.config import ModelConfig
from tiny_transformer.inner_values import attentions_of, stacks_of, switches_without

BATCHES = (1, 3)
LENGTHS = (1, 2, 7)  # and the maximum
N_STEPS = 4


@dataclass(frozen=True)
class TensorCase:
    """One batch and the path it takes through a backend."""

    kind: str
    name: str
    target: Batch
    source: Batch | None
    n_steps: int = 0  # of each row, the last tokens that come as steps on a cache
    rows: tuple[int, ...] = ()  # reorder: which rows go on after the prefix, and in which order

    @property
    def is_ragged(self) -> bool:
        """Whether rows of different length stand together, so that some have padding."""
        return any(len(set(b.lengths.tolist())) > 1 for b in (self.target, self.source) if b is not None)

    @property
    def n_rows(self) -> int:
        """Rows of the batch."""
        return len(self.target.ids)

    @property
    def n_tokens(self) -> int:
        """Tokens of the batch, padding included."""
        return self.target.ids.size + (0 if self.source is None else self.source.ids.size)

    def run(self, backend: Backend) -> list[np.ndarray]:
        """The arrays two backends must agree on, at real positions only."""
        return _PATHS[self.kind](backend, self)


def tensor_cases(config: ModelConfig, *, seed: int = 0) -> list[TensorCase]:
    """The grid from an empty past, ragged rows, steps, chunks, reordered rows, and attention maps."""
    rng = np.random.default_rng(seed)
    return [*_grid(config, rng), *_ragged(config, rng), *_cached(config, rng)]


def _grid(config: ModelConfig, rng: np.random.Generator) -> Iterator[TensorCase]:
    lengths = [*(n for n in LENGTHS if n < config.max_length), config.max_length]
    for n_rows in BATCHES:
        for n_source in lengths if config.is_encoder_decoder else [0]:
            for n_target in lengths:
                source = _batch(rng, config, [n_source] * n_rows) if n_source else None
                name = f"batch {n_rows}" + (f", source {n_source}" if n_source else "") + f", target {n_target}"
                yield TensorCase("full", name, _batch(rng, config, [n_target] * n_rows), source)


def _ragged(config: ModelConfig, rng: np.random.Generator) -> Iterator[TensorCase]:
    sources, targets = (1, 5, 12, 3), (6, 1, 3, 9)
    yield _case("full", "ragged padding", config, rng, targets, sources)
    yield _case("attention", "attention maps, ragged padding", config, rng, targets, sources)
    # From 8 rows on, ONNX Runtime has other 8-bit graphs.
    many = (*targets, 2, 8, 4, 12, 5, 7), (*sources, 30, 2, 9, 4, 7, 6)
    yield _case("full", "ragged padding, many rows", config, rng, *many)


def _cached(config: ModelConfig, rng: np.random.Generator) -> Iterator[TensorCase]:
    """Rows long enough that something is left as the prefix; too small a model has fewer steps."""
    n_steps = min(N_STEPS, config.max_length - 1)
    if n_steps == 0:
        return
    one, three = [n_steps + 3], [n_steps + 1, n_steps + 6, n_steps + 2]
    for n_rows, lengths in ((1, one), (3, three)):
        name = f"batch {n_rows}, one token at a time on a cache"
        yield _case("cached", name, config, rng, lengths, (4, 9, 1)[:n_rows], n_steps)
    yield _case("chunk", "batch 1, several tokens on a cache", config, rng, one, (5,), n_steps)
    for name, rows in (
        ("rows in another order, then steps", (2, 0, 1)),
        ("a row dropped, then steps", (2, 1)),
        ("rows repeated and dropped, then steps", (2, 0, 2, 2)),
    ):
        case = _case("reorder", name, config, rng, three, (4, 9, 1), n_steps)
        yield replace(case, rows=rows)


def _case(
    kind: str,
    name: str,
    config: ModelConfig,
    rng: np.random.Generator,
    targets: Sequence[int],
    sources: Sequence[int],
    n_steps: int = 0,
) -> TensorCase:
    source = _batch(rng, config, _lengths(config, sources)) if config.is_encoder_decoder else None
    return TensorCase(kind, name, _batch(rng, config, _lengths(config, targets)), source, n_steps)


def _lengths(config: ModelConfig, wanted: Sequence[int]) -> list[int]:
    return [min(n, config.max_length) for n in wanted]


def _batch(rng: np.random.Generator, config: ModelConfig, lengths: Sequence[int]) -> Batch:
    return Batch.of([rng.integers(0, config.vocab_size, n).tolist() for n in lengths])


def _full(backend: Backend, case: TensorCase) -> list[np.ndarray]:
    return [backend.logits(case.target, case.source)[case.target.mask]]  # N V


def _prefix(case: TensorCase) -> Batch:
    """Each row without its last n_steps tokens."""
    rows = [row[: length - case.n_steps].tolist() for row, length in _rows(case)]
    return Batch.of(rows)


def _tail(case: TensorCase) -> np.ndarray:
    """Each row's last n_steps tokens, (B, n_steps)."""
    return np.stack([row[length - case.n_steps : length] for row, length in _rows(case)])


def _rows(case: TensorCase) -> list[tuple[np.ndarray, int]]:
    return list(zip(case.target.ids, case.target.lengths.tolist(), strict=True))


def _steps(backend: Backend, case: TensorCase) -> list[np.ndarray]:
    logits, state = backend.start(_prefix(case), case.source, int(case.target.lengths.max()))
    found = [logits]
    for column in _tail(case).T:
        logits, state = backend.step(column[:, None], state)
        found.append(logits.copy())  # the state's next step may write over them
    return found  # each B V


def _chunk(backend: Backend, case: TensorCase) -> list[np.ndarray]:
    logits, state = backend.start(_prefix(case), case.source, int(case.target.lengths.max()))
    return [logits, backend.step(_tail(case), state)[0]]


def _reorder(backend: Backend, case: TensorCase) -> list[np.ndarray]:
    rows = np.array(case.rows)
    _, state = backend.start(_prefix(case), case.source, int(case.target.lengths.max()))
    state = backend.reorder(state, rows)
    found = []
    for column in _tail(case)[rows].T:
        logits, state = backend.step(column[:, None], state)
        found.append(logits.copy())  # the state's next step may write over them
    return found


def _attention(backend: Backend, case: TensorCase) -> list[np.ndarray]:
    maps = backend.attention(case.target, case.source)
    target_mask = case.target.mask
    found = [_real_queries(maps.decoder, target_mask)]
    if case.source is not None and maps.encoder is not None and maps.cross is not None:
        found += [_real_queries(maps.encoder, case.source.mask), _real_queries(maps.cross, target_mask)]
    return found


def _real_queries(maps: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """The rows of attention maps (L B H T S) whose query is a real token."""
    return maps.transpose(1, 3, 0, 2, 4)[mask]  # N L H S


_PATHS = {"full": _full, "cached": _steps, "chunk": _chunk, "reorder": _reorder, "attention": _attention}


def rows_alone(backend: Backend, case: TensorCase) -> list[np.ndarray]:
    """What a full case must equal when each row is read by itself, without padding."""
    found: list[np.ndarray] = []
    for row, length in _rows(case):
        n = len(found)
        source = None if case.source is None else Batch.of([case.source.ids[n, : case.source.lengths[n]].tolist()])
        found.append(backend.logits(Batch.of([row[:length].tolist()]), source)[0])
    return [np.concatenate(found)]  # N V


def full_of_cached(backend: Backend, case: TensorCase) -> list[np.ndarray]:
    """What a cached case must equal when the whole target is read at once."""
    logits = backend.logits(case.target, case.source)  # B T V
    ends = case.target.lengths - 1
    rows = np.arange(len(ends))
    return [logits[rows, ends - n] for n in range(case.n_steps, -1, -1)]


@dataclass(frozen=True)
class InsideCase:
    """One batch whose inner values are compared, all of them, with some parts of the model switched off."""

    name: str
    target: Batch
    source: Batch | None
    shown: np.ndarray  # positions of the target whose logits are compared
    switches: dict[str, np.ndarray]


def inside_cases(config: ModelConfig, *, seed: int = 0) -> Iterator[InsideCase]:
    """The whole model; then without the last head of each kind of attention, and without the first layer of each stack.

    Rows of the target have no padding: it is never masked, and the source's is.
    """
    rng = np.random.default_rng(seed)
    n_target, n_source = min(9, config.max_length), min(12, config.max_length)
    target = _batch(rng, config, [n_target] * 2)
    source = _batch(rng, config, [n_source, max(1, n_source // 2)]) if config.is_encoder_decoder else None
    found = {"whole model": switches_without(config)}
    for kind, (n_layers, _, _) in attentions_of(config).items():
        layer, head = n_layers - 1, config.n_heads - 1
        name = f"without head {head + 1} of layer {layer + 1}, {kind}"
        found[name] = switches_without(config, heads=[(kind, layer, head)])
    for stack in stacks_of(config):
        found[f"without layer 1, {stack}"] = switches_without(config, layers=[(stack, 0)])
    for name, switches in found.items():
        yield InsideCase(f"inner values, {name}", target, source, np.array([n_target - 1, 0]), switches)
