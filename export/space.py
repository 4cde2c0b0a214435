"""A Gradio Space that serves one model of the Hub, at one revision, with this project's page."""

import shutil
from pathlib import Path

from tiny_transformer.errors import ExportError, HubError

from .card_metadata import as_yaml
from .hub import Outcome, Remote, local_files

PYTHON = "3.12"  # a Space's default is too old for ONNX Runtime
APP, STARTER, LIBRARY, REQUIREMENTS, CARD = "app.py", "space.py", "tiny_transformer", "requirements.txt", "README.md"
SIGN = f"{LIBRARY}/__init__.py"  # a Space with this file is of our making
_LEAVE_OUT = shutil.ignore_patterns("__pycache__", "*.pyc", "export")

_START = '''"""Serve one model, at the revision it was published with."""

import os
import runpy

os.environ.setdefault("TINY_TRANSFORMER_MODEL", "{model}@{revision}")
runpy.run_path("app.py", run_name="__main__")
'''

_TEXT = """
# {name}

The page of Tiny Transformer for [{model}]({endpoint}/{model}), served from the Hub at the commit
[`{revision:.12}`]({endpoint}/{model}/tree/{revision}). Every file is checked against that commit's parity report before
it is used.
"""


def stage_space(
    folder: Path, name: str, model: str, revision: str, *, endpoint: str, hardware: str = "", root: Path
) -> None:
    """Write a Space's files: page, library, what to install, and the front matter that starts it."""
    check_checkout(root)
    pins = _pins(root / REQUIREMENTS)
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(root / APP, folder / APP)
    shutil.copytree(root / LIBRARY, folder / LIBRARY, ignore=_LEAVE_OUT)
    (folder / STARTER).write_text(_START.format(model=model, revision=revision), encoding="utf-8")
    # On a Space gradio comes from sdk_version, and torch would be 600 MB that a CPU has no use for.
    left_out = {"gradio"} if on_gpu(hardware) else {"gradio", "torch"}
    lines = [f"{package}=={version}\n" for package, version in pins.items() if package not in left_out]
    (folder / REQUIREMENTS).write_text("".join(lines), encoding="utf-8")
    metadata = {
        "title": name.rsplit("/", 1)[-1],
        "emoji": "🔬",
        "colorFrom": "indigo",
        "colorTo": "green",
        "sdk": "gradio",
        "sdk_version": pins["gradio"],
        "python_version": PYTHON,
        "app_file": STARTER,
        "models": [model],
        "license": "apache-2.0",
    }
    text = _TEXT.format(name=metadata["title"], model=model, revision=revision, endpoint=endpoint)
    (folder / CARD).write_text(as_yaml(metadata) + text, encoding="utf-8")


def check_checkout(root: Path) -> None:
    """A Space is made of files that an installed package does not have."""
    for needed in (APP, LIBRARY, REQUIREMENTS):
        if not (root / needed).exists():
            raise ExportError(f"{root} has no {needed}; a Space is made from a checkout of the project, so push there.")


def on_gpu(hardware: str) -> bool:
    """Whether a Space's hardware has a GPU, ZeroGPU included."""
    return bool(hardware) and not hardware.startswith("cpu-")


def publish_space(remote: Remote, folder: Path, *, private: bool, hardware: str, message: str) -> Outcome:
    """Create the Space if need be, bring it up to date in one commit, and ask for its hardware."""
    existed = remote.info() is not None
    if not existed:
        wanted = {"space_hardware": hardware} if hardware else {}
        remote.create(space_sdk="gradio", private=private, **wanted)
    head = remote.head()
    remote.refuse_strangers(head, SIGN, "a Space of this project")
    files = local_files(folder)
    changes = remote.compare(files, head, _ours)
    outcome = Outcome(head, False) if changes.none else remote.publish(files, head, changes, message)
    if existed and hardware and remote.hardware() != hardware:
        remote.request_hardware(hardware)
        outcome = Outcome(outcome.commit, True)
    return outcome


def explained(error: HubError, model_address: str) -> HubError:
    """Why there is no Space, and that the model is there all the same."""
    reason = str(error)
    if error.status == 402:
        reason = (
            "the Hub wants a paid plan for a Gradio Space on free hardware, or billing for other hardware (402); "
            "see https://huggingface.co/pricing, then run the same command again."
        )
    return HubError(f"The model is published at {model_address}, but its Space is not: {reason}", status=error.status)


def _ours(path: str) -> bool:
    return path.startswith(f"{LIBRARY}/") or path in (APP, STARTER, REQUIREMENTS)


def _pins(path: Path) -> dict[str, str]:
    """Package → version of a requirements file that pins."""
    lines = (line.split("#")[0].strip() for line in path.read_text(encoding="utf-8").splitlines())
    pins = dict(line.split("==") for line in lines if "==" in line)
    if "gradio" not in pins:
        raise ExportError(f"{path} does not pin gradio; a Space needs its version, so add gradio==….")
    return pins
