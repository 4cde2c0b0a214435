"""The output layer writes the logits where they are wanted: a Reshape behind it would copy every one of them."""

import numpy as np
import onnx
from onnx import helper, numpy_helper

from .external import needed, replaced

IDS, LOGITS = "input_ids", "logits"
_SHAPE, _REST, _BATCH, _ROWS = (f"output_layer.{part}" for part in ("shape", "rest", "batch", "rows"))


def to_output(model: onnx.ModelProto) -> None:
    """The rows in front of the last Gemm (B·T D) become a batch (B T D), and its result the logits (B T V)."""
    made_by = {name: node for node in model.graph.node for name in node.output}
    last = made_by.get(LOGITS)
    layer = made_by.get(last.input[0]) if last is not None and last.op_type == "Reshape" else None
    if last is None or layer is None or layer.op_type != "Gemm" or len(layer.input) > 2:
        return
    nodes = [
        *(node for node in model.graph.node if node not in (last, layer)),
        helper.make_node("Shape", [IDS], [_SHAPE]),  # B T
        helper.make_node("Concat", [_SHAPE, _REST], [_BATCH], axis=0),
        helper.make_node("Reshape", [layer.input[0], _BATCH], [_ROWS]),  # B T D
        helper.make_node("FusedMatMul", [_ROWS, layer.input[1]], [LOGITS], domain="com.microsoft", transB=1),
    ]
    nodes = needed(nodes, {output.name for output in model.graph.output})
    read = {name for node in nodes for name in node.input}
    tensors = [*model.graph.initializer, numpy_helper.from_array(np.array([-1]), _REST)]
    replaced(model, nodes, [tensor for tensor in tensors if tensor.name in read])
