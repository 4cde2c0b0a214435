"""Calls to the Hugging Face Hub: repeated while that can help, and failing in one sentence."""

import filecmp
import json
import os
import re
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from tiny_transformer import atomic
from tiny_transformer.backends import BACKENDS, NAMES
from tiny_transformer.bundle import (
    CARD,
    CONFIG,
    FLOAT32_GRAPHS,
    PARITY,
    REQUIRED,
    TORCHSCRIPT,
    UNHASHED,
    WEIGHTS,
    WEIGHTS_INT8,
    WEIGHTS_SHA256,
    sha256,
)
from tiny_transformer.errors import BackendError, HubError, ParityError, Sentence
from tiny_transformer.parity.report import ParityReport
from tiny_transformer.weights import read_index

PATIENCE = 120.0  # seconds after which a call is not tried again: pauses, and the time that its tries took
FIRST_WAIT, LONGEST_WAIT = 0.5, 16.0
TRANSIENT = (408, 429, 500, 502, 503, 504)

_T = TypeVar("_T")

_SENTENCES = {
    400: "The Hub finds the request for {about} malformed ({detail}); correct it.",
    401: "The Hub does not accept the token (401) for {about}; make a new one at {endpoint}/settings/tokens and run: "
    "hf auth login.",
    402: "{about} needs a paid plan or billing on the Hub (402); see {endpoint}/pricing.",
    403: "The token has no right to do this with {about} (403); use one with write access to that namespace.",
    404: "The Hub has no {about}, or it is private and the token may not see it (404); check the name.",
    409: "The name {about} is taken on the Hub (409); choose another.",
    412: "{about} was changed by somebody else meanwhile (412); look at it, then run the command again.",
    413: "A file for {about} is larger than the Hub takes (413); make it smaller.",
    429: "The Hub asks for fewer requests (429) about {about} and did not relent; try again in {wait}.",
}


_NO_TOKEN = "There is no Hugging Face token here; run hf auth login, or set HF_TOKEN."


def check_token() -> None:
    """Refuse to start work for which a token is needed where there is none; whether it is good, the Hub says."""
    from huggingface_hub import get_token

    if get_token() is None:
        raise HubError(_NO_TOKEN, status=401)


def call(action: Callable[[], _T], *, about: str, repeat: bool = True) -> _T:
    """Run one call of the client. `repeat` only what is safe to do twice; every failure is a HubError."""
    waited, wait = 0.0, FIRST_WAIT
    while True:
        started = time.monotonic()
        try:
            return action()
        except Exception as error:
            failure = explained(error, about)
            if failure is None:  # not the Hub's doing: a full disk, a fault of ours
                raise
            pause = wait if failure.retry_after is None else failure.retry_after
        waited += time.monotonic() - started  # an upload that is cut again and again takes minutes each time
        if not (repeat and failure.transient) or waited + pause > PATIENCE:
            raise failure from None
        time.sleep(pause)
        waited, wait = waited + pause, min(2 * wait, LONGEST_WAIT)


def explained(error: BaseException, about: str) -> HubError | None:
    """What a failure of the client means, in one sentence; None if the Hub has nothing to do with it."""
    import httpx2
    from huggingface_hub import errors

    if isinstance(error, HubError):
        return error
    if type(error) is RuntimeError and error.__cause__ is not None:  # how the client wraps a failed upload
        return explained(error.__cause__, about)
    if isinstance(error, errors.LocalTokenNotFoundError):
        return HubError(_NO_TOKEN, status=401)
    if isinstance(error, errors.OfflineModeIsEnabled):
        return HubError(
            "The client is offline (HF_HUB_OFFLINE), so {name} cannot be reached; unset the variable.", name=about
        )
    if isinstance(error, errors.HfHubHTTPError):
        return _of_status(error, about)
    if isinstance(error, errors.LocalEntryNotFoundError):
        cause = explained(error.__cause__, about) if error.__cause__ is not None else None
        if cause is not None and not isinstance(error.__cause__, errors.OfflineModeIsEnabled):
            return HubError(cause.message, status=cause.status)  # the client has already tried several times
        return HubError(
            "{name} is not in the cache, and the client is offline; load it once with a network.", name=about
        )
    if isinstance(error, httpx2.TransportError):
        reason = str(error) or type(error).__name__
        return HubError(
            "The Hub at {address} cannot be reached ({detail}); check the network and try again.",
            address=_endpoint(),
            detail=reason,
            transient=True,
        )
    short = isinstance(error, OSError) and error.errno is None  # fewer bytes than announced, headers left out
    if short or isinstance(error, json.JSONDecodeError):  # a proxy's HTML in place of an answer
        return HubError(
            "The answer of {address} about {name} makes no sense; try again later.",
            address=_endpoint(),
            name=about,
            transient=True,
        )
    if isinstance(error, errors.HFValidationError):
        return HubError("{name} is no name for a Hub repo; write USER/NAME.", name=about)
    if isinstance(error, ValueError):  # a refused card, a refused large file
        return HubError("The Hub refuses {name}: {detail}", name=about, detail=_one_line(str(error)))
    return None


def _of_status(error: Any, about: str) -> HubError:
    from huggingface_hub import errors

    status = int(error.response.status_code)
    template = _SENTENCES.get(status, "The Hub cannot answer about {about} ({status}); try again later.")
    if isinstance(error, errors.GatedRepoError):
        template = "{about} is gated: ask for access on its page {endpoint}/{about}, then run: hf auth login."
    elif isinstance(error, errors.RevisionNotFoundError):
        template, status = "{about} has no such revision on the Hub; check the name.", 404
    elif isinstance(error, errors.RepositoryNotFoundError):
        template, status = _SENTENCES[404], 404
    asked = error.response.headers.get("Retry-After", "")
    retry_after = float(asked) if asked.isdigit() else None
    sentence = Sentence(
        template,
        about=about,
        endpoint=_endpoint(),
        status=status,
        detail=_one_line(error.server_message or str(error)),
        wait=Sentence("{seconds:.0f} seconds", seconds=retry_after) if retry_after else Sentence("a few minutes"),
    )
    return HubError(sentence, status=status, transient=status in TRANSIENT, retry_after=retry_after)


def _endpoint() -> str:
    from huggingface_hub import constants

    return constants.ENDPOINT


def _one_line(text: str) -> str:
    """A foreign text as the end of a sentence, without the token should it ever be in there."""
    from huggingface_hub import get_token

    line = " ".join(text.split())[:300]
    token = get_token()
    return line.replace(token, "***") if token else line


_REPO_ID = re.compile(r"([\w-][\w.-]*/[\w-][\w.-]*)(?:@(\w[\w./-]*))?", re.ASCII)


def is_repo_id(name: str) -> bool:
    """Whether a text has the form USER/NAME, or USER/NAME@REVISION."""
    return _REPO_ID.fullmatch(name) is not None


def pull(
    repo_id: str,
    *,
    backend: str = "auto",
    revision: str | None = None,
    trust_unverified: bool = False,
    trust_code: bool = False,
    all_files: bool = False,
) -> Path:
    """A local folder with a repo's files for one backend (or `all_files`), every byte vouched for by its report.

    A repo without a report needs `trust_unverified`. A TorchScript archive is code, so it comes only with
    `trust_code`; without it that backend scripts the model from its weights.
    """
    named = _REPO_ID.fullmatch(repo_id)
    if named is None:
        raise HubError(
            "{name} is neither a folder here nor a name of the form USER/NAME; check the name.", name=repo_id
        )
    repo_id, revision = named[1], revision or named[2]
    if backend not in ("auto", *BACKENDS):
        raise BackendError("There is no backend {name!r}; choose auto, {names}.", name=backend, names=", ".join(NAMES))
    repo = _Repo(repo_id, revision or "main")
    try:
        first = repo.fetch(PARITY)
    except HubError as error:
        if error.status != 404 or revision is not None:
            raise
        raise HubError(
            "There is no folder {name} here, and the Hub has no model of that name that this token may "
            "see; check the name.",
            name=repo_id,
            status=404,
        ) from None
    if first is None:
        if not trust_unverified:
            raise ParityError(
                "{repo_id} has no {parity}, so nothing vouches for its files; load it with "
                "trust_unverified=True if you trust its author.",
                repo_id=repo_id,
                parity=PARITY,
            )
        first = repo.fetch(CONFIG)
        if first is None:
            raise HubError(
                "{name} has no {file}: it is no model of this project; check the name.", name=repo_id, file=CONFIG
            )
        report = None
    else:
        report = _report(repo, first)
    # One commit for all files: a push in the middle of a pull must not mix two models.
    repo = _Repo(repo_id, first.parent.name)
    names = _names(backend, report, all_files=all_files, code=trust_code)
    folder = _folder(repo, code=trust_code)
    if report is not None:
        _link(first, folder / PARITY)
    for name in names:
        cached = repo.fetch(name)
        if cached is not None:
            if report is not None and name not in UNHASHED:
                _check(repo, report, name, cached)
            _link(cached, folder / name)
        elif report is not None and name in report.files:
            template = "{name} has no {file}, although its {report} names it; tell its author."
            raise HubError(template, name=repo_id, file=name, report=PARITY)
    if report is not None and WEIGHTS_INT8 in names and WEIGHTS not in names:
        _check_origin(repo, report, folder)
    return folder


@dataclass(frozen=True)
class _Repo:
    """One revision of a repo, seen through the client's cache."""

    name: str
    revision: str

    def fetch(self, file: str) -> Path | None:
        """A file in the cache, downloaded if need be; None if the repo does not have it."""
        from huggingface_hub import hf_hub_download
        from huggingface_hub.errors import LocalEntryNotFoundError, RemoteEntryNotFoundError

        def download() -> Path | None:
            try:
                return Path(hf_hub_download(self.name, file, revision=self.revision))
            except RemoteEntryNotFoundError:
                return None
            except LocalEntryNotFoundError:
                if self._known_to_lack(file):
                    return None
                raise

        return call(download, about=self.name)

    def _known_to_lack(self, file: str) -> bool:
        """Whether the cache remembers, offline, that the repo has no such file."""
        # The name has an underscore, but the client's documentation of the function says to compare with it.
        from huggingface_hub import _CACHED_NO_EXIST, try_to_load_from_cache

        return try_to_load_from_cache(self.name, file, revision=self.revision) is _CACHED_NO_EXIST

    @property
    def where(self) -> str:
        """For sentences."""
        return f"{self.name} at {self.revision}"


def _report(repo: _Repo, path: Path) -> ParityReport:
    """The repo's report; an edited, failed or garbled one is refused and leaves the cache."""
    try:
        report = ParityReport.from_json(
            path.read_text(encoding="utf-8", errors="replace"), where=f"{repo.where}: {PARITY}"
        )
        report.raise_if_failed()
    except ParityError:
        _forget(path)
        raise
    return report


def _names(backend: str, report: ParityReport | None, *, all_files: bool, code: bool) -> list[str]:
    """What to download, in a fixed order. A report lists what there is; without one each file is asked for."""
    # A repo of a decoder-only model has no encoder: what is not there is left out.
    wanted: Sequence[str] = (*REQUIRED, *BACKENDS["onnx" if backend == "auto" else backend].reads)
    if backend == "onnx-int8":
        # Without a graph over the float32 weights, these are needed only where no report tells of the 8-bit ones
        # that they were made from them.
        spared = (WEIGHTS,) if report is not None and WEIGHTS_INT8 in report.files else ()
        wanted = [name for name in wanted if name not in (*spared, *FLOAT32_GRAPHS)]
    if all_files and report is not None:
        # The report is a stranger's: only plain file names may become paths here.
        wanted = [*(name for name in report.files if re.fullmatch(r"\w[\w.-]*", name, re.ASCII)), CARD]
    names = [name for name in wanted if name != TORCHSCRIPT or code]
    return [n for n in names if report is None or n in (*REQUIRED, CARD) or n in report.files]


def _check(repo: _Repo, report: ParityReport, name: str, path: Path) -> None:
    """Refuse bytes the report does not vouch for, and drop them so that the next try can succeed."""
    if name not in report.files:
        raise ParityError(
            "{where}: {parity} does not cover {name}; tell its author.", where=repo.where, parity=PARITY, name=name
        )
    if sha256(path) != report.files[name]:
        _forget(path)
        template = (
            "{where}: {name} is not the file that {parity} vouches for; the download was damaged or the repo "
            "was tampered with. The bad copy is removed: try again."
        )
        raise ParityError(template, where=repo.where, name=name, parity=PARITY)


def _check_origin(repo: _Repo, report: ParityReport, folder: Path) -> None:
    """8-bit weights that came alone must have been made from the weights that the report names."""
    if read_index(folder / WEIGHTS_INT8).metadata.get(WEIGHTS_SHA256) != report.files.get(WEIGHTS):
        template = "{where}: {weights_int8} was made from another {weights} than its own; tell its author."
        raise ParityError(template, where=repo.where, weights_int8=WEIGHTS_INT8, weights=WEIGHTS)


def _forget(path: Path) -> None:
    """Remove a file from the client's cache: the name in the snapshot, and the bytes behind it."""
    bytes_behind = path.resolve()
    path.unlink(missing_ok=True)
    bytes_behind.unlink(missing_ok=True)


def _folder(repo: _Repo, *, code: bool) -> Path:
    """Our own view of a snapshot: only files that were asked for and checked, so a stray archive is never run."""
    from huggingface_hub import cached_assets_path

    namespace = repo.name.replace("/", "--")
    snapshot = cached_assets_path("tiny-transformer", namespace=namespace, subfolder=repo.revision)
    return snapshot / ("with-code" if code else "without-code")


def _link(cached: Path, name: Path) -> None:
    """A second name for a cached file's bytes, on no disk space of its own; where there can be none, a copy.

    A symbolic link would not do: ONNX Runtime reads weights only beside the real file of a graph, and in the client's
    store for Xet files every file lies in a folder of its own.
    """
    source = cached.resolve()
    same = name.is_file() and not name.is_symlink()
    if same and (name.samefile(source) or filecmp.cmp(name, source, shallow=False)):
        return
    with atomic.replacing_file(name) as temporary:
        temporary.unlink()
        try:
            os.link(source, temporary)
        except OSError:  # another file system, or one without hard links
            shutil.copyfile(source, temporary)
