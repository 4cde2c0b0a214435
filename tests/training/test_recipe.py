"""Recipes: readable, strict, overridable, and within the sizes they promise."""

from pathlib import Path

import pytest

from tests.support.models import ROOT, count_parameters
from tiny_transformer.data import examples, files
from tiny_transformer.data.augment import TRANSFORMS, AlternateRoles, Compose
from tiny_transformer.data.records import FORMATS
from tiny_transformer.data.source import Source
from tiny_transformer.errors import ConfigError
from tiny_transformer.model import build_model
from tiny_transformer.training.recipe import load_recipe, parse_recipe, recipe_names
from tiny_transformer.training.run import with_user_data


@pytest.mark.parametrize(
    ("name", "most"),
    [
        ("tiny", 300_000),
        ("multi30k-en-de", 2_600_000),
        ("translate", 12_000_000),
        ("translate-teacher", 48_000_000),
        ("chat", 16_000_000),
    ],
)
def test_the_shipped_recipes_stay_within_their_size(name: str, most: int) -> None:
    recipe = load_recipe(name)
    assert count_parameters(build_model(recipe.model)) <= most
    assert recipe.of_split("dev")
    assert recipe.of_split("test")


def test_every_shipped_recipe_is_tested() -> None:
    assert recipe_names() == ["chat", "multi30k-en-de", "tiny", "translate", "translate-both-ways", "translate-teacher"]


def test_every_line_with_a_choice_of_a_shipped_recipe_is_known() -> None:
    for name in recipe_names():
        assert load_recipe(name).to_dict()["name"] == name


def test_values_are_overridden_by_dotted_keys() -> None:
    recipe = load_recipe(
        "chat",
        [
            "training.seed=7",
            "training.schedule=constant",
            "model.positions=learned",
            "phases.manners.learning_rate=1e-4",
            "sources.smalltalk.repeat=9",
            "sources.1.variants=4",
            "evaluation.length_penalties=[0.5, 2.0]",
        ],
    )
    assert recipe.training.seed == 7
    assert recipe.training.schedule == "constant"
    assert recipe.model.positions == "learned"
    assert recipe.phases[1].learning_rate == 1e-4
    assert recipe.sources[0].repeat == 9.0
    assert recipe.sources[1].variants == 4
    assert recipe.evaluation.length_penalties == (0.5, 2.0)


@pytest.mark.parametrize(
    ("override", "complaint"),
    [
        ("training.sead=7", "sead"),
        ("training.seed=high", "seed must be a"),
        ("training.schedule=triangle", "'triangle'; choose one of cosine"),
        ("sources.nobody.repeat=2", "there is no 'nobody'"),
        ("training", "is not key=value"),
        ("training.seed.x=1", "seed must be a"),
        ("sources=3", "must be a list of tables"),
        ("model.architecture=decoder-only", "n_encoder_layers"),
        ("training.max_minutes=-1", "max_minutes is -1"),
        ("color=red", "unknown keys color"),
        ("sources.de-en.format=stories", "substitute_names is for pairs"),
        ("sources.de-en.loss_on=all", "bpe_dropout respells what is only read"),
    ],
)
def test_a_wrong_override_is_named(override: str, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        load_recipe("translate", [override])


def test_a_recipe_may_be_a_file_and_must_be_whole(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('[training]\nmax_steps = 3\n[[sources]]\npath = "a.tsv"\n', encoding="utf-8")
    recipe = load_recipe(str(path))
    assert (recipe.name, recipe.training.max_steps, recipe.sources[0].name) == ("mine", 3, "a.tsv")
    path.write_text("[training\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="not a TOML file"):
        load_recipe(str(path))
    with pytest.raises(ConfigError, match=r"no recipe 'nothing'.*chat, multi30k-en-de, tiny, translate"):
        load_recipe("nothing")


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ({"training": {"max_steps": 1}}, "no source to train on"),
        ({"sources": [{"path": "a"}]}, "has no end"),
        ({"sources": [{"path": "a"}, {"path": "a"}], "training": {"max_steps": 1}}, "two sources named a"),
        (
            {"sources": [{"path": "a"}], "training": {"max_steps": 1}, "phases": [{"share": 0.5}]},
            "add up to 0.5",
        ),
        (
            {"sources": [{"path": "a"}], "training": {"max_steps": 1}, "phases": [{"repeat": {"b": 1.0}}]},
            "unknown source b",
        ),
        ({"sources": [{"path": "a", "held_out": {"dev": 0.6, "test": 0.6}}]}, "leaves nothing"),
    ],
)
def test_a_recipe_that_cannot_run_is_refused(values: dict, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        parse_recipe(values, name="mine")


def test_a_file_of_the_users_takes_the_place_of_the_recipes_sources(tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl"
    path.write_text('{"turns": ["a", "b"]}\n', encoding="utf-8")
    recipe, root = with_user_data(load_recipe("chat"), str(path))
    (source,) = recipe.sources
    assert (source.path, source.format, root) == (str(path), "dialogues", "")
    assert len(recipe.phases) == 1
    with pytest.raises(ConfigError, match="does not exist"):
        with_user_data(load_recipe("chat"), str(tmp_path / "nowhere"))


def test_without_data_the_checkouts_own_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # it does not matter where the command is given
    for name in ("translate", "translate-teacher", "chat"):
        recipe, root = with_user_data(load_recipe(name), "")
        assert (recipe, root) == (load_recipe(name), str(ROOT / "datasets"))
    assert with_user_data(load_recipe("tiny"), "")[1] == ""
    with pytest.raises(
        ConfigError, match=r"needs data that .*datasets does not hold; add --data with the folder of mul"
    ):
        with_user_data(load_recipe("multi30k-en-de"), "")


def test_an_installed_package_without_the_data_says_where_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "_CHECKOUT", tmp_path)
    (tmp_path / "datasets" / "tatoeba").mkdir(parents=True)  # somebody else's package of that name
    (tmp_path / "datasets" / "tatoeba" / "de-en.train.tsv").write_text("a\tb\n", encoding="utf-8")
    with pytest.raises(
        ConfigError, match=r"needs data; add --data with the folder of tatoeba/.*, or run it in a checkout"
    ):
        with_user_data(load_recipe("translate"), "")


def test_a_folder_with_the_recipes_files_is_its_root(tmp_path: Path) -> None:
    (tmp_path / "tatoeba").mkdir()
    (tmp_path / "tatoeba" / "de-en.train.tsv").write_text("a\tb\n", encoding="utf-8")
    recipe, root = with_user_data(load_recipe("translate"), str(tmp_path))
    assert root == str(tmp_path)
    assert recipe.sources == load_recipe("translate").sources


def test_added_files_become_sources_with_names_of_their_own(tmp_path: Path) -> None:
    also = [str(tmp_path / "more" / "zh-en.tsv"), str(tmp_path / "very.new.tsv"), "hf://datasets/a/b/c.tsv"]
    recipe = load_recipe("translate", ["sources.zh-en-also.repeat=3"], also)
    added = [source for source in recipe.sources if not source.evaluated]
    assert [source.name for source in added] == ["zh-en-also", "very-new", "c"]
    assert [source.repeat for source in added] == [3.0, 1.0, 1.0]
    assert [source.path for source in added] == also
    first = recipe.sources[0]
    assert {(source.bpe_dropout, source.licence, source.split) for source in added} == {
        (first.bpe_dropout, first.licence, "train")
    }


def one_source(**values: object) -> Source:
    """The source of a recipe that has only one."""
    source = {"name": "talk", "path": "talk.jsonl", "format": "intents", **values}
    return parse_recipe({"task": "chat", "training": {"max_steps": 1}, "sources": [source]}, name="x").sources[0]


def test_a_setting_is_known_by_its_former_name_too() -> None:
    old, new = (one_source(**{"compose": 2, name: "films.jsonl"}) for name in ("before", "amid"))
    assert old == new
    assert new.transforms == (Compose(up_to=2, share=0.5, interleave_with="films.jsonl"),)
    assert one_source(judged=False) == one_source(evaluated=False)
    with pytest.raises(ConfigError, match="before and amid, which are the same setting"):
        one_source(before="", amid="films.jsonl")


def test_former_settings_become_the_transforms_that_do_the_same() -> None:
    former = one_source(balance=0.3, analogies=0.2, rephrase=True, compose=3, compose_share=0.1, recast=True)
    present = one_source(
        transforms=[
            {"name": "balance", "strength": 0.3},
            {"name": "analogies", "share": 0.2},
            {"name": "rephrase"},
            {"name": "compose", "up_to": 3, "share": 0.1},
        ]
    )
    assert former == present  # `recast` never had an effect on intents
    assert one_source(analogies=0.2).transforms == ()  # nor had analogies without `rephrase`
    assert one_source(format="dialogues", roles="alternate").transforms == (AlternateRoles(),)
    with pytest.raises(ConfigError, match="has rephrase beside transforms, which took its place"):
        one_source(rephrase=True, transforms=[])
    for wrong, complaint in (({"rephrase": "yes"}, "rephrase must be true or false"), ({"compose": 0}, "at least 1")):
        with pytest.raises(ConfigError, match=complaint):
            one_source(**wrong)


@pytest.mark.parametrize(
    ("transforms", "complaint"),
    [
        ([{"name": "shuffle"}], "swap, tag, alternate_roles, give_way, reanswer, balance, analogies, rephrase, recast"),
        ([{}], "the name of a transform is None"),
        (["rephrase"], "must be a list of tables"),
        ([{"name": "rephrase", "share": 0.5}], "transform rephrase has unknown keys 'share'"),
        ([{"name": "compose", "up_to": 1}], "up_to is 1; choose a whole number from 2"),
        ([{"name": "analogies", "share": 1.5}], "share is 1.5; choose a number from 0 to 1"),
        ([{"name": "balance", "strength": "much"}], "strength must be a number"),
        ([{"name": "rephrase"}, {"name": "rephrase"}], "lists the transform rephrase twice"),
        ([{"name": "recast"}], "recast is for stories, but talk has the format intents"),
    ],
)
def test_a_wrong_transform_is_named(transforms: list, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        one_source(transforms=transforms)


def test_a_parameter_of_a_transform_can_be_overridden() -> None:
    recipe = load_recipe("chat", ["sources.smalltalk.transforms.compose.up_to=9"])
    assert recipe.sources[0].transform(Compose).up_to == 9


def test_every_format_has_a_reader_and_a_maker_of_examples() -> None:
    assert examples._MAKERS.keys() == FORMATS.keys()
    for transform in TRANSFORMS.values():
        assert set(transform.formats) <= FORMATS.keys()


def test_no_source_of_the_chat_gives_away_what_another_holds_out() -> None:
    # What `distil` wrote holds nothing out: it left out whatever is like a held-out question.
    found = [source for source in load_recipe("chat").sources if source.format in ("intents", "questions")]
    sources = [source for source in found if not source.path.startswith("synthetic/")]
    assert len(sources) > 1
    assert len({tuple(source.held_out.items()) for source in sources}) == 1  # a question's words decide its split
