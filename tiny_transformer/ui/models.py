"""The models the page offers: opened once for all visitors, on whichever backends are asked for."""

import os
import threading
import time
from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tiny_transformer.backends import BACKENDS, available, choose
from tiny_transformer.bundle import Bundle
from tiny_transformer.errors import BackendError, InputError, Sentence, TinyTransformerError
from tiny_transformer.text_model import TextModel, load, resolve
from tiny_transformer.tokenizer import Message
from tiny_transformer.ui.page_settings import SERVED, Settings
from tiny_transformer.ui.streaming import Answer, stream_answer

if TYPE_CHECKING:
    from tiny_transformer.backends.inside_graph import InsideGraph


@dataclass(frozen=True)
class ModelEntry:
    """One model folder: open, or with the sentence that says why it is not."""

    name: str
    folder: str
    bundle: Bundle | None
    problem: Sentence | None = None

    @property
    def task(self) -> str | None:
        """What the model is for; nobody knows that of a folder that does not open."""
        return None if self.bundle is None else self.bundle.generation.task


@dataclass(frozen=True)
class Loaded:
    """A model on a backend, and what loading it took."""

    model: TextModel
    seconds: float
    memory: int | None  # bytes the process grew by, without the library; None where the system does not say


class ModelStore:
    """All entries by name. Threads may share it; each model is loaded once on each backend."""

    def __init__(
        self, folders: Sequence[str], backend: str = "auto", threads: int | None = 1, device: str | None = None
    ) -> None:
        self.entries: dict[str, ModelEntry] = {}
        for folder in folders:
            name = _free_name(_shown(folder), self.entries)
            self.entries[name] = _opened(name, folder)
        self.backend = backend
        self._threads = threads
        self._device = device
        self._loaded: dict[tuple[str, str], Loaded] = {}
        self._inside: dict[str, InsideGraph] = {}
        self._lock = threading.Lock()

    @property
    def default(self) -> str:
        """The model a visitor meets first: the first that opens."""
        return next((name for name, entry in self.entries.items() if entry.bundle), next(iter(self.entries)))

    def first(self, task: str) -> str:
        """The first model for a task; without one, a folder that does not open may have been meant for it."""
        for name, entry in self.entries.items():
            if entry.task == task:
                return name
        for entry in self.entries.values():
            if entry.problem is not None:
                raise InputError(entry.problem)
        raise InputError("This page has no model for {task}; start it with one.", task=task)

    def entry(self, name: object) -> ModelEntry:
        """The model of a name."""
        if not isinstance(name, str) or name not in self.entries:
            raise InputError(
                "There is no model {name!r}; choose one of {names}.", name=name, names=", ".join(self.entries)
            )
        return self.entries[name]

    def bundle(self, name: str) -> Bundle:
        """An open folder; a missing or damaged one says why."""
        entry = self.entry(name)
        if entry.bundle is None:
            assert entry.problem is not None, "a folder is open or says why it is not"
            raise InputError(entry.problem)
        return entry.bundle

    def backends(self, name: str) -> dict[str, Sentence | None]:
        """For each backend that the page offers None, or why it cannot run this model here."""
        entry = self.entry(name)
        reasons = available(entry.bundle) if entry.bundle else {}
        return {backend: reasons.get(backend, entry.problem) for backend in SERVED}

    def chosen(self, name: str, backend: str = "auto") -> str:
        """The backend that a name means here; "auto" is the page's own choice."""
        wanted = self.backend if backend == "auto" else backend
        if wanted != "auto" and wanted not in SERVED:
            template = "There is no backend {name!r}; choose auto, {names}."
            raise BackendError(template, name=wanted, names=", ".join(SERVED))
        return choose(self.bundle(name), wanted, self._device).name

    def load(self, name: str, backend: str = "auto") -> Loaded:
        """The model on a backend, loaded now if it was not yet."""
        key = (name, self.chosen(name, backend))
        found = self._loaded.get(key)
        if found is None:
            with self._lock:  # one at a time, so that memory is measured for one alone
                if key not in self._loaded:
                    self._loaded[key] = _load(self.bundle(name), key[1], self._threads, self._device)
                found = self._loaded[key]
        return found

    def warm_up(self) -> None:
        """Load the model a visitor meets first, so that the first answer does not wait for it."""
        self.load(self.default)

    def inside(self, name: str) -> "InsideGraph":
        """The graph of a model's inner values, whatever backend answers; a folder without it says what adds it."""
        reason = BACKENDS["onnx"].obstacle()
        if reason is not None:
            raise BackendError(reason)
        from tiny_transformer.backends.inside_graph import InsideGraph
        from tiny_transformer.backends.onnx_runtime import OrtBackend

        bundle = self.bundle(name)
        with self._lock:
            if name not in self._inside:
                backends = [loaded.model.backend for (model, _), loaded in self._loaded.items() if model == name]
                opened = next((backend for backend in backends if isinstance(backend, OrtBackend)), None)
                self._inside[name] = opened.inside_graph if opened else InsideGraph(bundle, self._threads)
            return self._inside[name]

    def answers(
        self, name: str, backend: str, content: str | Sequence[Message], options: dict[str, Any], seconds: float
    ) -> Generator[Answer]:
        """States of one answer of a model, the last one complete."""
        return stream_answer(self.load(name, backend).model, content, options, seconds)

    def loaded(self, name: str) -> dict[str, Loaded]:
        """The backends a model is loaded on now."""
        return {backend: found for (owner, backend), found in list(self._loaded.items()) if owner == name}


def _shown(folder: str) -> str:
    """A short name: of USER/NAME@REVISION on the Hub, the NAME."""
    path = Path(folder)
    return path.name if path.exists() else path.name.split("@")[0]


def _opened(name: str, folder: str) -> ModelEntry:
    try:
        return ModelEntry(name, folder, Bundle.open(resolve(folder, all_files=True)))  # the card and the curve too
    except TinyTransformerError as error:
        return ModelEntry(name, folder, None, error.message)


def _load(bundle: Bundle, backend: str, threads: int | None, device: str | None) -> Loaded:
    start = time.perf_counter()
    import_module(BACKENDS[backend].package)  # its memory is the library's: the model that comes first should not pay
    before = resident_bytes()
    model = load(bundle.folder, backend, device, threads)
    _run_in(model)
    seconds, after = time.perf_counter() - start, resident_bytes()
    memory = None if before is None or after is None else max(0, after - before)
    return Loaded(model, seconds, memory)


def _run_in(model: TextModel) -> None:
    """A few tokens now: the first runs of a backend compile and allocate, which no visitor should wait for."""
    row = [model.bundle.generation.bos_id]
    for _ in range(3):
        model.generate_ids([row], max_new_tokens=3, min_new_tokens=3)


def resident_bytes() -> int | None:
    """Memory of this process that is really in use; None where there is no /proc."""
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return None


def _free_name(wanted: str, taken: dict[str, ModelEntry]) -> str:
    """The folder's name, with a number where two folders share it."""
    name, number = wanted or "model", 2
    while name in taken:
        name, number = f"{wanted}-{number}", number + 1
    return name


SECONDS_TO_OPEN = 10  # a new process opens its model before it answers
ON_GPU = "eager"  # the one backend that runs on CUDA


def open_store(settings: Settings) -> ModelStore:
    """The page's models, as the machine that serves it can run them."""
    store = ZeroGpuModelStore if on_zero_gpu() else ModelStore
    return store(settings.models, settings.backend, settings.threads)


def on_zero_gpu() -> bool:
    """Whether this is a Space whose GPU comes and goes; ZeroGPU itself says so."""
    return os.environ.get("SPACES_ZERO_GPU", "").lower() in ("1", "t", "true")


class ZeroGpuModelStore(ModelStore):
    """Models whose eager backend answers on a GPU attached for one answer; the rest runs on this process's CPU."""

    def __init__(self, folders: Sequence[str], backend: str = "auto", threads: int | None = 1) -> None:
        import spaces  # ahead of torch: from here on this process must not touch the driver

        super().__init__(folders, ON_GPU if backend == "auto" else backend, threads, device="cpu")
        there = ModelStore(folders, ON_GPU, threads, device="cuda")  # opens nothing before a GPU is there

        def on_gpu(
            name: str, content: str | Sequence[Message], options: dict[str, Any], seconds: float
        ) -> Generator[Answer | TinyTransformerError]:
            try:
                yield from there.answers(name, ON_GPU, content, options, seconds)
            except TinyTransformerError as error:  # raised there, only its type would come back
                yield error

        def duration(name: str, content: object, options: dict[str, Any], seconds: float) -> int:
            return SECONDS_TO_OPEN + int(seconds)

        self._on_gpu = spaces.GPU(duration=duration)(on_gpu)

    def answers(
        self, name: str, backend: str, content: str | Sequence[Message], options: dict[str, Any], seconds: float
    ) -> Generator[Answer]:
        """On the GPU if the backend that was asked for is eager."""
        if self.chosen(name, backend) != ON_GPU:
            return super().answers(name, backend, content, options, seconds)
        return self._answers_on_gpu(name, content, options, seconds)

    def warm_up(self) -> None:
        """Nothing: a GPU's process opens its model itself, and would inherit the locks of a thread that loads here."""

    def _answers_on_gpu(self, *asked: Any) -> Generator[Answer]:
        with closing(self._on_gpu(*asked)) as states:
            for state in states:
                if isinstance(state, TinyTransformerError):
                    raise state
                yield state
