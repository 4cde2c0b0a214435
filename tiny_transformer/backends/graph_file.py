"""What an ONNX file says about itself, and where its weights lie: read and checked before anything runs it.

The `onnx` package is no part of what a user installs, and ONNX Runtime tells only after loading. So the few fields
of the protobuf encoding that matter are walked here, wherever in the file a tensor hides.
"""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from tiny_transformer.backends.observed_values import Node
from tiny_transformer.bundle import CONFIG, EMBEDDING
from tiny_transformer.config import ModelConfig
from tiny_transformer.errors import BackendError, Sentence
from tiny_transformer.weights import WeightIndex, read_index

_AGAIN = "make it again with: python -m export all {folder}"
MAX_FILE_BYTES = 64 * 1024 * 1024  # a graph without weights has a few hundred thousand

# Kind of message → number of a field → the kind inside (onnx.proto of the ONNX project).
_INSIDE = {
    "model": {7: "graph", 14: "property", 25: "function"},
    "graph": {1: "node", 5: "tensor", 15: "sparse tensor"},
    "function": {7: "node"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph", 22: "sparse tensor", 23: "sparse tensor"},
    "sparse tensor": {1: "tensor", 2: "tensor"},
    "tensor": {13: "property"},
}
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


FIRST_ROWS = "embedding.first_rows"  # a graph's name for the part of a tied embedding that is its output layer


@dataclass
class GraphFile:
    """What a graph says of itself: metadata, nodes, and the external data (location, offset, length) of each tensor."""

    metadata: dict[str, str] = field(default_factory=dict)
    external: list[dict[str, str]] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)


def signature(config: ModelConfig, index: WeightIndex) -> dict[str, str]:
    """What a graph must say about itself to belong to a config and to a weights file."""
    config_sha256 = hashlib.sha256(config.to_json().encode("utf-8")).hexdigest()
    return {"config_sha256": config_sha256, "weights_header_sha256": index.header_sha256}


def addressable(index: WeightIndex, config: ModelConfig) -> WeightIndex:
    """The index with all that a graph may point at: the file's tensors, and the rows of a smaller output layer."""
    if not config.output_vocab_size or not config.tie_embeddings:
        return index
    names = [name for name in index.tensors if name.startswith(EMBEDDING)]  # in 8 bits it has two, bytes and scales
    rows = {FIRST_ROWS + n.removeprefix(EMBEDDING): index.tensors[n].first_rows(config.n_outputs) for n in names}
    return replace(index, tensors={**index.tensors, **rows})


def check_graph(path: Path, weights: Path, config: ModelConfig) -> None:
    """Refuse a graph that is missing, damaged, or made for another config or weights file."""
    again = Sentence(_AGAIN, folder=path.parent)
    graph = read_graph(path)
    index = addressable(read_index(weights), config)
    for key, wanted in signature(config, index).items():
        if graph.metadata.get(key) != wanted:
            file = CONFIG if key == "config_sha256" else weights.name
            template = "{path} was made for another {file} than the one beside it; {again}"
            raise BackendError(template, path=path, file=file, again=again)
    known = {(weights.name, str(entry.offset), str(entry.length)) for entry in index.tensors.values()}
    for entry in graph.external:
        reference = tuple(entry.get(key, "") for key in ("location", "offset", "length"))
        if reference not in known:
            raise BackendError(
                "{path} takes weights from {file!r} at {offset}, no tensor of {weights}; {again}",
                path=path,
                file=reference[0],
                offset=reference[1],
                weights=weights,
                again=again,
            )


def read_graph(path: Path) -> GraphFile:
    """Walk a file; a missing, truncated or foreign one is refused in a sentence."""
    again = Sentence(_AGAIN, folder=path.parent)
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            template = "{path} is larger than {n} bytes, so it holds weights; {again}"
            raise BackendError(template, path=path, n=MAX_FILE_BYTES, again=again)
        graph = GraphFile()
        _walk("model", memoryview(path.read_bytes()), graph)
        if not graph.metadata:
            raise ValueError("it has no metadata")
    except FileNotFoundError:
        raise BackendError(
            "{path} does not exist; make it with: python -m export all {parent}", path=path, parent=path.parent
        ) from None
    except (OSError, ValueError, IndexError, RecursionError) as error:
        raise BackendError(
            "{path} is not a whole graph of ours ({reason}); {again}", path=path, reason=error, again=again
        ) from None
    return graph


def with_outputs(model: bytes, names: Iterable[str]) -> bytes:
    """A graph's bytes with more of its values as outputs.

    In the protobuf encoding, a message that follows another of the same kind is merged into it: its lists go behind.
    """
    values = [bytes_field(1, name.encode("utf-8")) for name in names]
    outputs = b"".join(bytes_field(12, value) for value in values)  # GraphProto.output
    return model + bytes_field(7, outputs)  # ModelProto.graph


def bytes_field(number: int, data: bytes) -> bytes:
    """A field that holds bytes: a text, or a message."""
    return _encoded(number << 3 | _BYTES) + _encoded(len(data)) + data


def number_field(number: int, value: int) -> bytes:
    """A field that holds a number from 0 on."""
    return _encoded(number << 3 | _VARINT) + _encoded(value)


def _encoded(number: int) -> bytes:
    """A number in base 128, lowest digits first."""
    digits = bytearray()
    while number > 0x7F:
        digits.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*digits, number])


def _walk(kind: str, data: memoryview, graph: GraphFile) -> None:
    properties = {}
    if kind == "node":
        texts = [(number, value) for number, value in _fields(data) if number in (1, 2, 4)]
        inputs, outputs, op = (tuple(str(v, "utf-8") for n, v in texts if n == wanted) for wanted in (1, 2, 4))
        graph.nodes.append(Node("".join(op), inputs, outputs))
    for number, value in _fields(data):
        inner = _INSIDE[kind].get(number)
        if inner == "property":
            pair = {key: str(text, "utf-8") for key, text in _fields(value)}
            properties[pair.get(1, "")] = pair.get(2, "")
        elif inner:
            _walk(inner, value, graph)
    if kind == "model":
        graph.metadata = properties
    elif kind == "tensor" and properties:
        graph.external.append(properties)


def _fields(data: memoryview) -> Iterator[tuple[int, memoryview]]:
    """Number and bytes of every field; the bytes of a plain number are left out, as no one asks for them."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        wire = key & 7
        if wire == _VARINT:
            _, end = _varint(data, at)
        elif wire == _BYTES:
            length, at = _varint(data, at)
            end = at + length
        elif wire in (_FIXED32, _FIXED64):
            end = at + (4 if wire == _FIXED32 else 8)
        else:
            raise ValueError(f"unknown wire type {wire}")
        if end > len(data):
            raise ValueError("it ends inside a field")
        yield key >> 3, data[at:end] if wire == _BYTES else data[at:at]
        at = end


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    """A number in base 128, lowest digits first, and the index behind it."""
    number = 0
    for shift in range(0, 70, 7):
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at
    raise ValueError("a number has more than 64 bits")
