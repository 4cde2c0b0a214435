"""`python app.py` itself: about as fast to start as an empty page, without torch, and clear about what is wrong."""

import ast
import json
import os
import re
import socket
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from tests.support.in_turns import ratio_in_turns
from tests.support.models import ROOT, run_python
from tests.support.ui_fixtures import WARM, models
from tiny_transformer.ui.page_settings import DEFAULT_MODELS

__all__ = ["models"]

UI = ROOT / "tiny_transformer" / "ui"

SERVE = """
import os, sys, urllib.request
from tiny_transformer.ui.server import serve
from tiny_transformer.ui.page_settings import Settings
page = serve(Settings(port=0, models=tuple(sys.argv[1:])))
urllib.request.urlopen(page.local_url).read()
"""

BARE = """
import os, urllib.request
os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
import gradio as gr
with gr.Blocks() as page:
    gr.Textbox()
page.launch(prevent_thread_lock=True, quiet=True)
urllib.request.urlopen(page.local_url).read()
os._exit(0)
"""


def seconds_to_page(code: str, *arguments: str) -> float:
    """From the start of a process to the first bytes of its page, the program compiled as after any first start."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", code, *arguments], cwd=ROOT, env=environment, check=True, timeout=120)
    return time.perf_counter() - start


@pytest.mark.slow
@pytest.mark.alone
def test_page_is_up_in_at_most_1_3_times_the_time_of_a_bare_one() -> None:
    """The page as it ships."""
    ours = partial(seconds_to_page, SERVE + "os._exit(0)", *DEFAULT_MODELS)
    assert ratio_in_turns(ours, partial(seconds_to_page, BARE), 1.3, at_most=21) <= 1.3


def test_page_loads_no_torch_for_onnx_and_answers_without_it(models: dict[str, Path]) -> None:
    code = (
        SERVE
        + """
from gradio_client import Client
import json, urllib.request
client = Client(page.local_url, verbose=False)
answer = client.predict("hello", max_new_tokens=5, api_name="/chat")
imported = "torch" in sys.modules
sys.modules["torch"] = None  # as if it were not installed
verdict = client.predict("hello", api_name="/compare")["verdict"]
health = json.load(urllib.request.urlopen(page.local_url + "health"))
loaded = health["models"]["chat"]["loaded"]
print(json.dumps({"answer": answer, "imported": imported, "verdict": verdict, "loaded": loaded}), flush=True)
os._exit(0)
"""
    )
    done = run_python(code, *models.values())
    assert done.code == 0, done.err
    found = json.loads(done.out.splitlines()[-1])
    assert len(found["answer"]) == 5
    assert found["imported"] is False
    assert found["verdict"] == "alone"
    assert found["loaded"] == ["onnx"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--port", "nonsense"], "invalid"),
        (["--max-seconds", "0"], "max_seconds is 0"),
        (["--unknown"], "unrecognized"),
        (["--model", "/nope"], "There is no model to serve. /nope is not a folder"),
    ],
)
def test_wrong_options_end_with_a_sentence_and_code_2(arguments: list[str], sentence: str) -> None:
    done = subprocess.run(
        [sys.executable, "app.py", *arguments], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 2
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.long
def test_taken_port_ends_with_a_sentence_and_code_2(models: dict[str, Path]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        arguments = ("--port", port, "--model", str(models["chat"]))
        code, _, said = WARM.run(ROOT / "app.py", *arguments, env=dict(os.environ))
    assert code == 2
    assert f"cannot listen on 127.0.0.1:{port}" in said
    assert "Traceback" not in said


MCP = """
import asyncio
from mcp import ClientSession
from mcp.client.streamable_http import streamablehttp_client

async def use() -> None:
    async with streamablehttp_client(page.local_url + "gradio_api/mcp/") as (read, write, _):
        async with ClientSession(read, write) as session:
            await session.initialize()
            tools = (await session.list_tools()).tools
            print(json.dumps({tool.name: tool.description for tool in tools}))
            called = await session.call_tool("chat", {"message": "hello", "max_new_tokens": 5})
            print(called.content[0].text, flush=True)
            called = await session.call_tool("compare", {"text": "hello"})
            print(called.content[0].text, flush=True)

asyncio.run(use())
os._exit(0)
"""


@pytest.mark.slow
def test_endpoints_are_mcp_tools_where_the_extra_is_installed(models: dict[str, Path], tmp_path: Path) -> None:
    pins = [line for line in (ROOT / "requirements.txt").read_text().splitlines() if line[:1].isalpha()]
    wanted = [pin.replace("gradio==", "gradio[mcp]==") for pin in pins if not pin.startswith("torch")]
    python = tmp_path / "venv" / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    subprocess.run([python, "-m", "pip", "install", "--quiet", *wanted], check=True, timeout=500)
    done = run_python("import json\n" + SERVE + MCP, *models.values(), python=python)
    assert done.code == 0, done.err
    tools, answer, comparison = done.out.splitlines()[-3:]
    assert set(json.loads(tools)) == {"chat", "translate", "answer", "compare"}
    assert all(json.loads(tools).values())
    assert len(answer) == 5
    assert json.loads(comparison)["verdict"] == "alone"


def test_mcp_is_off_without_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    from tiny_transformer.ui import server

    for found, expected in (("1.30.0", True), ("2.3.0", False)):
        monkeypatch.setattr(server, "version", lambda name, found=found: found)
        assert server.has_mcp() is expected

    def absent(name: str) -> str:
        raise server.PackageNotFoundError(name)

    monkeypatch.setattr(server, "version", absent)
    assert server.has_mcp() is False


def test_mcp_tools_give_objects_as_json() -> None:
    from tiny_transformer.ui import server

    class Server:
        def postprocess_output_data(self, data: list[object], root_url: str) -> list[str]:
            return [f"{value} at {root_url}" for value in data]

    found = Server()
    server.tell_json(found)
    assert found.postprocess_output_data([{"text": "你", "x": None}, "y"], "here") == [
        '{"text": "你", "x": null} at here',
        "y at here",
    ]


def test_app_is_a_few_lines() -> None:
    assert len((ROOT / "app.py").read_text().splitlines()) <= 12


def imports_of(path: Path) -> set[str]:
    """Header-level packages that a file imports when it is imported."""
    found: set[str] = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.split(".")[0])
    return found


def test_parts_without_gradio_load_neither_gradio_nor_torch() -> None:
    """What runs the models behind the page can be used, and tested, without a page."""
    names = [f"tiny_transformer.ui.{path.stem}" for path in UI.glob("*.py") if "gradio" not in imports_of(path)]
    assert {f"tiny_transformer.ui.{name}" for name in ("service", "models", "streaming", "i18n")} <= set(names)
    code = f"import sys, importlib\nfor name in {names}: importlib.import_module(name)\n"
    code += "print(sorted({'gradio', 'torch', 'onnxruntime'} & set(sys.modules)))"
    done = run_python(code)
    assert done.out.strip() == "[]", done.err


def test_documented_options_are_those_of_the_parser() -> None:
    from tiny_transformer.ui.page_settings import build_parser

    help_text = build_parser({}).format_help()
    for option in ("--host", "--port", "--model", "--backend", "--threads", "--max-new-tokens", "--max-queue"):
        assert option in help_text
    assert re.search(r"TINY_TRANSFORMER_<NAME>", help_text)
