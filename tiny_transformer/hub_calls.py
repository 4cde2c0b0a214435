"""Calls to the Hugging Face Hub: repeated while that can help, and failing in one sentence."""

import json
import time
from collections.abc import Callable
from typing import Any, TypeVar

from tiny_transformer.errors import HubError

PATIENCE = 120.0  # seconds that one call may wait, all its tries together
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


def call(action: Callable[[], _T], *, about: str, repeat: bool = True) -> _T:
    """Run one call of the client. `repeat` only what is safe to do twice; every failure is a HubError."""
    waited, wait = 0.0, FIRST_WAIT
    while True:
        try:
            return action()
        except Exception as error:
            failure = explained(error, about)
            if failure is None:  # not the Hub's doing: a full disk, a fault of ours
                raise
            pause = wait if failure.retry_after is None else failure.retry_after
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
        return HubError("There is no Hugging Face token here; run hf auth login, or set HF_TOKEN.", status=401)
    if isinstance(error, errors.OfflineModeIsEnabled):
        return HubError(f"The client is offline (HF_HUB_OFFLINE), so {about} cannot be reached; unset the variable.")
    if isinstance(error, errors.HfHubHTTPError):
        return _of_status(error, about)
    if isinstance(error, errors.LocalEntryNotFoundError):
        cause = explained(error.__cause__, about) if error.__cause__ is not None else None
        if cause is not None and not isinstance(error.__cause__, errors.OfflineModeIsEnabled):
            return HubError(str(cause), status=cause.status)  # the client has already tried several times
        return HubError(f"{about} is not in the cache, and the client is offline; load it once with a network.")
    if isinstance(error, httpx2.TransportError):
        reason = str(error) or type(error).__name__
        return HubError(
            f"The Hub at {_endpoint()} cannot be reached ({reason}); check the network and try again.", transient=True
        )
    short = isinstance(error, OSError) and error.errno is None  # fewer bytes than announced, headers left out
    if short or isinstance(error, json.JSONDecodeError):  # a proxy's HTML in place of an answer
        return HubError(f"The answer of {_endpoint()} about {about} makes no sense; try again later.", transient=True)
    if isinstance(error, errors.HFValidationError):
        return HubError(f"{about} is no name for a Hub repo; write USER/NAME.")
    if isinstance(error, ValueError):  # a refused card, a refused large file
        return HubError(f"The Hub refuses {about}: {_one_line(str(error))}")
    return None


def _of_status(error: Any, about: str) -> HubError:
    from huggingface_hub import errors

    status = int(error.response.status_code)
    if isinstance(error, errors.GatedRepoError):
        text = "{about} is gated: ask for access on its page {endpoint}/{about}, then run: hf auth login."
    elif isinstance(error, errors.RevisionNotFoundError):
        text, status = "{about} has no such revision on the Hub; check the name.", 404
    elif isinstance(error, errors.RepositoryNotFoundError):
        text, status = _SENTENCES[404], 404
    else:
        text = _SENTENCES.get(status, "The Hub cannot answer about {about} ({status}); try again later.")
    detail = _one_line(error.server_message or str(error))
    asked = error.response.headers.get("Retry-After", "")
    retry_after = float(asked) if asked.isdigit() else None
    wait = f"{retry_after:.0f} seconds" if retry_after else "a few minutes"
    message = text.format(about=about, endpoint=_endpoint(), status=status, detail=detail, wait=wait)
    return HubError(message, status=status, transient=status in TRANSIENT, retry_after=retry_after)


def _endpoint() -> str:
    from huggingface_hub import constants

    return constants.ENDPOINT


def _one_line(text: str) -> str:
    """A foreign text as the end of a sentence, without the token should it ever be in there."""
    from huggingface_hub import get_token

    line = " ".join(text.split())[:300]
    token = get_token()
    return line.replace(token, "***") if token else line
