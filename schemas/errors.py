"""The exceptions bertloom raises on purpose.

    BertloomError
    ├── ConfigError            a recipe or option that cannot be used
    │   └── UsageError         a command's own options and arguments
    ├── InputError             raw input that is missing or not what it should be
    │   ├── MissingInputError  nothing at the path, or nothing that matches the pattern
    │   ├── CorruptInputError  truncated or damaged; carries file, offset, last whole record
    │   ├── NetworkError       a remote file whose server does not answer; carries the file
    │   ├── ChecksumError      the file is not the one its checksum list names
    │   ├── ExamplesError      a task's file that is not what the task's files look like
    │   ├── PredictionsError   predictions that do not fit what they are scored against
    │   └── FetchError         something that could not be downloaded whole
    ├── VocabularyError        a vocabulary that cannot be learnt, read or used
    ├── CountError             records went in that neither came out nor were counted as dropped
    ├── RunnerError            Beam could not run the job
    ├── FingerprintError       something that has to be in a cache key cannot be digested
    ├── TrainingError          a model that cannot be trained
    │   ├── InstancesError     instance shards that do not fit the model, or each other
    │   ├── CheckpointError    a checkpoint that cannot be written, read or used here
    │   └── DivergenceError    a loss that is not finite or keeps rising
    └── StoreError             the artifact store
        ├── ArtifactNotFoundError
        ├── ArtifactCorruptError
        ├── DeterminismError   one cache key, two different contents
        ├── RefConflictError   a ref that another run moved in the meantime
        ├── LeaseLostError     a step that another run has taken over
        └── PublishError       a corpus that must not take the place of the published one

Each message says what was found, what was expected, what to do, and where (file, page or row).
"""

from __future__ import annotations

from collections.abc import Iterable

from schemas.addresses import public_address
from schemas.disclosure import without_secrets


class BertloomError(Exception):
    """Root of every error raised on purpose; the CLI prints it without a traceback.

    Its message and notes hold no password or signature, whoever wrote the address that it names.
    """

    def __init__(self, *arguments: object) -> None:
        super().__init__(*(without_secrets(argument) for argument in arguments))

    def add_note(self, note: str, /) -> None:
        """Add a line to what is said."""
        super().add_note(without_secrets(note))


class ConfigError(BertloomError):
    """A recipe, an option or a combination of them that cannot be used."""


class UsageError(ConfigError):
    """Options and arguments of a command that are no such, or do not go together."""


class InputError(BertloomError):
    """Raw input that is missing or is not what it should be."""


class MissingInputError(InputError):
    """Nothing at the path, or nothing that matches the pattern."""


class CorruptInputError(InputError):
    """A raw file that ends too early or whose bytes are damaged.

    Attributes:
        file: URL of the file.
        offset: byte offset in the file (as stored, so compressed) where the damage was noticed.
        last_record: name of the last whole record before it, or "" if there was none.
    """

    def __init__(self, message: str, *, file: str, offset: int, last_record: str = "") -> None:
        super().__init__(message)
        self.file = file
        self.offset = offset
        self.last_record = last_record

    def __reduce__(self) -> tuple[object, ...]:
        # Beam carries exceptions between processes; keyword-only arguments need help with that.
        return _rebuild_corrupt, (str(self), self.file, self.offset, self.last_record)


def _rebuild_corrupt(message: str, file: str, offset: int, last_record: str) -> CorruptInputError:
    return CorruptInputError(message, file=file, offset=offset, last_record=last_record)


class NetworkError(InputError):
    """A remote file that cannot be read because of the network or its server. It may pass.

    Attributes:
        file: URL of the file.
    """

    def __init__(self, message: str, *, file: str = "") -> None:
        super().__init__(message)
        self.file = file


class ChecksumError(InputError):
    """A file whose digest differs from the published one.

    Attributes:
        file: Path or URL of the file; "" if it is not known.
        expected: Published digest.
        actual: Digest of the file.
    """

    def __init__(
        self, message: str, *, file: str = "", expected: str = "", actual: str = ""
    ) -> None:
        super().__init__(message)
        self.file = file
        self.expected = expected
        self.actual = actual


class ExamplesError(InputError):
    """A file of a task that is empty, lacks a column, or has more bad rows than may be."""


class PredictionsError(InputError):
    """Predictions that cannot be read or do not fit the examples they are scored against."""


class FetchError(InputError):
    """A download that fails.

    Attributes:
        url: URL of the request; "" if the error is not about one.
        status: HTTP status of the response; 0 if there is none.
    """

    def __init__(self, message: str, *, url: str = "", status: int = 0) -> None:
        super().__init__(message)
        self.url = public_address(url)
        self.status = status


class VocabularyError(BertloomError):
    """A vocabulary that cannot be learnt from the corpus, read from its file, or used."""


class CountError(BertloomError):
    """Records went in that neither came out nor were counted as dropped."""


class RunnerError(BertloomError):
    """Beam could not run the job."""


class FingerprintError(BertloomError):
    """Something that has to be in a cache key cannot be digested; a weaker key is never made."""


class TrainingError(BertloomError):
    """A model that cannot be trained."""


class InstancesError(TrainingError):
    """Instance shards that do not fit the model, or each other."""


class CheckpointError(TrainingError):
    """A checkpoint that cannot be written, cannot be read, or does not fit what it is for."""


class DivergenceError(TrainingError):
    """A loss that is not finite, or that keeps rising."""


class StoreError(BertloomError):
    """The artifact store cannot do what was asked."""


class ArtifactNotFoundError(StoreError):
    """No artifact under that name, id or key."""


class ArtifactCorruptError(StoreError):
    """An artifact whose files are not those its manifest lists."""


class DeterminismError(StoreError):
    """One cache key was given two different contents."""


class RefConflictError(StoreError):
    """A ref that no longer leads to where the caller thought: another run moved it."""


class LeaseLostError(StoreError):
    """A run stopped building a step because another run took the step's lease.

    Attributes:
        run: Id of the run that stopped.
        step: Label of the step.
        holder: Run that holds the lease now, with its process; "" if it has ended.
    """

    def __init__(self, run: str, step: str, holder: str) -> None:
        super().__init__(
            f"{step}: expected run {run} to hold the lease, found that "
            f"{holder or 'another run, which has ended,'} took it over. Nothing was published and "
            "no checkpoint was deleted. Run again: what the other run publishes is used"
        )
        self.run, self.step, self.holder = run, step, holder

    def __reduce__(self) -> tuple[object, ...]:
        return LeaseLostError, (self.run, self.step, self.holder)


class PublishError(StoreError):
    """A corpus that shrank or changed beyond the recipe's limits, and was not published."""


def raise_all(errors: Iterable[BertloomError | None]) -> None:
    """Raise an error, or several together as one ConfigError with a line for each.

    Args:
        errors: None stands for a check that found nothing wrong.
    """
    distinct = {str(error): error for error in errors if error is not None}
    if len(distinct) > 1:
        lines = "".join(f"\n  - {text}" for text in distinct)
        raise ConfigError(f"{len(distinct)} problems:{lines}")
    for error in distinct.values():
        raise error
