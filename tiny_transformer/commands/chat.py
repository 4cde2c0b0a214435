"""`chat`: talk with a chat model in the terminal, or through a pipe."""

import argparse
import sys
from typing import TYPE_CHECKING, Any

from tiny_transformer.commands.generate import (
    add_backend_arguments,
    add_decoding_arguments,
    decoding_options,
    read_lines,
    utf8_stdout,
)

if TYPE_CHECKING:
    from tiny_transformer.text_model import TextModel
    from tiny_transformer.tokenizer import Message

EXAMPLE = "python -m tiny_transformer chat checkpoints/chat --temperature 0.7"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Where the model runs, what it is told first, and how tokens are chosen."""
    parser.add_argument("bundle", metavar="BUNDLE", help="a folder with a chat model")
    parser.add_argument("--system", metavar="TEXT", help="a system message to begin with")
    parser.add_argument(
        "--replay",
        metavar="FILE",
        help='JSON lines of {"turns": ["Hi", …]}: let the model reply to each turn of each talk, and print all of it',
    )
    add_backend_arguments(parser)
    add_decoding_arguments(parser)


def run(options: argparse.Namespace) -> None:
    """Read a line, stream the reply, until /quit or the end of the input."""
    from tiny_transformer.errors import InputError
    from tiny_transformer.generation import GenerationOptions
    from tiny_transformer.text_model import load

    utf8_stdout()
    model = load(options.bundle, options.backend, options.device, options.threads)
    if model.task != "chat":
        template = "{bundle} is a model for {task}, not for chat; use the command generate."
        raise InputError(template, bundle=options.bundle, task=model.task)
    decoding = decoding_options(options)
    GenerationOptions.from_keywords(decoding, model.bundle.generation)  # a wrong option is said before the first turn
    if options.replay:
        _replay(model, options.replay, options.system, decoding)
    else:
        _talk(model, options.system, decoding)


def _replay(model: "TextModel", file: str, system: str | None, decoding: dict[str, Any]) -> None:
    """What the user says comes from a file: a transcript, always the same for the same model."""
    from tiny_transformer.data.files import locate
    from tiny_transformer.data.records import read_all
    from tiny_transformer.errors import InputError

    for number, turns in enumerate(read_all(locate(file), "dialogues", file), start=1):
        if not all(isinstance(turn, str) for turn in turns):
            raise InputError("{file} holds messages; a talk to replay is the user's turns alone.", file=file)
        history: list[Message] = [{"role": "system", "content": system}] if system else []
        print(f"{'' if number == 1 else chr(10)}# {number}")
        for turn in turns:
            print(f"> {turn}")
            history.append({"role": "user", "content": turn})
            history.append({"role": "assistant", "content": _reply(model, history, decoding)})


def _talk(model: "TextModel", system: str | None, decoding: dict[str, Any]) -> None:
    opening: list[Message] = [{"role": "system", "content": system}] if system else []
    history = list(opening)
    _say("Write a message; /reset starts anew, /quit ends.")
    _prompt()
    for line in read_lines():
        text = line.strip()
        if text == "/quit":
            return
        if text == "/reset":
            history = list(opening)
            _say("The dialogue starts anew.")
        elif text:
            history.append({"role": "user", "content": text})
            history.append({"role": "assistant", "content": _reply(model, history, decoding)})
        _prompt()
    if sys.stdin.isatty():
        _say("")  # the shell's prompt belongs on a line of its own


def _reply(model: "TextModel", history: "list[Message]", decoding: dict[str, Any]) -> str:
    """Stream one reply; Ctrl-C ends it, not the dialogue."""
    said: list[str] = []
    with model.stream_reply_tokens(history, **decoding) as stream:
        for notice in stream.notices:
            _say(f"note: {notice}")
        try:
            for piece in stream.pieces():
                said.append(piece)
                print(piece, end="", flush=True)
        except KeyboardInterrupt:
            _say(" (interrupted)")
    print(flush=True)
    return "".join(said)


def _prompt() -> None:
    """Only a person needs one."""
    if sys.stdin.isatty():
        print("> ", end="", file=sys.stderr, flush=True)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
