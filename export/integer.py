"""8-bit linear layers as integer products, for many rows at once.

MatMulNBits reads each weight once and is unbeaten for a few rows; for many, the processor's integer matrix products
take a third of its time. Both give a row's block of activations one scale, round it to 8 bits, multiply integers and
scale the sums, so from the same bytes their results differ by float rounding alone, and a row's by nothing its
neighbours do.

Shapes: R rows, B batch, T tokens, K inputs and N outputs of a layer, in blocks of k inputs.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

LARGEST = 127.0  # what the highest activation of a block becomes
ZERO = 128  # and what 0 becomes: the fast kernels want unsigned activations

PRODUCT = "MatMulIntegerToFloat"
_ONE, _ZERO, _STEP, _LAST = "integer.one", "integer.zero", "integer.step", "integer.last"

Block = tuple[str, str]  # the names of a block's weights (k N), signed, and of their scales (N)
Nodes = tuple[list[onnx.NodeProto], list[TensorProto]]


def constants() -> list[TensorProto]:
    """What every integer layer of a graph shares."""
    values = {
        _ONE: np.float32(1),
        _ZERO: np.uint8(ZERO),
        _STEP: np.float32(1 / LARGEST),
        _LAST: np.array([1], dtype=np.int64),
    }
    return [numpy_helper.from_array(np.asarray(value), name) for name, value in values.items()]


def integer_linear(x: str, blocks: Sequence[Block], bias: str | None, y: str, width: int, *, batched: bool) -> Nodes:
    """Nodes and constants of y = x Wᵀ + bias over rows (R K), or over a batch of them (B T K)."""
    n = len(blocks)
    nodes, tensors = _rounded(x, y, n, width, batched=batched)
    parts, scales = [f"{y}.rounded"], [f"{y}.scale"]
    if n > 1:
        for cut, whole in ((parts, parts[0]), (scales, scales[0])):
            cut[:] = [f"{whole}.{i}" for i in range(n)]
            nodes.append(helper.make_node("Split", [whole], cut, axis=-1, num_outputs=n))
    terms = [f"{y}.{i}" for i in range(n)] + ([bias] if bias else [])
    if len(terms) == 1:
        terms = [y]
    for i, (weight, weight_scale) in enumerate(blocks):
        product = [parts[i], weight, _ONE, weight_scale, _ZERO]
        nodes += [
            helper.make_node(PRODUCT, product, [f"{y}.{i}.sum"], domain="com.microsoft"),  # R N, or B T N
            helper.make_node("Mul", [f"{y}.{i}.sum", scales[i]], [terms[i]]),
        ]
    return [*nodes, *_summed(terms, y)], tensors


def _rounded(x: str, y: str, n: int, width: int, *, batched: bool) -> Nodes:
    """`y.rounded` (R K) and `y.scale` (R n); of a batch B T K and B T n, so that what follows needs no other shape."""
    sizes = {"by_block": [-1, width], "whole": [-1, n * width], "blocks": [-1, n], "rest": [-1]}
    nodes: list[onnx.NodeProto] = []
    rows, rounded, scale = f"{y}.rows", f"{y}.whole", f"{y}.blocks"
    if batched:
        rounded = scale = f"{y}.batch"
        nodes.append(helper.make_node("Shape", [x], [f"{y}.shape"], end=-1))  # B T
        nodes.append(helper.make_node("Concat", [f"{y}.shape", f"{y}.rest"], [f"{y}.batch"], axis=0))
    if batched or n > 1:
        nodes.append(helper.make_node("Reshape", [x, f"{y}.by_block"], [rows]))  # R·n k
        nodes += _quantized(rows, f"{y}.bytes", f"{y}.steps")
        nodes.append(helper.make_node("Reshape", [f"{y}.bytes", rounded], [f"{y}.rounded"]))
    else:
        nodes += _quantized(x, f"{y}.rounded", f"{y}.steps")
    nodes.append(helper.make_node("Reshape", [f"{y}.steps", scale], [f"{y}.scale"]))
    return nodes, [numpy_helper.from_array(np.array(size), f"{y}.{name}") for name, size in sizes.items()]


def _quantized(x: str, rounded: str, steps: str) -> Iterator[onnx.NodeProto]:
    """Rows (R k) as bytes, and one scale a row (R).

    A row of zeros has the scale 0 and bytes without meaning, which the scale makes zeros again.
    """
    yield helper.make_node("Abs", [x], [f"{steps}.size"])
    yield helper.make_node("ReduceMax", [f"{steps}.size", _LAST], [f"{steps}.highest"], keepdims=0)
    yield helper.make_node("Mul", [f"{steps}.highest", _STEP], [steps])
    yield helper.make_node("Shape", [steps], [f"{steps}.count"])
    yield helper.make_node("Expand", [_ZERO, f"{steps}.count"], [f"{steps}.zeros"])
    yield helper.make_node("QuantizeLinear", [x, steps, f"{steps}.zeros"], [rounded], axis=0)


def unpacked(weight: str, scales: str, n: int, y: str) -> tuple[list[Block], Nodes]:
    """The blocks of weights that lie as MatMulNBits wants them, bytes (N n k) with scales (N n): folded at load."""
    nodes, tensors, blocks = [], [], []
    for i in range(n):
        part = f"{y}.{i}"
        tensors.append(numpy_helper.from_array(np.array(i, dtype=np.int64), f"{part}.number"))
        nodes += [
            helper.make_node("Gather", [weight, f"{part}.number"], [f"{part}.stored"], axis=1),  # N k
            helper.make_node("BitwiseXor", [f"{part}.stored", _ZERO], [f"{part}.shifted"]),  # the byte of value - 128
            helper.make_node("Cast", [f"{part}.shifted"], [f"{part}.signed"], to=TensorProto.INT8),
            helper.make_node("Transpose", [f"{part}.signed"], [f"{part}.weight"], perm=[1, 0]),
            helper.make_node("Gather", [scales, f"{part}.number"], [f"{part}.weight_scale"], axis=1),
        ]
        blocks.append((f"{part}.weight", f"{part}.weight_scale"))
    return blocks, (nodes, tensors)


def _summed(names: Sequence[str], y: str) -> Iterator[onnx.NodeProto]:
    """Their sum; one alone is it already. Add after Add: the operator Sum takes three times as long."""
    total = names[0]
    for i, name in enumerate(names[1:], start=1):
        total, before = (y if i == len(names) - 1 else f"{y}.to_{i}"), total
        yield helper.make_node("Add", [before, name], [total])
