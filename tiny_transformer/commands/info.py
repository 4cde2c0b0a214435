"""`info`: show a model folder: its parts, parameters, bytes and hashes."""

import argparse
import json
import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tiny_transformer.checks import printable
from tiny_transformer.errors import BackendError, InputError

EXAMPLE = "python -m tiny_transformer info /tmp/random --shapes"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What to show, and the batch for `--shapes`."""
    parser.add_argument("bundle", metavar="BUNDLE", type=Path, help="a model folder")
    parser.add_argument("--json", action="store_true", help="the same for programs")
    parser.add_argument("--shapes", action="store_true", help="run a batch and print the shape after every part")
    parser.add_argument("--batch", type=int, default=2, help="rows of that batch (default 2)")
    parser.add_argument("--source", type=int, default=7, help="source tokens of that batch (default 7)")
    parser.add_argument("--target", type=int, default=5, help="target tokens of that batch (default 5)")


def run(options: argparse.Namespace) -> None:
    """Print the tables, or one JSON object."""
    from tiny_transformer.bundle import Bundle

    bundle = Bundle.open(options.bundle)
    description = describe(bundle)
    if options.shapes:
        description["shapes"] = shapes(bundle, options.batch, options.source, options.target)
    if options.json:
        print(json.dumps(description, indent=2, ensure_ascii=False))
    else:
        print_tables(description)


def describe(bundle: Any) -> dict[str, Any]:
    """Everything `info` says, as plain values; needs no torch."""
    from tiny_transformer.bundle import WEIGHTS, sha256
    from tiny_transformer.parity import stored_report

    parts: dict[str, Counter[str]] = {}
    tensors = bundle.index.tensors
    for name, entry in tensors.items():
        part = parts.setdefault(_part(name), Counter())
        part.update(tensors=1, parameters=math.prod(entry.shape), bytes=entry.length)
    report = stored_report(bundle)
    total = sum(part["parameters"] for part in parts.values())
    return {
        "folder": str(bundle.folder),
        "task": bundle.generation.task,
        "verified": report.verdict if report else "unverified",
        "parameters": total,
        "parameters_without_embeddings": total - parts["embedding"]["parameters"],
        "stored_as": sorted({entry.dtype for entry in tensors.values()}),
        "config": bundle.config.to_dict(),
        "parts": {name: dict(part) for name, part in sorted(parts.items())},
        "files": {
            name: {"bytes": (bundle.folder / name).stat().st_size, "sha256": sha256(bundle.folder / name)}
            for name in sorted(bundle.files(), key=lambda name: (name != WEIGHTS, name))
        },
    }


def shapes(bundle: Any, n_rows: int, n_source: int, n_target: int) -> list[dict[str, Any]]:
    """The shape after every part, in the order in which the parts run."""
    try:
        import torch
    except ImportError:
        raise BackendError("--shapes runs the model in PyTorch: pip install 'tiny-transformer[torch]'.") from None
    from tiny_transformer.model import load_model

    for name, value in (("batch", n_rows), ("source", n_source), ("target", n_target)):
        limit = 1_024 if name == "batch" else bundle.config.max_length
        if not 1 <= value <= limit:
            raise InputError("--{name} is {value}; choose from 1 to {limit}.", name=name, value=value, limit=limit)
    model = load_model(bundle)
    found: list[dict[str, Any]] = []

    def keep(name: str, part: Any) -> Any:
        def hook(_module: Any, _inputs: Any, output: Any) -> None:
            first = output[0] if isinstance(output, tuple) else output
            found.append({"part": name, "kind": type(part).__name__, "shape": list(first.shape)})

        return hook

    for name, part in model.named_modules():
        if name and name != "rotation":
            part.register_forward_hook(keep(name, part))
    target = torch.zeros(n_rows, n_target, dtype=torch.long)
    with torch.no_grad():
        if bundle.config.is_encoder_decoder:
            source = torch.zeros(n_rows, n_source, dtype=torch.long)
            logits = model(source, torch.ones_like(source, dtype=torch.bool), target)
        else:
            logits = model(target)
    found.append({"part": "logits", "kind": "output", "shape": list(logits.shape)})
    return found


def print_tables(description: dict[str, Any]) -> None:
    """The same for people."""
    config = description["config"]
    print(f"{description['folder']}: {config['architecture']} for {description['task']}, {description['verified']}")
    print(
        f"{description['parameters']:,} parameters, {description['parameters_without_embeddings']:,} without "
        f"embeddings, stored as {' and '.join(description['stored_as'])}\n"
    )
    print_table(
        ("part", "tensors", "parameters", "bytes"),
        [(n, p["tensors"], p["parameters"], p["bytes"]) for n, p in description["parts"].items()],
    )
    print_table(("config", "value"), [(name, str(value)) for name, value in config.items()])
    print_table(
        ("file", "bytes", "sha256"), [(name, f["bytes"], f["sha256"]) for name, f in description["files"].items()]
    )
    if "shapes" in description:
        rows = [(s["part"], s["kind"], " × ".join(map(str, s["shape"]))) for s in description["shapes"]]
        print_table(("after part", "kind", "shape"), rows)


def print_table(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Columns as wide as their widest cell; numbers to the right."""
    cells = [[f"{cell:,}" if isinstance(cell, int) else printable(cell) for cell in row] for row in rows]
    widths = [max(len(row[i]) for row in [list(header), *cells]) for i in range(len(header))]
    numeric = [bool(rows) and isinstance(rows[0][i], int) for i in range(len(header))]
    for row in [list(header), *cells]:
        aligned = [
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(row, widths, numeric, strict=True)
        ]
        print("  ".join(aligned).rstrip())
    print()


def _part(name: str) -> str:
    """`encoder.layers.3.self_attention.qkv.weight` → `encoder.layers.3`."""
    stack, *rest = name.split(".")
    depth = 0 if stack == "embedding" else 2 if rest[:1] == ["layers"] else 1
    return ".".join([stack, *rest[:depth]])
