"""A Space: its files, and that it starts with nothing but what it asks for, and chats."""

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import Distribution, distribution
from pathlib import Path
from typing import Any

import pytest
import yaml
from gradio_client import Client as GradioClient
from packaging.requirements import Requirement

import tiny_transformer as tt
from export.space import stage_space
from tests.support.hub_commands import MODEL, READER, SPACE, Client
from tests.support.hub_driver import stand_in_report
from tests.support.hub_server import HubServer
from tests.support.models import ROOT
from tiny_transformer.bundle import Bundle
from tiny_transformer.errors import ExportError
from tiny_transformer.parity import write_report

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def staged(folder: Path, root: Path = ROOT, **options: str) -> dict[str, Any]:
    """Stage, and give back the front matter."""
    stage_space(folder, SPACE, MODEL, options.pop("revision", COMMIT), endpoint="https://hub", root=root, **options)
    values: dict[str, Any] = yaml.safe_load((folder / "README.md").read_text(encoding="utf-8").split("---\n")[1])
    return values


def required(folder: Path) -> dict[str, str]:
    """Package → its pin; empty where the platform chooses."""
    lines = (folder / "requirements.txt").read_text().split()
    return {line.partition("==")[0]: line.partition("==")[2] for line in lines}


def test_front_matter_and_requirements(tmp_path: Path, checkout: Path) -> None:
    values = staged(tmp_path / "space", checkout)
    assert values["sdk"] == "gradio"
    assert values["sdk_version"] == "6.31.0"
    assert values["python_version"] == "3.12"
    assert values["models"] == [MODEL]
    assert (tmp_path / "space" / values["app_file"]).is_file()
    assert required(tmp_path / "space") == {"numpy": "2.4.6"}
    assert f"tree/{COMMIT}" in (tmp_path / "space" / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("hardware", "extra"),
    [
        ("cpu-upgrade", {}),
        ("t4-small", {"torch": "2.13.0"}),
        ("zero-a10g", {"torch": "", "spaces": ""}),  # the platform chooses the versions that its GPUs support
    ],
)
def test_torch_comes_with_a_gpu_alone(tmp_path: Path, checkout: Path, hardware: str, extra: dict[str, str]) -> None:
    values = staged(tmp_path / "space", checkout, hardware=hardware)
    assert required(tmp_path / "space") == {"numpy": "2.4.6", **extra}
    assert values.get("suggested_hardware") == (hardware if extra else None)


def test_staging_twice_gives_the_same_bytes_and_no_leftovers(tmp_path: Path, checkout: Path) -> None:
    (checkout / "tiny_transformer" / "__pycache__").mkdir()
    (checkout / "tiny_transformer" / "__pycache__" / "x.pyc").write_bytes(b"")
    found = []
    for name in ("one", "two"):
        staged(tmp_path / name, checkout)
        paths = sorted(path for path in (tmp_path / name).rglob("*") if path.is_file())
        found.append({str(path.relative_to(tmp_path / name)): path.read_bytes() for path in paths})
    assert found[0] == found[1]
    assert sorted(found[0]) == ["README.md", "app.py", "requirements.txt", "space.py", "tiny_transformer/__init__.py"]


def test_without_a_checkout_there_is_no_space(tmp_path: Path, checkout: Path) -> None:
    (checkout / "app.py").unlink()
    with pytest.raises(ExportError, match=r"no app\.py; a Space is made from a checkout"):
        staged(tmp_path / "space", checkout)


def test_the_starter_names_the_model_but_a_variable_of_the_space_wins(tmp_path: Path, checkout: Path) -> None:
    staged(tmp_path / "space", checkout)
    for environment, expected in (({}, f"{MODEL}@{COMMIT}"), ({"TINY_TRANSFORMER_MODEL": "ada/other"}, "ada/other")):
        done = subprocess.run(
            [sys.executable, "space.py"],
            cwd=tmp_path / "space",
            env=os.environ | environment,
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.strip() == expected


def closure(names: list[str]) -> dict[str, Distribution]:
    """Installed distributions that some requirements bring, with their own requirements."""
    found: dict[str, Distribution] = {}
    waiting = [Requirement(name) for name in names]
    while waiting:
        requirement = waiting.pop()
        name = requirement.name.lower().replace("_", "-")
        extras = requirement.extras or {""}
        if name in found:
            continue
        found[name] = distribution(name)
        for text in found[name].requires or ():
            needed = Requirement(text)
            if needed.marker is None or any(needed.marker.evaluate({"extra": extra}) for extra in extras):
                waiting.append(needed)
    return found


def only(distributions: dict[str, Distribution], folder: Path) -> None:
    """A site-packages folder that holds just these."""
    folder.mkdir()
    for found in distributions.values():
        for top in {file.parts[0] for file in found.files or () if file.parts[0] not in ("..", "__pycache__")}:
            if not (folder / top).exists():
                (folder / top).symlink_to(Path(str(found.locate_file(top))))


@contextmanager
def serving(space: Path, packages: Path, environment: dict[str, str]) -> Iterator[tuple[str, int]]:
    """The staged folder, started as a Space starts it; the page's address and process."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    changes = {"PYTHONPATH": str(packages), "GRADIO_SERVER_PORT": str(port), "GRADIO_ANALYTICS_ENABLED": "False"}
    log = space.parent / "log"
    with log.open("w") as out:
        process = subprocess.Popen(
            [sys.executable, "-S", "space.py"], cwd=space, env=environment | changes, stdout=out, stderr=out
        )
        try:
            deadline = time.monotonic() + 300  # other work may keep the machine busy
            while _refused(port):
                assert process.poll() is None, log.read_text()
                assert time.monotonic() < deadline, "the page did not start in time"
                time.sleep(0.1)
            yield f"http://127.0.0.1:{port}", process.pid
        finally:
            process.kill()
            process.wait()


def _refused(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


@pytest.fixture
def published(hub: HubServer, exported: Callable[[str], Bundle], tmp_path: Path) -> tuple[Path, str]:
    """A model on the Hub: its folder here, and its commit there."""
    folder = tmp_path / "published"
    shutil.copytree(exported("encoder-decoder-sinusoidal").folder, folder)
    bundle = Bundle.open(folder)
    write_report(bundle, stand_in_report(bundle))
    repo = hub.create(MODEL, files={name: (folder / name).read_bytes() for name in bundle.files()})
    return folder, repo.branches["main"]


def test_it_starts_with_its_requirements_alone_and_chats(
    client: Client, published: tuple[Path, str], tmp_path: Path
) -> None:
    model, commit = published
    space = tmp_path / "space"
    front = staged(space, revision=commit)
    wanted = [f"gradio=={front['sdk_version']}", *(space / "requirements.txt").read_text().split()]
    installed = closure(wanted)
    assert "torch" not in installed
    assert all(installed[line.split("==")[0].replace("_", "-")].version == line.split("==")[1] for line in wanted)
    only(installed, tmp_path / "packages")
    with serving(space, tmp_path / "packages", client.environment(READER)) as (address, _):
        page = GradioClient(address, verbose=False)
        said = page.predict("Good morning!", api_name="/translate")
    assert said == tt.load(model, "onnx").generate("Good morning!").text


def test_on_zero_gpu_it_starts_and_each_answer_comes_from_a_process_with_a_gpu(
    client: Client, published: tuple[Path, str], tmp_path: Path
) -> None:
    model, commit = published
    space, packages, log = (tmp_path / name for name in ("space", "packages", "gpu-calls"))
    front = staged(space, revision=commit, hardware="zero-a10g")
    wanted = [f"gradio=={front['sdk_version']}", *(space / "requirements.txt").read_text().split()]
    wanted.remove("spaces")
    only(closure(wanted), packages)
    shutil.copyfile(ROOT / "tests" / "support" / "stand_in_spaces.py", packages / "spaces.py")
    zero_gpu = {"SPACES_ZERO_GPU": "true", "GPU_LOG": str(log)}
    with serving(space, packages, client.environment(READER) | zero_gpu) as (address, pid):
        page = GradioClient(address, verbose=False)
        said = page.predict("Good morning!", api_name="/translate")
        on_cpu = page.predict("Good morning!", "onnx", api_name="/translate")
        compared = page.predict("Good morning!", api_name="/compare")
    assert said == on_cpu == tt.load(model, "onnx").generate("Good morning!").text
    assert {"eager", "onnx"} <= {row["backend"] for row in compared["backends"] if row["problem"] is None}
    (call,) = map(json.loads, log.read_text().splitlines())
    assert call["asked"][1] == "Good morning!"
    assert call["seconds"] == 20  # what a visitor's quota is asked for: ten to open the model, ten to answer
    assert call["parent"] == pid
