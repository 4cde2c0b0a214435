"""The settings of `python app.py`: on the command line or by environment variables."""

import argparse
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path

from tiny_transformer.backends import BACKENDS
from tiny_transformer.checks import check_number

SHIPPED = Path(__file__).resolve().parents[2] / "checkpoints"
DEFAULT_MODELS = (str(SHIPPED / "chat"), str(SHIPPED / "translate"))
PREFIX = "TINY_TRANSFORMER_"
SERVED = tuple(name for name, spec in BACKENDS.items() if not spec.reference_only)
BACKENDS_HELP = f"auto, {', '.join(SERVED[:-1])} or {SERVED[-1]}"


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What one visitor may ask for; every refusal says the limit."""

    characters: int = field(default=4_000, metadata={"help": "longest text of one request, in characters"})
    new_tokens: int = field(default=300, metadata={"help": "most tokens one answer may have"})
    seconds: float = field(default=60.0, metadata={"help": "longest time one answer may take"})
    running: int = field(default=4, metadata={"help": "requests that are answered at the same time"})
    queue: int = field(default=64, metadata={"help": "requests that may wait"})

    def __post_init__(self) -> None:
        for f in fields(self):
            check_number(f"max_{f.name}", getattr(self, f.name), 0, 1e9, above=True)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Where the page is served, which models it offers, and its limits."""

    host: str = "127.0.0.1"
    port: int = 7860
    models: tuple[str, ...] = DEFAULT_MODELS
    backend: str = "auto"
    threads: int = 1  # a small model answers fastest on one, and several visitors share the cores
    limits: Limits = Limits()


def parse_settings(arguments: Sequence[str] | None = None, environment: Mapping[str, str] | None = None) -> Settings:
    """Options first, then environment variables, then defaults."""
    options = build_parser(os.environ if environment is None else environment).parse_args(arguments)
    limits = Limits(**{f.name: getattr(options, f"max_{f.name}") for f in fields(Limits)})
    return Settings(
        host=options.host,
        port=options.port,
        models=tuple(options.model or options.default_models),
        backend=options.backend,
        threads=options.threads,
        limits=limits,
    )


def build_parser(environment: Mapping[str, str]) -> argparse.ArgumentParser:
    """The options; each default may come from a variable such as TINY_TRANSFORMER_PORT."""
    parser = argparse.ArgumentParser(
        prog="app.py",
        description="Serve the page: chat, comparison of backends, a look inside.",
        epilog=f"Each option can also be set as {PREFIX}<NAME>, for example {PREFIX}PORT=8080.",
    )

    def default(name: str, fallback: object) -> object:
        # A string default goes through the option's own type, so a wrong value gets the same message.
        return environment.get(PREFIX + name, fallback)

    # On a Space, Gradio's own variables say where to listen.
    host = environment.get("GRADIO_SERVER_NAME", "0.0.0.0" if environment.get("SPACE_ID") else Settings.host)
    port = environment.get("GRADIO_SERVER_PORT", Settings.port)
    parser.add_argument("--host", default=default("HOST", host), help="address to listen on (default %(default)s)")
    parser.add_argument("--port", type=_port, default=default("PORT", port), help="port (default %(default)s)")
    parser.add_argument(
        "--model",
        action="append",
        metavar="BUNDLE",
        help="a model folder or Hub id; may be repeated (default: the shipped chat and translate models)",
    )
    named = [name.strip() for name in environment.get(PREFIX + "MODEL", "").split(",") if name.strip()]
    parser.set_defaults(default_models=named or list(DEFAULT_MODELS))
    parser.add_argument(
        "--backend",
        default=default("BACKEND", "auto"),
        metavar="NAME",
        help=f"{BACKENDS_HELP} (default %(default)s)",
    )
    parser.add_argument(
        "--threads", type=_whole, default=default("THREADS", Settings.threads), help="CPU threads (default %(default)s)"
    )
    for f in fields(Limits):
        parser.add_argument(
            f"--max-{f.name.replace('_', '-')}",
            type=float if f.type is float else _whole,
            default=default(f"MAX_{f.name.upper()}", f.default),
            metavar="N",
            help=f"{f.metadata['help']} (default %(default)s)",
        )
    return parser


def _whole(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value} is too small; choose a whole number from 1 on")
    return value


def _port(text: str) -> int:
    value = int(text)
    if not 0 <= value <= 65_535:
        raise argparse.ArgumentTypeError(f"{value} is no port; choose from 0 (any free one) to 65535")
    return value
