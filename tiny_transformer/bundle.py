"""A model folder: which files it holds, how it is written whole, and how it is opened strictly."""

import hashlib
import math
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tiny_transformer import atomic
from tiny_transformer.config import GenerationConfig, ModelConfig
from tiny_transformer.errors import BundleError, Sentence, TinyTransformerError
from tiny_transformer.tokenizer import Tokenizer
from tiny_transformer.weights import WeightIndex, read_index, read_weights, write_weights

CONFIG = "config.json"
GENERATION = "generation.json"
TOKENIZER = "tokenizer.json"
WEIGHTS = "model.safetensors"
WEIGHTS_INT8 = "model_int8.safetensors"
ENCODER_ONNX, DECODER_ONNX, INSIDE_ONNX = "encoder_model.onnx", "decoder_model.onnx", "inside.onnx"
ATTENTION_ONNX = "attention.onnx"  # of folders that were exported before inside.onnx gave the maps; nothing reads it
ENCODER_INT8, DECODER_INT8 = "encoder_model_int8.onnx", "decoder_model_int8.onnx"
ENCODER_INT8_BATCH, DECODER_INT8_BATCH = "encoder_model_int8_batch.onnx", "decoder_model_int8_batch.onnx"
ENCODER_WEB, DECODER_WEB = "encoder_model_web.onnx", "decoder_model_web.onnx"
TORCHSCRIPT = "model.ts.pt"
EVALUATION = "evaluation.jsonl"
PARITY = "parity.json"
TRAINING = "training.json"
CURVE = "training.png"
CASES = "cases.json"
CARD = "README.md"

# Precisions of a graph. A batch graph has the weights of the 8-bit one and kernels that are faster for many rows; some
# folders lack it. A web graph reads the 8-bit weights and computes in float32: a browser has no fast 8-bit kernels, but
# half the download.
FLOAT32, INT8, INT8_BATCH, INT8_WEB = "float32", "int8", "int8-batch", "int8-web"


@dataclass(frozen=True)
class FileSpec:
    """A file that a model folder may hold."""

    name: str
    required: bool = False
    derived: bool = False  # made from the weights, so new weights make it stale
    hashed: bool = True  # a parity report vouches for its bytes
    graph: str = ""  # which ONNX graph it holds: encoder, decoder or inside
    precision: str = FLOAT32


# Every file that is published; others in a folder are no part of the model.
FILES = (
    FileSpec(CONFIG, required=True),
    FileSpec(GENERATION, required=True),
    FileSpec(TOKENIZER, required=True),
    FileSpec(WEIGHTS, required=True),
    FileSpec(ENCODER_ONNX, derived=True, graph="encoder"),
    FileSpec(DECODER_ONNX, derived=True, graph="decoder"),
    FileSpec(INSIDE_ONNX, derived=True, graph="inside"),
    FileSpec(ATTENTION_ONNX, derived=True),
    FileSpec(ENCODER_INT8, derived=True, graph="encoder", precision=INT8),
    FileSpec(DECODER_INT8, derived=True, graph="decoder", precision=INT8),
    FileSpec(ENCODER_INT8_BATCH, derived=True, graph="encoder", precision=INT8_BATCH),
    FileSpec(DECODER_INT8_BATCH, derived=True, graph="decoder", precision=INT8_BATCH),
    FileSpec(ENCODER_WEB, derived=True, graph="encoder", precision=INT8_WEB),
    FileSpec(DECODER_WEB, derived=True, graph="decoder", precision=INT8_WEB),
    FileSpec(WEIGHTS_INT8, derived=True, precision=INT8),
    FileSpec(TORCHSCRIPT, derived=True),
    FileSpec(PARITY, derived=True, hashed=False),  # a report cannot hold its own hash
    FileSpec(EVALUATION),
    FileSpec(TRAINING),
    FileSpec(CURVE),
    FileSpec(CASES, derived=True, hashed=False),  # may be measured after the proof
    FileSpec(CARD, hashed=False),  # its author may edit it
)
PUBLISHED = tuple(file.name for file in FILES)
REQUIRED = tuple(file.name for file in FILES if file.required)
DERIVED = tuple(file.name for file in FILES if file.derived)
UNHASHED = tuple(file.name for file in FILES if not file.hashed)
FLOAT32_GRAPHS = tuple(file.name for file in FILES if file.graph and file.precision == FLOAT32)
INT8_FILES = tuple(file.name for file in FILES if file.precision in (INT8, INT8_BATCH))
WEB_GRAPHS = tuple(file.name for file in FILES if file.precision == INT8_WEB)


def graph_files(config: ModelConfig, precision: str = FLOAT32) -> dict[str, str]:
    """The graphs that generate text with a model of this shape: "encoder" or "decoder" → file name."""
    parts = ("encoder", "decoder") if config.is_encoder_decoder else ("decoder",)
    return {file.graph: file.name for file in FILES if file.graph in parts and file.precision == precision}


WEIGHTS_SHA256 = "weights_sha256"  # in the metadata of the int8 file: the weights it was made from
STORED_AS = ("F32", "F16")
_CHANGED = "{path} was changed after it had been checked; load the model again."
EMBEDDING = "embedding.tokens.weight"  # the one tensor every model has, (vocab_size, d_model)


@dataclass(frozen=True)
class Bundle:
    """An opened model folder whose files belong together."""

    folder: Path
    config: ModelConfig
    generation: GenerationConfig
    tokenizer: Tokenizer = field(repr=False, compare=False)
    # Stamps of the required files before they were read, and what `sha256` saw of a file: so that other bytes are
    # noticed which come in between.
    _read: dict[str, tuple[int, ...]] = field(default_factory=dict, repr=False, compare=False)
    _seen: dict[str, tuple[str, tuple[int, ...]]] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def open(cls, folder: Path | str, *, require_float_weights: bool = True) -> "Bundle":
        """Open a folder strictly: every required file there, readable, and of one model.

        A folder that was pulled for the 8-bit backend holds the weights in 8 bits alone.
        """
        folder = Path(folder)
        if not folder.is_dir():
            raise BundleError(
                "{folder} is not a folder; name a model folder such as checkpoints/translate.", folder=folder
            )
        _check_regular(folder)
        optional = {WEIGHTS} if not require_float_weights and (folder / WEIGHTS_INT8).is_file() else set()
        missing = [name for name in REQUIRED if name not in optional and not (folder / name).is_file()]
        if missing:
            template = "{folder} lacks {files}; restore the files or train the model again."
            raise BundleError(template, folder=folder, files=", ".join(missing))
        stamps = {name: _stamp((folder / name).stat()) for name in REQUIRED if (folder / name).is_file()}
        config, generation = ModelConfig.load(folder / CONFIG), GenerationConfig.load(folder / GENERATION)
        tokenizer = Tokenizer.load(folder / TOKENIZER, output_size=config.output_vocab_size)
        bundle = cls(folder, config, generation, tokenizer, stamps)
        bundle._check()
        return bundle

    def _check(self) -> None:
        if self.has(WEIGHTS):
            self._check_weights()
        vocabulary = self.config.vocab_size
        if self.tokenizer.vocab_size != vocabulary:
            raise BundleError(
                "{path} has {n} tokens, but {config} says vocab_size {wanted}; use the tokenizer the model "
                "was trained with.",
                path=self.folder / TOKENIZER,
                n=self.tokenizer.vocab_size,
                config=CONFIG,
                wanted=vocabulary,
            )
        special = self.generation
        ids = {"pad_id": special.pad_id, "bos_id": special.bos_id, "eos_id": special.eos_id}
        ids |= {f"roles.{role}": token for role, token in special.roles.items()}
        for name, token in ids.items():
            if token not in self.tokenizer.special_ids:
                template = (
                    "{path}: {name} is {token}, which is no special token of {tokenizer}; use the file the "
                    "model was trained with."
                )
                raise BundleError(template, path=self.folder / GENERATION, name=name, token=token, tokenizer=TOKENIZER)
        if special.max_source_tokens > self.config.max_length:
            raise BundleError(
                "{path}: max_source_tokens is {max_source_tokens}, above the model's max_length of "
                "{max_length}; lower it.",
                path=self.folder / GENERATION,
                max_source_tokens=special.max_source_tokens,
                max_length=self.config.max_length,
            )

    def _check_weights(self) -> None:
        vocabulary, width = self.config.vocab_size, self.config.d_model
        tensors = self.index.tensors
        entry = tensors.get(EMBEDDING)
        if entry is None or entry.shape != (vocabulary, width):
            found = Sentence("no such tensor") if entry is None else Sentence("shape {shape}", shape=entry.shape)
            raise BundleError(
                "{path}: {embedding} should have shape ({vocabulary}, {width}) as {config} says, but the "
                "file has {found}; the two files are of different models.",
                path=self.folder / WEIGHTS,
                embedding=EMBEDDING,
                vocabulary=vocabulary,
                width=width,
                config=CONFIG,
                found=found,
            )
        n_parameters = sum(math.prod(tensor.shape) for tensor in tensors.values())
        if n_parameters != self.config.n_parameters:
            raise BundleError(
                "{path} holds {n} numbers, but {config} describes a model of {wanted}; the two files are of "
                "different models.",
                path=self.folder / WEIGHTS,
                n=n_parameters,
                config=CONFIG,
                wanted=self.config.n_parameters,
            )
        for name, tensor in tensors.items():
            if tensor.dtype not in STORED_AS:
                raise BundleError(
                    "{path}: {name} is stored as {dtype}, not as {stored_as}; restore the file.",
                    path=self.folder / WEIGHTS,
                    name=name,
                    dtype=tensor.dtype,
                    stored_as=" or ".join(STORED_AS),
                )

    @property
    def index(self) -> WeightIndex:
        """Where each tensor lies in the weights file."""
        return read_index(self.folder / WEIGHTS)

    def weights(self) -> dict[str, np.ndarray]:
        """Every tensor as stored (float32 or float16), read-only."""
        weights = read_weights(self.folder / WEIGHTS)
        self.confirm(WEIGHTS)
        return weights

    def has(self, *names: str) -> bool:
        """Whether the folder holds all of these files."""
        return all((self.folder / name).is_file() for name in names)

    def files(self) -> list[str]:
        """Names of the regular files in the folder, sorted; hidden ones are not part of a model."""
        return sorted(p.name for p in self.folder.iterdir() if p.is_file() and not p.name.startswith("."))

    def hashes(self) -> dict[str, str]:
        """SHA-256 of every file a report vouches for."""
        return {name: sha256(self.folder / name) for name in self.files() if name not in UNHASHED}

    def sha256(self, name: str) -> str:
        """SHA-256 of a file, in hexadecimal; from now on `confirm` refuses other bytes."""
        self._seen[name] = _hashed(self.folder / name)
        return self._seen[name][0]

    def confirm(self, *names: str) -> None:
        """Refuse a file whose bytes are no longer those that were hashed; call this once a file has been opened.

        Between the hash and the first use of a graph there may be hours. A file that was replaced or rewritten has
        another stamp, so it is read again; without a change this costs some microseconds a file.
        """
        for name in names or tuple(self._seen):
            digest, stamp = self._seen.get(name, ("", ()))
            path = self.folder / name
            # Was it another file when it was read? The last time of a stamp changes too when a file gets a second
            # name, as another process's pull gives it.
            if digest and stamp[:-1] != self._read.get(name, stamp)[:-1]:
                raise BundleError(_CHANGED, path=path)
            if digest and (not path.is_file() or (_stamp(path.stat()) != stamp and _hashed(path)[0] != digest)):
                raise BundleError(_CHANGED, path=path)


def _check_regular(folder: Path) -> None:
    """Refuse what hangs or never ends when read: devices, pipes, and the kernel's own files, also behind links."""
    try:
        for path in folder.iterdir():
            # A file of /proc says that it is a regular one.
            kernel = path.is_file() and any(path.resolve().is_relative_to(root) for root in ("/proc", "/sys"))
            if kernel or (path.name in PUBLISHED and path.exists() and not path.is_file()):
                template = "{path} is not a regular file; put a copy of the real one in its place."
                raise BundleError(template, path=path)
    except OSError as error:
        template = "{path} cannot be read ({reason}); check the folder."
        raise BundleError(template, path=folder, reason=error.strerror) from None


def _stamp(status: os.stat_result) -> tuple[int, ...]:
    """Equal as long as a file is the same one, with the same bytes; no program can set the last time of these."""
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def sha256(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    return _hashed(path)[0]


def _hashed(path: Path) -> tuple[str, tuple[int, ...]]:
    """SHA-256 of a file, and the stamp that it had before it was read."""
    try:
        with path.open("rb") as file:
            stamp = _stamp(os.fstat(file.fileno()))
            return hashlib.file_digest(file, "sha256").hexdigest(), stamp
    except OSError as error:
        raise BundleError(
            "{path} cannot be read ({reason}); check the folder.", path=path, reason=error.strerror
        ) from None


def save_bundle(
    folder: Path | str,
    config: ModelConfig,
    generation: GenerationConfig,
    tokenizer: Tokenizer,
    weights: Mapping[str, np.ndarray],
    *,
    half: bool = False,
    extra: Mapping[str, str | bytes] | None = None,
    overwrite: bool = False,
) -> Bundle:
    """Write a whole model folder in one step. An existing one needs `overwrite` and goes as a whole."""
    folder = Path(folder)
    check_target(folder, overwrite=overwrite)
    dtype = np.float16 if half else np.float32
    stored = {name: _stored(name, value, dtype) for name, value in weights.items()}
    with atomic.replacing_folder(folder) as staging:
        (staging / CONFIG).write_text(config.to_json(), encoding="utf-8")
        (staging / GENERATION).write_text(generation.to_json(), encoding="utf-8")
        tokenizer.save(staging / TOKENIZER)
        write_weights(staging / WEIGHTS, stored)
        for name, content in (extra or {}).items():
            (staging / name).write_bytes(content.encode("utf-8") if isinstance(content, str) else content)
        with reported_as(staging, folder):
            Bundle.open(staging)  # it replaces the old folder only if it opens
    return Bundle.open(folder)


@contextmanager
def reported_as(copy: Path, folder: Path) -> Iterator[None]:
    """Let errors about a temporary copy name the user's own folder: the copy is gone when they are read."""

    def renamed(value: Any) -> Any:
        return folder / value.relative_to(copy) if isinstance(value, Path) and value.is_relative_to(copy) else value

    try:
        yield
    except TinyTransformerError as error:
        raise type(error)(error.message.with_values(renamed)) from None


def check_target(folder: Path, *, overwrite: bool) -> None:
    """Refuse to replace anything but a model folder, and that only when asked."""
    if not folder.exists() and not folder.is_symlink():
        return
    if not folder.is_dir() or folder.is_symlink():
        raise BundleError("{folder} is not a folder of its own; choose another place.", folder=folder)
    if Path.cwd().is_relative_to(folder.resolve()):
        raise BundleError(
            "{folder} is the current folder or holds it, so it cannot be replaced; choose another.", folder=folder
        )
    names = {path.name for path in folder.iterdir()}
    # A model has no folders inside: what has them is somebody's work, whatever its files are called.
    if names and (CONFIG not in names or any(path.is_dir() for path in folder.iterdir())):
        raise BundleError("{folder} holds other files than a model's; choose another folder.", folder=folder)
    if names and not overwrite:
        raise BundleError("{folder} already holds a model; add --overwrite to replace it.", folder=folder)


def remove_derived(folder: Path, names: Iterable[str] = DERIVED) -> None:
    """Delete graphs, archives and report, or some of them: what no longer belongs to the weights."""
    for name in names:
        (folder / name).unlink(missing_ok=True)


def copy_bundle(source: Path, target: Path) -> Bundle:
    """Copy a model folder's files into a new folder."""
    bundle = Bundle.open(source)
    check_target(target, overwrite=False)
    with atomic.replacing_folder(target) as staging:
        for name in bundle.files():
            shutil.copyfile(source / name, staging / name)
    return Bundle.open(target)


def _stored(name: str, value: np.ndarray, dtype: type[np.floating]) -> np.ndarray:
    with np.errstate(over="ignore"):
        stored = value.astype(dtype)
    if not np.isfinite(stored).all():
        raise BundleError(
            "The weight {name} has values that {kind} cannot hold; it was not written.", name=name, kind=dtype.__name__
        )
    return stored
