"""The values of a recipe, each with its meaning and its default."""

import math
import re
from dataclasses import dataclass, field

from tiny_transformer.checks import check_choice
from tiny_transformer.config import JsonConfig, require

GENERATED = "reversed-words"  # the one format that needs no file
PAIRS = ("pairs", GENERATED)  # formats of a source and a target
ANSWERED = (*PAIRS, "intents")  # formats in which a question has one right answer
FORMATS = ("pairs", "dialogues", "intents", "questions", "stories", "text", GENERATED)
SPLITS = ("train", "dev", "test")
UNLIMITED = 0


@dataclass(frozen=True, kw_only=True)
class Source(JsonConfig):
    """One body of text, and how examples are made of it."""

    name: str = ""  # how phases and reports call it
    path: str = ""  # below --data: a file, a folder, `name.{en,de}` for two parallel files, or hf://datasets/…
    format: str = "pairs"
    split: str = "train"  # dev and test files are never trained on
    repeat: float = 1.0  # times an epoch shows it; a fraction is drawn anew each epoch
    held_out: dict[str, float] = field(default_factory=dict)  # {dev = 0.05, test = 0.1}: shares kept out of training
    judged: bool = True  # False: what is held out of it is only left out, and no model is asked for it
    swap: bool = False  # pairs: source and target change places
    roles: str = "first-is-user"  # bare turns; "alternate": in every other variant the first speaker is the assistant
    loss_on: str = "replies"  # dialogues: learn the assistant's turns alone, or "all"
    compose: int = 1  # join up to this many dialogues into one, so that answers hold in later turns too
    compose_share: float = 0.5  # share of the joined dialogues that are longer than one
    rephrase: bool = False  # intents, questions: in every variant but the first, asked as other people would ask
    reply: str = ""  # questions: what the assistant says to each of them
    analogies: float = 0.0  # intents: share of the rephrased questions that first get other words, by analogy
    balance: float = 0.0  # intents: from 0, phrasings as often as they come, to 1, every intent as often as the largest
    amid: str = ""  # dialogues below --data; where others are composed, some hold a few turns of one of these
    recast: bool = False  # stories: in every variant but the first, with other animals, things and names
    keep: str = ""  # a regular expression, case ignored: of questions, stories and sources only what matches is used
    leave_out: str = ""  # a regular expression, case ignored: examples with a text that matches are not used
    packing: bool = False  # several documents a row, or several pairs; documents see those before them, pairs nothing
    bpe_dropout: float = 0.0  # chance to skip a merge in what is only read (Provilkov et al. 2020); variant 0 is clean
    licence: str = ""  # this and the next two go into the model card
    attribution: str = ""
    url: str = ""
    variants: int = 1  # how many differently tokenised or composed copies; epoch e reads copy e mod variants

    def __post_init__(self) -> None:
        check_choice("format", self.format, FORMATS)
        check_choice("split", self.split, SPLITS)
        check_choice("roles", self.roles, ("first-is-user", "alternate"))
        check_choice("loss_on", self.loss_on, ("replies", "all"))
        _at_least("repeat", self.repeat, 0.0)
        _at_least("compose", self.compose, 1)
        _at_least("variants", self.variants, 1)
        _share("compose_share", self.compose_share)
        _share("bpe_dropout", self.bpe_dropout)
        _share("analogies", self.analogies)
        _share("balance", self.balance)
        require(
            not self.bpe_dropout or (self.format != "text" and self.loss_on != "all"),
            "bpe_dropout respells what is only read, and of {value} everything is learnt; leave it out.",
            value=self.name,
        )
        for name, pattern in (("keep", self.keep), ("leave_out", self.leave_out)):
            require(
                _is_pattern(pattern),
                "{name} of {value} is no regular expression; correct it.",
                name=name,
                value=self.name or self.path,
            )
        require(
            bool(self.reply) == (self.format == "questions"),
            "A source of questions needs a reply, and no other has one; correct {value}.",
            value=self.name or self.path,
        )
        for split, share in self.held_out.items():
            check_choice("held_out", split, ("dev", "test"))
            _share(f"held_out.{split}", share)
        require(
            sum(self.held_out.values()) < 1.0,
            "held_out of {value} leaves nothing to train on.",
            value=self.name or self.path,
        )


@dataclass(frozen=True, kw_only=True)
class TokenizerSettings(JsonConfig):
    """Where the vocabulary comes from."""

    path: str = ""  # a tokenizer.json to use as it is; empty: learn one from the training data
    vocab_size: int = 8_000


@dataclass(frozen=True, kw_only=True)
class TrainingSettings(JsonConfig):
    """The optimisation."""

    seed: int = 1
    max_minutes: float = UNLIMITED  # whichever of the three limits comes first ends the run
    max_steps: int = UNLIMITED
    max_epochs: float = UNLIMITED
    batch_tokens: int = 4_096  # padded positions of one step, over all devices
    accumulation: int = 1  # parts a step's batch is computed in: less memory, the same result
    learning_rate: float = 1e-3
    schedule: str = "cosine"  # "inverse-sqrt" as in the paper; "constant"
    warmup_steps: int = 400
    final_share: float = 0.0  # of the learning rate that is left at the end of the cosine
    weight_decay: float = 0.01
    beta1: float = 0.9
    beta2: float = 0.98
    label_smoothing: float = 0.0
    r_drop: float = 0.0  # weight of the divergence between two passes with different dropout (Liang et al. 2021)
    clip_norm: float = 1.0  # 0 = no clipping
    precision: str = "auto"  # bf16 on CUDA, fp32 elsewhere
    compile: str = "auto"  # torch.compile: on for CUDA
    average: str = "ema"  # exponential; "last" = mean of the last few snapshots; "none"
    ema_decay: float = 0.999
    last_k: int = 5
    last_every: int = 200  # steps between two snapshots
    log_steps: int = 50  # the device is asked for the loss this often, and not in between
    evaluations: int = 10  # on dev, evenly over the run, the last one at its end
    patience: int = 0  # stop after this many evaluations without a better one; 0 = never
    checkpoint_minutes: float = 1.0

    def __post_init__(self) -> None:
        check_choice("schedule", self.schedule, ("cosine", "inverse-sqrt", "constant"))
        check_choice("precision", self.precision, ("auto", "fp32", "bf16"))
        check_choice("compile", self.compile, ("auto", "on", "off"))
        check_choice("average", self.average, ("ema", "last", "none"))
        for name in ("batch_tokens", "accumulation", "last_k", "last_every", "log_steps", "evaluations"):
            _at_least(name, getattr(self, name), 1)
        for name in ("max_minutes", "max_steps", "max_epochs", "learning_rate", "warmup_steps", "weight_decay"):
            _at_least(name, getattr(self, name), 0)
        for name in ("seed", "clip_norm", "patience", "checkpoint_minutes", "r_drop"):
            _at_least(name, getattr(self, name), 0)
        for name in ("final_share", "beta1", "beta2", "label_smoothing", "ema_decay"):
            _share(name, getattr(self, name))
        require(
            any((self.max_minutes, self.max_steps, self.max_epochs)),
            "The recipe has no end; set max_minutes, max_steps or max_epochs.",
        )


@dataclass(frozen=True, kw_only=True)
class EvaluationSettings(JsonConfig):
    """How the model is judged on dev while it trains, and on dev and test when it is done."""

    metric: str = "loss"  # what picks the best checkpoint: loss, bleu, exact_match, accuracy
    max_examples: int = 500  # of dev, for the metrics that need generation while training
    num_beams: int = 1  # at the end; while training it is always greedy
    length_penalties: tuple[float, ...] = (1.0,)  # tried on dev at the end; the best goes into generation.json
    tokenize: str = "13a"  # sacrebleu's tokenizer; "none" for text that is tokenised already
    max_new_tokens: int = 128
    repetition_penalty: float = 1.0  # stored in generation.json
    test: bool = True  # report test at the end

    def __post_init__(self) -> None:
        check_choice("metric", self.metric, ("loss", "bleu", "exact_match", "accuracy"))
        for name in ("max_examples", "num_beams", "max_new_tokens"):
            _at_least(name, getattr(self, name), 1)
        require(bool(self.length_penalties), "length_penalties is empty; give at least one, such as [1.0].")


@dataclass(frozen=True, kw_only=True)
class Phase(JsonConfig):
    """A stretch of the run with its own mix of sources and its own learning rate."""

    name: str = "train"
    share: float = 1.0  # of the whole budget
    learning_rate: float = 0.0  # 0 = the recipe's
    warmup_steps: int = -1  # -1 = the recipe's
    r_drop: float = -1.0  # -1 = the recipe's
    repeat: dict[str, float] = field(default_factory=dict)  # source → times an epoch; those not named keep their own

    def __post_init__(self) -> None:
        _share(f"share of phase {self.name}", self.share)
        for source, repeat in self.repeat.items():
            _at_least(f"repeat of {source} in phase {self.name}", repeat, 0.0)


def _at_least(name: str, value: float, low: float) -> None:
    require(
        math.isfinite(value) and value >= low,
        "{name} is {value}; choose a number of at least {low:g}.",
        name=name,
        value=value,
        low=low,
    )


def _is_pattern(text: str) -> bool:
    try:
        re.compile(text)
    except (re.error, OverflowError, RecursionError):
        return False
    return True


def _share(name: str, value: float) -> None:
    require(0.0 <= value <= 1.0, "{name} is {value}; choose a number from 0 to 1.", name=name, value=value)
