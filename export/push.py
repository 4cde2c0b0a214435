"""Publish a model folder on the Hub: a copy of it, proven on exactly the bytes that are sent, in one commit."""

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields
from pathlib import Path

from tiny_transformer import atomic
from tiny_transformer.bundle import CARD, GENERATION, PARITY, PUBLISHED, Bundle, graph_files, reported_as
from tiny_transformer.errors import ExportError, HubError, InputError, ParityError
from tiny_transformer.hub import call, check_token, is_repo_id
from tiny_transformer.parity.report import ParityReport, stored_report, write_report

from .hub_repository import MAIN, Changes, LocalFiles, Published, Remote, local_files, open_client
from .model_card import refresh_card
from .space import (
    check_checkout,
    publish_space,
    publish_static_space,
    space_failure,
    stage_space,
    stage_static_space,
)
from .to_web import Verifier, check_web, export_site

_PREFIX = "tiny-transformer-push-"
_SECONDS_TO_LOCK = 60.0  # far more than pass between making a temporary folder and locking it


@dataclass(frozen=True, kw_only=True)
class PushOptions:
    """What a push is asked to do; the fields but the first and the last are the command line's."""

    folder: Path
    repo_id: str
    private: bool = False
    revision: str = MAIN
    create_pr: bool = False
    message: str = ""
    license: str = ""
    space: str = ""
    static_space: str = ""
    int8: bool = False  # the static Space's weights
    space_hardware: str = ""
    space_token: str = ""  # the name of an environment variable, never the token itself
    dry_run: bool = False
    checkout: Path = Path(__file__).resolve().parent.parent  # where a Space's page and library come from

    @classmethod
    def from_arguments(cls, arguments: argparse.Namespace) -> "PushOptions":
        """From the parsed command line."""
        names = {field.name for field in fields(cls)}
        return cls(folder=arguments.bundle, **{name: value for name, value in vars(arguments).items() if name in names})

    def check(self) -> None:
        """Refuse what cannot be, before any work."""
        for name in filter(None, (self.repo_id, self.space, self.static_space)):
            if not is_repo_id(name) or "@" in name:
                raise InputError("{name} is no name for a Hub repo; write USER/NAME.", name=name)
        if self.create_pr and self.revision != MAIN:
            raise InputError("The Hub takes pull requests for main alone; leave out --revision or --create-pr.")
        if self.create_pr and (self.space or self.static_space):
            raise InputError("A Space serves what is published; merge the pull request first, then push with --space.")
        if self.space and self.space == self.static_space:
            raise InputError("{name} cannot be both Spaces; give one of them another name.", name=self.space)
        for option, value in (("--space-hardware", self.space_hardware), ("--space-token", self.space_token)):
            if value and not self.space:
                raise InputError("{option} is for a Space; name it with --space USER/NAME.", option=option)
        if self.int8 and not self.static_space:
            template = "{option} is for a static Space; name it with --static-space USER/NAME."
            raise InputError(template, option="--int8")
        if self.space_token and not os.environ.get(self.space_token):
            template = "--space-token names the variable {variable}, which is not set; set it first."
            raise InputError(template, variable=self.space_token)
        if self.space:
            check_checkout(self.checkout)
        if self.static_space:
            check_web(self.checkout)


@dataclass(frozen=True)
class VerifiedCopy:
    """What will be published, and what was left behind."""

    bundle: Bundle
    report: ParityReport
    left_out: tuple[str, ...]


@contextmanager
def verified_copy(folder: Path, verify: Verifier) -> Iterator[VerifiedCopy]:
    """A verified copy of a folder's files, gone when the block ends; the card is not yet written."""
    source = Bundle.open(folder)
    with _temporary_folder() as temporary:
        copy = temporary / "model"
        copy.mkdir()
        names = [name for name in source.files() if name in PUBLISHED]
        for name in names:
            shutil.copyfile(folder / name, copy / name)
        with reported_as(copy, folder):
            bundle = Bundle.open(copy)
            report = _verified_report(bundle, folder, verify)
        yield VerifiedCopy(bundle, report, tuple(sorted(set(source.files()) - set(names))))


def _verified_report(bundle: Bundle, folder: Path, verify: Verifier) -> ParityReport:
    """A report for the copy's bytes: the stored one if it names just these, else a new one."""
    missing = [name for name in graph_files(bundle.config).values() if not bundle.has(name)]
    if missing:
        template = "{folder} has no {files}; make it first: python -m export all {folder}."
        raise ExportError(template, folder=folder, files=", ".join(missing))
    hashes = bundle.hashes()
    stored = stored_report(bundle, hashes)
    fresh = verify(bundle)
    fresh.raise_if_failed()
    if fresh.files != hashes:
        raise ParityError("The files of {folder} changed while they were verified; try again.", folder=folder)
    if stored is not None and stored.files == hashes:
        return stored  # its bytes stay as they are, so that a second push has nothing to change
    (bundle.folder / PARITY).unlink(missing_ok=True)
    write_report(bundle, fresh)
    return fresh


@contextmanager
def _temporary_folder() -> Iterator[Path]:
    """A folder that is gone when the block ends, and locked until then; first those of killed pushes are removed."""
    for leftover in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with suppress(OSError):
            status = leftover.stat()
            if status.st_uid == os.getuid() and time.time() - status.st_mtime > _SECONDS_TO_LOCK:
                with atomic.locked_folder(leftover) as unused:
                    if unused:
                        shutil.rmtree(leftover, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=_PREFIX) as temporary, atomic.locked_folder(Path(temporary)):
        yield Path(temporary)


def push(options: PushOptions, verify: Verifier) -> None:
    """Verify, publish, tag, and say where it is; each step that is already done is left as it is."""
    options.check()
    if not options.dry_run:
        check_token()  # before minutes of proof
    with verified_copy(options.folder, verify) as copy:
        for name in copy.left_out:
            _say(f"leaving out {name}: it is no part of a model")
        # A faulty card fails before any request.
        card = refresh_card(copy.bundle, copy.report, options.repo_id, licence=options.license)
        site = _exported_site(options, copy.bundle, verify)  # so does a page that was not proved
        if options.dry_run:
            for name, file in local_files(copy.bundle.folder).items():
                print(f"{file.sha256}  {file.size:>12,}  {name}")
            print(f"\n{card}", end="")
        else:
            _publish(options, copy.bundle, copy.report, site)


def _exported_site(options: PushOptions, bundle: Bundle, verify: Verifier) -> Path | None:
    """The static page of the copy, beside it, proved in a browser; None if nobody asked for one."""
    if not options.static_space:
        return None
    site = bundle.folder.parent / "site"
    with reported_as(bundle.folder, options.folder):
        named = {options.repo_id.rsplit("/", 1)[-1]: bundle.folder}
        export_site(named, site, verify, int8=options.int8, root=options.checkout)
    return site


def _publish(options: PushOptions, bundle: Bundle, report: ParityReport, site: Path | None) -> None:
    remote = Remote(open_client(), options.repo_id, branch=options.revision)
    visibility = _prepare(options, remote)
    head = remote.head()
    remote.check_ours(head, GENERATION, "a model of this project")
    refresh_card(
        bundle,
        report,
        options.repo_id,
        licence=options.license,
        published=remote.read(CARD, head),
        page=Remote(remote.api, options.static_space, kind="space").address if options.static_space else "",
    )
    files = local_files(bundle.folder)
    changes = remote.compare(files, head, lambda name: name in PUBLISHED)
    _say_plan(remote, files, changes)
    message = options.message or f"Publish a {bundle.generation.task} model, {len(report.cases)} parity cases"
    published = _commit(remote, files, head, changes, message, create_pr=options.create_pr)
    if options.create_pr:
        print(published.pull_request or remote.address)
        return
    tag = f"verified-{report.to_dict()['digest'][:12]}"
    pinned = remote.tag(tag, published.commit)
    _say(f"tag {tag}")
    print(remote.address)
    if site is not None:
        _publish_static_space(options, site, remote, pinned, visibility)
    if options.space:
        _publish_space(options, remote, pinned, visibility)


def _prepare(options: PushOptions, remote: Remote) -> str:
    """A token that works, and a repo to write to; who may read that: public, gated or private."""
    call(remote.api.whoami, about=options.repo_id)
    info = remote.info()
    if info is not None and options.private and not info.private:
        template = "{name} exists and is public; make it private in its settings, or leave out --private."
        raise HubError(template, name=options.repo_id)
    private, gated = (options.private, False) if info is None else (info.private, info.gated)
    if options.space_token and not (private or gated):
        template = "{name} is public, so its Space needs no token; leave out --space-token."
        raise HubError(template, name=options.repo_id)
    if info is None:
        remote.create(private=options.private)
    return "private" if private else "gated" if gated else "public"


def _commit(
    remote: Remote, files: LocalFiles, head: str, changes: Changes, message: str, *, create_pr: bool
) -> Published:
    if changes.none:
        _say(f"{remote.about} already holds exactly these files; nothing to commit")
        return Published(head)
    proposed = remote.open_request(files, changes) if create_pr else None
    if proposed is not None:
        _say("a pull request with exactly these files is already open")
        return proposed
    published = remote.publish(files, head, changes, message, create_pr=create_pr)
    _say(f"commit {published.commit}")
    return published


def _say_plan(remote: Remote, files: LocalFiles, changes: Changes) -> None:
    words = {**dict.fromkeys(changes.new, "new"), **dict.fromkeys(changes.changed, "changed")}
    _say(f"{remote.address}, branch {remote.branch}:")
    for name, file in files.items():
        _say(f"  {words.get(name, 'same'):8} {file.size:>12,}  {file.sha256[:12]}  {name}")
    for name in changes.removed:
        _say(f"  {'removed':8} {'':>12}  {'':12}  {name}")


def _publish_space(options: PushOptions, model: Remote, pinned: str, visibility: str) -> None:
    space = Remote(model.api, options.space, kind="space")
    token = os.environ[options.space_token] if options.space_token else ""
    with _temporary_folder() as temporary:
        folder, endpoint = temporary / "space", str(model.api.endpoint)
        try:
            # A Space that is there keeps its hardware unless another is asked for, and its files must fit that.
            runtime = space.call(model.api.get_space_runtime) if space.info() else None
            hardware = options.space_hardware or str((runtime and runtime.requested_hardware) or "")
            stage_space(
                folder,
                options.space,
                options.repo_id,
                pinned,
                endpoint=endpoint,
                hardware=hardware,
                root=options.checkout,
            )
            done = publish_space(
                space,
                folder,
                model=f"{options.repo_id}@{pinned}",
                private=visibility == "private",
                hardware=options.space_hardware,
                token=token,
                message=f"Serve {options.repo_id} at {pinned[:12]}",
            )
        except HubError as error:
            raise space_failure(error, model.address, token) from None
    _say(f"Space {options.space}: {'; '.join(done) or 'it already serves this revision; nothing to commit'}")
    if visibility != "public" and not token:
        _say(
            f"the model is {visibility}: give the Space a read token of its own as its secret HF_TOKEN, in its "
            "settings or with --space-token"
        )
    print(space.address)


def _publish_static_space(options: PushOptions, site: Path, model: Remote, pinned: str, visibility: str) -> None:
    space = Remote(model.api, options.static_space, kind="space")
    with _temporary_folder() as temporary:
        folder, endpoint = temporary / "space", str(model.api.endpoint)
        stage_static_space(
            folder, options.static_space, options.repo_id, pinned, site, endpoint=endpoint, int8=options.int8
        )
        message = f"Serve {options.repo_id} at {pinned[:12]} in the browser"
        try:
            done = publish_static_space(space, folder, private=visibility != "public", message=message)
        except HubError as error:
            raise space_failure(error, model.address, "") from None
    _say(f"Space {options.static_space}: {'; '.join(done) or 'it already holds this revision; nothing to commit'}")
    print(space.address)


def _say(line: str) -> None:
    print(line, file=sys.stderr)
