"""The JavaScript cuts, reads and draws as Python does: tokens, sentences, languages, prompts, random numbers."""

import json
import lzma
import random
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.models import ROOT
from tests.support.sentence_cases import CASES
from tests.support.web_fixtures import JavaScriptError, Node
from tiny_transformer.bundle import Bundle
from tiny_transformer.config import GenerationConfig, ModelConfig
from tiny_transformer.errors import InputError, Sentence
from tiny_transformer.generation import GenerationOptions
from tiny_transformer.generation import language as python_language
from tiny_transformer.generation import sentences as python_sentences
from tiny_transformer.generation.language import guess
from tiny_transformer.generation.prompt import prompt_for
from tiny_transformer.generation.sampling import likeliest, penalized, probabilities, row_generator
from tiny_transformer.generation.segments import segmented
from tiny_transformer.generation.spelling import usual_spelling
from tiny_transformer.generation.text import StopStrings, TextAssembler
from tiny_transformer.tokenizer import Tokenizer

pytestmark = pytest.mark.browser  # they need Node, which `make test` has and `make check` does not ask for

CHAT, TRANSLATE = (Bundle.open(ROOT / "checkpoints" / name) for name in ("chat", "translate"))
ODD = (
    "",
    " ",
    "\t\t\n \r\n\v\f",
    "a\u00a0b\u3000c\u2009d\u202fe\u0085f\ufeffg\u180eh\u200bi",
    "  führende und folgende   ",
    "\x00\x01\x1b[31m\x7f\x9f",
    "👩‍👩‍👧‍👦 🏳️‍🌈 🇩🇪 ☺️ 👍🏽 e\u0301 ñ n\u0303",
    "<eos><bos> <pad>text<user>\n<assistant> <system> <|endoftext|> </s>",
    "it's we'll they've I'm you'd he's 'tis 'S 'LL don'T",
    "1234567890 ①② ½ Ⅳ ४५६ 一二三 3.14 2024年5月",
    "\u202eعربى עברית हिन्दी ไทย ქართული 한국어 にほんご ʰ ª º",
    "𝒜𝓑 𠀀𪜶 \U0001f9ff\U0010ffff\ue000\ufffd\ufffe",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa" * 20,
    "https://example.org/a?b=c&d=%20#e  user@example.org C:\\x\\y",
    "\u2028\u2029\x1c\x1d\x1e\x1f",
)


def dataset(name: str, n: int, columns: slice = slice(2)) -> list[str]:
    with lzma.open(ROOT / "datasets" / f"{name}.xz", "rt", encoding="utf-8") as lines:
        return [text for line in islice(lines, n) for text in line.rstrip("\n").split("\t")[columns]]


@cache
def lines(n: int) -> list[str]:
    """German, Chinese and English from the datasets, oddities, and random mixtures of both."""
    rng = random.Random(7)
    real = [*dataset("tatoeba/de-en.train.tsv", 750), *dataset("tatoeba/zh-en.train.tsv", 750)]
    real += dataset("stories/tinystories.jsonl", 20, slice(1))
    pieces = [word for text in real for word in text.split()] + list("  \n\t.,!?“”'\"") * 200 + list(ODD) * 20
    texts = [*real, *ODD]
    while len(texts) < n:
        text = "".join(rng.choice(pieces) + rng.choice(("", " ", "", "\u3000")) for _ in range(rng.randint(1, 12)))
        texts.append(text[:400] + chr(rng.choice((rng.randrange(0xD800), rng.randrange(0xE000, 0x30000)))))
    return texts[:n]


def small_output() -> Tokenizer:
    """Digits apart, and an output smaller than the vocabulary."""
    texts = lines(5_000)[::5]
    return Tokenizer.train(texts, 900, split_digits=True, show_progress=False).with_output_first(texts[:300], 600)


@pytest.mark.parametrize("kind", ["chat", "translate", "digits and a small output"])
def test_the_ids_are_those_of_python_on_5000_lines(node: Node, kind: str) -> None:
    tokenizer = {"chat": CHAT.tokenizer, "translate": TRANSLATE.tokenizer}.get(kind) or small_output()
    texts = lines(5_000)
    found = node(
        """
        const { Tokenizer } = await use("tokenizer.js");
        const tokenizer = new Tokenizer(JSON.parse(data.json), data.size);
        return data.texts.map((text) => {
          const ids = tokenizer.encode(text);
          return [ids, tokenizer.encode(text, { target: true }), tokenizer.decode(ids) === text];
        });
        """,
        {"json": tokenizer.to_json(), "size": tokenizer.output_size, "texts": texts},
    )
    expected = zip(tokenizer.encode_batch(texts), tokenizer.encode_batch(texts, target=True), strict=True)
    for text, (ids, target, faithful), (python_ids, python_target) in zip(texts, found, expected, strict=True):
        assert ids == python_ids, text
        assert target == python_target, text
        assert faithful, text


@pytest.mark.slow
def test_the_ids_are_those_of_python_for_every_character(node: Node) -> None:
    characters = [chr(i) for i in range(0x110000) if not 0xD800 <= i < 0xE000]
    texts = ["".join(f"a{c}1 {c} {c}{c}" for c in characters[i : i + 512]) for i in range(0, len(characters), 512)]
    for start in range(0, len(texts), 200):
        some = texts[start : start + 200]
        body = """
            const { Tokenizer } = await use("tokenizer.js");
            kept.chat ??= new Tokenizer(JSON.parse(data.json));
            return data.texts.map((text) => kept.chat.encode(text));
        """
        json_of_it = CHAT.tokenizer.to_json() if start == 0 else "{}"
        found = node(body, {"json": json_of_it, "texts": some})
        assert found == CHAT.tokenizer.encode_batch(some)


def test_merges_in_any_order_are_applied_as_python_applies_them(node: Node) -> None:
    """Two merges may make the same token, so that its next pair has a lower rank than the merge itself."""
    merges = [["a", "b"], ["b", "c"], ["abc", "ab"], ["a", "bc"], ["ab", "c"], ["c", "ab"]]
    values = json.loads(Tokenizer.synthetic(262).to_json())
    values["model"]["merges"] = merges
    for left, right in merges:
        values["model"]["vocab"].setdefault(left + right, len(values["model"]["vocab"]))
    text = json.dumps(values)
    rng = random.Random(1)
    words = ["".join(rng.choice("abc") for _ in range(rng.randint(1, 14))) for _ in range(500)]
    body = """
        const { Tokenizer } = await use("tokenizer.js");
        const tokenizer = new Tokenizer(JSON.parse(data.text));
        return data.words.map((word) => tokenizer.encode(word));
    """
    assert node(body, {"text": text, "words": words}) == Tokenizer.from_json(text).encode_batch(words)


def test_tokens_come_as_whole_characters_and_broken_ones_as_python_shows_them(node: Node) -> None:
    rng = random.Random(3)
    rows = [[rng.randrange(CHAT.tokenizer.vocab_size) for _ in range(20)] for _ in range(300)]
    rows += [[rng.randrange(6, 262) for _ in range(20)] for _ in range(300)]  # single bytes
    rows += [CHAT.tokenizer.encode(text) for text in ODD]
    found = node(
        """
        const { Tokenizer } = await use("tokenizer.js");
        const tokenizer = new Tokenizer(JSON.parse(data.json));
        return data.rows.map((row) => {
          const decoder = tokenizer.decoder();
          return [...row.map((id) => decoder.push(id)), decoder.finish()];
        });
        """,
        {"json": CHAT.tokenizer.to_json(), "rows": rows},
    )
    for row, pieces in zip(rows, found, strict=True):
        assert "".join(pieces) == CHAT.tokenizer.decode(row)
        assert not any("\ud800" <= character <= "\udfff" for piece in pieces for character in piece)


def test_a_long_word_takes_no_time_without_end(node: Node) -> None:
    body = """
        const { Tokenizer } = await use("tokenizer.js");
        const tokenizer = new Tokenizer(JSON.parse(data.json));
        const begin = performance.now();
        const ids = tokenizer.encode("ab".repeat(20_000));
        return [ids, performance.now() - begin];
    """
    ids, milliseconds = node(body, {"json": CHAT.tokenizer.to_json()})
    assert ids == CHAT.tokenizer.encode("ab" * 20_000)
    assert milliseconds < 5_000  # 40,000 passes over the word would take minutes


def test_half_a_character_is_refused(node: Node) -> None:
    body = """
        const { Tokenizer } = await use("tokenizer.js");
        return new Tokenizer(JSON.parse(data)).encode("a\\ud800b");
    """
    with pytest.raises(JavaScriptError, match="half of a character"):
        node(body, CHAT.tokenizer.to_json())


def mixtures(n: int) -> list[str]:
    rng = random.Random(1)
    marks = [*"  ..!?…。！？\"'“”)(,;:-\n\t", "🎉", "👩‍👩‍👧", "z.B. ", "Dr. ", "3. Mai", "\x85", "\u2028", "\x1c"]
    marks += [
        "𠀀",
        "😀 ",
        "http://a.B/c",
        ":)",
        "“你好！”他说",
        "A.",
        "B. ",
        "道",
        "usw. ",
        "\n- ",
        "\n1. ",
        "Plan B. ",
    ]
    words = [word for text in dataset("tatoeba/de-en.dev.tsv", 300) for word in text.split()]
    words += [word for text in dataset("tatoeba/zh-en.dev.tsv", 300) for word in text.split()]
    return [
        "".join(rng.choice(words if rng.random() < 0.5 else marks) + " " * rng.randint(0, 1) for _ in range(40))[:300]
        for _ in range(n)
    ]


def test_sentences_and_languages_are_those_of_python(node: Node) -> None:
    texts = [case.replace("¦", "") for case in CASES] + [*dataset("tatoeba/de-en.test.tsv", 400)]
    texts += [*dataset("tatoeba/zh-en.test.tsv", 400), *mixtures(1_000), *ODD]
    body = """
        const { split } = await use("sentences.js");
        const { guess } = await use("language.js");
        return data.map((text) => [split(text).map(({ start, end }) => text.slice(start, end)), guess(text)]);
    """
    for text, (sentences, found) in zip(texts, node(body, texts), strict=True):
        assert sentences == [text[span.start : span.end] for span in python_sentences.split(text)], text
        assert found == guess(text), text


def test_the_lists_of_words_are_those_of_python(node: Node) -> None:
    names = ("ABBREVIATIONS", "MAY_END", "BEFORE_NUMBER", "AFTER_ORDINAL", "BEFORE_ORDINAL", "LETTERED")
    body = """
        const lists = await use("sentences.js");
        const { WORDS } = await use("language.js");
        const plain = (sets) => Object.fromEntries(Object.entries(sets).map(([name, set]) => [name, [...set]]));
        return [plain(Object.fromEntries(data.map((name) => [name, lists[name]]))), plain(WORDS)];
    """
    lists, words = node(body, names)
    assert {name: set(found) for name, found in lists.items()} == {
        name: set(getattr(python_sentences, f"_{name}")) for name in names
    }
    assert {name: set(found) for name, found in words.items()} == {k: set(v) for k, v in python_language._WORDS.items()}


def shown(notices: Any) -> list[list[Any]]:
    """Template and values, down to the innermost sentence."""
    return [
        [n.template, {k: v.template if isinstance(v, Sentence) else v for k, v in n.values.items()}] for n in notices
    ]


SHOWN = """
    const shown = (notices) => notices.map(({ template, values }) => [template,
      Object.fromEntries(Object.entries(values).map(([name, value]) => [name, value?.template ?? value]))]);
"""


def test_a_text_to_translate_has_the_segments_of_python(node: Node) -> None:
    long = " ".join(dataset("tatoeba/de-en.dev.tsv", 60, slice(1))).replace(".", ",").replace("!", " –")
    texts = [
        *mixtures(150),
        long,
        long.replace(" ", ""),
        "Guten Tag. This is English. 你好！\n\n- Eins\n2. zwei",
        *ODD[1:],
    ]
    generation = TRANSLATE.generation

    def prompt(text: str) -> Any:
        return prompt_for(TRANSLATE.tokenizer, TRANSLATE.config, generation, text)

    body = f"""
        const {{ Tokenizer }} = await use("tokenizer.js");
        const {{ promptFor }} = await use("prompt.js");
        const {{ segmented }} = await use("segments.js");
        const {{ json, config, generation, texts }} = data;
        const tokenizer = new Tokenizer(JSON.parse(json));
        {SHOWN}
        return texts.map((text) => {{
          const found = segmented(text, generation, (part) => promptFor(tokenizer, config, generation, part));
          const segments = found.segments.map(({{ start, end, before, prompt }}) =>
            [text.slice(start, end), before, prompt?.source ?? null]);
          return [segments, found.after, shown(found.notices)];
        }});
    """
    values = {"json": TRANSLATE.tokenizer.to_json(), "texts": texts}
    values |= {"config": json.loads(TRANSLATE.config.to_json()), "generation": json.loads(generation.to_json())}
    for text, (segments, after, notices) in zip(texts, node(body, values), strict=True):
        expected = segmented(text, generation, prompt)
        python = [[expected.source(s), s.before, s.prompt and list(s.prompt.source or ())] for s in expected.segments]
        assert segments == python, text
        assert after == expected.after, text
        assert notices == shown(expected.notices), text


def test_a_sentence_is_spelled_as_python_spells_it(node: Node) -> None:
    german = dataset("tatoeba/de-en.test.tsv", 400, slice(1))
    typed = [text.translate(str.maketrans({"ä": "ae", "ö": "oe", "ü": "ue", "ß": "ss", "Ü": "Ue"})) for text in german]
    texts = [
        *german,
        *typed,
        *(text.upper() for text in german[:100]),
        "NATO",
        "HALLO",  # as many capitals as make a sentence shouted
        "Fuesse Gaense Oesen Grossmaessiggefuehlsduesternis Suessgefaessoeffner",  # more places than are tried
        "ICH BIN 5",
        "Die Strasse 5 ist gross.",
        "Die Strasse/der Weg ist gross.",
        "mail an fuer@strasse",
        "ÀÉÎ OUI NON",
        *mixtures(200),
    ]
    body = """
        const { Tokenizer } = await use("tokenizer.js");
        const { usualSpelling } = await use("spelling.js");
        const tokenizer = new Tokenizer(JSON.parse(data.json));
        return data.texts.map((text) => [["de", "zh"], []].map((read) => usualSpelling(text, tokenizer, read)));
    """
    tokenizer = TRANSLATE.tokenizer
    found = node(body, {"json": tokenizer.to_json(), "texts": texts})
    expected = [[usual_spelling(text, tokenizer, languages) for languages in (("de", "zh"), ())] for text in texts]
    assert found == expected
    assert sum(one != text for (one, _), text in zip(found, texts, strict=True)) > 100


def dialogues() -> list[Any]:
    """At and around every edge: of the context, of half of it, of one message that fills it."""
    found: list[Any] = [
        "",
        [],
        [{"role": "user"}],
        [{"role": "pirate", "content": "x"}],
        [{"role": "user", "content": 3}],
    ]
    found += ["hi", [{"role": "user", "content": ""}], [{"role": "assistant", "content": "hi"}]]
    for n in (1, 8, 9, 10, 11, 12, 13, 20, 28, 29, 30, 31, 60):
        turn, reply = {"role": "user", "content": "x" * n}, {"role": "assistant", "content": "y" * (n // 2)}
        for system in ([], [{"role": "system", "content": "s" * (n // 3)}]):
            found += [
                [*system, turn],
                [*system, turn, reply, turn],
                [*system, turn, reply, {"role": "user", "content": "z"}],
            ]
    return found


@pytest.mark.parametrize("max_new_tokens", [1, 8, 400])
def test_a_dialogue_is_fitted_as_python_fits_it(node: Node, max_new_tokens: int) -> None:
    tokenizer = Tokenizer.synthetic(262)
    config = ModelConfig.gpt(vocab_size=262, d_model=16, n_heads=2, n_decoder_layers=1, d_ff=16, max_length=32)
    generation = GenerationConfig(task="chat", roles=tokenizer.roles, max_source_tokens=32, max_new_tokens=8)
    body = f"""
        const {{ Tokenizer }} = await use("tokenizer.js");
        const {{ promptFor }} = await use("prompt.js");
        const tokenizer = new Tokenizer(JSON.parse(data.json));
        {SHOWN}
        return data.contents.map((content) => {{
          try {{
            const settings = {{ maxNewTokens: data.most }};
            const found = promptFor(tokenizer, data.config, data.generation, content, settings);
            return [found.prefix, shown(found.notices)];
          }} catch (error) {{
            return error.message;
          }}
        }});
    """
    values = {"json": tokenizer.to_json(), "contents": dialogues(), "most": max_new_tokens}
    values |= {"config": json.loads(config.to_json()), "generation": json.loads(generation.to_json())}
    for content, found in zip(dialogues(), node(body, values), strict=True):
        try:
            prompt = prompt_for(tokenizer, config, generation, content, max_new_tokens=max_new_tokens)
            assert found == [list(prompt.prefix), shown(prompt.notices)], content
        except InputError as error:
            said = str(error).replace("'pirate'", "pirate").replace("not int", "not number")
            assert found == said, content


def test_the_random_numbers_are_those_of_numpy(node: Node) -> None:
    seeds = [[0, 0], [1, 0], [7, 3], [2**31, 5], [2**53 - 1, 2**20], [123456789012, 1]]
    body = """
        const { RowGenerator } = await use("random.js");
        return data.map(([seed, row]) => {
          const generator = new RowGenerator(seed, row);
          return Array.from({ length: 5_000 }, () => generator.exponential());
        });
    """
    for (seed, row), found in zip(seeds, node(body, seeds), strict=True):
        expected = row_generator(seed, row).standard_exponential(5_000)
        np.testing.assert_allclose(found, expected, rtol=1e-13)  # the ziggurat's tables are computed, not copied


OPTIONS = [
    {},
    {"repetition_penalty": 1.3},
    {"temperature": 0.7},
    {"temperature": 1.5, "top_k": 5},
    {"temperature": 1.0, "top_p": 0.6},
    {"temperature": 0.9, "top_k": 20, "top_p": 0.8, "repetition_penalty": 0.8},
    {"temperature": 1e-9},
]


@pytest.mark.parametrize("given", OPTIONS, ids=str)
def test_scores_become_chances_as_in_python(node: Node, given: dict[str, float]) -> None:
    rng = np.random.default_rng(5)
    logits = np.round(rng.normal(0, 3, 200), 1).astype(np.float32)  # rounded, so that some are equal
    texts = [3, 9, 9, 2, 40, 41, 41, 500]  # 2 is the end token, 500 is never written
    options = GenerationOptions.from_keywords(given)
    scores = penalized(logits[None], options, 2, [texts])[0]
    body = """
        const { choose, completeOptions, likeliest, logNormalizer, probabilities } = await use("generation.js");
        const options = completeOptions(data.given);
        const logits = Float32Array.from(data.logits);
        const chances = options.temperature ? [...probabilities(logits, options)] : null;
        const best = [0, 1, 7, 300].map((k) => likeliest(logits, k));
        return [choose(logits, options, 2, data.texts, 0, null), chances, logNormalizer(logits), best];
    """
    chosen, chances, normalizer, best = node(body, {"given": given, "logits": logits.tolist(), "texts": texts})
    assert chosen == int(scores.argmax())
    if options.temperature:
        np.testing.assert_allclose(
            chances, probabilities(logits, options.temperature, options.top_k, options.top_p), rtol=1e-12, atol=1e-300
        )
    assert normalizer == pytest.approx(float(np.log(np.exp(logits.astype(np.float64)).sum())), rel=1e-12)
    assert best == [[], *(likeliest(logits, k).tolist() for k in (1, 7, 300))]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"temperature": -1}, "temperature is -1"),
        ({"top_p": 0}, "top_p is 0"),
        ({"top_k": 1.5}, "top_k is 1.5"),
        ({"beams": 3}, "There is no option beams"),
        ({"stop": ""}, "stop must be"),
        ({"stop": ["x"] * 65}, "stop has 65 strings"),
        ({"min_new_tokens": 9, "max_new_tokens": 3}, "min_new_tokens is 9"),
    ],
    ids=str,
)
def test_an_option_out_of_range_is_refused(node: Node, given: dict[str, Any], said: str) -> None:
    with pytest.raises(JavaScriptError, match=said):
        node('return (await use("generation.js")).completeOptions(data)', given)


def test_a_stop_string_is_held_back_and_cut_as_in_python(node: Node) -> None:
    rng = random.Random(2)
    tokenizer = Tokenizer.synthetic(400)
    cases = []
    for _ in range(200):
        text = "".join(rng.choice("ab ü🎉.") for _ in range(12))
        stop = ["".join(rng.choice("ab ü🎉.") for _ in range(rng.randint(1, 3))) for _ in range(2)]
        cases.append([tokenizer.encode(text), stop])
    body = """
        const { Tokenizer } = await use("tokenizer.js");
        const { StopStrings, TextAssembler } = await use("generation.js");
        const tokenizer = new Tokenizer(JSON.parse(data.json));
        return data.cases.map(([ids, stop]) => {
          const assembler = new TextAssembler(tokenizer, stop);
          const stops = new StopStrings(stop, tokenizer);
          const pieces = [...ids.map((id) => assembler.push(id)), assembler.finish()];
          return [pieces, ids.map((_, i) => stops.completes(ids.slice(0, i + 1)))];
        });
    """
    for (ids, stop), (pieces, completes) in zip(
        cases, node(body, {"json": tokenizer.to_json(), "cases": cases}), strict=True
    ):
        assembler, stops = TextAssembler(tokenizer, stop), StopStrings(stop, tokenizer)
        assert pieces == [*[assembler.push(i) for i in ids], assembler.finish()]
        assert completes == [stops(ids[: i + 1]) for i in range(len(ids))]


def test_the_modules_load_nothing_from_another_host() -> None:
    for path in sorted((ROOT / "web").glob("*.js")):
        text = path.read_text(encoding="utf-8")
        assert "http://" not in text.replace("http://www.w3.org/2000/svg", ""), path  # a name, and no address
        assert "https://" not in text, path
    assert Path(ROOT / "web" / "package-lock.json").is_file()
