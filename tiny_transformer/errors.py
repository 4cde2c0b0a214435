"""Every failure that a user can cause, as one family of one-sentence exceptions that programs can take apart."""

from collections.abc import Callable
from typing import Any, Self


class Sentence(str):
    """A sentence for people that still knows its template and its values, so that a translation can look it up."""

    template: str
    values: dict[str, Any]

    def __new__(cls, template: str, /, **values: Any) -> Self:
        """`template` is written as for `str.format`."""
        message = super().__new__(cls, template.format(**values))
        message.template = template
        message.values = values
        return message

    def with_values(self, change: Callable[[Any], Any]) -> Self:
        """The same sentence with every value changed, those of the sentences inside it too."""

        def changed(value: Any) -> Any:
            inner = value.message if isinstance(value, TinyTransformerError) else value
            return inner.with_values(change) if isinstance(inner, Sentence) else change(inner)

        return type(self)(self.template, **{name: changed(value) for name, value in self.values.items()})

    def __getnewargs_ex__(self) -> tuple[tuple[str], dict[str, Any]]:
        """Copies and pickles are made from the template; the filled-in sentence may hold braces of its own."""
        return (self.template,), self.values


class TinyTransformerError(Exception):
    """Base of all errors that this package raises on purpose: a template, and the values that fill it in.

    `str(error)` is the sentence in English. Programs and translations read `error.message.template` and
    `error.message.values`; a value may itself be a `Sentence` or an error.
    """

    def __init__(self, template: str, /, **values: Any) -> None:
        self.message = template if isinstance(template, Sentence) and not values else Sentence(template, **values)
        super().__init__(self.message)

    def __str__(self) -> str:
        return str(self.message)


def first_line(error: Exception) -> str:
    """What another library says of its error, for a sentence of ours; its kind where it says nothing."""
    return _line(str(error), 0) or type(error).__name__


def last_line(said: Exception | str) -> str:
    """The same of an error or a log whose reason stands last, under where it comes from."""
    return _line(str(said), -1) or ("it said nothing" if isinstance(said, str) else type(said).__name__)


def _line(text: str, number: int) -> str:
    lines = text.strip().splitlines()
    return lines[number].strip().rstrip(".") if lines else ""


class ConfigError(TinyTransformerError):
    """A configuration value is unknown, missing or impossible."""


class BundleError(TinyTransformerError):
    """A model folder, or a file in it, is missing, damaged or does not belong there."""


class TokenizerError(TinyTransformerError):
    """A tokenizer could not be trained or loaded, or a text cannot be encoded."""


class InputError(TinyTransformerError):
    """A text, a list of ids or an option handed in by the caller is not acceptable."""


class BackendError(TinyTransformerError):
    """A backend is not available here or cannot run this model."""


class DataError(TinyTransformerError):
    """Training or evaluation data is missing or malformed."""


class TrainingError(TinyTransformerError):
    """A training run could not go on."""


class ExportError(TinyTransformerError):
    """An artifact could not be written, or failed its check."""


class ParityError(TinyTransformerError):
    """Two backends that must agree do not, or a report does not belong to the files beside it."""


class HubError(TinyTransformerError):
    """The Hugging Face Hub refused, could not be reached, or holds something else than it should."""

    def __init__(
        self,
        template: str,
        /,
        *,
        status: int | None = None,
        transient: bool = False,
        retry_after: float | None = None,
        **values: Any,
    ) -> None:
        super().__init__(template, **values)
        self.status = status  # of the HTTP answer; None where there was none
        self.transient = transient  # the same call may succeed later, or may have succeeded without an answer
        self.retry_after = retry_after  # seconds that the Hub asks us to wait
