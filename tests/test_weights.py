"""The safetensors file: the library is the oracle for what is right, and every damage is refused in one sentence."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given
from hypothesis import strategies as st
from safetensors import SafetensorError

from tiny_transformer.errors import BundleError
from tiny_transformer.weights import DTYPES, read_index, read_weights, write_weights

TENSORS = {
    "b.weight": np.arange(6, dtype=np.float32).reshape(2, 3),
    "a.half": np.array([1.5, -2.0, 65504.0], dtype=np.float16),
    "c.scalar": np.array(7.25, dtype=np.float32),
    "d.long": np.array([[-1], [2**40]], dtype=np.int64),
    "e.empty": np.zeros((0, 3), dtype=np.float32),
    "f.byte": np.array([255], dtype=np.uint8),
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "model.safetensors"


def framed(header: Any, body: bytes = b"") -> bytes:
    """A file with this header, given as bytes or as JSON."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + body


def entry(dtype: Any = "U8", shape: Any = (1,), offsets: Any = (0, 1)) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


def assert_same(ours: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    assert ours.keys() == expected.keys()
    for name, array in expected.items():
        assert ours[name].dtype == array.dtype
        assert ours[name].shape == array.shape
        np.testing.assert_array_equal(ours[name], array)


def test_what_is_written_is_read_by_us_and_by_the_library(path: Path) -> None:
    write_weights(path, TENSORS, {"one": "1", "two": "zwei ü"})
    assert_same(read_weights(path), TENSORS)
    assert_same(safetensors.numpy.load_file(path), TENSORS)
    assert read_index(path).metadata == {"one": "1", "two": "zwei ü"}


def test_what_the_library_writes_is_read_by_us(path: Path) -> None:
    safetensors.numpy.save_file(TENSORS, path, metadata={"k": "v"})
    assert_same(read_weights(path), TENSORS)
    assert read_index(path).metadata == {"k": "v"}


def test_the_index_says_where_the_bytes_lie(path: Path) -> None:
    write_weights(path, TENSORS)
    data = path.read_bytes()
    for name, found in read_index(path).tensors.items():
        assert data[found.offset : found.offset + found.length] == TENSORS[name].tobytes()
        assert found.offset % DTYPES[found.dtype].itemsize == 0, "other readers map the file and need it aligned"


def test_equal_content_gives_equal_bytes(tmp_path: Path) -> None:
    """Whatever the order of tensors and metadata, and however the arrays lie in memory."""
    metadata = {f"key{i}": str(i) for i in range(8)}
    write_weights(tmp_path / "one", TENSORS, metadata)
    shuffled = {name: TENSORS[name].copy(order="F") for name in reversed(TENSORS)}
    write_weights(tmp_path / "two", shuffled, dict(reversed(metadata.items())))
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    assert read_index(tmp_path / "one").header_sha256 == read_index(tmp_path / "two").header_sha256


def test_arrays_are_read_only_views_of_the_file(path: Path) -> None:
    write_weights(path, TENSORS)
    with pytest.raises(ValueError, match="read-only"):
        read_weights(path)["b.weight"][0, 0] = 1.0


def test_a_file_without_tensors_is_empty(path: Path) -> None:
    write_weights(path, {})
    assert read_weights(path) == {}


def test_a_header_changes_with_the_layout_not_with_the_values(path: Path) -> None:
    digests = []
    for tensors in (TENSORS, {**TENSORS, "f.byte": np.array([1], np.uint8)}, {**TENSORS, "g": np.zeros(1, np.uint8)}):
        write_weights(path, tensors)
        digests.append(read_index(path).header_sha256)
    assert digests[0] == digests[1] != digests[2]


def refusal(path: Path, content: bytes) -> str:
    path.write_bytes(content)
    with pytest.raises(BundleError) as caught:
        read_weights(path)
    message = str(caught.value)
    assert message.startswith(str(path))
    assert message.endswith("; restore it from its source.")
    assert "\n" not in message
    assert len(message) < 500 + len(str(path))
    return message


def test_a_file_cut_at_any_byte_is_refused(path: Path) -> None:
    write_weights(path, {name: TENSORS[name] for name in ("b.weight", "a.half")}, {"k": "v"})
    whole = path.read_bytes()
    for length in range(len(whole)):
        refusal(path, whole[:length])
    assert "bytes where its header promises" in refusal(path, whole[:-1])
    assert "bytes where its header promises" in refusal(path, whole + b"\0")


DAMAGED = {
    "nothing": b"",
    "a header longer than the file": (2**63).to_bytes(8, "little") + b"{}",
    "a header beyond all files": b"\xff" * 8 + b"{}",
    "a header of no bytes": bytes(8),
    "no object": framed([]),
    "a number": framed(7),
    "null": framed(None),
    "UTF-16": framed(json.dumps({"x": entry()}).encode("utf-16"), b"\0"),
    "not UTF-8": framed(b'{"\xff": 1}'),
    "nested without end": framed(b"[" * 200_000),
    "a negative shape": framed({"x": entry(shape=[-1])}, b"\0"),
    "two negative sizes": framed({"x": entry(shape=[-1, -1])}, b"\0"),
    "a fractional shape": framed({"x": entry(shape=[1.0])}, b"\0"),
    "a true shape": framed({"x": entry(shape=[True])}, b"\0"),
    "a text shape": framed({"x": entry(shape="")}, b"\0"),
    "an object as shape": framed({"x": entry(shape={})}, b"\0"),
    "no shape": framed({"x": entry(shape=None)}, b"\0"),
    "a shape of another size": framed({"x": entry(shape=[2])}, b"\0"),
    "more dimensions than numpy has": framed({"x": entry(shape=[1] * 70)}, b"\0"),
    "endless dimensions": framed({"x": entry(shape=[9**99] * 10_000)}, b"\0"),
    "an empty tensor of impossible width": framed({"x": entry(shape=[0, 2**70], offsets=[0, 0])}),
    "an empty tensor of many widths": framed({"x": entry(shape=[0, *[100] * 7], offsets=[0, 0])}),
    "offsets that are no pair": framed({"x": entry(offsets=[0])}, b"\0"),
    "true offsets": framed({"x": entry(offsets=[False, True])}, b"\0"),
    "offsets as text": framed({"x": entry(offsets="01")}, b"\0"),
    "offsets turned round": framed({"x": entry(offsets=[1, 0])}, b"\0"),
    "negative offsets": framed({"x": entry(offsets=[-1, 0])}, b"\0"),
    "offsets beyond the file": framed({"x": entry(offsets=[10**30, 10**30 + 1])}, b"\0"),
    "NaN": framed({"x": entry(offsets=[0, float("nan")])}, b"\0"),
    "overlap": framed({"x": entry(), "y": entry()}, b"\0"),
    "overlap and bytes of nobody": framed({"x": entry(), "y": entry()}, b"\0\0"),
    "a tensor beyond the end": framed({"x": entry(offsets=[5, 6])}, b"\0"),
    "a hole": framed({"x": entry(), "y": entry(offsets=[2, 3])}, b"\0\0\0"),
    "a hole in front": framed({"x": entry(offsets=[1, 2])}, b"\0\0"),
    "bytes of nobody at the end": framed({"x": entry()}, b"\0\0"),
    "an unknown type": framed({"x": entry(dtype="F31")}, b"\0"),
    "a type that is a list": framed({"x": entry(dtype=[])}, b"\0"),
    "no type": framed({"x": {"shape": [1], "data_offsets": [0, 1]}}, b"\0"),
    "an entry that is a list": framed({"x": [1]}, b"\0"),
    "an entry with more to say": framed({"x": entry() | {"more": 1}}, b"\0"),
    "a tensor named twice": framed(b'{"x":%b,"x":%b}' % ((json.dumps(entry()).encode(),) * 2), b"\0"),
    "metadata that is a list": framed({"__metadata__": [1]}),
    "metadata that is null": framed({"__metadata__": None}),
    "metadata of numbers": framed({"__metadata__": {"a": 1}}),
    "a name of many lines": framed({"x\ny" * 1000: entry(shape=[2])}, b"\0"),
}


@pytest.mark.parametrize("content", DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_file_is_refused(path: Path, content: bytes) -> None:
    refusal(path, content)


def test_a_missing_file_or_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="gone does not exist; a model folder needs it"):
        read_index(tmp_path / "gone")
    with pytest.raises(BundleError, match=f"{tmp_path.name} is not a whole safetensors file"):
        read_index(tmp_path)


def check_against_the_library(path: Path, content: bytes) -> None:
    """We refuse, or we and the library read the same."""
    path.write_bytes(content)
    try:
        ours = read_weights(path)
    except BundleError:
        return
    try:
        theirs = safetensors.numpy.load(content)
    except SafetensorError as error:
        pytest.fail(f"we read what the library refuses: {error}")
    assert ours.keys() == theirs.keys()
    for name, array in ours.items():
        assert array.shape == theirs[name].shape
        assert array.tobytes() == theirs[name].tobytes()


@given(at=st.integers(0, 10_000), byte=st.integers(0, 255), more=st.lists(st.tuples(st.integers(0, 255)), max_size=2))
def test_whatever_byte_of_the_header_flips_the_file_is_read_alike_or_refused(
    path: Path, at: int, byte: int, more: list[tuple[int]]
) -> None:
    write_weights(path, {name: TENSORS[name] for name in ("b.weight", "a.half")}, {"k": "v"})
    content = bytearray(path.read_bytes())
    end = 8 + int.from_bytes(content[:8], "little")
    content[at % end] = byte
    for i, (other,) in enumerate(more):
        content[(at + i + 1) % end] = other
    check_against_the_library(path, bytes(content))


VALUES = st.none() | st.booleans() | st.integers(-3, 9) | st.floats(-2, 9) | st.text(max_size=3) | st.integers()
ENTRIES = st.builds(
    entry,
    st.sampled_from(["U8", "F16", "F32", "I64", "BF16"]) | VALUES,
    st.lists(st.integers(0, 3), max_size=3) | st.lists(VALUES, max_size=3) | VALUES,
    st.tuples(st.integers(0, 9), st.integers(0, 9)) | st.lists(VALUES, max_size=3) | VALUES,
)
HEADERS = st.dictionaries(st.text(max_size=3) | st.just("__metadata__"), ENTRIES | VALUES, max_size=3)


@given(header=HEADERS, body=st.binary(max_size=9))
def test_whatever_header_a_file_has_it_is_read_alike_or_refused(path: Path, header: Any, body: bytes) -> None:
    check_against_the_library(path, framed(header, body))


@given(content=st.binary(max_size=64))
def test_whatever_bytes_a_file_holds_they_are_read_alike_or_refused(path: Path, content: bytes) -> None:
    check_against_the_library(path, content)
