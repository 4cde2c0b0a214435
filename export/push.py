"""`push`: publish a verified model folder on the Hugging Face Hub, and a Space for it.

A model folder made ready to publish: a copy of its own, proven on exactly the bytes that will be sent.
"""

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tiny_transformer.bundle import PARITY, PUBLISHED, Bundle, graph_files
from tiny_transformer.errors import ExportError, ParityError
from tiny_transformer.parity.report import ParityReport, stored_report, write_report

_PREFIX = "tiny-transformer-push-"
_A_DAY = 24 * 3600.0

Verifier = Callable[[Bundle], ParityReport]


@dataclass(frozen=True)
class Staged:
    """What will be published, and what was left behind."""

    bundle: Bundle
    report: ParityReport
    left_out: tuple[str, ...]


@contextmanager
def staged(folder: Path, verify: Verifier) -> Iterator[Staged]:
    """A verified copy of a folder's files, gone when the block ends; the card is not yet written."""
    source = Bundle.open(folder)
    _sweep()
    with tempfile.TemporaryDirectory(prefix=_PREFIX) as temporary:
        copy = Path(temporary) / "model"
        copy.mkdir()
        names = [name for name in source.files() if name in PUBLISHED]
        for name in names:
            shutil.copyfile(folder / name, copy / name)
        bundle = Bundle.open(copy)
        report = _proven(bundle, folder, verify)
        yield Staged(bundle, report, tuple(sorted(set(source.files()) - set(names))))


def _proven(bundle: Bundle, folder: Path, verify: Verifier) -> ParityReport:
    """A report for the copy's bytes: the stored one if it names just these, else a new one."""
    missing = [name for name in graph_files(bundle.config).values() if not bundle.has(name)]
    if missing:
        raise ExportError(
            "{folder} has no {missing}; make it first: python -m export all {folder}.",
            folder=folder,
            missing=", ".join(missing),
        )
    hashes = bundle.hashes()
    try:
        stored = stored_report(bundle, hashes)
    except ParityError as error:  # the user knows the folder, not our copy of it
        raise ParityError(str(error).replace(str(bundle.folder), str(folder))) from None
    fresh = verify(bundle)
    fresh.raise_if_failed()
    if fresh.files != hashes:
        raise ParityError("The files of {folder} changed while they were verified; try again.", folder=folder)
    if stored is not None and stored.files == hashes:
        return stored  # its bytes stay as they are, so that a second push has nothing to change
    (bundle.folder / PARITY).unlink(missing_ok=True)
    write_report(bundle, fresh)
    return fresh


def _sweep() -> None:
    """Remove copies that a killed push left behind; a day is longer than any push takes."""
    for leftover in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        if time.time() - leftover.stat().st_mtime > _A_DAY:
            shutil.rmtree(leftover, ignore_errors=True)


if TYPE_CHECKING:
    from .hub_repository import Changes, LocalFile, Outcome, Remote

EXAMPLE = "python -m export push checkpoints/translate USER/NAME --space USER/NAME"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What to publish, where, and how."""
    parser.add_argument("bundle", metavar="BUNDLE", type=Path, help="a model folder with its exports")
    parser.add_argument("repo_id", metavar="USER/NAME", help="the model repo on the Hub; made if it is not there")
    parser.add_argument("--private", action="store_true", help="make a new repo (and Space) private")
    parser.add_argument("--revision", metavar="BRANCH", help="branch to publish to (default main)")
    parser.add_argument("--create-pr", action="store_true", help="propose the commit as a pull request")
    parser.add_argument("--message", metavar="TEXT", help="of the commit")
    parser.add_argument("--license", metavar="ID", default="", help="of the weights, such as apache-2.0, for the card")
    parser.add_argument("--space", metavar="USER/NAME", help="also publish a Gradio Space that serves the model")
    parser.add_argument("--space-hardware", metavar="NAME", default="", help="such as t4-small or zero-a10g")
    parser.add_argument(
        "--space-token",
        metavar="VARIABLE",
        default="",
        help="environment variable with a read token, which becomes the secret of a private model's Space",
    )
    parser.add_argument("--dry-run", action="store_true", help="print files, sizes, hashes and card; no network")


def run(options: argparse.Namespace) -> None:
    """Verify, publish, tag, and say where it is."""
    push(wanted_from(options))


def wanted_from(options: argparse.Namespace) -> "Wanted":
    """The options as a value."""
    return Wanted(
        folder=options.bundle,
        repo_id=options.repo_id,
        private=options.private,
        revision=options.revision or "main",
        create_pr=options.create_pr,
        message=options.message or "",
        licence=options.license,
        space=options.space or "",
        space_hardware=options.space_hardware,
        space_token=options.space_token,
        dry_run=options.dry_run,
    )


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What a push is asked to do."""

    folder: Path
    repo_id: str
    private: bool = False
    revision: str = "main"
    create_pr: bool = False
    message: str = ""
    licence: str = ""
    space: str = ""
    space_hardware: str = ""
    space_token: str = ""  # the name of an environment variable, never the token itself
    dry_run: bool = False
    checkout: Path = Path(__file__).resolve().parent.parent  # where a Space's page and library come from

    def check(self) -> None:
        """Refuse what cannot be, before any work."""
        from tiny_transformer.errors import InputError
        from tiny_transformer.hub import is_repo_id

        from .space import check_checkout

        for name in filter(None, (self.repo_id, self.space)):
            if not is_repo_id(name) or "@" in name:
                raise InputError("{name} is no name for a repo on the Hub; write USER/NAME.", name=name)
        if self.create_pr and self.revision != "main":
            raise InputError("The Hub takes pull requests for main alone; leave out --revision or --create-pr.")
        if self.create_pr and self.space:
            raise InputError("A Space serves what is published; merge the pull request first, then push with --space.")
        for option, value in (("hardware", self.space_hardware), ("token", self.space_token)):
            if value and not self.space:
                raise InputError("--space-{option} is for a Space; name it with --space USER/NAME.", option=option)
        if self.space_token and not os.environ.get(self.space_token):
            raise InputError(
                "--space-token names the variable {space_token}, which is not set; set it first.",
                space_token=self.space_token,
            )
        if self.space:
            check_checkout(self.checkout)


def push(wanted: Wanted, verify: "Verifier | None" = None) -> None:
    """The whole of it; each step that is already done is left as it is."""
    from .model_card import refresh_card
    from .verify import verified

    wanted.check()
    with staged(wanted.folder, verify or verified) as stage:
        for name in stage.left_out:
            print(f"leaving out {name}: it is no part of a model", file=sys.stderr)
        # A faulty card fails before any request.
        card = refresh_card(stage.bundle, stage.report, wanted.repo_id, licence=wanted.licence)
        if wanted.dry_run:
            _print_plan(stage, card)
        else:
            _publish(wanted, stage)


def _print_plan(stage: "Staged", card: str) -> None:
    """Everything that would be sent; to stdout, for it is what was asked for."""
    from .hub_repository import local_files

    for name, file in local_files(stage.bundle.folder).items():
        print(f"{file.sha256}  {file.size:>12,}  {name}")
    print(f"\n{card}", end="")


def _publish(wanted: Wanted, stage: "Staged") -> None:
    from .hub_repository import Remote, local_files, open_client
    from .model_card import refresh_card

    api = open_client()
    remote = Remote(api, wanted.repo_id, branch=wanted.revision)
    visibility = _prepare(wanted, remote)
    head = remote.head()
    remote.refuse_strangers(head, "generation.json", "a model of this project")
    published = _published_card(remote, head)
    refresh_card(stage.bundle, stage.report, wanted.repo_id, licence=wanted.licence, published=published)
    files = local_files(stage.bundle.folder)
    changes = remote.compare(files, head, lambda name: name in PUBLISHED)
    _show_plan(remote, files, changes)
    message = (
        wanted.message or f"Publish a {stage.bundle.generation.task} model, {len(stage.report.cases)} parity cases"
    )
    outcome = _committed(wanted, remote, files, head, changes, message)
    if wanted.create_pr:
        print(outcome.pull_request or remote.address)
        return
    tag = f"verified-{stage.report.to_dict()['digest'][:12]}"
    pinned = remote.tag(tag, outcome.commit)
    print(f"tag {tag}", file=sys.stderr)
    print(remote.address)
    if wanted.space:
        _publish_space(wanted, remote, pinned, visibility)


def _prepare(wanted: Wanted, remote: "Remote") -> str:
    """A token that works, and a repo to write to; who may read that: public, gated or private."""
    from tiny_transformer.errors import HubError
    from tiny_transformer.hub import call

    call(lambda: remote.api.whoami(), about=wanted.repo_id)
    info = remote.info()
    if info is not None and wanted.private and not info.private:
        raise HubError(
            "{repo_id} exists and is public; make it private in its settings, or leave out --private.",
            repo_id=wanted.repo_id,
        )
    private, gated = (wanted.private, False) if info is None else (info.private, info.gated)
    if wanted.space_token and not (private or gated):
        raise HubError(
            "{repo_id} is public, so its Space needs no token; leave out --space-token.", repo_id=wanted.repo_id
        )
    if info is None:
        remote.create(private=wanted.private)
    return "private" if private else "gated" if gated else "public"


def _published_card(remote: "Remote", head: str) -> str:
    if "README.md" not in remote.files(head):
        return ""
    with tempfile.TemporaryDirectory() as folder:
        return remote.read("README.md", head, Path(folder))


def _committed(
    wanted: Wanted,
    remote: "Remote",
    files: Mapping[str, "LocalFile"],
    head: str,
    changes: "Changes",
    message: str,
) -> "Outcome":
    from .hub_repository import Outcome

    if changes.none:
        print(f"{remote.about} already holds exactly these files; nothing to commit", file=sys.stderr)
        return Outcome(head, False)
    proposed = remote.open_request(files, changes) if wanted.create_pr else None
    if proposed is not None:
        print("a pull request with exactly these files is already open", file=sys.stderr)
        return proposed
    outcome = remote.publish(files, head, changes, message, create_pr=wanted.create_pr)
    print(f"commit {outcome.commit}", file=sys.stderr)
    return outcome


def _show_plan(remote: "Remote", files: Mapping[str, "LocalFile"], changes: "Changes") -> None:
    words = {**dict.fromkeys(changes.new, "new"), **dict.fromkeys(changes.changed, "changed")}
    print(f"{remote.address}, branch {remote.branch}:", file=sys.stderr)
    for name, file in files.items():
        print(f"  {words.get(name, 'same'):8} {file.size:>12,}  {file.sha256[:12]}  {name}", file=sys.stderr)
    for name in changes.gone:
        print(f"  {'removed':8} {'':>12}  {'':12}  {name}", file=sys.stderr)


def _publish_space(wanted: Wanted, model: "Remote", pinned: str, visibility: str) -> None:
    from tiny_transformer.errors import HubError

    from .hub_repository import Remote
    from .space import explained, publish_space, stage_space

    space = Remote(model.api, wanted.space, kind="space")
    token = os.environ[wanted.space_token] if wanted.space_token else ""
    with tempfile.TemporaryDirectory(prefix="tiny-transformer-push-") as temporary:
        folder, endpoint = Path(temporary) / "space", str(model.api.endpoint)
        try:
            # A Space that is there keeps its hardware unless told otherwise, and its files must fit that.
            hardware = wanted.space_hardware or (space.hardware() if space.info() else "")
            stage_space(
                folder,
                wanted.space,
                wanted.repo_id,
                pinned,
                endpoint=endpoint,
                hardware=hardware,
                root=wanted.checkout,
            )
            done = publish_space(
                space,
                folder,
                model=f"{wanted.repo_id}@{pinned}",
                private=visibility == "private",
                hardware=wanted.space_hardware,
                token=token,
                message=f"Serve {wanted.repo_id} at {pinned[:12]}",
            )
        except HubError as error:
            raise explained(error, model.address, token) from None
    said = "; ".join(done) or "it already serves this revision; nothing to commit"
    print(f"Space {wanted.space}: {said}", file=sys.stderr)
    if visibility != "public" and not token:
        print(
            f"the model is {visibility}: give the Space a read token of its own as its secret HF_TOKEN, in its "
            "settings or with --space-token",
            file=sys.stderr,
        )
    print(space.address)
