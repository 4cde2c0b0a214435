"""Write `docs/cli.md` from the argument parsers of the commands.

    python -m docs.make_cli

The page is made from the parsers' actions, not from their `--help`: the layout of argparse's help differs between
Python versions, and the page must not.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

import export.commands
import tiny_transformer.cli
from tiny_transformer.ui import page_settings

PAGE = Path(__file__).with_name("cli.md")

HEAD = """# The command line

[back to the README](../README.md) · this page is made from the parsers by `python -m docs.make_cli`

`python -m tiny_transformer` trains, inspects and uses a model folder (an installed package also has it as
`tiny-transformer`), `python -m export` exports, verifies and publishes one, and `python app.py` serves the page.

- Data goes to stdout; notes and progress go to stderr.
- The exit code is 0 for done, 1 for a check that failed, 2 for wrong usage and 130 for an interrupt.
- Every mistake that a user can make is answered with one sentence: what is wrong, where, and what to do.
- `generate … -` and `chat` in a pipe write exactly one line for each line they read.
- Options of decoding are the Python keywords with dashes. A value of a recipe that has no flag of its own is changed
  by `--set`, as in `--set training.beta2=0.95`.

"""


def programs() -> dict[str, argparse.ArgumentParser]:
    """Every program of the project, by what one types to start it."""
    return {
        "python -m tiny_transformer": tiny_transformer.cli.build_parser(),
        "python -m export": export.commands.build_parser(),
        "python app.py": page_settings.build_parser({}),
    }


def subcommands(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """Name → parser of each subcommand; empty where there are none."""
    found: dict[str, argparse.ArgumentParser] = {}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            found.update(action.choices)
    return found


def page() -> str:
    """The whole text of `docs/cli.md`."""
    parts = [HEAD]
    for program, parser in programs().items():
        commands = subcommands(parser)
        parts.append(f"## {program}\n\n{_sentence(parser.description)}\n")
        parts.extend(
            [
                "| command | what it does |\n|---|---|\n",
                *(_row(f"`{name}`", c.description) for name, c in commands.items()),
            ]
            if commands
            else _options(parser)
        )
        if not commands and parser.epilog:
            parts.append(f"\n{parser.epilog}\n")
        parts.append("\n")
        for name, command in commands.items():
            parts.append(f"### {program} {name}\n\n{_sentence(command.description)}\n")
            parts.append(f"```bash\n{example(command)}\n```\n\n")
            parts.extend(_options(command))
            parts.append("\n")
    return "".join(parts).rstrip("\n") + "\n"


def example(parser: argparse.ArgumentParser) -> str:
    """The example that the subcommand's help ends with."""
    return (parser.epilog or "").removeprefix("example:\n").strip()


def _options(parser: argparse.ArgumentParser) -> Iterator[str]:
    yield "| argument | meaning |\n|---|---|\n"
    for action in parser._actions:
        if not isinstance(action, argparse._HelpAction | argparse._VersionAction | argparse._SubParsersAction):
            yield _row(_usage(action), _meaning(action))


def _usage(action: argparse.Action) -> str:
    """How the argument is typed, as in `--seeds N ...`."""
    value = "" if action.nargs == 0 else _value(action)
    if not action.option_strings:
        return f"`{value}`"
    shown = [f"`{flag} {value}`" if value else f"`{flag}`" for flag in action.option_strings]
    return ", ".join(shown) + (" (required)" if action.required else "")


def _value(action: argparse.Action) -> str:
    if action.choices is not None and action.metavar is None:
        name = "{" + ",".join(str(choice) for choice in action.choices) + "}"
    else:
        name = str(action.metavar or action.dest.upper())
        if isinstance(action.metavar, tuple):
            return " ".join(action.metavar)
    if isinstance(action.nargs, int):
        return " ".join([name] * action.nargs)
    return {"+": f"{name} ...", "*": f"[{name} ...]", "?": f"[{name}]"}.get(str(action.nargs), name)


def _meaning(action: argparse.Action) -> str:
    # BooleanOptionalAction appends the default to the help in some Python versions.
    words = (action.help or "").removesuffix(" (default: %(default)s)")
    return words % vars(action)


def _row(*cells: str | None) -> str:
    return "| " + " | ".join((cell or "").replace("|", r"\|") for cell in cells) + " |\n"


def _sentence(text: str | None) -> str:
    return f"{(text or '')[:1].upper()}{(text or '')[1:]}\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
