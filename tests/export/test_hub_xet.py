"""The Hub's newer way for large files: pushed and pulled through a Xet store that lies in a local folder."""

from pathlib import Path

from tests.support.hub_commands import MODEL, READER, WRITER, XET, Client, send_through_xet
from tests.support.hub_server import HubServer
from tiny_transformer.bundle import WEIGHTS, Bundle


def test_a_model_goes_up_and_comes_back_through_xet(
    hub: HubServer, client: Client, model: Bundle, tmp_path: Path
) -> None:
    store = tmp_path / "store"
    large = send_through_xet(hub, model, store)
    done = client.push(model.folder, **XET)
    assert done.code == 0, done.err
    assert hub.requests("GET .*/xet-write-token/")
    assert not hub.requests("info/lfs|PUT /objects")
    assert any(path.is_file() for path in store.rglob("*"))
    assert hub.files(MODEL)[WEIGHTS] == (model.folder / WEIGHTS).read_bytes()

    hub.objects.clear()  # whatever comes back now comes out of the store
    pulled = client.pull(env=XET)
    assert pulled.code == 0, pulled.err
    assert hub.requests("GET .*/xet-read-token/")
    assert not hub.requests("GET /objects/")
    for name in large:
        assert (Path(pulled.out.strip()) / name).read_bytes() == (model.folder / name).read_bytes()
    assert client.push(model.folder, **XET).code == 0
    assert len(hub.repos["model", MODEL].commits) == 2
    tokens = {seen.headers.get("authorization") for seen in hub.requests("xet-")}
    assert tokens == {f"Bearer {WRITER}", f"Bearer {READER}"}
