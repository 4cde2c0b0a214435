"""Writing a graph: checked, loaded, run and compared under a temporary name before it takes its own."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx

from tiny_transformer.atomic import replacing_file
from tiny_transformer.backends.ort import open_session
from tiny_transformer.errors import BackendError, ExportError

from .samples import Sample

TOLERANCE = 1e-4  # absolute and relative; float32 graphs differ from eager by about 1e-5
INT8_SIMILARITY = 0.98  # cosine; the task is the judge of int8, this only catches a broken graph

Compare = Callable[[np.ndarray, np.ndarray], str]  # what is wrong with (found, wanted), or nothing


def write_graph(path: Path, model: onnx.ModelProto, samples: list[Sample], compare: Compare) -> None:
    """Put a graph in its place if, and only if, it gives the samples' answers."""
    with replacing_file(path) as temporary:
        temporary.write_bytes(model.SerializeToString(deterministic=True))
        try:
            onnx.checker.check_model(temporary)
            session = open_session(temporary, threads=1)
        except (onnx.checker.ValidationError, BackendError) as error:
            reason = str(error).replace(temporary.name, path.name).strip().splitlines()[0]
            raise ExportError(f"{path} was not written: {reason}") from None
        for sample in samples:
            names = list(sample.outputs)
            for name, found in zip(names, session.run(names, sample.inputs), strict=True):
                fault = compare(found, sample.outputs[name])
                if fault:
                    raise ExportError(f"{path} was not written: its {name} {fault} compared with eager PyTorch.")


def close(found: np.ndarray, wanted: np.ndarray) -> str:
    """Equal within the tolerance, everywhere."""
    if found.shape != wanted.shape:
        return f"has shape {found.shape} instead of {wanted.shape}"
    if np.allclose(found, wanted, rtol=TOLERANCE, atol=TOLERANCE):
        return ""
    return f"is off by {np.abs(found - wanted).max():.3g}"


def similar(found: np.ndarray, wanted: np.ndarray) -> str:
    """Pointing in the same direction, as a whole."""
    if found.shape != wanted.shape:
        return f"has shape {found.shape} instead of {wanted.shape}"
    norm = np.linalg.norm(found) * np.linalg.norm(wanted)
    cosine = float(np.vdot(found, wanted) / norm) if norm else float(np.array_equal(found, wanted))
    return "" if cosine >= INT8_SIMILARITY else f"has a cosine similarity of {cosine:.3f}"
