"""A whole run: recipe and data in, a model folder out; resumable wherever it was stopped."""

import logging
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import chain
from pathlib import Path

import torch

from tiny_transformer import atomic
from tiny_transformer.bundle import TOKENIZER, Bundle, check_target
from tiny_transformer.checks import check_whole
from tiny_transformer.config import ModelConfig
from tiny_transformer.data.augment import Compose
from tiny_transformer.data.batches import TrainingData
from tiny_transformer.data.examples import read_examples
from tiny_transformer.data.files import HUB, exists, join
from tiny_transformer.data.records import Example, Pair, texts_of
from tiny_transformer.data.source import Source
from tiny_transformer.errors import ConfigError, TrainingError
from tiny_transformer.model import build_model
from tiny_transformer.model.transformer import Transformer
from tiny_transformer.tokenizer import Tokenizer
from tiny_transformer.training.checkpoint import (
    LAST,
    RunState,
    check_same_recipe,
    has_checkpoint,
    load_checkpoint,
    load_state,
)
from tiny_transformer.training.distributed import World, joined_world
from tiny_transformer.training.evaluator import Evaluator
from tiny_transformer.training.fine_tuning import BaseModel, check_same_base
from tiny_transformer.training.finish import Finished, write_model
from tiny_transformer.training.loop import Trainer
from tiny_transformer.training.progress import Reporter
from tiny_transformer.training.recipe import Recipe

logger = logging.getLogger(__name__)


def train(
    recipe: Recipe,
    data: str,
    out: Path,
    *,
    run_dir: Path | None = None,
    resume: bool = False,
    overwrite: bool = False,
    device: str | None = None,
    track: bool = False,
    base: BaseModel | None = None,
) -> Bundle | None:
    """Train and write the model folder `out`; the folder on the first rank, None on the others.

    With a `base` model the recipe is one that fits it, and the run starts from its weights.
    """
    check_target(out, overwrite=overwrite)
    recipe, root = with_user_data(recipe, data)
    run_dir = run_dir or out.parent / "runs" / out.name
    with joined_world(device) as world, _run_folder(run_dir, world, resume=resume, overwrite=overwrite):
        if has_checkpoint(run_dir / LAST):
            check_same_base(load_state(run_dir / LAST), base)
        tokenizer = _tokenizer(recipe, root, run_dir, world, base)
        config = recipe.config_for(tokenizer)
        training_data = TrainingData(_train_sources(recipe), root, tokenizer, config.max_length)
        evaluator = None
        if world.is_first:
            training_data.prepare()
            evaluator = Evaluator(recipe, root, tokenizer, config, world.device)
        world.wait()
        state, model = _run(recipe, config, training_data, evaluator, world, run_dir, base, track=track)
        if evaluator is None:
            return None
        finished = Finished(recipe, root, tokenizer, config, run_dir, state, world.size)
        return write_model(finished, model, evaluator, out, overwrite=overwrite)


def prepare(recipe: Recipe, data: str, base: BaseModel | None = None) -> None:
    """Tokenize the data of a run into the cache; runs that follow find it there."""
    recipe, root = with_user_data(recipe, data)
    with tempfile.TemporaryDirectory() as folder:
        tokenizer = _tokenizer(recipe, root, Path(folder), World(0, 1, torch.device("cpu")), base)
    TrainingData(_train_sources(recipe), root, tokenizer, recipe.model.max_length).prepare()


def _run(
    recipe: Recipe,
    config: ModelConfig,
    data: TrainingData,
    evaluator: Evaluator | None,
    world: World,
    run_dir: Path,
    base: BaseModel | None,
    *,
    track: bool,
) -> tuple[RunState, Transformer]:
    torch.set_float32_matmul_precision("high")  # TF32 where float32 is left; only training may round so
    model = build_model(config, torch.Generator().manual_seed(recipe.training.seed)).to(world.device)
    state, tensors = RunState(recipe=recipe.to_dict()), None
    if base is not None:
        base.load_into(model)
        state.started_from = base.provenance
    if has_checkpoint(run_dir / LAST):
        state, tensors = load_checkpoint(run_dir / LAST)
        check_same_recipe(state, recipe.to_dict())
        check_whole("phase", state.phase, 0, len(recipe.phases) - 1, TrainingError)
        state.recipe = recipe.to_dict()
    if world.is_first:
        logger.info(
            "%s: %s parameters, %s%s",
            recipe.name,
            f"{config.n_parameters:,}",
            f"{world.size} × {world.device.type}",
            f", going on from step {state.step:,}" if tensors else "",
        )
    reporter = Reporter(
        run_dir / "metrics.jsonl", talks=world.is_first, name=recipe.name, track=track, after_step=state.step
    )
    Trainer(recipe, model, data, evaluator, world, run_dir, reporter, state).run(tensors)
    reporter.finish()
    return state, model


def with_user_data(recipe: Recipe, data: str) -> tuple[Recipe, str]:
    """The recipe over `--data`: a folder that holds the recipe's files, or a file or folder of the user's own.

    Without `--data` the files are those of the checkout's folder `datasets`.
    """
    if not data:
        return recipe, recipe.default_root()
    below = recipe.paths_below_root
    if any(exists(join(data, path)) for path in below) and not _is_file(data):
        return recipe, data
    if not _is_file(data) and not exists(data):
        raise ConfigError("{data} does not exist; name a folder or a file with --data.", data=data)
    if below:
        logger.info("%s holds none of the files of %s (such as %s): read as your own data", data, recipe.name, below[0])
    kind = {"translate": "pairs", "chat": "dialogues", "complete": "text"}[recipe.task]
    own = Source(name=Path(data).name, path=data, format=kind, held_out={"dev": 0.02, "test": 0.02})
    return recipe.with_data(own), ""


def _is_file(data: str) -> bool:
    return "{" in data or (Path(data).is_file() if not data.startswith(HUB) else "." in data.rsplit("/", 1)[-1])


@contextmanager
def _run_folder(run_dir: Path, world: World, *, resume: bool, overwrite: bool) -> Iterator[None]:
    """The run's folder, made, or cleared of what an earlier run left there; no other run may use it meanwhile."""
    with ExitStack() as lock:
        if world.is_first:
            run_dir.mkdir(parents=True, exist_ok=True)
            if not lock.enter_context(atomic.locked_folder(run_dir)):
                template = "{run_dir} is in use by another run; wait for its end or train into another folder."
                raise TrainingError(template, run_dir=run_dir)
            _prepare_run(run_dir, resume=resume, overwrite=overwrite)
        world.wait()
        yield


def _prepare_run(run_dir: Path, *, resume: bool, overwrite: bool) -> None:
    removed = run_dir.glob(".*.tmp")  # a kill during a write leaves its temporary folder
    if has_checkpoint(run_dir / LAST) and not resume:
        if not overwrite:
            raise TrainingError(
                "{run_dir} holds an unfinished run; add --resume to go on with it or --overwrite to start anew.",
                run_dir=run_dir,
            )
        removed = run_dir.iterdir()
    for path in removed:
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    if not has_checkpoint(run_dir / LAST):
        (run_dir / TOKENIZER).unlink(missing_ok=True)  # of a run that came to nothing, perhaps on other text


def _train_sources(recipe: Recipe) -> tuple[Source, ...]:
    return tuple(source for source in recipe.sources if source.split == "train")


def _tokenizer(recipe: Recipe, root: str, run_dir: Path, world: World, base: BaseModel | None) -> Tokenizer:
    """The base model's tokenizer, or the recipe's, or one learned from the training texts by the first rank."""
    if base is not None:
        return base.bundle.tokenizer
    settings = recipe.tokenizer
    if settings.path:
        return Tokenizer.load(Path(join(root, settings.path)), output_size=settings.output_vocab_size)
    kept = run_dir / TOKENIZER
    if world.is_first and not kept.is_file():
        logger.info("learning a vocabulary of %s tokens", f"{settings.vocab_size:,}")
        atomic.write_file(kept, learned_tokenizer(recipe, root).to_json())
    world.wait()
    return Tokenizer.load(kept, output_size=settings.output_vocab_size)


def learned_tokenizer(recipe: Recipe, root: str, *, show_progress: bool = True) -> Tokenizer:
    """A vocabulary of the recipe's size from the training texts, what their targets use most first.

    Of a source with transforms a transformed copy is read too: spellings that only a transform makes need tokens.
    """

    def examples() -> Iterator[Example]:
        for source in _train_sources(recipe):
            for variant in range(min(source.variants, 2) if source.transforms else 1):
                yield from read_examples(source.without(Compose), root, "train", variant, among=recipe.sources)

    settings = recipe.tokenizer
    texts = chain.from_iterable(map(texts_of, examples()))
    tokenizer = Tokenizer.train(
        texts, settings.vocab_size, split_digits=settings.split_digits, show_progress=show_progress
    )
    if not settings.output_vocab_size:
        return tokenizer
    targets = (example.target for example in examples() if isinstance(example, Pair))
    return tokenizer.with_output_first(targets, settings.output_vocab_size)
