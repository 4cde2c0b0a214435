"""Files on other storage: whatever pyarrow reads by an address is read like a local file, from S3 too."""

import gzip
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pyarrow
import pytest
from pyarrow import parquet

from tests.support.corpus_answers import echo_corpus, finish
from tests.support.models import BundleFactory
from tiny_transformer.data.rows import RowFile
from tiny_transformer.errors import DataError


class Bucket(BaseHTTPRequestHandler):
    """As much of S3 as reading takes: sizes, and ranges of bytes."""

    protocol_version = "HTTP/1.1"
    objects: dict[str, bytes]

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        data = self.objects.get(self.path.split("?")[0])
        asked = self.headers.get("Range")
        if data is None:
            self.send_response(404)
            data = b""
        elif asked:
            first, last = (int(number) for number in asked.removeprefix("bytes=").split("-"))
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {first}-{min(last, len(data) - 1)}/{len(data)}")
            data = data[first : last + 1]
        else:
            self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def storage() -> Iterator[tuple[dict[str, bytes], str]]:
    """The objects of a bucket, and what follows their name in an address."""
    objects: dict[str, bytes] = {}
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (Bucket,), {"objects": objects}))
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield objects, f"?scheme=http&region=here&endpoint_override=127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_a_corpus_on_s3_gives_what_the_same_local_files_give(
    storage: tuple[dict[str, bytes], str], tmp_path: Path, make_bundle: BundleFactory
) -> None:
    folder = make_bundle().folder
    text, cells, rows = tmp_path / "a.txt.gz", tmp_path / "b c.tsv", tmp_path / "d.parquet"
    text.write_bytes(gzip.compress(b"".join(b"text %d\n" % i for i in range(2_000)), mtime=0))
    cells.write_bytes(b"one\t1\ntwo\n")
    parquet.write_table(pyarrow.table({"text": ["Hallo", None], "id": [1, 2]}), rows)
    objects, rest = storage
    objects |= {f"/bucket/{path.name}".replace(" ", "%20"): path.read_bytes() for path in (text, cells, rows)}
    addresses = [
        f"s3://key:secret@bucket/a.txt.gz{rest}",
        f"s3://key:secret@bucket/b%20c.tsv{rest}",
        rows.as_uri(),
    ]
    clean = finish(echo_corpus(folder, tmp_path / "clean", text, cells, rows))
    corpus = echo_corpus(folder, tmp_path / "out", *addresses)
    assert finish(corpus) == clean
    assert b"secret" not in clean["manifest.json"]
    remote = RowFile.of(f"s3://key:secret@bucket/d.parquet{rest}", None, None, "generated")
    assert [row.text for row in remote.rows()] == ["Hallo", None]


@pytest.mark.parametrize(
    ("address", "sentence"),
    [
        ("s3://key:secret@bucket/missing.txt{rest}", "s3://bucket/missing.txt cannot be read"),
        ("file:///nowhere/a.txt", "cannot be read"),
        ("nothing://bucket/a.txt", "cannot be read"),
        ("s3://key:secret@[bucket/a.txt", "is not an address"),
    ],
)
def test_a_wrong_address_is_one_sentence(storage: tuple[dict[str, bytes], str], address: str, sentence: str) -> None:
    with pytest.raises(DataError) as error:
        list(RowFile.of(address.format(rest=storage[1]), None, None, "generated").rows())
    assert sentence in str(error.value)
    assert "secret" not in str(error.value)
    assert "\n" not in str(error.value)


def test_an_error_of_any_storage_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    class Storage:
        @staticmethod
        def from_uri(address: str) -> None:
            raise RuntimeError(f"no route to {address.partition(':')[0]}.\nmore")

    monkeypatch.setattr("pyarrow.fs.FileSystem", Storage)
    with pytest.raises(DataError) as error:
        list(RowFile.of("hf://datasets/me/a.txt", None, None, "generated").rows())
    assert str(error.value) == "hf://datasets/me/a.txt cannot be read (no route to hf); check the path."
