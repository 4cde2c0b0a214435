"""The page as it is shipped: `python app.py` with the models of this repository, really trained."""

import re
from collections.abc import Iterator

import httpx
import pytest
from gradio_client import Client

from tests.support.ui_fixtures import Served, served
from tiny_transformer.bundle import Bundle
from tiny_transformer.ui.about_tab import about
from tiny_transformer.ui.header import EXAMPLES
from tiny_transformer.ui.page_settings import DEFAULT_MODELS

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(DEFAULT_MODELS, tmp_path_factory.mktemp("shipped")) as found:
        yield found


@pytest.fixture(scope="module")
def client(page: Served) -> Client:
    return Client(page.url, verbose=False)


def test_both_models_are_there_and_vouched_for(page: Served, client: Client) -> None:
    client.predict("Hello!", max_new_tokens=2, api_name="/chat")
    client.predict("Hallo!", api_name="/translate")
    assert httpx.get(f"{page.url}/health").status_code == 200
    for name in ("chat", "translate"):
        assert page.health["models"][name]["loaded"] == ["onnx"]
        assert page.health["models"][name]["verified"] is True
        shown = about(name, Bundle.open(next(m for m in DEFAULT_MODELS if m.endswith(name))), "en", page.url)
        assert "<b>Verified.</b>" in shown
        assert "<polyline" in shown, "the training curve"


def test_it_chats_and_translates(client: Client) -> None:
    assert re.search(r"\b(well|good|great|fine)\b", client.predict("Hello! How are you?", api_name="/chat").lower())
    assert re.search(r"\bdog\b.*\btable\b", client.predict("Der Hund liegt unter dem Tisch.", api_name="/translate"))
    assert "Beijing" in client.predict("我明天要去北京。", api_name="/translate")


def test_it_translates_a_letter_sentence_by_sentence(client: Client) -> None:
    thanks, middle, end = client.predict(EXAMPLES["translate"][-1], api_name="/translate").split("\n\n")
    assert "letter" in thanks
    assert re.fullmatch(r".*Saturday.*[.!] .*\b(children|kids)\b.*[.!]", middle)
    assert end


@pytest.mark.parametrize("model", ["chat", "translate"])
def test_its_backends_agree(client: Client, model: str) -> None:
    found = client.predict("Guten Morgen!" if model == "translate" else "Tell me a joke.", model, api_name="/compare")
    assert found["verdict"] == "equal"
    assert {"eager", "torchscript", "onnx"} <= {row["backend"] for row in found["backends"]}
