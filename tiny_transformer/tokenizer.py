"""Byte-level BPE over Hugging Face `tokenizers`, the chat format, and decoding as tokens arrive."""

import codecs
import json
import os
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from itertools import chain, islice
from pathlib import Path
from typing import TypedDict

import tokenizers
from tokenizers import decoders, models, pre_tokenizers, trainers

from tiny_transformer.errors import InputError, TokenizerError

PAD, BOS, EOS = "<pad>", "<bos>", "<eos>"
ROLES = {"user": "<user>", "assistant": "<assistant>", "system": "<system>"}
SPECIAL_TOKENS = (PAD, BOS, EOS, *ROLES.values())
# Every byte that UTF-8 knows, and what looks like special tokens but is only text.
_PROBE = "".join(map(chr, [*range(0x800), *range(0x800, 0xD800, 0x400), *range(0xE000, 0x110000, 0x1000)]))
_PROBE += "".join(SPECIAL_TOKENS)
_NO_BYTE = "\uffff"  # stands for a character that stands for no byte
_MAX_FILE_BYTES = 64 * 1024 * 1024
_TEXTS_AT_ONCE = 4_096  # encoded in parallel


class Message(TypedDict):
    """One turn of a dialogue: who speaks ("user", "assistant" or "system"), and what."""

    role: str
    content: str


class Tokenizer:
    """Text to ids and back. Special tokens are ids only: no text can produce them.

    A model may write only the first `output_size` tokens; what it learns to write is encoded with `target=True`.
    """

    def __init__(
        self, backend: tokenizers.Tokenizer, *, output_size: int = 0, where: Path | str = "the tokenizer"
    ) -> None:
        missing = [token for token in SPECIAL_TOKENS if backend.token_to_id(token) is None]
        if missing:
            template = "{path} lacks the special tokens {tokens}; train it with this project."
            raise TokenizerError(template, path=where, tokens=", ".join(missing))
        # A pattern from a file could take time without end, or make the Rust library panic.
        if not _is_byte_level(backend.pre_tokenizer):
            template = "{path} cuts texts in another way than this project's; train it with this project."
            raise TokenizerError(template, path=where)
        # Not kept in tokenizer.json: without it the text "<eos>" would end a sentence.
        backend.encode_special_tokens = True
        backend.no_truncation()
        backend.no_padding()
        self._backend = backend
        self.pad_id, self.bos_id, self.eos_id = (self._special(token) for token in (PAD, BOS, EOS))
        self.roles = {role: self._special(token) for role, token in ROLES.items()}
        self.special_ids = frozenset(self._special(token) for token in SPECIAL_TOKENS)
        self._bytes = self._byte_table(where)
        if backend.normalizer is not None or not self._is_faithful():
            raise TokenizerError(
                "{path} does not give every text back unchanged; train it with this project.", path=where
            )
        self.output_size = min(output_size or self.vocab_size, self.vocab_size)
        self._check_output(where)

    def _check_output(self, where: Path | str) -> None:
        """Every text must be sayable: the special tokens, and a token for each byte, are among those it writes."""
        if self.output_size == self.vocab_size:
            return
        alone = {token for token in self._bytes[: self.output_size] if len(token) == 1}
        if max(self.special_ids) >= self.output_size or len(alone) < len(set(b"".join(self._bytes))):
            raise TokenizerError(
                "{path}: the first {n} tokens lack a byte or a special token, so a model that writes no others "
                "cannot write every text; correct output_vocab_size.",
                path=where,
                n=self.output_size,
            )

    def _is_faithful(self) -> bool:
        """Whatever a file asks for (a space in front, other special tokens): no text may be changed by it."""
        ids = self.encode(_PROBE)
        return self.decode(ids) == _PROBE and self.special_ids.isdisjoint(ids)

    def _special(self, token: str) -> int:
        token_id = self._backend.token_to_id(token)
        assert token_id is not None, "the constructor has looked for all of them"
        return token_id

    @classmethod
    def load(cls, path: Path, *, output_size: int = 0) -> "Tokenizer":
        """Read `tokenizer.json`, for a model that writes the first `output_size` tokens; every fault names the file."""
        try:
            if path.stat().st_size > _MAX_FILE_BYTES:
                raise TokenizerError(
                    "{path} is larger than {n} bytes; it is not a tokenizer of ours.", path=path, n=_MAX_FILE_BYTES
                )
            backend = tokenizers.Tokenizer.from_str(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise TokenizerError("{path} does not exist; a model folder needs it.", path=path) from None
        except TokenizerError:
            raise
        except Exception as error:  # the Rust library raises plain Exception
            raise TokenizerError(
                "{path} is not a tokenizer file ({detail}); restore it from its source.", path=path, detail=error
            ) from None
        return cls(backend, output_size=output_size, where=path)

    @classmethod
    def from_json(cls, text: str, *, output_size: int = 0) -> "Tokenizer":
        """From the text of a `tokenizer.json` of ours."""
        return cls(tokenizers.Tokenizer.from_str(text), output_size=output_size)

    @classmethod
    def train(
        cls, texts: Iterable[str], vocab_size: int, *, split_digits: bool = False, show_progress: bool = True
    ) -> "Tokenizer":
        """Learn a byte-level BPE vocabulary, joint for whatever languages the texts are in.

        With `split_digits` no token holds a digit and another character: a number is read and copied digit by digit.
        """
        smallest = len(SPECIAL_TOKENS) + 256
        if vocab_size < smallest:
            template = "vocab_size is {vocab_size}; 256 bytes and the special tokens need {smallest}."
            raise TokenizerError(template, vocab_size=vocab_size, smallest=smallest)
        backend = _byte_level(models.BPE(), split_digits=split_digits)
        trainer = trainers.BpeTrainer(
            vocab_size=vocab_size,
            special_tokens=list(SPECIAL_TOKENS),
            initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
            show_progress=show_progress,
        )
        if vocab_size == smallest:  # no room for a merge: whatever the texts are, the vocabulary is the same
            texts = ()
        with _stdout_on_stderr():
            backend.train_from_iterator((_without_surrogates(text) for text in texts), trainer)
        return cls(backend)

    @classmethod
    def train_from_files(cls, paths: Sequence[Path], vocab_size: int, *, show_progress: bool = True) -> "Tokenizer":
        """Learn from UTF-8 text files, a line at a time."""
        return cls.train(_lines(paths), vocab_size, show_progress=show_progress)

    @classmethod
    def synthetic(cls, vocab_size: int) -> "Tokenizer":
        """A tokenizer of any size without training data: bytes, then pairs of bytes in a fixed order."""
        alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
        smallest, largest = len(SPECIAL_TOKENS) + 256, len(SPECIAL_TOKENS) + 256 + 256 * 256
        if not smallest <= vocab_size <= largest:
            template = "vocab_size is {vocab_size}; without training data choose {smallest} to {largest}."
            raise TokenizerError(template, vocab_size=vocab_size, smallest=smallest, largest=largest)
        tokens = [*SPECIAL_TOKENS, *alphabet]
        n_pairs = vocab_size - len(tokens)
        pairs = [(a, b) for a in alphabet for b in alphabet][:n_pairs]
        tokens += [a + b for a, b in pairs]
        backend = _byte_level(models.BPE(vocab={token: i for i, token in enumerate(tokens)}, merges=pairs))
        backend.add_special_tokens(list(SPECIAL_TOKENS))
        return cls(backend)

    def with_output_first(self, targets: Iterable[str], output_size: int) -> "Tokenizer":
        """The same tokens, renumbered: those that `targets` use most have the ids below `output_size`.

        Special tokens and bytes keep their ids. Behind them stand the output's tokens and then the others, both in the
        order of their merges. The merges stay, so every text is cut as before.
        """
        counts: Counter[int] = Counter()
        texts = map(_without_surrogates, targets)
        while chunk := list(islice(texts, _TEXTS_AT_ONCE)):
            counts.update(chain.from_iterable(self.encode_batch(chunk)))
        learned = range(len(SPECIAL_TOKENS) + 256, self.vocab_size)
        n_written = max(0, output_size - learned.start)
        written = set(sorted(learned, key=lambda i: (-counts[i], i))[:n_written])
        order = sorted(learned, key=lambda i: (i not in written, i))
        values = json.loads(self.to_json())
        number = {old: new for new, old in enumerate(order, start=learned.start)}
        vocabulary = values["model"]["vocab"]
        renumbered = {token: number.get(token_id, token_id) for token, token_id in vocabulary.items()}
        values["model"]["vocab"] = dict(sorted(renumbered.items(), key=lambda item: item[1]))
        return Tokenizer.from_json(json.dumps(values), output_size=output_size)

    def save(self, path: Path) -> None:
        """Write `tokenizer.json`, readable by any tokenizers client."""
        path.write_text(self.to_json(), encoding="utf-8")

    def to_json(self) -> str:
        """The text of `tokenizer.json`."""
        return json.dumps(json.loads(self._backend.to_str()), indent=1, ensure_ascii=False) + "\n"

    @property
    def vocab_size(self) -> int:
        """Number of ids, special tokens included."""
        return int(self._backend.get_vocab_size())

    def encode(self, text: str, *, target: bool = False) -> list[int]:
        """Ids of a text; whatever the text says, none of them is a special token.

        With `target` the ids are those of a text to write: all below `output_size`.
        """
        ids = list(self._backend.encode(_utf8(text), add_special_tokens=False).ids)
        return self._writable(ids) if target else ids

    def encode_batch(self, texts: Sequence[str], *, target: bool = False) -> list[list[int]]:
        """Ids of many texts, in parallel."""
        checked = [_utf8(text) for text in texts]
        found = [list(found.ids) for found in self._backend.encode_batch(checked, add_special_tokens=False)]
        return [self._writable(ids) for ids in found] if target else found

    def _writable(self, ids: list[int]) -> list[int]:
        """Each token that cannot be written, taken apart along its merges until all its parts can be."""
        if self.output_size == self.vocab_size:
            return ids
        written: list[int] = []
        waiting = ids[::-1]
        while waiting:
            token_id = waiting.pop()
            if token_id < self.output_size:
                written.append(token_id)
            else:
                waiting += self._merged_from[token_id][::-1]
        return written

    @cached_property
    def _merged_from(self) -> dict[int, Sequence[int]]:
        """The two tokens that each token is merged from; its bytes where a file has a token without a merge."""
        model = json.loads(self._backend.to_str())["model"]
        vocabulary: dict[str, int] = model["vocab"]
        byte_ids = {token: token_id for token_id, token in enumerate(self._bytes) if len(token) == 1}
        found: dict[int, Sequence[int]] = {
            token_id: [byte_ids[token[i : i + 1]] for i in range(len(token))]
            for token_id, token in enumerate(self._bytes)
        }
        for left, right in reversed(model["merges"]):  # of two merges that make the same token the first counts
            found[vocabulary[left + right]] = vocabulary[left], vocabulary[right]
        return found

    def decode(self, ids: Sequence[int]) -> str:
        """Text of ids; special tokens vanish, bytes that are not UTF-8 become U+FFFD."""
        return b"".join(self.token_bytes(i) for i in ids).decode("utf-8", errors="replace")

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes one token stands for; empty for a special token."""
        if not 0 <= token_id < len(self._bytes):
            raise InputError(
                "token id {id} is outside the vocabulary of {size}; check the ids.", id=token_id, size=len(self._bytes)
            )
        return self._bytes[token_id]

    def _byte_table(self, where: Path | str) -> list[bytes]:
        """The bytes of each token by its id; the ids must be 0, 1, 2 and so on without a gap."""
        # One translation of the whole token costs a fifth of one look-up per character.
        byte_of = dict.fromkeys(map(chr, range(256)), _NO_BYTE)
        byte_of |= {character: chr(byte) for byte, character in enumerate(_byte_characters())}
        spelling = str.maketrans(byte_of)
        token_of = {token_id: token for token, token_id in self._backend.get_vocab(with_added_tokens=True).items()}
        table: list[bytes] = []
        for token_id in range(self.vocab_size):
            token = token_of.get(token_id)
            if token is None:
                raise TokenizerError(
                    "{path} has no token with the id {id}; restore it from its source.", path=where, id=token_id
                )
            try:
                table.append(b"" if token_id in self.special_ids else token.translate(spelling).encode("latin-1"))
            except UnicodeEncodeError:
                raise TokenizerError(
                    "{path}: token {token!r:.80} is not byte-level; train it again.", path=where, token=token
                ) from None
        return table

    def encode_chat(self, messages: Sequence[Message]) -> list[int]:
        """A dialogue as `<role> text <eos>` per turn, ending with `<assistant>`, where the model continues."""
        turns = [self.encode_turn(message) for message in messages]
        return [token for turn in turns for token in turn] + [self.roles["assistant"]]

    def encode_turn(self, message: Message) -> list[int]:
        """One turn: the role's token, the text, the end."""
        role, content = message_parts(message)
        return [self.roles[role], *self.encode(content), self.eos_id]

    def incremental_decoder(self) -> "IncrementalDecoder":
        """A decoder for tokens that arrive one at a time."""
        return IncrementalDecoder(self)


class IncrementalDecoder:
    """Joins tokens into text as they come and never emits part of a character."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._utf8 = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def push(self, token_id: int) -> str:
        """The text this token completes; empty while a character is unfinished."""
        return self._utf8.decode(self._tokenizer.token_bytes(token_id))

    def finish(self) -> str:
        """What is left at the end: U+FFFD if a character was never finished."""
        return self._utf8.decode(b"", final=True)


def message_parts(message: object) -> tuple[str, str]:
    """Role and content of one turn, checked: a dialogue comes from outside."""
    if not isinstance(message, Mapping) or not {"role", "content"} <= message.keys():
        raise InputError('A message must be {{"role": ..., "content": ...}}; correct the history.')
    role, content = message["role"], message["content"]
    if not isinstance(role, str) or role not in ROLES:
        raise InputError("The role {role!r} is unknown; choose one of {roles}.", role=role, roles=", ".join(ROLES))
    if not isinstance(content, str):
        raise InputError(
            "The content of a message must be text, not {kind}; correct the history.", kind=type(content).__name__
        )
    return role, content


def _byte_level(model: models.BPE, *, split_digits: bool = False) -> tokenizers.Tokenizer:
    backend = tokenizers.Tokenizer(model)
    words = pre_tokenizers.ByteLevel(add_prefix_space=False)
    digits = pre_tokenizers.Digits(individual_digits=True)
    backend.pre_tokenizer = pre_tokenizers.Sequence([digits, words]) if split_digits else words
    backend.decoder = decoders.ByteLevel()
    return backend


def _is_byte_level(pre_tokenizer: object) -> bool:
    """Whether a text is cut as `_byte_level` cuts it."""
    if isinstance(pre_tokenizer, pre_tokenizers.Sequence):
        parts: Iterable[object] = pre_tokenizer  # type: ignore[assignment]  # the stub does not say that it can be read
        return [type(part) for part in parts] == [pre_tokenizers.Digits, pre_tokenizers.ByteLevel]
    return isinstance(pre_tokenizer, pre_tokenizers.ByteLevel)


def _byte_characters() -> list[str]:
    """The printable stand-in of each byte in byte-level BPE, by byte value."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    stand_in = iter(range(0x100, 0x200))
    return [chr(byte) if byte in printable else chr(next(stand_in)) for byte in range(256)]


def _utf8(text: str) -> str:
    """The text itself; a lone surrogate is no character and has no bytes."""
    if not isinstance(text, str):
        raise InputError("Expected text, not {kind}; pass a string.", kind=type(text).__name__)
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        template = "The text holds a lone surrogate (U+{ord:04X}) at character {start}; remove it."
        raise InputError(template, ord=ord(text[error.start]), start=error.start) from None
    return text


def _without_surrogates(text: str) -> str:
    return text.encode("utf-8", errors="replace").decode("utf-8")


@contextmanager
def _stdout_on_stderr() -> Iterator[None]:
    """The Rust library ends its progress bars with a newline on stdout, which belongs to data."""
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)


def _lines(paths: Sequence[Path]) -> Iterator[str]:
    for path in paths:
        try:
            with path.open(encoding="utf-8", errors="replace") as file:
                yield from file
        except OSError as error:
            raise TokenizerError(
                "{path} cannot be read ({reason}); check the path.", path=path, reason=error.strerror
            ) from None
