"""For programs that speak OpenAI's protocol: /v1/chat/completions, whole or as a stream, and /v1/models.

A request waits in the queue of the page's visitors and has their limits; a closed connection ends its work.
"""

import json
import time
import uuid
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import Any

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from tiny_transformer.errors import InputError, Sentence, TinyTransformerError
from tiny_transformer.generation.options import GenerationOptions
from tiny_transformer.tokenizer import Message
from tiny_transformer.ui.i18n import page_language, translated
from tiny_transformer.ui.models import ModelEntry
from tiny_transformer.ui.service import OFFERED, PageService, check_history, checked_options

PREFIX = "/v1/"
# Calls an endpoint of the page by its name and values, through the page's queue; gives the states of the result.
Call = Callable[[str, Mapping[str, Any], Request], AsyncGenerator[dict[str, Any]]]

_READ = {"model", "messages", "stream", "stream_options", "max_tokens", "max_completion_tokens", "stop", *OFFERED}
# OpenAI's parameters that this server does not offer, with the values that ask for nothing.
_OFF: dict[str, tuple[Any, ...]] = {
    "n": (1,),
    "frequency_penalty": (0,),
    "presence_penalty": (0,),
    "logit_bias": ({},),
    "logprobs": (False,),
    "top_logprobs": (0,),
    "tools": ([],),
    "tool_choice": ("none", "auto"),
    "functions": ([],),
    "function_call": ("none", "auto"),
    "response_format": ({"type": "text"},),
    "modalities": (["text"],),
    "audio": (),
    "web_search_options": (),
}
# Those that do not change what an answer is.
_IGNORED = {
    "metadata",
    "parallel_tool_calls",
    "prediction",
    "prompt_cache_key",
    "prompt_cache_retention",
    "reasoning_effort",
    "safety_identifier",
    "service_tier",
    "store",
    "user",
    "verbosity",
}
_FINISHED = {"eos": "stop", "stop": "stop", "length": "length", "context": "length", "time": "length"}


class QueueFullError(TinyTransformerError):
    """Too many requests are waiting."""


class CallFailedError(Exception):
    """An endpoint failed; its sentence is in the caller's language already."""


class UnknownModelError(InputError):
    """There is no model of that name."""


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A request for a completion, checked."""

    model: str
    turns: list[Message]
    options: dict[str, Any]
    stream: bool = False
    include_usage: bool = False


def openai_routes(service: PageService, call: Call) -> list[Route]:
    """For the server, ahead of Gradio's own."""
    every = ["GET", "POST", "PUT", "PATCH", "DELETE"]
    return [
        Route(PREFIX + "chat/completions", partial(completions, service, call), methods=["POST"]),
        Route(PREFIX + "models", partial(models, service)),
        Route(PREFIX + "models/{name}", partial(model, service)),
        Route(PREFIX + "{rest:path}", nothing_here, methods=every),
    ]


def error_response(
    request: Request,
    status: int,
    sentence: str,
    code: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> JSONResponse:
    """A refusal in OpenAI's form, its sentence in the language that the request asks for."""
    words = translated(sentence, page_language(request.headers.get("accept-language")))
    return JSONResponse({"error": _error(words, status, code)}, status_code=status, headers=headers)


def _error(words: str, status: int, code: str | None) -> dict[str, Any]:
    kind = "invalid_request_error" if status < 500 else "server_error"
    return {"message": words, "type": kind, "param": None, "code": code}


async def nothing_here(request: Request) -> Response:
    """Another address of OpenAI's, or a method that the address does not take."""
    path = request.url.path
    known = path.rstrip("/") in (PREFIX + "chat/completions", PREFIX + "models")
    template = "{method} {path} is not served here; use POST /v1/chat/completions or GET /v1/models."
    return error_response(request, 405 if known else 404, Sentence(template, method=request.method, path=path[:80]))


async def models(service: PageService, request: Request) -> Response:
    """The models that can answer."""
    listed = [_model(entry) for entry in service.store.entries.values() if entry.bundle is not None]
    return JSONResponse({"object": "list", "data": listed})


async def model(service: PageService, request: Request) -> Response:
    """One of them."""
    try:
        return JSONResponse(_model(_entry(service, request.path_params["name"])))
    except UnknownModelError as error:
        return error_response(request, 404, error.message, "model_not_found")


def _model(entry: ModelEntry) -> dict[str, Any]:
    assert entry.bundle is not None, "only a model that opens is listed"
    made = int(entry.bundle.folder.stat().st_mtime)
    return {"id": entry.name, "object": "model", "created": made, "owned_by": "tiny-transformer", "task": entry.task}


def _entry(service: PageService, name: object) -> ModelEntry:
    usable = {key: entry for key, entry in service.store.entries.items() if entry.bundle is not None}
    if not isinstance(name, str) or name not in usable:
        template = "There is no model {name!r}; choose one of {names}."
        raise UnknownModelError(template, name=name, names=", ".join(usable))
    return usable[name]


def asked(service: PageService, body: object) -> Asked:
    """What a body asks for; whatever this server cannot do is refused, so that no answer pretends it was done."""
    if not isinstance(body, dict):
        raise InputError("The request must be a JSON object with model and messages.")
    for name in ("model", "messages"):
        if body.get(name) is None:
            raise InputError("The request lacks {name!r}; add it.", name=name)
    unknown = sorted(body.keys() - _READ - _OFF.keys() - _IGNORED)
    if unknown:
        raise InputError("There is no parameter {names}; leave it out.", names=", ".join(unknown))
    for name, values in _OFF.items():
        if body.get(name) is not None and body[name] not in values:
            raise InputError("{name} = {value!r} is not offered here; leave it out.", name=name, value=body[name])
    entry = _entry(service, body["model"])
    assert entry.bundle is not None, "an unknown model was refused"
    turns = check_history(_turns(body["messages"]), service.limits)
    service.content(entry.name, turns)  # refuses what has no text to answer
    options = {name: body[name] for name in (*OFFERED, "stop") if body.get(name) is not None}
    options |= _as_ours(body, service.limits.new_tokens)
    generation = entry.bundle.generation
    GenerationOptions.from_keywords(checked_options(options, generation, service.limits), generation)
    usage = body.get("stream_options") or {}
    return Asked(
        model=entry.name,
        turns=turns,
        options=options,
        stream=_flag("stream", body.get("stream")),
        include_usage=isinstance(usage, dict) and _flag("include_usage", usage.get("include_usage")),
    )


def _as_ours(body: Mapping[str, Any], limit: int) -> dict[str, Any]:
    """OpenAI's names for two of our options."""
    options: dict[str, Any] = {}
    longest = next((body[name] for name in ("max_completion_tokens", "max_tokens") if body.get(name) is not None), None)
    if longest is not None:
        OFFERED["max_new_tokens"].check(longest if not isinstance(longest, int) else min(longest, limit))
        options["max_new_tokens"] = min(longest, limit)  # at most so many: the page's own limit may come first
    seed = body.get("seed")
    if isinstance(seed, int) and not isinstance(seed, bool) and -(2**63) <= seed < 0:
        options["seed"] = seed + 2**64  # OpenAI's seeds have a sign
    return options


def _flag(name: str, value: object) -> bool:
    if value is not None and not isinstance(value, bool):
        raise InputError("{name} is {value!r}; choose true or false.", name=name, value=value)
    return bool(value)


def _turns(messages: object) -> list[Message]:
    """The dialogue as our models read it; the service checks what is in it."""
    if not isinstance(messages, list):
        raise InputError("messages must be a list of messages with role and content.")
    return [_turn(message) for message in messages]


def _turn(message: Any) -> Any:
    if not isinstance(message, dict):
        return message
    role, content = message.get("role"), message.get("content")
    return {"role": "system" if role == "developer" else role, "content": _text(content)}


def _text(content: object) -> object:
    """The text of a message; OpenAI lets it come in parts."""
    if not isinstance(content, list):
        return "" if content is None else content
    for part in content:
        if not isinstance(part, dict) or part.get("type") != "text" or not isinstance(part.get("text"), str):
            raise InputError("A part of a message is not text, and these models read nothing else; leave it out.")
    return "".join(part["text"] for part in content)


async def completions(service: PageService, call: Call, request: Request) -> Response:
    """Answer a dialogue, whole or as a stream."""
    try:
        asked_for = asked(service, json.loads(await request.body()))
        *history, last = asked_for.turns
        values = {"text": last["content"], "model": asked_for.model, "history": history, **asked_for.options}
        states = call("answer", values, request)
        first = await anext(states)  # from here on the request has its turn
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError):
        sentence = Sentence("The request must be a JSON object with model and messages.")
        return error_response(request, 400, sentence)
    except UnknownModelError as error:
        return error_response(request, 404, error.message, "model_not_found")
    except QueueFullError as error:
        return error_response(request, 503, error.message, "queue_full", {"Retry-After": "5"})
    except TinyTransformerError as error:
        return error_response(request, 400, error.message)
    except CallFailedError as error:
        return JSONResponse({"error": _error(str(error), 500, None)}, status_code=500)
    except ClientDisconnect:
        return Response(status_code=499)  # nobody reads it
    head = {"id": f"chatcmpl-{uuid.uuid4().hex}", "created": int(time.time()), "model": asked_for.model}
    if asked_for.stream:
        events = _events(head, first, states, asked_for.include_usage)
        return StreamingResponse(events, media_type="text/event-stream", headers={"Cache-Control": "no-cache"})
    async with aclosing(states):
        try:
            last_state = first
            async for state in states:
                last_state = state
        except CallFailedError as error:
            return JSONResponse({"error": _error(str(error), 500, None)}, status_code=500)
        except ClientDisconnect:
            return Response(status_code=499)
    message = {"role": "assistant", "content": last_state["text"], "refusal": None}
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _finish_reason(last_state)}
    whole = {"object": "chat.completion", "choices": [choice], "usage": _usage(last_state)}
    return JSONResponse(head | whole | {"notices": last_state["notices"]})


async def _events(
    head: dict[str, Any], first: dict[str, Any], states: AsyncGenerator[dict[str, Any]], include_usage: bool
) -> AsyncGenerator[str]:
    """The answer as server-sent events: what is new of the text in each, then the reason of its end."""

    def event(**values: Any) -> str:
        chunk = head | {"object": "chat.completion.chunk"} | values
        return f"data: {json.dumps(chunk, ensure_ascii=False)}\n\n"

    def choice(delta: dict[str, Any], reason: str | None = None) -> list[dict[str, Any]]:
        return [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}]

    try:
        async with aclosing(states):
            yield event(choices=choice({"role": "assistant", "content": first["text"], "refusal": None}))
            last = first
            async for state in states:
                if state["text"] != last["text"]:
                    yield event(choices=choice({"content": state["text"][len(last["text"]) :]}))
                last = state
        yield event(choices=choice({}, _finish_reason(last)), notices=last["notices"])
        if include_usage:
            yield event(choices=[], usage=_usage(last))
        yield "data: [DONE]\n\n"
    except CallFailedError as error:
        yield f"data: {json.dumps({'error': _error(str(error), 500, None)}, ensure_ascii=False)}\n\n"
    except ClientDisconnect:
        return


def _finish_reason(state: Mapping[str, Any]) -> str:
    return _FINISHED[state["finish_reason"] or "time"]


def _usage(state: Mapping[str, Any]) -> dict[str, int]:
    """Tokens read and written; end tokens count."""
    read, written = state["source_tokens"], state["tokens"]
    return {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}
