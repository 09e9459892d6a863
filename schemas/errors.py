"""Errors that bertloom raises on purpose: where, what was expected, how to fix it.

BertloomError
├── ConfigError            recipe or option that cannot be used
│   └── UsageError         option or argument of a command
├── InputError             raw input
│   ├── MissingInputError, CorruptInputError, NetworkError, ChecksumError, FetchError
│   └── TaskDataError, PredictionsError
├── VocabularyError, CountMismatchError, RunnerError, MachinesError, FingerprintError
├── TrainingError
│   └── InstanceDataError, CheckpointError, DivergenceError
└── StoreError             artifact store
    ├── ArtifactNotFoundError, ArtifactCorruptError, DeterminismError
    └── RefConflictError, LeaseLostError, PublishError
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from schemas.redaction import redact, redact_record


class BertloomError(Exception):
    """Base of all errors raised on purpose. The CLI prints it without a traceback.

    Messages, notes and attributes are redacted: addresses in them can have passwords or signatures.

    Args:
        *arguments: The message.
        **attributes: Attributes of the class, such as `file`.
    """

    def __init__(self, *arguments: object, **attributes: object) -> None:
        super().__init__(*(redact(argument) for argument in arguments))
        vars(self).update(redact_record(attributes))

    def add_note(self, note: str, /) -> None:
        """Add a line to the message."""
        super().add_note(redact(note))


class ConfigError(BertloomError):
    """Recipe, option or combination of them that cannot be used."""


class UsageError(ConfigError):
    """Unknown or conflicting options and arguments of a command."""


class InputError(BertloomError):
    """Raw input that is missing or not as expected."""


class MissingInputError(InputError):
    """Path or pattern without a file."""


class CorruptInputError(InputError):
    """Truncated or corrupt raw file."""

    file: str = ""
    """URL of the file."""

    offset: int = 0
    """Byte offset of the damage in the file as stored."""

    last_record: str = ""
    """Name of the last complete record before it. "": no record."""


class NetworkError(InputError):
    """Remote file that cannot be read at the moment because of the network or its server."""

    file: str = ""
    """URL of the file."""


class ChecksumError(InputError):
    """File whose digest differs from the published one."""

    file: str = ""
    """Path or URL of the file. "": it is not known."""

    expected: str = ""
    """Published digest."""

    actual: str = ""
    """Digest of the file."""


class TaskDataError(InputError):
    """Task file that is empty, lacks a column or has too many invalid rows."""


class PredictionsError(InputError):
    """Predictions that cannot be read or do not match the examples."""


class FetchError(InputError):
    """Failed download."""

    url: str = ""
    """URL of the request. "": the error is not about one."""

    status: int = 0
    """HTTP status of the response. 0: there was no response."""


class VocabularyError(BertloomError):
    """Vocabulary that cannot be learned, read or used."""


class CountMismatchError(BertloomError):
    """Records that were not counted, whether kept or dropped."""


class RunnerError(BertloomError):
    """Failed Beam job."""


class FingerprintError(BertloomError):
    """Part of a cache key that cannot be digested."""


class TrainingError(BertloomError):
    """Model that cannot be trained."""


class InstanceDataError(TrainingError):
    """Instance shards that do not fit the model or each other."""


class CheckpointError(TrainingError):
    """Checkpoint that cannot be written, read or used."""


class DivergenceError(TrainingError):
    """Loss that is not finite or keeps rising."""


class MachinesError(BertloomError):
    """Machines that did not come to a training."""

    present: Sequence[int] = ()
    """Ranks of the machines that came."""

    missing: Sequence[int] = ()
    """Ranks of the machines that did not come."""


class StoreError(BertloomError):
    """Failed operation of the artifact store."""


class ArtifactNotFoundError(StoreError):
    """Unknown name, id or key of an artifact."""


class ArtifactCorruptError(StoreError):
    """Artifact whose files differ from its manifest."""


class DeterminismError(StoreError):
    """Two different contents for one cache key."""


class RefConflictError(StoreError):
    """Ref that another run moved at the same time."""


class StoreBusyError(StoreError):
    """Store that runs use, so that nothing can be deleted."""


class LeaseLostError(StoreError):
    """Lease of a step that another run acquired, so that this run stopped."""

    run: str = ""
    """Id of the run that stopped."""

    step: str = ""
    """Label of the step."""

    holder: str = ""
    """Run that holds the lease, with its process. "": it has ended."""


class PublishError(StoreError):
    """Corpus that changed beyond the recipe's limits and was not published."""


def raise_all(errors: Iterable[BertloomError | None]) -> None:
    """Raise an error, or several as one ConfigError with one line per error.

    Args:
        errors: Errors, and None for checks that passed.
    """
    distinct = {str(error): error for error in errors if error is not None}
    if len(distinct) > 1:
        lines = "".join(f"\n  - {text}" for text in distinct)
        raise ConfigError(f"{len(distinct)} problems:{lines}")
    for error in distinct.values():
        raise error
