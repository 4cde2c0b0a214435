"""Spaces for one model: a Gradio Space that serves it at one revision, and a static one that runs in the browser."""

import json
import shutil
from pathlib import Path
from typing import Any

from huggingface_hub import SpaceCardData

from tiny_transformer.errors import ExportError, HubError, Sentence

from .hub_repository import Remote, local_files
from .to_web import INDEX, SITE

PYTHON = "3.12"  # a Space's default is too old for ONNX Runtime
APP, STARTER, LIBRARY, REQUIREMENTS, CARD = "app.py", "space.py", "tiny_transformer", "requirements.txt", "README.md"
MARKER = f"{LIBRARY}/__init__.py"  # a Space with this file is of our making
MODEL_VARIABLE, TOKEN_SECRET = "TINY_TRANSFORMER_MODEL", "HF_TOKEN"
# ZeroGPU works with a few versions of torch alone and brings its own client: the platform chooses both.
ZERO_GPU, BROUGHT_BY_ZERO_GPU = "zero-", ("torch", "spaces")
_ZERO_GPU_SECONDS = 10  # for an answer: visitors have minutes a day, and what is asked for counts
_LEAVE_OUT = shutil.ignore_patterns("__pycache__", "*.pyc", "export")

_START = '''"""Serve one model, at the revision it was published with."""

import os
import runpy

for name, value in {variables}.items():
    os.environ.setdefault(name, value)
runpy.run_path("app.py", run_name="__main__")
'''

_TEXT = """
# {name}

The page of Tiny Transformer for [{model}]({endpoint}/{model}), served from the Hub at the commit
[`{revision:.12}`]({endpoint}/{model}/tree/{revision}). Every file is checked against that commit's parity report before
it is used.
"""

_STATIC_TEXT = """
# {name}

[{model}]({endpoint}/{model}) at the commit [`{revision:.12}`]({endpoint}/{model}/tree/{revision}) in the visitor's own
browser: no server computes anything, and what a visitor writes stays in the tab. The model's files are those of that
commit, {files}; the page checks each against the parity report before it is used.
"""
_UNCHANGED = "unchanged"
_ROUNDED = "in 8 bits: the rounded weights unchanged, and graphs that make them float when the page is opened"


def stage_space(
    folder: Path, name: str, model: str, revision: str, *, endpoint: str, hardware: str = "", root: Path
) -> None:
    """Write a Space's files: page, library, what to install, and the front matter that starts it."""
    check_checkout(root)
    pins = _pins(root / REQUIREMENTS)
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(root / APP, folder / APP)
    shutil.copytree(root / LIBRARY, folder / LIBRARY, ignore=_LEAVE_OUT)
    (folder / STARTER).write_text(_starter(model, revision, hardware), encoding="utf-8")
    (folder / REQUIREMENTS).write_text("".join(f"{line}\n" for line in _requirements(pins, hardware)), encoding="utf-8")
    runs_on = {"suggested_hardware": hardware} if on_gpu(hardware) else {}  # for those who duplicate the Space
    made_with = {
        "sdk": "gradio",
        "sdk_version": pins["gradio"],
        "python_version": PYTHON,
        "app_file": STARTER,
        **runs_on,
    }
    text = _TEXT.format(name=_title(name), model=model, revision=revision, endpoint=endpoint)
    _write_card(folder, name, model, made_with, text)


def stage_static_space(
    folder: Path, name: str, model: str, revision: str, site: Path, *, endpoint: str, int8: bool = False
) -> None:
    """Write a static Space's files: those of a site that was exported before, and the front matter."""
    shutil.copytree(site, folder)
    files = _ROUNDED if int8 else _UNCHANGED
    text = _STATIC_TEXT.format(name=_title(name), model=model, revision=revision, endpoint=endpoint, files=files)
    _write_card(folder, name, model, {"sdk": "static", "app_file": INDEX}, text)


def _title(name: str) -> str:
    return name.rsplit("/", 1)[-1]


def _write_card(folder: Path, name: str, model: str, made_with: dict[str, Any], text: str) -> None:
    metadata = SpaceCardData(
        title=_title(name),
        emoji="🔬",
        colorFrom="indigo",
        colorTo="green",
        models=[model],
        license="apache-2.0",
        **made_with,
    )
    (folder / CARD).write_text(f"---\n{metadata.to_yaml()}\n---\n{text}", encoding="utf-8")


def check_checkout(root: Path) -> None:
    """A Space is made of files that an installed package does not have."""
    for needed in (APP, LIBRARY, REQUIREMENTS):
        if not (root / needed).exists():
            template = "{folder} has no {file}; a Space is made from a checkout of the project, so push there."
            raise ExportError(template, folder=root, file=needed)


def on_gpu(hardware: str) -> bool:
    """Whether a Space's hardware has a GPU, ZeroGPU included."""
    return bool(hardware) and not hardware.startswith("cpu-")


def publish_space(
    remote: Remote, folder: Path, *, model: str, private: bool, hardware: str, token: str, message: str
) -> list[str]:
    """Create the Space if need be, bring it up to date in one commit, and see that it serves just this model.

    Gives back what was done, in words; nothing for a Space that was as it should be.
    """
    existed = remote.info() is not None
    if not existed:
        extra: dict[str, Any] = {"space_hardware": hardware} if hardware else {}
        if token:
            extra["space_secrets"] = [{"key": TOKEN_SECRET, "value": token}]
        remote.create(space_sdk="gradio", private=private, **extra)
    head = remote.head()
    remote.check_ours(head, MARKER, "a Space of this project")
    done = [f"its secret {TOKEN_SECRET} is set"] if token else []
    if existed and token:
        remote.call(remote.api.add_space_secret, TOKEN_SECRET, token)
    files = local_files(folder)
    changes = remote.compare(files, head, _is_ours)
    if not changes.none:
        done.append(f"commit {remote.publish(files, head, changes, message).commit}")
    if existed and hardware and remote.call(remote.api.get_space_runtime).requested_hardware != hardware:
        remote.call(remote.api.request_space_hardware, hardware)
        done.append(f"hardware {hardware}")
    variable = remote.call(remote.api.get_space_variables).get(MODEL_VARIABLE)
    if variable is not None and variable.value != model:  # set by hand once: it would win over what was published
        remote.call(remote.api.add_space_variable, MODEL_VARIABLE, model)
        done.append(f"its variable {MODEL_VARIABLE} named {variable.value} and now names {model}")
    return done


def publish_static_space(remote: Remote, folder: Path, *, private: bool, message: str) -> list[str]:
    """Create the static Space if need be and bring it up to date in one commit; what was done, in words.

    It holds the model's files, so nobody may see it who may not see the model.
    """
    info = remote.info()
    if info is None:
        remote.create(space_sdk="static", private=private)
    elif private and not info.private:
        template = "{name} is public and would hand a model to everyone that is not; make it private in its settings."
        raise HubError(template, name=remote.about)
    head = remote.head()
    remote.check_ours(head, SITE, "a static Space of this project")
    files = local_files(folder)
    older = _listed(remote.read(SITE, head))
    changes = remote.compare(files, head, lambda path: path in older)
    return [] if changes.none else [f"commit {remote.publish(files, head, changes, message).commit}"]


def _listed(site: str) -> set[str]:
    """The files that a site names as its own; none if it cannot be read."""
    try:
        return {str(path) for path in json.loads(site)["files"]}
    except (ValueError, TypeError, KeyError):
        return set()


def space_failure(error: HubError, model_address: str, token: str) -> HubError:
    """Why there is no Space, without its token, and that the model is there all the same."""
    reason = error.message.with_values(lambda value: str(value).replace(token, "***") if token else value)
    if error.status == 402:
        reason = Sentence(
            "the Hub wants a paid plan for a Gradio Space on free hardware, or billing for other hardware (402); "
            "see https://huggingface.co/pricing, then run the same command again."
        )
    return HubError(
        "The model is published at {address}, but its Space is not: {reason}",
        address=model_address,
        reason=reason,
        status=error.status,
    )


def _starter(model: str, revision: str, hardware: str) -> str:
    """The Space's first file; the Space's own variables win over what it says."""
    limits = {"TINY_TRANSFORMER_MAX_SECONDS": str(_ZERO_GPU_SECONDS)} if hardware.startswith(ZERO_GPU) else {}
    return _START.format(variables=json.dumps({MODEL_VARIABLE: f"{model}@{revision}", **limits}))


def _requirements(pins: dict[str, str], hardware: str) -> list[str]:
    """The lines of a Space's requirements."""
    # Gradio comes from sdk_version, and torch would be 600 MB that a CPU has no use for.
    left_out = {"gradio"} if on_gpu(hardware) else {"gradio", "torch"}
    brought = BROUGHT_BY_ZERO_GPU if hardware.startswith(ZERO_GPU) else ()
    pinned = [f"{package}=={version}" for package, version in pins.items() if package not in {*left_out, *brought}]
    return [*pinned, *brought]


def _is_ours(path: str) -> bool:
    return path.startswith(f"{LIBRARY}/") or path in (APP, STARTER, REQUIREMENTS)


def _pins(path: Path) -> dict[str, str]:
    """Package → version of a requirements file that pins."""
    lines = (line.split("#")[0].strip() for line in path.read_text(encoding="utf-8").splitlines())
    pins = dict(line.split("==") for line in lines if "==" in line)
    if "gradio" not in pins:
        raise ExportError("{path} does not pin gradio; a Space needs its version, so add gradio==….", path=path)
    return pins
