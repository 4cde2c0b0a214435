"""A repo on the Hub: what it holds, and one commit that makes it hold a folder's files."""

import hashlib
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tiny_transformer.bundle import sha256
from tiny_transformer.errors import HubError
from tiny_transformer.hub import call

_CONNECT_SECONDS, _ANSWER_SECONDS = 20.0, 180.0  # a commit of large files takes the Hub a while


def open_client() -> Any:
    """The client's API, with time limits, quiet, and with the token sent to the endpoint alone.

    It changes the process's shared client, so only commands call it, never the library.
    """
    import httpx2
    from huggingface_hub import HfApi, constants, get_session, set_client_factory
    from huggingface_hub.utils import logging
    from huggingface_hub.utils.tqdm import disable_progress_bars

    endpoint = httpx2.URL(constants.ENDPOINT)

    def keep_token_home(request: httpx2.Request) -> None:
        if (request.url.scheme, request.url.host, request.url.port) != (endpoint.scheme, endpoint.host, endpoint.port):
            request.headers.pop("authorization", None)

    limits = httpx2.Timeout(_ANSWER_SECONDS, connect=_CONNECT_SECONDS)
    hooks = {"request": [*get_session().event_hooks["request"], keep_token_home]}
    set_client_factory(lambda: httpx2.Client(event_hooks=hooks, follow_redirects=True, timeout=limits))
    logging.get_logger("huggingface_hub").setLevel("ERROR")  # its warnings show the addresses of uploads
    if not sys.stderr.isatty():
        disable_progress_bars()
    return HfApi()


MAIN = "main"
MADE_BY_HUB = frozenset({".gitattributes", "README.md", "LICENSE"})  # what a repo may hold and still be new


@dataclass(frozen=True)
class LocalFile:
    """A file to publish, with both hashes that the Hub may know it by."""

    path: Path
    size: int
    sha256: str
    blob_id: str  # git's own hash, for files that are kept in git itself

    @classmethod
    def of(cls, path: Path) -> "LocalFile":
        """Read and hash."""
        data = path.read_bytes()
        blob_id = hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()
        return cls(path, len(data), sha256(path), blob_id)


LocalFiles = Mapping[str, LocalFile]


def local_files(folder: Path) -> dict[str, LocalFile]:
    """Every file below a folder, by its path there."""
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {path.relative_to(folder).as_posix(): LocalFile.of(path) for path in paths}


@dataclass(frozen=True)
class Changes:
    """What a commit would do."""

    new: tuple[str, ...]
    changed: tuple[str, ...]
    removed: tuple[str, ...]  # ours in an older version, and no longer there

    @property
    def none(self) -> bool:
        """Whether there is nothing to do."""
        return not (self.new or self.changed or self.removed)


@dataclass(frozen=True)
class Published:
    """The commit that holds the files."""

    commit: str
    pull_request: str | None = None  # its address


@dataclass(frozen=True)
class Remote:
    """A repo on the Hub, of one type and at one branch."""

    api: Any
    repo_id: str
    kind: str = "model"
    branch: str = MAIN

    @property
    def about(self) -> str:
        """For sentences."""
        return self.repo_id if self.kind == "model" else f"the Space {self.repo_id}"

    @property
    def address(self) -> str:
        """Of its page."""
        return f"{self.api.endpoint}/{'spaces/' if self.kind == 'space' else ''}{self.repo_id}"

    def call(self, action: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
        """Call a method of the client's API about this repo."""
        return call(lambda: action(self.repo_id, *arguments, **keywords), about=self.about)

    def info(self, revision: str | None = None) -> Any | None:
        """What the Hub says about the repo, or one revision of it; None if it is not there."""
        try:
            return self.call(self.api.repo_info, repo_type=self.kind, revision=revision)
        except HubError as error:
            if error.status == 404:
                return None
            raise

    def create(self, **options: Any) -> None:
        """Create it; that it came to be meanwhile (a reply was lost) is as good."""
        try:
            self.call(self.api.create_repo, repo_type=self.kind, **options)
        except HubError as error:
            if error.status != 409 or self.info() is None:
                raise

    def head(self) -> str:
        """The branch's newest commit; a branch that is not there starts from main."""
        info = self.info(self.branch)
        if info is None:
            self.call(self.api.create_branch, repo_type=self.kind, branch=self.branch, exist_ok=True)
            info = self.info(self.branch)
        if info is None:
            template = "{name} has no branch {branch} and none could be made; check the name."
            raise HubError(template, name=self.about, branch=self.branch)
        return str(info.sha)

    def files(self, revision: str) -> dict[str, str]:
        """Path → the hash the Hub knows a file by: SHA-256 of a large one, git's of a small one."""
        found = call(
            lambda: list(self.api.list_repo_tree(self.repo_id, repo_type=self.kind, revision=revision, recursive=True)),
            about=self.about,
        )
        return {e.path: e.lfs.sha256 if e.lfs else e.blob_id for e in found if hasattr(e, "blob_id")}

    def read(self, path: str, revision: str) -> str:
        """The text of a small file; empty if it is not there."""
        if path not in self.files(revision):
            return ""
        with tempfile.TemporaryDirectory() as folder:
            found = self.call(self.api.hf_hub_download, path, repo_type=self.kind, revision=revision, local_dir=folder)
            return Path(found).read_text(encoding="utf-8", errors="replace")

    def compare(self, files: LocalFiles, revision: str, is_ours: Callable[[str], bool]) -> Changes:
        """Local files against a revision; `is_ours` says which other files there are left of an older version."""
        there = self.files(revision)
        kept = {name: file for name, file in files.items() if name in there}
        return Changes(
            new=tuple(name for name in files if name not in there),
            changed=tuple(name for name, file in kept.items() if there[name] not in (file.sha256, file.blob_id)),
            removed=tuple(name for name in there if name not in files and is_ours(name)),
        )

    def publish(
        self, files: LocalFiles, head: str, changes: Changes, message: str, *, create_pr: bool = False
    ) -> Published:
        """All changes in one commit on `head`, and proof that they arrived."""
        from huggingface_hub import CommitOperationAdd, CommitOperationDelete

        operations: list[Any] = [
            CommitOperationAdd(path_in_repo=name, path_or_fileobj=str(files[name].path))
            for name in (*changes.new, *changes.changed)
        ]
        operations += [CommitOperationDelete(path_in_repo=name) for name in changes.removed]

        def create_commit() -> Any:
            return self.api.create_commit(
                self.repo_id,
                operations,
                commit_message=message,
                repo_type=self.kind,
                revision=self.branch,
                parent_commit=head,
                create_pr=create_pr,
            )

        def commit() -> Published:
            try:
                info = call(create_commit, about=self.about, repeat=False)
            except HubError as error:
                # No answer is no proof that nothing happened: the commit may be there.
                arrived = error.transient or error.status == 412
                found = self._committed(files, changes, head, create_pr) if arrived else None
                if found is None:
                    raise
                return found
            return Published(str(info.oid), info.pr_url)

        published = call(commit, about=self.about)
        if not self._holds(files, changes, published.commit):
            template = (
                "{name} at {commit} does not hold what was sent (a .gitignore there?); look at {address}/tree/{commit}."
            )
            raise HubError(template, name=self.about, commit=published.commit, address=self.address)
        return published

    def _committed(self, files: LocalFiles, changes: Changes, head: str, create_pr: bool) -> Published | None:
        """The commit of ours whose answer was lost, if it is there."""
        if create_pr:
            return self.open_request(files, changes)
        now = self.head()
        return Published(now) if now != head and self._holds(files, changes, now) else None

    def open_request(self, files: LocalFiles, changes: Changes) -> Published | None:
        """A pull request that already proposes exactly these files."""
        refs = self.call(self.api.list_repo_refs, repo_type=self.kind, include_pull_requests=True)
        for ref in refs.pull_requests:
            if self._holds(files, changes, ref.target_commit):
                number = ref.ref.rsplit("/", 1)[-1]
                return Published(ref.target_commit, f"{self.address}/discussions/{number}")
        return None

    def _holds(self, files: LocalFiles, changes: Changes, revision: str) -> bool:
        return self.compare(files, revision, lambda name: name in changes.removed).none

    def tag(self, name: str, commit: str) -> str:
        """Make sure the tag is there; the commit it points to."""
        refs = self.call(self.api.list_repo_refs, repo_type=self.kind)
        found = next((str(tag.target_commit) for tag in refs.tags if tag.name == name), None)
        if found is None:
            self.call(self.api.create_tag, repo_type=self.kind, tag=name, revision=commit, exist_ok=True)
        return found or commit

    def check_ours(self, revision: str, marker: str, what: str) -> None:
        """Refuse a repo with content that is not of our making; `marker` is a file that all of ours have."""
        there = self.files(revision)
        if marker not in there and not set(there) <= MADE_BY_HUB:
            template = "{name} exists and holds something else than {what}; choose another name."
            raise HubError(template, name=self.about, what=what)
