"""The TorchScript archive of a model folder."""

import io
import zipfile
from pathlib import Path

import torch

from tiny_transformer.atomic import replacing_file
from tiny_transformer.backends.torchscript import check_weights, load_archive, script, silenced
from tiny_transformer.bundle import TORCHSCRIPT, Bundle
from tiny_transformer.model import load_model


def export_torchscript(folder: Path) -> list[str]:
    """Script the folder's model and save it; the file's name.

    The archive is loaded again and its weights compared before it takes its name.
    """
    bundle = Bundle.open(folder)
    buffer = io.BytesIO()  # a file's name would become the name of the folder inside the archive
    with silenced():
        torch.jit.save(script(load_model(bundle)), buffer)
    with replacing_file(folder / TORCHSCRIPT) as temporary:
        temporary.write_bytes(without_debug(buffer.getvalue()))
        check_weights(load_archive(temporary), bundle.weights(), temporary)
    return [TORCHSCRIPT]


def without_debug(archive: bytes) -> bytes:
    """The archive less its debug records: they hold the paths of the source files, and nothing needs them."""
    kept = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(archive)) as old, zipfile.ZipFile(kept, "w", zipfile.ZIP_STORED) as new:
        for name in old.namelist():
            if not name.endswith(".debug_pkl"):
                new.writestr(zipfile.ZipInfo(name), old.read(name))  # without a date: equal content, equal bytes
    return kept.getvalue()
