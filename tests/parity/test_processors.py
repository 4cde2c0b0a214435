"""The sweep over processors under qemu: the same bits, the same text, and a self-test that sees a planted fault."""

import json
import platform
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from export.calibration import Rounding
from export.quantize import Linear, as_integers, constants, export_int8, quantize
from export.to_onnx import OPSET, export_onnx
from tests.support import emulation
from tests.support.emulation import PROCESSORS, run_on
from tests.support.export_fixtures import eager_of, save_random, small_config
from tests.support.hub_driver import stand_in_report
from tests.support.models import once_per_run, run_python
from tiny_transformer.backends import open_backend
from tiny_transformer.bundle import Bundle
from tiny_transformer.parity import write_report
from tiny_transformer.parity.self_test import expected_logits

LAYER = "layer.onnx"

# One process does everything: under emulation most of its time goes into its start.
PROGRAM = """
import json, os, sys, tempfile
from pathlib import Path
import numpy as np
import tiny_transformer as tt
from tiny_transformer.backends import sessions
from tiny_transformer.parity.self_test import processor

folder = Path(sys.argv[1])

def said(backend):
    os.environ["TINY_TRANSFORMER_CACHE"] = tempfile.mkdtemp()
    model = tt.load(folder, backend, threads=1)
    rows = [[5 + 7 * i, 6 + 11 * i, 9 + 5 * i] for i in range(8)]
    options = {"max_new_tokens": 4, "min_new_tokens": 4}
    texts = [model.generate_ids(some, **options) for some in (rows[:1], rows)]
    ids = [[token.id for token in row.tokens] for found in texts for row in found]
    return {"backend": model.backend_name, "warning": model.warning, "ids": ids}

def product():
    x = np.load(folder.parent / "x.npy")
    return sessions.open_session(folder.parent / "layer.onnx", 1).run(["y"], {"x": x})[0].tobytes().hex()

found = {"onnx": said("onnx"), "onnx-int8": said("onnx-int8"), "product": product(), "processor": processor()}
options = sessions.onnxruntime.SessionOptions
add = options.add_session_config_entry
options.add_session_config_entry = lambda self, key, value: key == "session.x64quantprecision" or add(self, key, value)
found["saturating"] = {"onnx-int8": said("onnx-int8"), "product": product()}
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small 8-bit translator whose report is of no processor, so that each tests it; and beside it one layer."""
    with once_per_run(tmp_path_factory, "for-processors") as shared:
        model = shared / "model"
        if not shared.exists():
            staging = shared.with_name(f"{shared.name}.staging")
            shape = {"d_model": 128, "d_ff": 256, "n_encoder_layers": 1, "n_decoder_layers": 1, "max_length": 32}
            bundle = save_random(staging / "model", small_config("encoder-decoder", output_vocab_size=284, **shape))
            export_onnx(bundle.folder)
            export_int8(bundle.folder)
            expected = expected_logits(bundle.config, eager_of(bundle), [open_backend(bundle, "onnx-int8")])
            write_report(bundle, replace(stand_in_report(bundle), expected=expected))
            save_layer(staging)
            staging.rename(shared)
        return Bundle.open(model).folder


def save_layer(folder: Path) -> None:
    """A layer whose products of neighboring bytes are too large for 16 bits, and what it reads."""
    rng = np.random.default_rng(0)
    weight = rng.uniform(-1, 1, (24, 64)).astype(np.float32)
    rounded, scales = quantize(weight)
    nodes, more = as_integers({"w": Rounding.between(-1, 1)}, Linear("x", "w", None, "y", rounded.shape))
    stored = {"w.quantized.rows": rounded.reshape(weight.shape), "w.scales": scales}
    tensors = [onnx.numpy_helper.from_array(array, name) for name, array in stored.items()]
    value = onnx.helper.make_tensor_value_info
    inputs, outputs = ([value(name, onnx.TensorProto.FLOAT, None)] for name in ("x", "y"))
    used = {name for node in nodes for name in node.input}
    shared = [tensor for tensor in (*more, *constants()) if tensor.name in used]
    graph = onnx.helper.make_graph(nodes, "layer", inputs, outputs, [*tensors, *shared])
    opsets = [onnx.helper.make_opsetid("", OPSET), onnx.helper.make_opsetid("com.microsoft", 1)]
    onnx.save(onnx.helper.make_model(graph, opset_imports=opsets, ir_version=10), folder / LAYER)
    np.save(folder / "x.npy", rng.uniform(-1, 1, (16, 64)).astype(np.float32))


@pytest.fixture(scope="module")
def here(folder: Path) -> dict[str, Any]:
    """What this machine says."""
    done = run_python(PROGRAM, folder)
    assert done.code == 0, done.err
    return json.loads(done.out)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("machine", "cpu"), [(machine, cpu) for machine in PROCESSORS for cpu in PROCESSORS[machine]])
def test_every_processor_says_the_same(folder: Path, here: dict[str, Any], machine: str, cpu: str):
    done = run_on(machine, cpu, PROGRAM, folder)
    assert done.code == 0, done.err
    found = json.loads(done.out)
    assert found["processor"]["machine"] == machine
    assert ("asimddp" in found["processor"]["instruction sets"]) == (cpu == "neoverse-n1")
    for backend in ("onnx", "onnx-int8"):
        assert found[backend] == {"backend": backend, "warning": None, "ids": here[backend]["ids"]}
    assert found["product"] == here["product"], "8-bit products are exact, so they have the same bits everywhere"
    # Without the session's entry, x86 without VNNI saturates: both the product and the self-test show it.
    saturated = found["saturating"]
    assert (saturated["product"] != here["product"]) == (machine == "x86_64")
    if machine == "x86_64":
        assert saturated["onnx-int8"]["backend"] == "onnx"
        assert "Running on onnx instead of onnx-int8" in saturated["onnx-int8"]["warning"]
        assert "many rows" in saturated["onnx-int8"]["warning"], "one row has other kernels, which do not saturate"
    else:
        assert saturated["onnx-int8"] == found["onnx-int8"]


def test_without_an_emulator_one_sentence_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(AssertionError, match=r"run make \.venv/\.emulated"):
        run_on(emulation.foreign(), "max", "", folder=tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(AssertionError, match="needs qemu-user"):
        run_on(platform.machine(), "max", "")
