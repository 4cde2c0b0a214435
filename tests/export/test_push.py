"""Pushing over real HTTP: one commit, nothing twice, nothing unproven, nothing that was not asked for."""

import os
import re
import subprocess
import termios
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from export.model_card import END, START
from export.push import PushOptions, push, verified_copy
from tests.support.hub_commands import MODEL, SPACE, Client, with_graphs
from tests.support.hub_driver import stand_in_report
from tests.support.hub_server import HubServer
from tests.support.models import ROOT
from tiny_transformer.bundle import CARD, DECODER_ONNX, PARITY, TORCHSCRIPT, WEIGHTS, Bundle
from tiny_transformer.errors import TinyTransformerError
from tiny_transformer.parity.report import ParityReport


def folder_files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def by_hand(text: str) -> str:
    return f"# Mine\n\n{START}\n{text}\n{END}\n"


def test_a_push_is_one_commit_of_the_folder_and_a_card_and_a_second_one_changes_nothing(
    hub: HubServer, client: Client, model: Bundle
) -> None:
    before = folder_files(model.folder)
    done = client.push(model.folder)
    assert (done.code, done.out) == (0, f"{hub.endpoint}/{MODEL}\n"), done.err
    repo = hub.repos["model", MODEL]
    assert len(repo.commits) == 2  # the Hub's own and ours
    published = hub.files(MODEL)
    card = published.pop(CARD).decode()
    assert published == before  # the stored report's bytes among them
    assert card.startswith("---\n")
    assert MODEL in card
    (tag,) = repo.tags
    assert repo.tags[tag] == repo.branches["main"]
    assert folder_files(model.folder) == before  # the working copy is only read

    again = client.push(model.folder)
    assert again.code == 0
    assert "already holds exactly these files" in again.err
    assert len(repo.commits) == 2
    assert len(hub.requests("POST .*/(commit|tag)/")) == 2  # those of the first push


def test_parity_is_proved_on_the_copy_that_is_sent_whatever_happens_to_the_folder(model: Bundle) -> None:
    before = model.hashes()
    looked_at: list[Path] = []

    def verify(copy: Bundle) -> ParityReport:
        looked_at.append(copy.folder)
        (model.folder / WEIGHTS).write_bytes(b"another training run has just ended")
        return stand_in_report(copy)

    with verified_copy(model.folder, verify) as copied:
        assert looked_at == [copied.bundle.folder] != [model.folder]
        assert copied.bundle.hashes() == copied.report.files == before


def test_the_plan_names_every_file_and_what_happens_to_it(hub: HubServer, client: Client, model: Bundle) -> None:
    client.push(model.folder)
    (model.folder / "notes.txt").write_text("private")
    (model.folder / DECODER_ONNX).write_bytes(b"another graph")
    (model.folder / PARITY).unlink()
    done = client.push(model.folder)
    assert done.code == 0, done.err
    plan = {line.split()[-1]: line.split()[0] for line in done.err.splitlines() if line.startswith("  ")}
    assert plan[DECODER_ONNX] == plan[PARITY] == "changed"
    assert plan[WEIGHTS] == plan["encoder_model.onnx"] == "same"
    assert "leaving out notes.txt" in done.err
    assert "notes.txt" not in hub.files(MODEL)


def test_what_an_older_version_had_and_the_new_one_lacks_goes_in_the_same_commit(
    hub: HubServer, client: Client, model: Bundle
) -> None:
    (model.folder / TORCHSCRIPT).write_bytes(b"archive")
    with_graphs(model)
    client.push(model.folder)
    assert TORCHSCRIPT in hub.files(MODEL)
    hub.repos["model", MODEL].commits[hub.repos["model", MODEL].branches["main"]]["LICENSE"] = b"somebody's own file"
    (model.folder / TORCHSCRIPT).unlink()
    with_graphs(model)
    done = client.push(model.folder)
    assert done.code == 0, done.err
    assert len(hub.repos["model", MODEL].commits) == 3
    assert TORCHSCRIPT not in hub.files(MODEL)
    assert hub.files(MODEL)["LICENSE"] == b"somebody's own file"


def test_a_dry_run_prints_files_hashes_and_card_and_needs_no_network(
    hub: HubServer, client: Client, model: Bundle
) -> None:
    done = client.push(model.folder, "--dry-run", token=None, HF_ENDPOINT="http://127.0.0.1:9")
    assert done.code == 0, done.err
    lines = done.out.splitlines()
    listed = {line.split()[-1]: line.split()[0] for line in lines[: lines.index("")]}
    assert {**listed, CARD: "", PARITY: ""} == {**model.hashes(), CARD: "", PARITY: ""}
    assert all(f"{(model.folder / name).stat().st_size:,}" in done.out for name in model.files())
    assert "library_name: tiny-transformer" in done.out
    assert hub.seen == []


@pytest.mark.parametrize("name", [WEIGHTS, DECODER_ONNX, PARITY])
def test_one_flipped_bit_cannot_be_pushed(hub: HubServer, client: Client, model: Bundle, name: str) -> None:
    data = bytearray((model.folder / name).read_bytes())
    data[-20] ^= 1
    (model.folder / name).write_bytes(data)
    done = client.push(model.folder)
    assert done.code == 1
    assert done.err.startswith("error: ")
    assert str(model.folder / name) in done.err
    assert len(done.err.splitlines()) == 1
    assert hub.seen == []


def test_a_failed_verification_names_its_cases_and_sends_nothing(hub: HubServer, client: Client, model: Bundle) -> None:
    (model.folder / PARITY).unlink()
    done = client.push(model.folder, STAND_IN_FAILS="1")
    assert done.code == 1
    assert "stand-in" in done.err
    assert hub.seen == []


def test_a_folder_without_graphs_is_told_how_to_get_them(hub: HubServer, client: Client, model: Bundle) -> None:
    (model.folder / DECODER_ONNX).unlink()
    done = client.push(model.folder)
    assert done.code == 2
    assert DECODER_ONNX in done.err
    assert "python -m export all" in done.err


def test_what_was_written_by_hand_survives_whether_here_or_on_the_hub(
    hub: HubServer, client: Client, model: Bundle
) -> None:
    hub.create(MODEL, files={CARD: by_hand("From the Hub’s page.").encode()})
    client.push(model.folder)
    assert "From the Hub’s page." in hub.files(MODEL)[CARD].decode()
    (model.folder / CARD).write_text(by_hand("From the folder."), encoding="utf-8")
    client.push(model.folder)
    card = hub.files(MODEL)[CARD].decode()
    assert "From the folder." in card
    assert "From the Hub’s page." not in card
    (model.folder / CARD).unlink()
    client.push(model.folder)
    assert "From the folder." in hub.files(MODEL)[CARD].decode()


def test_a_branch_of_its_own_leaves_main_alone(hub: HubServer, client: Client, model: Bundle) -> None:
    hub.create(MODEL)
    done = client.push(model.folder, "--revision", "next", "--message", "Try this")
    assert done.code == 0, done.err
    assert hub.files(MODEL) == {}
    assert WEIGHTS in hub.files(MODEL, revision="next")
    assert hub.repos["model", MODEL].messages[-1] == "Try this"


def test_a_pull_request_is_made_once_and_main_stays(hub: HubServer, client: Client, model: Bundle) -> None:
    hub.create(MODEL)
    done = client.push(model.folder, "--create-pr")
    assert (done.code, done.out) == (0, f"{hub.endpoint}/{MODEL}/discussions/1\n"), done.err
    again = client.push(model.folder, "--create-pr")
    assert again.out == done.out
    repo = hub.repos["model", MODEL]
    assert list(repo.pull_requests) == ["refs/pr/1"]
    assert hub.files(MODEL) == {}
    assert not repo.tags
    assert WEIGHTS in hub.files(MODEL, revision="refs/pr/1")


def test_large_files_go_up_in_parts(hub: HubServer, client: Client, model: Bundle) -> None:
    hub.multipart_over = 4096
    done = client.push(model.folder)
    assert done.code == 0, done.err
    parts = hub.requests(r"PUT /objects/.*part=")
    assert len(parts) == -(-(model.folder / WEIGHTS).stat().st_size // 4096)
    assert hub.files(MODEL)[WEIGHTS] == (model.folder / WEIGHTS).read_bytes()


def test_private_is_for_new_repos_and_an_open_one_is_not_filled_by_mistake(
    hub: HubServer, client: Client, model: Bundle
) -> None:
    assert client.push(model.folder, "--private").code == 0
    assert hub.repos["model", MODEL].private
    hub.repos["model", MODEL].private = False
    done = client.push(model.folder, "--private")
    assert done.code == 2
    assert "is public" in done.err


def test_a_repo_with_something_else_in_it_is_left_alone(hub: HubServer, client: Client, model: Bundle) -> None:
    hub.create(MODEL, files={"pytorch_model.bin": b"another model"})
    done = client.push(model.folder)
    assert done.code == 2
    assert "something else" in done.err
    assert hub.files(MODEL) == {"pytorch_model.bin": b"another model"}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"create_pr": True, "revision": "next"}, "for main alone"),
        ({"create_pr": True, "space": SPACE}, "merge the pull request first"),
        ({"space_hardware": "t4-small"}, "--space USER/NAME"),
        ({"space_token": "SPACE_TOKEN"}, "--space USER/NAME"),
        ({"space": SPACE, "space_token": "SPACE_TOKEN"}, "SPACE_TOKEN, which is not set"),
        ({"space": "page"}, "USER/NAME"),
        ({"repo_id": "ada/model@main"}, "USER/NAME"),
        ({"space": SPACE, "checkout": Path("/nowhere")}, "checkout of the project"),
    ],
)
def test_what_cannot_be_is_refused_before_any_work(tmp_path: Path, options: dict[str, Any], words: str) -> None:
    wanted = replace(PushOptions(folder=tmp_path, repo_id=MODEL), **options)
    with pytest.raises(TinyTransformerError, match=words):
        push(wanted, stand_in_report)


def test_a_card_that_the_hub_refuses_is_said_and_nothing_is_committed(
    hub: HubServer, client: Client, model: Bundle
) -> None:
    hub.create(MODEL)
    hub.fail("POST /api/validate-yaml", status=400, body=b'{"errors": [{"message": "no such language"}]}')
    done = client.push(model.folder)
    assert done.code == 2
    assert "The Hub refuses ada/model" in done.err
    assert "no such language" in done.err
    assert hub.files(MODEL) == {}
    assert not hub.repos["model", MODEL].tags


def test_a_terminal_sees_how_far_the_upload_is(hub: HubServer, client: Client, model: Bundle) -> None:
    shown, terminal = os.openpty()
    termios.tcsetwinsize(terminal, (24, 100))
    command = client.driver("push", model.folder, MODEL)
    with (
        open(shown, "rb", buffering=0) as screen,
        subprocess.Popen(
            command, env=client.environment(), cwd=ROOT, stdout=subprocess.DEVNULL, stderr=terminal
        ) as process,
    ):
        os.close(terminal)
        text = b""
        with suppress(OSError):  # the end of a terminal is an error
            while piece := screen.read(4096):
                text += piece
    assert process.returncode == 0
    assert re.search(rb"100%\|", text), text.decode()
    assert WEIGHTS in hub.files(MODEL)


def test_a_licence_the_hub_does_not_know_is_refused_before_any_request(
    hub: HubServer, client: Client, model: Bundle
) -> None:
    done = client.push(model.folder, "--license", "my-own")
    assert done.code == 2
    assert "none the Hub knows" in done.err
    assert hub.seen == []
