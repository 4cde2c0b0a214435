"""The ways to run a model: one table of backends; each is imported only when it is opened."""

import ctypes
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from tiny_transformer.backends.base import CLOSE, EXACT, Backend, Tolerance
from tiny_transformer.bundle import (
    FLOAT32,
    FLOAT32_GRAPHS,
    INSIDE_ONNX,
    INT8,
    INT8_FILES,
    INT8_WEB,
    REQUIRED,
    TORCHSCRIPT,
    WEB_GRAPHS,
    WEIGHTS_INT8,
    Bundle,
    graph_files,
)
from tiny_transformer.config import ModelConfig
from tiny_transformer.errors import BackendError, Sentence

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class BackendSpec:
    """One way to run a model: what it needs, what it reads, how close to eager it must come, and how it opens."""

    name: str
    package: str
    install: str
    opener: str  # "module:function" in this package; called with bundle, device, threads and `arguments`
    arguments: Mapping[str, Any] = field(default_factory=dict)
    on_gpu: bool = False
    reads: tuple[str, ...] = ()  # files beyond the required ones that it reads where the folder has them
    needs: Callable[[ModelConfig], Sequence[str]] = lambda _: ()  # those of them that it cannot do without
    tolerance: Tolerance | None  # on logits, against eager; None: rounded weights, which only the task can judge
    reference_only: bool = False  # for proof and teaching: never chosen by itself, and not served
    slow: bool = False  # compared without long batches and most texts: it takes seconds where others take less
    on_request: bool = False  # compared only where it is named: it needs more than Python packages
    lacks: str = ""  # "module:function" in this package that says what it lacks here; None: nothing
    instead: str = ""  # the backend that runs a folder where a self-test finds this one wrong

    def open(self, bundle: Bundle, device: str | None = None, threads: int | None = None) -> Backend:
        """Import the backend and open a folder's model on it."""
        module, function = self.opener.split(":")
        opener = getattr(import_module(f"{__name__}.{module}"), function)
        backend: Backend = opener(bundle, device, threads, **self.arguments)
        bundle.confirm()
        return backend

    def obstacle(self, bundle: Bundle | None = None, device: str | None = None) -> Sentence | None:
        """Why it cannot run (this folder) here, and what to do; None if it can."""
        if find_spec(self.package) is None:
            template = "the package {name} is missing, get it with: {command}"
            return Sentence(template, name=self.package, command=self.install)
        if self.lacks:
            module, function = self.lacks.split(":")
            reason: Sentence | None = getattr(import_module(f"{__name__}.{module}"), function)()
            if reason is not None:
                return reason
        if device not in (None, "cpu") and not self.on_gpu:
            return Sentence("it runs on the CPU, not on {device}; leave the device out", device=device)
        if device is not None and device.startswith("cuda") and not has_nvidia_gpu():
            template = "the device {device} needs an NVIDIA GPU and its driver, and none was found; use cpu"
            return Sentence(template, device=device)
        missing = [] if bundle is None else [file for file in self.needs(bundle.config) if not bundle.has(file)]
        if bundle is not None and missing:
            command = f"python -m export all {bundle.folder}"
            template = "the folder has no {files}, make it with: {command}"
            return Sentence(template, files=", ".join(missing), command=command)
        return None


_TORCH, _ONNX = "pip install 'tiny-transformer[torch]'", "pip install onnxruntime"
BACKENDS = {
    spec.name: spec
    for spec in (
        BackendSpec(
            name="eager",
            package="torch",
            install=_TORCH,
            opener="cuda_graphs:open_eager",
            on_gpu=True,
            tolerance=EXACT,
        ),
        BackendSpec(
            name="torchscript",
            package="torch",
            install=_TORCH,
            opener="torchscript:open_torchscript",
            on_gpu=True,
            reads=(TORCHSCRIPT,),
            tolerance=EXACT,
        ),
        BackendSpec(
            name="onnx",
            package="onnxruntime",
            install=_ONNX,
            opener="onnx_runtime:open_ort",
            reads=FLOAT32_GRAPHS,
            needs=lambda config: [*graph_files(config, FLOAT32).values()],
            tolerance=CLOSE,
        ),
        BackendSpec(
            name="onnx-int8",
            package="onnxruntime",
            install=_ONNX,
            opener="onnx_runtime:open_ort",
            arguments={"int8": True},
            instead="onnx",
            reads=(INSIDE_ONNX, *INT8_FILES),
            needs=lambda config: [*graph_files(config, INT8).values(), WEIGHTS_INT8],
            tolerance=None,
        ),
        BackendSpec(
            name="numpy",
            package="numpy",
            install="pip install numpy",
            opener="numpy_reference:open_numpy",
            tolerance=CLOSE,
            reference_only=True,
            slow=True,
        ),
        BackendSpec(
            name="web",
            package="numpy",
            install="pip install numpy",
            opener="javascript:open_javascript",
            reads=FLOAT32_GRAPHS,
            needs=lambda config: [*graph_files(config, FLOAT32).values()],
            tolerance=CLOSE,
            reference_only=True,
            on_request=True,
            lacks="javascript:obstacle",
        ),
        BackendSpec(
            name="web-int8",
            package="numpy",
            install="pip install numpy",
            opener="javascript:open_javascript",
            arguments={"name": "web-int8"},
            reads=(*WEB_GRAPHS, WEIGHTS_INT8),
            needs=lambda config: [*graph_files(config, INT8_WEB).values(), WEIGHTS_INT8],
            tolerance=None,
            reference_only=True,
            on_request=True,
            lacks="javascript:obstacle",
        ),
    )
}
NAMES = tuple(BACKENDS)


@dataclass(frozen=True)
class Choice:
    """A backend that can run a folder here, and what its user should know about the choice."""

    name: str
    device: str | None = None
    notice: Sentence | None = None


def available(bundle: Bundle | None = None, device: str | None = None) -> dict[str, Sentence | None]:
    """For each backend None, or the reason why it cannot run (this folder) here and what to do."""
    return {name: spec.obstacle(bundle, device) for name, spec in BACKENDS.items()}


def backend_spec(name: str) -> BackendSpec:
    """The backend of a name."""
    if name not in BACKENDS:
        raise BackendError("There is no backend {name!r}; choose auto, {names}.", name=name, names=", ".join(NAMES))
    return BACKENDS[name]


def choose(bundle: Bundle, name: str = "auto", device: str | None = None) -> Choice:
    """The named backend if it can run; for "auto" eager on a GPU, else ONNX, else eager with a notice."""
    if name != "auto":
        reason = backend_spec(name).obstacle(bundle, device)
        if reason is not None:
            template = "The backend {name} cannot run {folder}: {reason}."
            raise BackendError(template, name=name, folder=bundle.folder, reason=reason)
        return Choice(name, device)
    if _wants_cuda(device):
        return Choice("eager", device or "cuda")
    onnx, eager = (BACKENDS[name].obstacle(bundle, device) for name in ("onnx", "eager"))
    if onnx is None:
        return Choice("onnx", device)
    if eager is None:
        notice = Sentence("Running on PyTorch instead of ONNX Runtime: {reason}.", reason=onnx)
        return Choice("eager", device, notice)
    template = "No backend can run {folder}. onnx: {onnx}; eager: {eager}."
    raise BackendError(template, folder=bundle.folder, onnx=onnx, eager=eager)


def open_backend(
    bundle: Bundle, name: str = "auto", *, device: str | None = None, threads: int | None = None
) -> Backend:
    """Open a folder's model on a backend; only then is its library imported."""
    choice = choose(bundle, name, device)
    if choice.notice:
        logger.warning(choice.notice)
    return BACKENDS[choice.name].open(bundle, choice.device, threads)


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


@contextmanager
def one_torch_thread() -> Iterator[None]:
    """PyTorch computes on one thread meanwhile: with two, that wait for each other, a proof takes twice the CPU."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def files_read(bundle: Bundle, name: str) -> list[str]:
    """The files of the folder that a backend's user relies on: what a parity report must vouch for."""
    return [file for file in (*REQUIRED, *BACKENDS[name].reads) if bundle.has(file)]


def on_cpu(choice: Choice) -> bool:
    """Whether a backend runs on the CPU: it does unless it can run on a GPU, one is there, and nobody asked for cpu."""
    return choice.device == "cpu" or not (BACKENDS[choice.name].on_gpu and has_nvidia_gpu())


def has_nvidia_gpu() -> bool:
    """Whether the CUDA driver is installed and shows at least one device; importing torch to ask takes 2 s."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    count = ctypes.c_int(0)
    return driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(count)) == 0 and count.value > 0


def _wants_cuda(device: str | None) -> bool:
    """Whether "auto" means a GPU: one was asked for, or one is there and torch can use it."""
    if device is not None:
        return device.startswith("cuda")
    if not has_nvidia_gpu() or find_spec("torch") is None:
        return False
    import torch  # 2 s, worth it now; a CPU build of torch cannot use the GPU

    return bool(torch.cuda.is_available())
