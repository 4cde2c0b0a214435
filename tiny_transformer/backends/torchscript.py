"""TorchScript: the same model, compiled; everything around it is the eager backend's.

PyTorch has deprecated TorchScript in favor of `torch.export`; it still runs, and loads without our code.
"""

import copy
import io
import warnings
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tiny_transformer.atomic import replacing_file
from tiny_transformer.backends.eager import EagerBackend, set_threads, torch_device
from tiny_transformer.backends.observed_values import Keep, Node, find_values
from tiny_transformer.bundle import TORCHSCRIPT, Bundle
from tiny_transformer.config import ModelConfig
from tiny_transformer.errors import BackendError, BundleError, first_line
from tiny_transformer.model import build_model, load_model, load_weights, weights_of


class TorchScriptBackend(EagerBackend):
    """Runs a scripted model through the protocol."""

    name = "torchscript"

    @cached_property
    def _watched_model(self) -> Any:
        """An eager model with the same weights: the parts of a scripted one cannot be watched."""
        model = build_model(self.config)
        load_weights(model, weights_of(self.model), where="the scripted model")
        return model.to(device=self.device, dtype=self.dtype).eval()

    def observed(self, keep: Keep) -> "TorchScriptBackend":
        """The same on the archive's own code, interpreted with more outputs."""
        backend = copy.copy(self)
        backend.model = ObservedArchive(self.model, self.config, keep)
        return backend


class ObservedArchive:
    """A scripted model whose methods also hand their inner values to `keep`. A module of an archive takes no hooks."""

    def __init__(self, model: torch.jit.ScriptModule, config: ModelConfig, keep: Keep) -> None:
        self._model, self._config, self._keep = model, config, keep
        self._interpret: Any = getattr(torch._C, "_jit_interpret_graph")  # noqa: B009 - torch has no type for it

    def __call__(self, *arguments: Any) -> Any:
        """What `forward` gives."""
        return self._run("forward", (["encoder"] if self._config.is_encoder_decoder else []) + ["decoder"], arguments)

    def encode(self, *arguments: Any) -> Any:
        """What `encode` gives."""
        return self._run("encode", ["encoder"], arguments)

    def decode(self, *arguments: Any) -> Any:
        """What `decode` gives."""
        return self._run("decode", ["decoder"], arguments)

    def _run(self, method: str, stacks: list[str], arguments: tuple[Any, ...]) -> Any:
        module: Any = self._model._c
        graph = module._get_method(method).inlined_graph.copy()
        nodes = list(graph.nodes())
        values = {value.debugName(): value for node in nodes for value in node.outputs()}
        names = [
            Node(
                node.kind(),
                tuple(value.debugName() for value in node.inputs()),
                tuple(value.debugName() for value in node.outputs()),
            )
            for node in nodes
        ]
        try:
            found = find_values(names, self._config, stacks)
        except ValueError as error:
            template = "The TorchScript model has another structure than its config says ({reason}); export it again."
            raise BackendError(template, reason=error) from None
        for value in found.values():
            graph.registerOutput(values[value])
        result, *inner = self._interpret(graph, (module, *arguments))
        for name, tensor in zip(found, inner, strict=True):
            self._keep(name, tensor.float().cpu().numpy())
        return result


def open_torchscript(bundle: Bundle, device: str | None = None, threads: int | None = None) -> TorchScriptBackend:
    """The folder's archive where it has one, otherwise its weights scripted in memory."""
    chosen = torch_device(device)
    set_threads(threads)
    if not bundle.has(TORCHSCRIPT):
        return TorchScriptBackend(script(load_model(bundle)), bundle.config, device=chosen)
    path = bundle.folder / TORCHSCRIPT
    model = load_archive(path)
    check_weights(model, bundle.weights(), path)
    return TorchScriptBackend(model, bundle.config, device=chosen)


def script(model: torch.nn.Module) -> torch.jit.ScriptModule:
    """The model compiled, in evaluation mode and without gradients; the only use of `torch.jit.script`.

    Models of one structure share what the compiler has optimized: where one ran with gradients before, the code for
    them would refuse the tensors of another that runs without.
    """
    with silenced():
        scripted: torch.jit.ScriptModule = torch.jit.script(model.eval().requires_grad_(False))
    return scripted


def write_archive(bundle: Bundle, path: Path) -> None:
    """Script the folder's model and write it; it is loaded again and its weights compared before it has its name."""
    buffer = io.BytesIO()  # a file's name would become the name of the folder inside the archive
    with silenced():
        torch.jit.save(script(load_model(bundle)), buffer)
    with replacing_file(path) as temporary:
        temporary.write_bytes(without_debug(buffer.getvalue()))
        check_weights(load_archive(temporary), bundle.weights(), temporary)


def without_debug(archive: bytes) -> bytes:
    """The archive less its debug records: they hold the paths of the source files, and nothing needs them."""
    kept = io.BytesIO()
    # Tensors are mapped from the file, so nothing in it may be compressed.
    with zipfile.ZipFile(io.BytesIO(archive)) as old, zipfile.ZipFile(kept, "w", zipfile.ZIP_STORED) as new:
        for name in old.namelist():
            if not name.endswith(".debug_pkl"):
                new.writestr(zipfile.ZipInfo(name), old.read(name))  # without a date: equal content, equal bytes
    return kept.getvalue()


def load_archive(path: Path) -> torch.jit.ScriptModule:
    """Load an archive. It holds code: only load what this machine made or a parity report vouches for."""
    try:
        with silenced():
            load: Any = torch.jit.load  # untyped in torch
            model: torch.jit.ScriptModule = load(path, map_location="cpu")
    except (RuntimeError, ValueError, OSError) as error:
        template = "{path} is not a TorchScript archive ({detail}); export it again."
        raise BundleError(template, path=path, detail=first_line(error)) from None
    return model


def check_weights(model: torch.nn.Module, weights: Mapping[str, np.ndarray], path: Path) -> None:
    """Refuse an archive made from other weights than the folder's."""
    held = dict(model.named_parameters())
    for name in sorted(weights.keys() | held.keys()):
        same = (
            name in held
            and name in weights
            and np.array_equal(held[name].detach().float().numpy(), weights[name].astype(np.float32))
        )
        if not same:
            raise BundleError(
                "{path} holds other weights than the folder ({name} differs); export it again.", path=path, name=name
            )


@contextmanager
def silenced() -> Iterator[None]:
    """Without the warning that TorchScript is deprecated: the README says so once for all."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"`torch\.jit\.\w+` is deprecated", DeprecationWarning)
        yield
