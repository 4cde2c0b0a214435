"""The ways to run a model, by name; each is imported only when it is opened."""

import ctypes
import logging
import sys
from dataclasses import dataclass
from importlib.util import find_spec

from tiny_transformer.backends.base import Backend
from tiny_transformer.bundle import (
    ATTENTION_ONNX,
    INT8,
    INT8_BATCH,
    REQUIRED,
    TORCHSCRIPT,
    WEIGHTS_INT8,
    Bundle,
    graph_files,
)
from tiny_transformer.errors import BackendError

NAMES = ("eager", "torchscript", "onnx", "onnx-int8")
_PACKAGES = {
    "eager": ("torch", "pip install 'tiny-transformer[torch]'"),
    "torchscript": ("torch", "pip install 'tiny-transformer[torch]'"),
    "onnx": ("onnxruntime", "pip install onnxruntime"),
    "onnx-int8": ("onnxruntime", "pip install onnxruntime"),
}

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Choice:
    """A backend that can run a folder here, and what its user should know about the choice."""

    name: str
    device: str | None = None
    notice: str | None = None


def available(bundle: Bundle | None = None, device: str | None = None) -> dict[str, str | None]:
    """For each backend None, or the reason why it cannot run (this folder) here and what to do."""
    return {name: _obstacle(name, bundle, device) for name in NAMES}


def choose(bundle: Bundle, name: str = "auto", device: str | None = None) -> Choice:
    """The named backend if it can run; for "auto" eager on a GPU, else ONNX, else eager with a notice."""
    if name != "auto":
        if name not in NAMES:
            raise BackendError("There is no backend {name!r}; choose auto, {names}.", name=name, names=", ".join(NAMES))
        reason = _obstacle(name, bundle, device)
        if reason is not None:
            raise BackendError(
                "The backend {name} cannot run {folder}: {reason}.", name=name, folder=bundle.folder, reason=reason
            )
        return Choice(name, device)
    if _wants_cuda(device):
        return Choice("eager", device or "cuda")
    reasons = available(bundle, device)
    if reasons["onnx"] is None:
        return Choice("onnx", device)
    if reasons["eager"] is None:
        return Choice("eager", device, f"Running on PyTorch instead of ONNX Runtime: {reasons['onnx']}.")
    raise BackendError(
        "No backend can run {folder}. onnx: {onnx}; eager: {eager}.",
        folder=bundle.folder,
        onnx=reasons["onnx"],
        eager=reasons["eager"],
    )


def open_backend(
    bundle: Bundle, name: str = "auto", *, device: str | None = None, threads: int | None = None
) -> Backend:
    """Open a folder's model on a backend; only then is its library imported."""
    choice = choose(bundle, name, device)
    if choice.notice:
        logger.warning(choice.notice)
    return open_choice(bundle, choice, threads)


def open_choice(bundle: Bundle, choice: Choice, threads: int | None = None) -> Backend:
    """Open what `choose` found."""
    if choice.name == "eager":
        from tiny_transformer.backends.cuda_graphs import open_eager

        return open_eager(bundle, choice.device, threads)
    if choice.name == "torchscript":
        from tiny_transformer.backends.torchscript import open_torchscript

        return open_torchscript(bundle, choice.device, threads)
    from tiny_transformer.backends.onnx_runtime import open_ort

    return open_ort(bundle, threads=threads, int8=choice.name == "onnx-int8")


def open_precise(bundle: Bundle, device: str, dtype: str) -> Backend:
    """Eager on a device in float32 or bfloat16, under a name that says so."""
    from tiny_transformer.backends.cuda_graphs import open_eager

    backend = open_eager(bundle, device, dtype=dtype)
    backend.name = f"eager-{device}-{dtype}"
    return backend


def device_name(device: str) -> str:
    """What a torch device calls itself, such as NVIDIA H200."""
    from tiny_transformer.backends.eager import device_name

    return device_name(device)


def files_read(bundle: Bundle, name: str) -> list[str]:
    """The files of the folder that a backend's user relies on: what a parity report must vouch for."""
    extra = [ATTENTION_ONNX, *graphs(name, bundle)] if name.startswith("onnx") else [TORCHSCRIPT]
    extra += graph_files(bundle.config, INT8_BATCH).values() if name == "onnx-int8" else ()
    return [file for file in (*REQUIRED, *(extra if name != "eager" else ())) if bundle.has(file)]


def graphs(name: str, bundle: Bundle) -> list[str]:
    """The files that an ONNX backend cannot do without."""
    if name == "onnx":
        return [*graph_files(bundle.config).values()]
    return [*graph_files(bundle.config, INT8).values(), WEIGHTS_INT8]


def _obstacle(name: str, bundle: Bundle | None, device: str | None) -> str | None:
    package, command = _PACKAGES[name]
    if find_spec(package) is None:
        return f"the package {package} is missing, get it with: {command}"
    if package == "onnxruntime":
        if device not in (None, "cpu"):
            return f"it runs on the CPU, not on {device}; leave the device out"
        missing = [] if bundle is None else [file for file in graphs(name, bundle) if not bundle.has(file)]
        if bundle is not None and missing:
            return f"the folder has no {', '.join(missing)}, make it with: python -m export all {bundle.folder}"
    elif device is not None and device.startswith("cuda") and not has_nvidia_gpu():
        return f"the device {device} needs an NVIDIA GPU and its driver, and none was found; use cpu"
    return None


def _wants_cuda(device: str | None) -> bool:
    """Whether "auto" means a GPU: one was asked for, or one is there and torch can use it."""
    if device is not None:
        return device.startswith("cuda")
    if not has_nvidia_gpu() or find_spec("torch") is None:
        return False
    import torch  # two seconds, worth it now; a CPU build of torch cannot use the GPU

    return bool(torch.cuda.is_available())


def has_nvidia_gpu() -> bool:
    """Whether the CUDA driver is installed and shows at least one device."""
    name = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
    try:
        driver = ctypes.CDLL(name)
    except OSError:
        return False
    count = ctypes.c_int(0)
    return driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(count)) == 0 and count.value > 0
