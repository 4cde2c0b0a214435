"""8-bit linear layers as integer products: the arithmetic of MatMulNBits, from the same bytes, for many rows at once.

MatMulNBits reads each weight once and is unbeaten for a few rows; for many, the processor's integer matrix products
take a third of its time. Both give a row's block of activations one scale, round it to 8 bits, multiply integers and
scale the sums, so their results differ by float rounding alone, and a row's by nothing its neighbours do.

Shapes: R rows, K inputs and N outputs of a layer, in blocks of k inputs.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

LARGEST = 127.0  # what the highest activation of a block becomes
ZERO = 128  # and what 0 becomes: the fast kernels want unsigned activations

PRODUCT = "MatMulIntegerToFloat"
_ONE, _ZERO, _STEP, _LAST = "integer.one", "integer.zero", "integer.step", "integer.last"


def constants() -> list[TensorProto]:
    """What every integer layer of a graph shares."""
    values = {
        _ONE: np.float32(1),
        _ZERO: np.uint8(ZERO),
        _STEP: np.float32(1 / LARGEST),
        _LAST: np.array([1], dtype=np.int64),
    }
    return [numpy_helper.from_array(np.asarray(value), name) for name, value in values.items()]


def integer_linear(
    x: str, weight: str, scales: str, bias: str | None, y: str, shape: Sequence[int]
) -> tuple[list[onnx.NodeProto], list[TensorProto]]:
    """Nodes and constants of y = x Wᵀ + bias; W lies as bytes (N, blocks, k) with a scale a block (N, blocks)."""
    _, n, width = shape
    parts = [f"{y}.{i}" for i in range(n)]
    tensors = [numpy_helper.from_array(np.array(i, dtype=np.int64), f"{part}.number") for i, part in enumerate(parts)]
    if n == 1:
        nodes = list(_quantized(x, parts[0]))
        nodes.append(helper.make_node("Unsqueeze", [f"{parts[0]}.step", _LAST], [f"{parts[0]}.scale"]))  # R 1
    else:
        sizes = {f"{y}.by_block": [-1, width], f"{y}.whole": [-1, n * width], f"{y}.blocks": [-1, n]}
        tensors += [numpy_helper.from_array(np.array(size, dtype=np.int64), name) for name, size in sizes.items()]
        nodes = [
            helper.make_node("Reshape", [x, f"{y}.by_block"], [f"{y}.x"]),  # R·blocks k
            *_quantized(f"{y}.x", y),
            helper.make_node("Reshape", [f"{y}.rounded", f"{y}.whole"], [f"{y}.rows"]),  # R K
            helper.make_node("Reshape", [f"{y}.step", f"{y}.blocks"], [f"{y}.scale"]),  # R blocks
            helper.make_node("Split", [f"{y}.rows"], [f"{part}.rounded" for part in parts], axis=1, num_outputs=n),
            helper.make_node("Split", [f"{y}.scale"], [f"{part}.scale" for part in parts], axis=1, num_outputs=n),
        ]
    for part in parts:
        product = [f"{part}.rounded", f"{part}.weight", _ONE, f"{part}.weight_scale", _ZERO]
        nodes += [
            *_unpacked(part, weight, scales),
            helper.make_node(PRODUCT, product, [f"{part}.sum"], domain="com.microsoft"),  # R N
            helper.make_node("Mul", [f"{part}.sum", f"{part}.scale"], [f"{part}.y"]),
        ]
    return [*nodes, *_summed([f"{part}.y" for part in parts] + ([bias] if bias else []), y)], tensors


def _summed(names: Sequence[str], y: str) -> Iterator[onnx.NodeProto]:
    """Their sum. Add after Add: the operator Sum takes three times as long."""
    if len(names) == 1:
        yield helper.make_node("Identity", names, [y])
        return
    total = names[0]
    for i, name in enumerate(names[1:], start=1):
        total, before = (y if i == len(names) - 1 else f"{y}.to_{i}"), total
        yield helper.make_node("Add", [before, name], [total])


def _quantized(x: str, name: str) -> Iterator[onnx.NodeProto]:
    """Rows (R k) as bytes `name.rounded`, and one scale a row, `name.step`.

    A row of zeros has the scale 0 and bytes without meaning, which the scale makes zeros again.
    """
    yield helper.make_node("Abs", [x], [f"{name}.size"])
    yield helper.make_node("ReduceMax", [f"{name}.size", _LAST], [f"{name}.highest"], keepdims=0)
    yield helper.make_node("Mul", [f"{name}.highest", _STEP], [f"{name}.step"])  # R
    yield helper.make_node("Shape", [f"{name}.step"], [f"{name}.count"])
    yield helper.make_node("Expand", [_ZERO, f"{name}.count"], [f"{name}.zeros"])
    yield helper.make_node("QuantizeLinear", [x, f"{name}.step", f"{name}.zeros"], [f"{name}.rounded"], axis=0)


def _unpacked(part: str, weight: str, scales: str) -> Iterator[onnx.NodeProto]:
    """One block's weights (k N), signed as the fast kernels want them, and their scales (N): folded at load."""
    yield helper.make_node("Gather", [weight, f"{part}.number"], [f"{part}.bytes"], axis=1)  # N k
    yield helper.make_node("BitwiseXor", [f"{part}.bytes", _ZERO], [f"{part}.shifted"])  # the byte of value - 128
    yield helper.make_node("Cast", [f"{part}.shifted"], [f"{part}.signed"], to=TensorProto.INT8)
    yield helper.make_node("Transpose", [f"{part}.signed"], [f"{part}.weight"], perm=[1, 0])
    yield helper.make_node("Gather", [scales, f"{part}.number"], [f"{part}.weight_scale"], axis=1)
