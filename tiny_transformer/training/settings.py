"""The values of a recipe, each with its meaning and its default."""

from dataclasses import dataclass, field

from tiny_transformer.checks import check_choice, check_number
from tiny_transformer.config import ABSENT_IS_DEFAULT, JsonConfig, require

UNLIMITED = 0


@dataclass(frozen=True, kw_only=True)
class TokenizerSettings(JsonConfig):
    """Where the vocabulary comes from."""

    path: str = ""  # a tokenizer.json to use as it is; empty: learn one from the training data
    vocab_size: int = 8_000
    # Of these, how many a translator may write: those that its targets use most. 0 = all of them.
    output_vocab_size: int = field(default=0, metadata=ABSENT_IS_DEFAULT)
    split_digits: bool = field(default=False, metadata=ABSENT_IS_DEFAULT)  # every digit is a token of its own


@dataclass(frozen=True, kw_only=True)
class TrainingSettings(JsonConfig):
    """The optimization."""

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
            check_number(name, getattr(self, name), 1)
        for name in ("max_minutes", "max_steps", "max_epochs", "learning_rate", "warmup_steps", "weight_decay"):
            check_number(name, getattr(self, name), 0)
        for name in ("seed", "clip_norm", "patience", "checkpoint_minutes", "r_drop"):
            check_number(name, getattr(self, name), 0)
        for name in ("final_share", "beta1", "beta2", "label_smoothing", "ema_decay"):
            check_number(name, getattr(self, name), 0.0, 1.0)
        require(
            any((self.max_minutes, self.max_steps, self.max_epochs)),
            "The recipe has no end; set max_minutes, max_steps or max_epochs.",
        )


@dataclass(frozen=True, kw_only=True)
class EvaluationSettings(JsonConfig):
    """How the model is evaluated on dev while it trains, and on dev and test when it is done."""

    metric: str = "loss"  # what picks the best checkpoint: loss, bleu, exact_match, accuracy
    max_examples: int = 500  # of dev, for the metrics that need generation while training
    num_beams: int = 1  # at the end; while training it is always greedy
    length_penalties: tuple[float, ...] = (1.0,)  # tried on dev at the end; the best goes into generation.json
    tokenize: str = "13a"  # sacrebleu's tokenizer; "none" for text that is tokenized already
    max_new_tokens: int = 128
    repetition_penalty: float = 1.0  # stored in generation.json
    test: bool = True  # report test at the end

    def __post_init__(self) -> None:
        check_choice("metric", self.metric, ("loss", "bleu", "exact_match", "accuracy"))
        for name in ("max_examples", "num_beams", "max_new_tokens"):
            check_number(name, getattr(self, name), 1)
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
        check_number(f"share of phase {self.name}", self.share, 0.0, 1.0)
        for source, repeat in self.repeat.items():
            check_number(f"repeat of {source} in phase {self.name}", repeat, 0.0)
