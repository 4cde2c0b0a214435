"""`model.safetensors` in numpy: where each tensor lies in the file, reading, and writing."""

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tiny_transformer import atomic
from tiny_transformer.errors import BundleError

DTYPES: dict[str, np.dtype[Any]] = {
    "F64": np.dtype("<f8"),
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "I64": np.dtype("<i8"),
    "I32": np.dtype("<i4"),
    "I8": np.dtype("<i1"),
    "U8": np.dtype("<u1"),
}
_NAMES = {dtype: name for name, dtype in DTYPES.items()}
_MAX_HEADER = 100_000_000  # the limit of the safetensors format
_MAX_DIMENSIONS = 8  # numpy stops at 64, and no tensor of a Transformer has more than 2


@dataclass(frozen=True)
class TensorEntry:
    """One tensor of a safetensors file; `offset` counts from the start of the file."""

    dtype: str
    shape: tuple[int, ...]
    offset: int
    length: int

    def first_rows(self, n_rows: int) -> "TensorEntry":
        """The first rows as a tensor of their own: the same bytes, only fewer."""
        rows, *others = self.shape
        return TensorEntry(self.dtype, (n_rows, *others), self.offset, self.length // rows * n_rows)


@dataclass(frozen=True)
class WeightIndex:
    """The header of a safetensors file: where every tensor lies, the metadata, and the header's hash."""

    tensors: Mapping[str, TensorEntry]
    metadata: Mapping[str, str]
    header_sha256: str


def read_index(path: Path) -> WeightIndex:
    """Parse and check the header; a truncated or overlong file is refused."""
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            prefix = file.read(8)
            header_length = int.from_bytes(prefix, "little")
            if len(prefix) < 8 or header_length > min(size - 8, _MAX_HEADER):
                raise ValueError("it ends inside its header")
            header = file.read(header_length)
        tensors, metadata = _parse(header, size)
    except FileNotFoundError:
        raise BundleError("{path} does not exist; a model folder needs it.", path=path) from None
    except (OSError, ValueError, RecursionError) as error:
        raise BundleError(
            "{path} is not a whole safetensors file ({detail}); restore it from its source.", path=path, detail=error
        ) from None
    return WeightIndex(tensors, metadata, hashlib.sha256(prefix + header).hexdigest())


def _parse(header: bytes, size: int) -> tuple[dict[str, TensorEntry], dict[str, str]]:
    values = json.loads(header.decode("utf-8"), object_pairs_hook=_without_repeats)
    if not isinstance(values, dict):
        raise ValueError("its header is not a JSON object")
    metadata = values.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise ValueError("its metadata is not an object of texts")
    start = end = 8 + len(header)
    entries = {name: _entry(f"tensor {name!r:.80}", entry, start, size) for name, entry in values.items()}
    tensors = dict(sorted(entries.items(), key=lambda item: (item[1].offset, item[1].length)))
    for name, tensor in tensors.items():
        if tensor.offset != end:
            raise ValueError(f"tensor {name!r:.80} overlaps its neighbor or leaves a hole")
        end += tensor.length
    if end != size:
        raise ValueError(f"it has {size} bytes where its header promises {end}")
    return tensors, metadata


def _entry(what: str, entry: Any, start: int, size: int) -> TensorEntry:
    """One tensor's line of the header, every value checked before it is used."""
    if not isinstance(entry, dict) or entry.keys() != {"dtype", "shape", "data_offsets"}:
        raise ValueError(f"{what} is not described by dtype, shape and data_offsets")
    name, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(name, str) or name not in DTYPES:
        raise ValueError(f"{what} has the unknown type {name!r:.80}")
    if not isinstance(shape, list) or len(shape) > _MAX_DIMENSIONS:
        raise ValueError(f"{what} has a shape that is not a list of at most {_MAX_DIMENSIONS} sizes")
    if not isinstance(offsets, list) or len(offsets) != 2:
        raise ValueError(f"{what} has offsets that are not a first and a last byte")
    if not all(type(n) is int and 0 <= n <= size for n in (*shape, *offsets)):
        raise ValueError(f"{what} has a size or an offset that is no whole number within the file")
    length, item = offsets[1] - offsets[0], DTYPES[name].itemsize
    # The second product ignores empty dimensions: 0 × anything is 0 bytes, but no array has such a shape.
    if length != math.prod(shape) * item or math.prod(max(n, 1) for n in shape) * item > size:
        raise ValueError(f"{what} has {length} bytes, which is not its shape's")
    return TensorEntry(name, tuple(shape), start + offsets[0], length)


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object; of two equal keys, other readers may take the other one."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("its header says something twice")
    return found


def read_weights(path: Path) -> dict[str, np.ndarray]:
    """Every tensor as a read-only array over one memory map of the file."""
    index = read_index(path)
    if not index.tensors:
        return {}
    data = np.memmap(path, mode="r", dtype=np.uint8)
    return {
        name: data[entry.offset : entry.offset + entry.length].view(DTYPES[entry.dtype]).reshape(entry.shape)
        for name, entry in index.tensors.items()
    }


def write_weights(path: Path, tensors: Mapping[str, np.ndarray], metadata: Mapping[str, str] | None = None) -> None:
    """Write a safetensors file atomically; equal content gives equal bytes.

    The header is made here because the safetensors library puts metadata in random order.
    """
    # Wide types first, so that every tensor starts at a multiple of its item size.
    arrays = sorted(tensors.items(), key=lambda item: (-item[1].itemsize, item[0]))
    header: dict[str, Any] = {"__metadata__": dict(sorted(metadata.items()))} if metadata else {}
    end = 0
    for name, array in arrays:
        offsets = [end, end + array.nbytes]
        header[name] = {"dtype": _NAMES[array.dtype], "shape": list(array.shape), "data_offsets": offsets}
        end += array.nbytes
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode("utf-8")
    text += b" " * (-len(text) % 8)  # the format's padding: data starts at a multiple of 8
    with atomic.replacing_file(path) as temporary, temporary.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for _, array in arrays:
            file.write(array.tobytes())
