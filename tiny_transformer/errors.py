"""Every failure a user can cause, as one family of one-sentence exceptions."""


class TinyTransformerError(Exception):
    """Base of all errors this package raises on purpose; its text is one sentence for the user."""


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
    """An artefact could not be written, or failed its check."""


class ParityError(TinyTransformerError):
    """Two backends that must agree do not, or a report does not belong to the files beside it."""


class HubError(TinyTransformerError):
    """The Hugging Face Hub refused, could not be reached, or holds something else than it should."""

    def __init__(
        self, message: str, *, status: int | None = None, transient: bool = False, retry_after: float | None = None
    ) -> None:
        super().__init__(message)
        self.status = status  # of the HTTP answer; None where there was none
        self.transient = transient  # the same call may succeed later, or may have succeeded unheard
        self.retry_after = retry_after  # seconds that the Hub asks to wait for
