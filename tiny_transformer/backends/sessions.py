"""Sessions of ONNX Runtime on the CPU: how they are opened and run, and what they refuse in one sentence."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import onnxruntime

from tiny_transformer.backends.graph_file import with_outputs
from tiny_transformer.errors import BackendError, first_line

_WEIGHTS_FOLDER = "session.model_external_initializers_file_folder_path"  # of a graph that is read from memory


def open_session(path: Path, threads: int, more_outputs: Sequence[str] = (), *, plan_memory: bool = True) -> Any:
    """An inference session, perhaps with inner values as outputs; what ONNX Runtime refuses becomes one sentence.

    Without a plan, a run asks for the memory of each value: that pays where a session is opened for a few runs.
    """
    options = session_options(threads)
    options.enable_mem_reuse = plan_memory
    slower = ["SkipLayerNormFusion"]  # than the two operators it would replace
    model: Path | bytes = path
    try:
        if more_outputs:
            model = with_outputs(path.read_bytes(), more_outputs)
            options.add_session_config_entry(_WEIGHTS_FOLDER, str(path.parent.resolve()))
        return onnxruntime.InferenceSession(
            model, options, providers=["CPUExecutionProvider"], disabled_optimizers=slower
        )
    except Exception as error:  # pybind types of its own, and RuntimeError
        template = "ONNX Runtime cannot load {path} ({reason}); make it again with: python -m export all {parent}"
        raise BackendError(template, path=path, reason=first_line(error), parent=path.parent) from None


def session_options(threads: int) -> Any:
    """How every session runs."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 4  # failures come back as exceptions
    # A thread that waits in a loop steals the core from whoever shares it.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    # Where x86 has no VNNI, products of unsigned and signed bytes would saturate in 16 bits; this takes kernels that do
    # not (tests/parity/test_processors.py).
    options.add_session_config_entry("session.x64quantprecision", "1")
    return options


def run_graph(path: Path, run: Callable[..., Any], *arguments: Any) -> Any:
    """What a run of a graph gives; a graph that asks for more memory than there is becomes one sentence."""
    try:
        return run(*arguments)
    except Exception as error:  # pybind types of its own, and RuntimeError
        template = "ONNX Runtime cannot run {path} ({reason}); make it again with: python -m export all {parent}"
        raise BackendError(template, path=path, reason=first_line(error), parent=path.parent) from None


def not_this_graph(path: Path) -> BackendError:
    """A graph under the name of another."""
    template = "{path} is not the graph that its name says; make it again with: python -m export all {parent}"
    return BackendError(template, path=path, parent=path.parent)
