"""The Hub's client as a push wants it: with time limits, quiet, and with the token bound to the endpoint."""

import sys
from typing import Any

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
