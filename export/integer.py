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
_LEAST_SCALE = 1e-30  # of a block of zeros

_ONE, _ZERO, _STEP, _LEAST, _LAST = "integer.one", "integer.zero", "integer.step", "integer.least", "integer.last"


def constants() -> list[TensorProto]:
    """What every integer layer of a graph shares."""
    values = {
        _ONE: np.float32(1),
        _ZERO: np.uint8(ZERO),
        _STEP: np.float32(1 / LARGEST),
        _LEAST: np.float32(_LEAST_SCALE),
        _LAST: np.array([1], dtype=np.int64),
    }
    return [numpy_helper.from_array(np.asarray(value), name) for name, value in values.items()]


def integer_linear(
    x: str, weight: str, scales: str, bias: str | None, y: str, shape: Sequence[int]
) -> tuple[list[onnx.NodeProto], list[TensorProto]]:
    """Nodes and constants of y = x Wᵀ + bias; W lies as bytes (N, blocks, k) with a scale a block."""
    _, n_blocks, width = shape
    sizes = {f"{y}.by_block": [-1, width], f"{y}.whole": [-1, n_blocks * width], f"{y}.blocks": [-1, n_blocks]}
    tensors = [numpy_helper.from_array(np.array(size, dtype=np.int64), name) for name, size in sizes.items()]
    blocks = [f"{y}.{i}" for i in range(n_blocks)]
    nodes = [
        helper.make_node("Reshape", [x, f"{y}.by_block"], [f"{y}.x"]),  # R·blocks k
        *_quantized(f"{y}.x"),
        helper.make_node("Reshape", [f"{y}.x.rounded", f"{y}.whole"], [f"{y}.rounded"]),  # R K
        helper.make_node("Reshape", [f"{y}.x.scale", f"{y}.blocks"], [f"{y}.scale"]),  # R blocks
        helper.make_node("Split", [f"{y}.rounded"], [f"{b}.rounded" for b in blocks], axis=1, num_outputs=n_blocks),
        helper.make_node("Split", [f"{y}.scale"], [f"{b}.scale" for b in blocks], axis=1, num_outputs=n_blocks),
    ]
    for i, block in enumerate(blocks):
        tensors.append(numpy_helper.from_array(np.array(i, dtype=np.int64), f"{block}.number"))
        nodes += _stored(block, weight, scales)
        product = [f"{block}.rounded", f"{block}.weight", _ONE, f"{block}.weight_scale", _ZERO]
        nodes += [
            helper.make_node("MatMulIntegerToFloat", product, [f"{block}.sum"], domain="com.microsoft"),  # R N
            helper.make_node("Mul", [f"{block}.sum", f"{block}.scale"], [f"{block}.y"]),
        ]
    nodes.append(helper.make_node("Sum", [f"{block}.y" for block in blocks] + ([bias] if bias else []), [y]))
    return nodes, tensors


def _quantized(x: str) -> Iterator[onnx.NodeProto]:
    """Rows (R k) as bytes `x.rounded` and one scale a row, `x.scale`."""
    yield helper.make_node("Abs", [x], [f"{x}.size"])
    yield helper.make_node("ReduceMax", [f"{x}.size", _LAST], [f"{x}.highest"], keepdims=0)
    yield helper.make_node("Mul", [f"{x}.highest", _STEP], [f"{x}.step"])
    yield helper.make_node("Max", [f"{x}.step", _LEAST], [f"{x}.scale"])  # R
    yield helper.make_node("Shape", [f"{x}.scale"], [f"{x}.rows"])
    yield helper.make_node("Expand", [_ZERO, f"{x}.rows"], [f"{x}.zeros"])
    yield helper.make_node("QuantizeLinear", [x, f"{x}.scale", f"{x}.zeros"], [f"{x}.rounded"], axis=0)


def _stored(block: str, weight: str, scales: str) -> Iterator[onnx.NodeProto]:
    """One block's weights (k N), signed as the fast kernels want them, and their scales (N): folded at load."""
    yield helper.make_node("Gather", [weight, f"{block}.number"], [f"{block}.bytes"], axis=1)  # N k
    yield helper.make_node("BitwiseXor", [f"{block}.bytes", _ZERO], [f"{block}.shifted"])  # the byte of value - 128
    yield helper.make_node("Cast", [f"{block}.shifted"], [f"{block}.signed"], to=TensorProto.INT8)
    yield helper.make_node("Transpose", [f"{block}.signed"], [f"{block}.weight"], perm=[1, 0])
    yield helper.make_node("Gather", [scales, f"{block}.number"], [f"{block}.weight_scale"], axis=1)
