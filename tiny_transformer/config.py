"""The two values that describe a model: its shape (`ModelConfig`) and its use (`GenerationConfig`)."""

import json
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Self, get_args, get_origin, get_type_hints

from tiny_transformer.checks import check_choice, check_number, check_whole, shown
from tiny_transformer.errors import ConfigError, Sentence

ARCHITECTURES = ("encoder-decoder", "decoder-only")
NORMS = ("pre", "post")
ACTIVATIONS = ("relu", "gelu")
POSITIONS = ("sinusoidal", "learned", "rotary", "none")
TASKS = ("translate", "chat", "complete")

# Far above anything this project trains; they only stop a hostile file from asking for the
# memory of a data centre.
MAX_WIDTH = 65_536
MAX_LAYERS = 1_024
MAX_VOCABULARY = 4_194_304
MAX_CONTEXT = 1_048_576
MAX_TABLE = 1 << 24  # numbers of a computed table of positions: 64 MiB as float32, some 400 MB while it is computed

# Metadata of a field that is younger than the format: a file without its key means the default, and a value that is
# the default is not written, so that older files, and hashes of them, stay what they are.
ABSENT_IS_DEFAULT = {"absent_is_default": True}


class JsonConfig:
    """Strict reading and writing of a frozen dataclass as a JSON object."""

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], *, where: Path | str = "the config") -> Self:
        """Build from a mapping that has exactly the keys of this class, less those that may be absent."""
        known = [f.name for f in fields(cls)]  # type: ignore[arg-type]
        values = {**absent_defaults(cls), **values}
        unknown = sorted(set(values) - set(known))
        missing = [name for name in known if name not in values]
        if unknown:
            template = "{path} has unknown keys {keys}; remove them (known: {known})."
            raise ConfigError(template, path=where, keys=_listed(unknown), known=", ".join(known))
        if missing:
            raise ConfigError("{path} lacks the keys {keys}; add them.", path=where, keys=", ".join(missing))
        types = get_type_hints(cls)
        converted = {name: _checked(name, values[name], types[name], where) for name in known}
        try:
            return cls(**converted)
        except ConfigError as error:
            raise ConfigError("{where}: {reason}", where=where, reason=error) from None

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a JSON file strictly; every fault names the file."""
        try:
            values = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise ConfigError("{path} does not exist; a model folder needs it.", path=path) from None
        except (OSError, UnicodeDecodeError, ValueError, RecursionError) as error:
            raise ConfigError(
                "{path} is not readable JSON ({detail}); restore it from its source.", path=path, detail=error
            ) from None
        if not isinstance(values, dict):
            raise ConfigError(
                "{path} holds a {kind}, not a JSON object; restore it.", path=path, kind=type(values).__name__
            )
        return cls.from_dict(values, where=path)

    def to_dict(self) -> dict[str, Any]:
        """A plain dict with every field in the order of declaration, less those that are absent by default."""
        absent = absent_defaults(type(self))
        return {name: value for name, value in asdict(self).items() if name not in absent or value != absent[name]}  # type: ignore[call-overload]

    def to_json(self) -> str:
        """The text of the JSON file, one field a line."""
        return json.dumps(self.to_dict(), indent=2, ensure_ascii=False) + "\n"

    def with_changes(self, **changes: Any) -> Self:
        """A copy with some fields replaced, checked again."""
        return replace(self, **changes)  # type: ignore[type-var]


def _checked(name: str, value: Any, wanted: Any, where: Path | str) -> Any:
    """The value as the annotated type, or a ConfigError that names key and type."""
    kind = get_origin(wanted) or wanted
    if kind is tuple and isinstance(value, list | tuple):
        return tuple(_checked(name, item, get_args(wanted)[0], where) for item in value)
    if kind is dict and isinstance(value, Mapping):
        inner = get_args(wanted)[1]
        return {
            _checked(name, key, str, where): _checked(f"{name}.{key}", item, inner, where)
            for key, item in value.items()
        }
    if kind is float and type(value) is int and abs(value) < 2**53:
        return float(value)
    # bool is an int in Python; a config that says `"d_model": true` is still wrong.
    if kind in (int, float, bool) and type(value) is kind:
        return value
    if kind is str and isinstance(value, str) and _has_bytes(value):
        return value
    template = "{where}: {name} must be {kinds}, not {value}; correct it."
    raise ConfigError(template, where=where, name=name, kinds=_KINDS[kind], value=shown(value))


_KINDS = {
    int: Sentence("a whole number"),
    float: Sentence("a number"),
    bool: Sentence("true or false"),
    str: Sentence("text"),
    tuple: Sentence("a list"),
    dict: Sentence("an object"),
}


def _has_bytes(text: str) -> bool:
    """Whether a text can be written: JSON can spell lone surrogates, UTF-8 cannot."""
    return text.isascii() or text == text.encode("utf-8", errors="replace").decode("utf-8")


def _listed(names: list[str]) -> str:
    listed = ", ".join(shown(name) for name in names[:8])
    return listed if len(names) <= 8 else f"{listed} and {len(names) - 8} more"


def require(condition: bool, template: str, **values: Any) -> None:
    """Refuse a value with this sentence unless the condition holds."""
    if not condition:
        raise ConfigError(template, **values)


@dataclass(frozen=True, kw_only=True)
class ModelConfig(JsonConfig):
    """The shape of a Transformer. Together with the weights it is the whole model."""

    architecture: str = "encoder-decoder"
    vocab_size: int = 8_000  # one joint vocabulary for every language of the model
    # The model writes, and so scores, the first so many tokens of the vocabulary; 0 = all of them.
    output_vocab_size: int = field(default=0, metadata=ABSENT_IS_DEFAULT)
    d_model: int = 256  # width of the residual stream
    n_heads: int = 4  # head width = d_model / n_heads, a multiple of 8 for the fused kernels
    n_encoder_layers: int = 4  # 0 for decoder-only
    n_decoder_layers: int = 4
    d_ff: int = 1_024  # inner width of the feed-forward; four times d_model in the paper
    max_length: int = 256  # longest source, and longest target
    dropout: float = 0.1
    bias: bool = True  # of linear layers and layer norms; GPT-2 has it, newer models drop it
    norm: str = "pre"  # "post" as in the 2017 paper; "pre" trains without tricks
    activation: str = "relu"  # "relu" in the paper; "gelu" (tanh form) in GPT-2
    positions: str = "sinusoidal"
    residual: bool = True  # False removes every x + f(x): an ablation, not a way to train well
    tie_embeddings: bool = True  # output layer = transposed embedding, section 3.4 of the paper
    scale_embeddings: bool = True  # multiply embeddings by √d_model: the paper does, GPT-2 does not

    def __post_init__(self) -> None:
        check_choice("architecture", self.architecture, ARCHITECTURES)
        check_choice("norm", self.norm, NORMS)
        check_choice("activation", self.activation, ACTIVATIONS)
        check_choice("positions", self.positions, POSITIONS)
        check_whole("vocab_size", self.vocab_size, 1, MAX_VOCABULARY)
        check_whole("output_vocab_size", self.output_vocab_size, 0, self.vocab_size)
        check_whole("d_model", self.d_model, 1, MAX_WIDTH)
        check_whole("n_heads", self.n_heads, 1, MAX_WIDTH)
        check_whole("d_ff", self.d_ff, 1, MAX_WIDTH)
        check_whole("max_length", self.max_length, 1, MAX_CONTEXT)
        check_whole("n_decoder_layers", self.n_decoder_layers, 1, MAX_LAYERS)
        check_number("dropout", self.dropout, 0.0, 1.0, below=True)
        if self.architecture == "decoder-only":
            require(
                self.n_encoder_layers == 0,
                "n_encoder_layers is {n_encoder_layers}, but a decoder-only model has no encoder; set it to 0.",
                n_encoder_layers=self.n_encoder_layers,
            )
            require(
                self.output_vocab_size == 0,
                "output_vocab_size is {output_vocab_size}, but a decoder-only model writes what it reads; set it to 0.",
                output_vocab_size=self.output_vocab_size,
            )
        else:
            check_whole("n_encoder_layers", self.n_encoder_layers, 1, MAX_LAYERS)
        # A learned table is in the weights, so its size is that of a file; any other costs its author nothing.
        require(
            self.positions in ("learned", "none") or self.max_length * self.d_model <= MAX_TABLE,
            "max_length {max_length} times d_model {d_model} is a table of positions with more than {high} numbers; "
            "lower one of them.",
            max_length=self.max_length,
            d_model=self.d_model,
            high=MAX_TABLE,
        )
        if self.positions == "sinusoidal":
            require(
                self.d_model % 2 == 0,
                "d_model is {d_model}, but sinusoidal positions pair a sine with a cosine; make it even.",
                d_model=self.d_model,
            )
        require(
            self.d_model % self.n_heads == 0,
            "n_heads is {n_heads}, which does not divide d_model {d_model}; choose a divisor.",
            n_heads=self.n_heads,
            d_model=self.d_model,
        )
        require(
            self.d_head % 8 == 0,
            "d_model {d_model} over n_heads {n_heads} gives heads of width {d_head}; make it a multiple "
            "of 8, as the fused attention kernels need.",
            d_model=self.d_model,
            n_heads=self.n_heads,
            d_head=self.d_head,
        )

    @property
    def d_head(self) -> int:
        """Width of one attention head."""
        return self.d_model // self.n_heads

    @property
    def n_outputs(self) -> int:
        """How many tokens the model scores as the next one: the width of its logits."""
        return self.output_vocab_size or self.vocab_size

    @property
    def is_encoder_decoder(self) -> bool:
        """Whether the model reads a source through an encoder."""
        return self.architecture == "encoder-decoder"

    @property
    def n_parameters(self) -> int:
        """Numbers in the model this config describes, known before any memory is asked for."""
        d, f, bias = self.d_model, self.d_ff, int(self.bias)
        attention = 4 * (d + bias) * d  # queries, keys, values, output
        feed_forward = 2 * d * f + bias * (f + d)
        norm = (1 + bias) * d
        layer = attention + feed_forward + 2 * norm
        cross = attention + norm if self.is_encoder_decoder else 0
        layers = self.n_encoder_layers * layer + self.n_decoder_layers * (layer + cross)
        final_norms = (1 + int(self.is_encoder_decoder)) * norm if self.norm == "pre" else 0
        embeddings = (self.vocab_size + (0 if self.tie_embeddings else self.n_outputs)) * d
        positions = self.max_length * d if self.positions == "learned" else 0
        return layers + final_norms + embeddings + positions

    @classmethod
    def gpt(cls, **values: Any) -> Self:
        """A decoder-only config with GPT's choices as defaults."""
        defaults: dict[str, Any] = {
            "architecture": "decoder-only",
            "n_encoder_layers": 0,
            "activation": "gelu",
            "positions": "learned",
            "scale_embeddings": False,
        }
        return cls(**(defaults | values))


@dataclass(frozen=True, kw_only=True)
class GenerationConfig(JsonConfig):
    """What a model is for and how text is made with it, unless the caller says otherwise."""

    task: str = "translate"
    pad_id: int = 0
    bos_id: int = 1  # first token of every target, and of every plain text
    eos_id: int = 2  # ends a source, a target, a turn
    roles: dict[str, int] = field(default_factory=dict)  # chat: role name → the token that opens its turn
    source_languages: tuple[str, ...] = ()  # ISO 639-1; for the card, and for notices about texts in others
    target_language: str = ""
    length_penalty: float = 1.0  # beam score = sum of log-probabilities / length ** penalty
    repetition_penalty: float = 1.0  # 1 = none
    max_source_tokens: int = 256
    max_new_tokens: int = 128

    def __post_init__(self) -> None:
        check_choice("task", self.task, TASKS)
        for name in ("pad_id", "bos_id", "eos_id"):
            check_whole(name, getattr(self, name), 0, MAX_VOCABULARY)
        for role, token in self.roles.items():
            check_whole(f"roles.{role}", token, 0, MAX_VOCABULARY)
        require(
            self.task != "chat" or {"user", "assistant"} <= set(self.roles),
            "roles must name the tokens of user and assistant for a chat model; add them.",
        )
        check_number("length_penalty", self.length_penalty, 0.0, 10.0)
        check_number("repetition_penalty", self.repetition_penalty, 0.0, 10.0, above=True)
        check_whole("max_source_tokens", self.max_source_tokens, 1, MAX_CONTEXT)
        check_whole("max_new_tokens", self.max_new_tokens, 1, MAX_CONTEXT)


def defaults_of(cls: type[JsonConfig]) -> dict[str, Any]:
    """Field name → default value of a config class."""
    found: dict[str, Any] = {}
    for f in fields(cls):  # type: ignore[arg-type]
        found[f.name] = f.default_factory() if f.default_factory is not MISSING else f.default
    return found


def absent_defaults(cls: type[JsonConfig]) -> dict[str, Any]:
    """Field name → default value of the fields whose key a file may lack."""
    return {f.name: f.default for f in fields(cls) if "absent_is_default" in f.metadata}  # type: ignore[arg-type]


# `tiny`, `translate`, `chat` and `multi30k` are the models of the recipes; a test holds them equal.
PRESETS: dict[str, ModelConfig] = {
    # Learns to reverse a word in half a minute on one core.
    "tiny": ModelConfig(
        vocab_size=262,
        d_model=64,
        n_heads=4,
        n_encoder_layers=2,
        n_decoder_layers=2,
        d_ff=256,
        max_length=32,
        dropout=0.0,
        positions="rotary",
    ),
    "tiny-gpt": ModelConfig.gpt(vocab_size=300, d_model=64, n_heads=4, n_decoder_layers=2, d_ff=256, max_length=64),
    # Deep encoder, shallow decoder: the decoder runs once per token, the encoder once per sentence.
    "translate": ModelConfig(
        vocab_size=12_000,
        d_model=256,
        n_heads=4,
        n_encoder_layers=7,
        n_decoder_layers=3,
        d_ff=1_024,
        max_length=128,
        dropout=0.2,
        output_vocab_size=5_120,
    ),
    "chat": ModelConfig.gpt(
        vocab_size=8_000,
        d_model=384,
        n_heads=6,
        n_decoder_layers=7,
        d_ff=1_536,
        max_length=512,
        dropout=0.2,
        positions="rotary",
    ),
    # Transformer-Tiny of Wu et al. 2021 for Multi30k.
    "multi30k": ModelConfig(
        vocab_size=9_700,
        d_model=128,
        n_heads=4,
        n_encoder_layers=4,
        n_decoder_layers=4,
        d_ff=256,
        max_length=128,
        dropout=0.2,
    ),
    # "Attention Is All You Need", table 3, base.
    "paper-base": ModelConfig(
        vocab_size=37_000,
        d_model=512,
        n_heads=8,
        n_encoder_layers=6,
        n_decoder_layers=6,
        d_ff=2_048,
        max_length=512,
        norm="post",
        bias=True,
    ),
}


def preset(name: str, **changes: Any) -> ModelConfig:
    """A named shape, with some values replaced."""
    if name not in PRESETS:
        raise ConfigError(
            "There is no preset {name!r}; choose one of {presets}.", name=name, presets=", ".join(PRESETS)
        )
    shape = PRESETS[name]
    if changes.get("vocab_size", shape.vocab_size) < shape.output_vocab_size:
        changes = {"output_vocab_size": 0, **changes}  # of so few tokens it writes all
    return shape.with_changes(**changes)
