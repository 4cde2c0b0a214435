"""A TorchScript archive made for a visitor: the model alone, without a word about the machine it was made on."""

import io
import zipfile
from pathlib import Path

from tiny_transformer import atomic
from tiny_transformer.bundle import Bundle


def write_archive(bundle: Bundle, path: Path) -> None:
    """Script the folder's model and write it without its debug records, which hold paths of this machine."""
    import torch

    from tiny_transformer.backends.torchscript import script, silenced
    from tiny_transformer.model import load_model

    buffer = io.BytesIO()
    with silenced():
        torch.jit.save(script(load_model(bundle)), buffer)
    lean = io.BytesIO()
    # Tensors are mapped from the file, so nothing in it may be compressed.
    with zipfile.ZipFile(buffer) as whole, zipfile.ZipFile(lean, "w", zipfile.ZIP_STORED) as archive:
        for entry in whole.infolist():
            if not entry.filename.endswith(".debug_pkl"):
                archive.writestr(entry.filename, whole.read(entry))
    atomic.write_file(path, lean.getvalue())
