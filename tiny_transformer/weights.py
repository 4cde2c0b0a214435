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
_MAX_HEADER = 100_000_000  # the limit of the safetensors format


@dataclass(frozen=True)
class TensorEntry:
    """One tensor of a safetensors file; `offset` counts from the start of the file."""

    dtype: str
    shape: tuple[int, ...]
    offset: int
    length: int


@dataclass(frozen=True)
class WeightIndex:
    """The header of a safetensors file: every tensor's place, the metadata, and the header's hash."""

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
        raise BundleError(f"{path} does not exist; a model folder needs it.") from None
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise BundleError(f"{path} is not a whole safetensors file ({error}); restore it from its source.") from None
    return WeightIndex(tensors, metadata, hashlib.sha256(prefix + header).hexdigest())


def _parse(header: bytes, size: int) -> tuple[dict[str, TensorEntry], dict[str, str]]:
    values = json.loads(header)
    metadata = {str(key): str(value) for key, value in values.pop("__metadata__", {}).items()}
    tensors: dict[str, TensorEntry] = {}
    start = 8 + len(header)
    end = start
    for name, entry in sorted(values.items(), key=lambda item: tuple(item[1]["data_offsets"])):
        first, last = entry["data_offsets"]
        shape = tuple(entry["shape"])
        if entry["dtype"] not in DTYPES:
            raise ValueError(f"tensor {name} has the unknown type {entry['dtype']}")
        if not all(isinstance(n, int) and n >= 0 for n in (first, last, *shape)):
            raise ValueError(f"tensor {name} has a negative or fractional size")
        if last - first != math.prod(shape) * DTYPES[entry["dtype"]].itemsize:
            raise ValueError(f"tensor {name} has {last - first} bytes, which is not its shape's")
        if start + first != end:
            raise ValueError(f"tensor {name} overlaps its neighbour or leaves a hole")
        end = start + last
        tensors[name] = TensorEntry(entry["dtype"], shape, start + first, last - first)
    if end != size:
        raise ValueError(f"it has {size} bytes where its header promises {end}")
    return tensors, metadata


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
    """Write a safetensors file atomically; equal content gives equal bytes."""
    from safetensors.numpy import save

    contiguous = {name: np.ascontiguousarray(tensors[name]) for name in sorted(tensors)}
    atomic.write_file(path, save(contiguous, metadata=dict(metadata) if metadata else None))
