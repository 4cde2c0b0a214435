"""The whole road with real graphs: push, pull into an empty cache, verify."""

import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import onnx
import pytest

from export.push import verified_copy
from tests.support.hub_commands import MODEL, READER, WRITER, XET, Client, send_through_xet
from tests.support.hub_server import HubServer
from tiny_transformer.bundle import DECODER_ONNX, EVALUATION, PARITY, TORCHSCRIPT, WEIGHTS, Bundle
from tiny_transformer.errors import BundleError, TinyTransformerError
from tiny_transformer.parity import verify_bundle, write_report
from tiny_transformer.parity.report import ParityReport, stored_report
from tiny_transformer.text_model import load


@pytest.fixture
def real(exported: Callable[[str], Bundle], tmp_path: Path) -> Bundle:
    """A copy of an exported model, with an example to judge 8 bits by, and its report."""
    folder = tmp_path / "real"
    shutil.copytree(exported("encoder-decoder-sinusoidal").folder, folder)
    (folder / EVALUATION).write_text('{"source": "Hallo", "target": "Hello"}\n', encoding="utf-8")
    bundle = Bundle.open(folder)
    write_report(bundle, verify_bundle(bundle))
    return bundle


def python(client: Client, *command: str, token: str = READER, **env: str) -> str:
    """Run, and expect success."""
    done = client.run([sys.executable, *command], client.environment(token, **env))
    assert done.code == 0, done.err
    return done.out


def test_pushed_pulled_and_verified_it_is_the_same_model(hub: HubServer, client: Client, real: Bundle) -> None:
    report = stored_report(real)
    assert report is not None
    assert {"torchscript", "onnx", "onnx-int8"} <= set(report.candidates)
    address = python(client, "-m", "export", "push", str(real.folder), MODEL, "--license", "mit", token=WRITER)
    assert address.strip() == f"{hub.endpoint}/{MODEL}"
    assert hub.files(MODEL)[PARITY] == (real.folder / PARITY).read_bytes()

    found = python(client, "-m", "export", "verify", f"{MODEL}@main", "--trust-code", "--json")
    again = ParityReport.from_json(found, where="verify")
    assert again.files == report.files
    assert again.verdict == report.verdict == "verified"
    # How large a rounding difference is depends on the threads of the process that looks.
    assert [(c.candidate, c.kind, c.name, c.passed) for c in again.cases] == [
        (c.candidate, c.kind, c.name, c.passed) for c in report.cases
    ]

    # Without trust in code the archive stays on the Hub, and the model is scripted from its weights.
    without = ParityReport.from_json(python(client, "-m", "export", "verify", MODEL, "--json"), where="verify")
    assert without.files == {name: found for name, found in report.files.items() if name != TORCHSCRIPT}
    assert "torchscript" in without.candidates
    assert without.verdict == "verified"


def test_in_8_bits_it_runs_without_the_weights_it_was_made_from(hub: HubServer, client: Client, real: Bundle) -> None:
    hub.create(MODEL, files={name: (real.folder / name).read_bytes() for name in real.files()})
    code = (
        "import tiny_transformer as tt\n"
        f"model = tt.load({MODEL!r}, 'onnx-int8')\n"
        "print(model.bundle.folder, model.verified, model.backend_name, model.generate('Hallo').ids)\n"
        "try:\n    model.attention('Hallo')\n"
        "except tt.TinyTransformerError as error:\n    print(error)\n"
    )
    first, second = python(client, "-c", code).splitlines()
    folder, said = first.split(" ", 1)
    assert said == f"True onnx-int8 {load(real.folder, 'onnx-int8').generate('Hallo').ids}"
    assert "load it on onnx" in second
    assert not hub.requests(f"^GET /objects/{real.hashes()[WEIGHTS]}")
    with pytest.raises(BundleError, match=f"lacks {WEIGHTS}"):  # taken for a folder of one's own it is not whole
        load(folder, "onnx-int8")


def test_pulled_through_xet_it_runs_on_every_backend(
    hub: HubServer, client: Client, real: Bundle, tmp_path: Path
) -> None:
    send_through_xet(hub, real, tmp_path / "store")
    done = client.push(real.folder, **XET)
    assert done.code == 0, done.err
    hub.objects.clear()  # whatever comes back now comes out of the store
    code = (
        "import tiny_transformer as tt\n"
        "for name in ('auto', 'onnx', 'onnx-int8', 'eager'):\n"
        f"    model = tt.load({MODEL!r}, name)\n"
        "    print(model.verified, model.backend_name, model.generate('Hallo').ids)\n"
    )
    expected = [load(real.folder, name).generate("Hallo").ids for name in ("onnx", "onnx", "onnx-int8", "eager")]
    lines = python(client, "-c", code, **XET).splitlines()
    names = ("onnx", "onnx", "onnx-int8", "eager")
    assert lines == [f"True {name} {ids}" for name, ids in zip(names, expected, strict=True)]
    assert list((client.home / "hub" / "blobs").glob("??/*")), "the client did not share its blobs"
    report = ParityReport.from_json(python(client, "-m", "export", "verify", MODEL, "--json", **XET), where="verify")
    assert report.verdict == "verified"


def test_one_flipped_bit_in_any_file_stops_the_push_before_it_starts(real: Bundle) -> None:
    folder = real.folder

    def never(bundle: Bundle) -> ParityReport:
        raise AssertionError("it got as far as the verification")

    names = sorted(path.name for path in folder.iterdir())
    assert {DECODER_ONNX, PARITY, EVALUATION} <= set(names)
    for name in names:
        whole = (folder / name).read_bytes()
        for position in (0, len(whole) // 2, len(whole) - 2):
            flipped = bytearray(whole)
            flipped[position] ^= 1
            (folder / name).write_bytes(flipped)
            with pytest.raises(TinyTransformerError, match=re.escape(name)), verified_copy(folder, never):
                pass
        (folder / name).write_bytes(whole)


def test_a_graph_that_computes_something_else_is_refused_with_its_cases(
    hub: HubServer, client: Client, real: Bundle
) -> None:
    graph = onnx.load(real.folder / DECODER_ONNX, load_external_data=False)
    first, second, *_ = (
        tensor for tensor in graph.graph.initializer if len(tensor.dims) == 2 and tensor.dims[0] == tensor.dims[1]
    )
    other = list(second.external_data)
    second.ClearField("external_data")
    second.external_data.extend(first.external_data)
    first.ClearField("external_data")
    first.external_data.extend(other)
    (real.folder / DECODER_ONNX).write_bytes(graph.SerializeToString())
    (real.folder / PARITY).unlink()
    done = client.run([sys.executable, "-m", "export", "push", str(real.folder), MODEL], client.environment(WRITER))
    assert done.code == 1, done.err
    assert "Parity failed in" in done.err
    assert "onnx: " in done.err
    assert hub.seen == []
