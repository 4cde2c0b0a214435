"""The Hub's client as a push wants it: with time limits, quiet, and with the token bound to the endpoint."""

import hashlib
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tiny_transformer.bundle import sha256
from tiny_transformer.errors import HubError
from tiny_transformer.hub import call

_CONNECT_SECONDS, _ANSWER_SECONDS = 20.0, 180.0  # a commit of large files takes the Hub a while


def open_client() -> Any:
    """The client's API. It changes the process's shared client, so only commands call it, never the library."""
    import httpx2
    from huggingface_hub import HfApi, constants, set_client_factory
    from huggingface_hub.utils import _http, logging
    from huggingface_hub.utils.tqdm import disable_progress_bars

    endpoint = httpx2.URL(constants.ENDPOINT)

    def keep_token_home(request: httpx2.Request) -> None:
        if (request.url.scheme, request.url.host, request.url.port) != (endpoint.scheme, endpoint.host, endpoint.port):
            request.headers.pop("authorization", None)

    def client() -> httpx2.Client:
        made = _http.default_client_factory()
        made.timeout = httpx2.Timeout(_ANSWER_SECONDS, connect=_CONNECT_SECONDS)
        made.event_hooks = {"request": [*made.event_hooks["request"], keep_token_home]}
        return made

    set_client_factory(client)
    logging.get_logger("huggingface_hub").setLevel("ERROR")  # its warnings show the addresses of uploads
    if not sys.stderr.isatty():
        disable_progress_bars()
    return HfApi()


MAIN = "main"
HUBS_OWN = frozenset({".gitattributes", "README.md", "LICENSE"})  # what a repo may hold and still be new


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


def local_files(folder: Path) -> dict[str, LocalFile]:
    """Every file below a folder, by its path there."""
    return {
        str(path.relative_to(folder).as_posix()): LocalFile.of(path)
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@dataclass(frozen=True)
class Changes:
    """What a commit would do."""

    new: tuple[str, ...]
    changed: tuple[str, ...]
    same: tuple[str, ...]
    gone: tuple[str, ...]  # ours in an older version, and no longer there

    @property
    def none(self) -> bool:
        """Whether there is nothing to do."""
        return not (self.new or self.changed or self.gone)


@dataclass(frozen=True)
class Outcome:
    """What a push of files came to."""

    commit: str
    changed: bool
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

    def info(self, revision: str | None = None) -> Any | None:
        """What the Hub says about the repo, or one revision of it; None if it is not there."""
        try:
            return self._call(lambda: self.api.repo_info(self.repo_id, repo_type=self.kind, revision=revision))
        except HubError as error:
            if error.status == 404:
                return None
            raise

    def create(self, **options: Any) -> None:
        """Create it; that it came to be meanwhile (a reply was lost) is as good."""
        try:
            self._call(lambda: self.api.create_repo(self.repo_id, repo_type=self.kind, **options))
        except HubError as error:
            if error.status != 409 or self.info() is None:
                raise

    def head(self) -> str:
        """The branch's newest commit; a branch that is not there starts from main."""
        info = self.info(self.branch)
        if info is None:
            self._call(
                lambda: self.api.create_branch(self.repo_id, repo_type=self.kind, branch=self.branch, exist_ok=True)
            )
            info = self.info(self.branch)
        if info is None:
            raise HubError(
                "{about} has no branch {branch} and none could be made; check the name.",
                about=self.about,
                branch=self.branch,
            )
        return str(info.sha)

    def files(self, revision: str) -> dict[str, str]:
        """Path → the hash the Hub knows a file by: SHA-256 of a large one, git's of a small one."""
        entries = self._call(
            lambda: list(self.api.list_repo_tree(self.repo_id, repo_type=self.kind, revision=revision, recursive=True))
        )
        return {e.path: e.lfs.sha256 if e.lfs else e.blob_id for e in entries if hasattr(e, "blob_id")}

    def read(self, path: str, revision: str, folder: Path) -> str:
        """The text of a small file, fetched into a folder of ours."""
        found = self._call(
            lambda: self.api.hf_hub_download(
                self.repo_id, path, repo_type=self.kind, revision=revision, local_dir=folder
            )
        )
        return Path(found).read_text(encoding="utf-8", errors="replace")

    def compare(self, files: Mapping[str, LocalFile], revision: str, ours: Callable[[str], bool]) -> Changes:
        """Local files against a revision; `ours` says which strangers there are left of an older version."""
        there = self.files(revision)

        def same(name: str) -> bool:
            return there[name] in (files[name].sha256, files[name].blob_id)

        return Changes(
            new=tuple(name for name in files if name not in there),
            changed=tuple(name for name in files if name in there and not same(name)),
            same=tuple(name for name in files if name in there and same(name)),
            gone=tuple(name for name in there if name not in files and ours(name)),
        )

    def publish(
        self, files: Mapping[str, LocalFile], head: str, changes: Changes, message: str, *, create_pr: bool = False
    ) -> Outcome:
        """All changes in one commit on `head`, and proof that they arrived."""
        from huggingface_hub import CommitOperationAdd, CommitOperationDelete

        operations: list[Any] = [
            CommitOperationAdd(path_in_repo=name, path_or_fileobj=str(files[name].path))
            for name in (*changes.new, *changes.changed)
        ]
        operations += [CommitOperationDelete(path_in_repo=name) for name in changes.gone]

        def commit() -> Outcome:
            try:
                info = call(
                    lambda: self.api.create_commit(
                        self.repo_id,
                        operations,
                        commit_message=message,
                        repo_type=self.kind,
                        revision=self.branch,
                        parent_commit=head,
                        create_pr=create_pr,
                    ),
                    about=self.about,
                    repeat=False,
                )
            except HubError as error:
                # No answer is no proof that nothing happened: the commit may be there.
                if error.transient or error.status == 412:
                    landed = self._landed(files, changes, head, create_pr)
                    if landed is not None:
                        return landed
                raise
            return Outcome(str(info.oid), True, info.pr_url)

        outcome = self._call(commit)
        self._check_arrived(files, changes, outcome)
        return outcome

    def _landed(self, files: Mapping[str, LocalFile], changes: Changes, head: str, create_pr: bool) -> Outcome | None:
        """The commit of ours whose answer was lost, if it is there."""
        if create_pr:
            return self.open_request(files, changes)
        now = self.head()
        if now != head and self._holds(files, changes, now):
            return Outcome(now, True)
        return None

    def open_request(self, files: Mapping[str, LocalFile], changes: Changes) -> Outcome | None:
        """A pull request that already proposes exactly these files."""
        refs = self._call(
            lambda: self.api.list_repo_refs(self.repo_id, repo_type=self.kind, include_pull_requests=True)
        )
        for ref in refs.pull_requests:
            if self._holds(files, changes, ref.target_commit):
                number = ref.ref.rsplit("/", 1)[-1]
                return Outcome(ref.target_commit, True, f"{self.address}/discussions/{number}")
        return None

    def _check_arrived(self, files: Mapping[str, LocalFile], changes: Changes, outcome: Outcome) -> None:
        if not self._holds(files, changes, outcome.commit):
            raise HubError(
                "{about} at {commit} does not hold what was sent (a .gitignore there?); look at "
                "{address}/tree/{commit}.",
                about=self.about,
                commit=outcome.commit,
                address=self.address,
            )

    def _holds(self, files: Mapping[str, LocalFile], changes: Changes, revision: str) -> bool:
        now = self.compare(files, revision, lambda name: name in changes.gone)
        return now.none

    def tag(self, name: str, commit: str) -> str:
        """Make sure the tag is there; the commit it points to."""
        found = self.tagged(name)
        if found is None:
            self._call(
                lambda: self.api.create_tag(self.repo_id, repo_type=self.kind, tag=name, revision=commit, exist_ok=True)
            )
        return found or commit

    def tagged(self, name: str) -> str | None:
        """The commit behind a tag."""
        refs = self._call(lambda: self.api.list_repo_refs(self.repo_id, repo_type=self.kind))
        return next((str(tag.target_commit) for tag in refs.tags if tag.name == name), None)

    def refuse_strangers(self, revision: str, sign: str, what: str) -> None:
        """A repo with content that is not of our making is not overwritten; `sign` is the file that tells."""
        there = self.files(revision)
        if sign not in there and not set(there) <= HUBS_OWN:
            raise HubError(
                "{about} exists and holds something else than {what}; choose another name.", about=self.about, what=what
            )

    def hardware(self) -> str:
        """What a Space was asked to run on."""
        return str(self._call(lambda: self.api.get_space_runtime(self.repo_id)).requested_hardware or "")

    def request_hardware(self, name: str) -> None:
        """Move a Space to other hardware."""
        self._call(lambda: self.api.request_space_hardware(self.repo_id, name))

    def variables(self) -> dict[str, str]:
        """A Space's own environment variables, which everybody may read."""
        found = self._call(lambda: self.api.get_space_variables(self.repo_id))
        return {name: str(variable.value) for name, variable in found.items()}

    def set_variable(self, name: str, value: str) -> None:
        """Set one of them."""
        self._call(lambda: self.api.add_space_variable(self.repo_id, name, value))

    def set_secret(self, name: str, value: str) -> None:
        """Set a variable that only the Space itself can read."""
        self._call(lambda: self.api.add_space_secret(self.repo_id, name, value))

    def _call(self, action: Callable[[], Any]) -> Any:
        return call(action, about=self.about)
