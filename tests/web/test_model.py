"""The library in Node: a model folder gives Python's texts, and nothing that no report vouches for is used."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.support.export_fixtures import Exported
from tests.support.web_fixtures import JavaScriptError, Node, published
from tiny_transformer.bundle import DECODER_ONNX, PARITY, TOKENIZER, WEIGHTS
from tiny_transformer.text_model import TextModel, load

pytestmark = pytest.mark.browser

TRANSLATOR = "encoder-decoder-sinusoidal"  # its output is smaller than its vocabulary
CHAT = "decoder-only-rotary"
TEXTS = ("ab", "Guten Tag. Wie geht's? 好。", "  zwei Zeilen\n\n- und ein Punkt", "🎉", "x" * 60)
OPTIONS: list[dict[str, Any]] = [
    {},
    {"max_new_tokens": 3},
    {"temperature": 1.0, "seed": 5},
    {"temperature": 0.8, "seed": 6, "top_k": 20, "top_p": 0.9, "repetition_penalty": 1.2},
    {"repetition_penalty": 1.5, "min_new_tokens": 5},
    {"stop": ["a", "ü"], "max_new_tokens": 12},
]
OPEN = """
    const { loadModel } = await use("index.js");
    kept[data.folder] ??= await loadModel(data.folder);
    const model = kept[data.folder];
"""


@pytest.fixture(scope="module")
def folders(exported: Exported, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    base = tmp_path_factory.mktemp("web")
    return {name: published(exported(name), base / name) for name in (TRANSLATOR, CHAT)}


def python_model(exported: Exported, name: str) -> TextModel:
    return load(exported(name).folder, "onnx")


@pytest.mark.parametrize("name", [TRANSLATOR, CHAT])
def test_texts_are_those_of_python(node: Node, exported: Exported, folders: dict[str, Path], name: str) -> None:
    model = python_model(exported, name)
    body = f"""{OPEN}
        const found = [];
        for (const text of data.texts) for (const options of data.options) {{
          let streamed = "";
          const result = await model.generate(text, options, {{ onToken: (event) => (streamed += event.text) }});
          const sentences = result.sentences.map(({{ source, target, copied }}) =>
            [text.slice(source.start, source.end), result.text.slice(target.start, target.end), copied]);
          found.push([streamed, result.text, result.tokens.map((token) => token.id), result.finishReason,
            result.notices.map((notice) => notice.text), sentences]);
        }}
        return found;
    """
    found = iter(node(body, {"folder": str(folders[name]), "texts": TEXTS, "options": OPTIONS}))
    for text in TEXTS:
        for options in OPTIONS:
            expected = model.generate(text, **options)
            streamed, written, ids, reason, notices, sentences = next(found)
            assert streamed == written
            assert written == expected.text, (text, options)
            assert ids == expected.ids, (text, options)
            assert reason == expected.finish_reason
            assert notices == [str(notice) for notice in expected.notices]
            spans = [(text[slice(*s.source)], expected.text[slice(*s.target)], s.copied) for s in expected.sentences]
            assert [tuple(sentence) for sentence in sentences] == spans


def test_a_dialogue_goes_on_from_its_cache(node: Node, exported: Exported, folders: dict[str, Path]) -> None:
    """Each turn reads only what is new, and answers as if it had read everything."""
    model = python_model(exported, CHAT)
    body = f"""{OPEN}
        const {{ WebBackend }} = await use("backend.js");
        const read = [];
        const start = WebBackend.prototype.start;
        WebBackend.prototype.start = function (...given) {{ read.push("all"); return start.apply(this, given); }};
        const turns = [];
        const answers = [];
        try {{
          for (const content of ["a", "b", "c"]) {{
            turns.push({{ role: "user", content }});
            const {{ text }} = await model.generate(turns, {{ max_new_tokens: 2 }});
            turns.push({{ role: "assistant", content: text }});
            answers.push(text);
          }}
        }} finally {{
          WebBackend.prototype.start = start;
        }}
        return [answers, read];
    """
    answers, read = node(body, {"folder": str(folders[CHAT])})
    history = []
    for content, answer in zip("abc", answers, strict=True):
        history.append({"role": "user", "content": content})
        assert model.reply(history, max_new_tokens=2).text == answer
        history.append({"role": "assistant", "content": answer})
    assert len(read) <= 1, "the first turn alone is read from its start"


def test_logprobs_and_alternatives_are_those_of_python(
    node: Node, exported: Exported, folders: dict[str, Path]
) -> None:
    expected = python_model(exported, CHAT).generate("ab", alternatives=3, max_new_tokens=4)
    body = f'{OPEN} return (await model.generate("ab", {{ alternatives: 3, max_new_tokens: 4 }})).tokens;'
    tokens = node(body, {"folder": str(folders[CHAT])})
    assert [token["logprob"] for token in tokens] == pytest.approx(expected.logprobs, abs=1e-4)
    assert [[other["id"] for other in token["alternatives"]] for token in tokens] == [
        [i for i, _ in others] for others in expected.alternatives
    ]


def test_attention_maps_are_those_of_python(node: Node, exported: Exported, folders: dict[str, Path]) -> None:
    for name in (TRANSLATOR, CHAT):
        expected = python_model(exported, name).attention("ab", "cd")
        body = f"""{OPEN}
            const {{ source, target, maps }} = await model.attention("ab", "cd");
            return [source, target, maps.decoder.dims, [...maps.decoder.data]];
        """
        source, target, dims, values = node(body, {"folder": str(folders[name])})
        assert (source, target) == (expected.source, expected.target)
        assert tuple(dims) == expected.weights.decoder.shape
        assert values == pytest.approx(expected.weights.decoder.ravel().tolist(), abs=1e-4)


def test_stop_ends_a_text_and_the_next_one_is_whole(node: Node, exported: Exported, folders: dict[str, Path]) -> None:
    body = f"""{OPEN}
        const stopping = new AbortController();
        let tokens = 0;
        const onToken = () => ++tokens === 3 && stopping.abort();
        const ended = await model.generate("ab", {{ min_new_tokens: 9 }}, {{ onToken, signal: stopping.signal }}).then(
          () => "went on", (error) => error.name);
        return [ended, tokens, (await model.generate("ab")).text];
    """
    ended, tokens, text = node(body, {"folder": str(folders[CHAT])})
    assert (ended, tokens) == ("AbortError", 3)
    assert text == python_model(exported, CHAT).generate("ab").text


@pytest.mark.parametrize("file", [WEIGHTS, DECODER_ONNX, TOKENIZER])
def test_a_wrong_byte_is_refused_by_name(node: Node, folders: dict[str, Path], tmp_path: Path, file: str) -> None:
    folder = shutil.copytree(folders[CHAT], tmp_path / "wrong")
    content = bytearray((folder / file).read_bytes())
    content[len(content) // 2] ^= 1
    (folder / file).write_bytes(content)
    with pytest.raises(JavaScriptError, match=f"^ModelError: {file} is not the file that the parity report vouches"):
        node(f"{OPEN} return null;", {"folder": str(folder)})


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"verdict": "failed"}, "parity.json does not say that the model is verified"),
        ({"files": {}}, "config.json is not in the parity report"),
    ],
)
def test_a_folder_without_proof_is_refused(
    node: Node, folders: dict[str, Path], tmp_path: Path, change: dict[str, Any], said: str
) -> None:
    folder = shutil.copytree(folders[CHAT], tmp_path / "unproved")
    report = json.loads((folder / PARITY).read_text(encoding="utf-8"))
    (folder / PARITY).write_text(json.dumps(report | change), encoding="utf-8")
    with pytest.raises(JavaScriptError, match=said):
        node(f"{OPEN} return null;", {"folder": str(folder)})


def test_a_missing_folder_and_a_wrong_backend_are_one_sentence(node: Node, folders: dict[str, Path]) -> None:
    with pytest.raises(JavaScriptError, match=r"parity\.json cannot be read"):
        node(f"{OPEN} return null;", {"folder": "/nowhere"})
    body = 'return (await use("index.js")).loadModel(data, { backend: "gpu" })'
    with pytest.raises(JavaScriptError, match="There is no backend gpu; choose web"):
        node(body, str(folders[CHAT]))
