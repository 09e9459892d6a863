"""Preflight checks: report every missing or unusable input file before a run starts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from flows.engine.stages import Step
from pipelines.wordpiece.plan import raw_inputs
from pipelines.wordpiece.vocab_files import TOKENIZER_FILE, read_lowercase
from schemas.configs import DocumentsConfig, VocabularyConfig
from schemas.errors import (
    BertloomError,
    ConfigError,
    InputError,
    TrainingError,
    VocabularyError,
)
from schemas.model_configs import PretrainConfig
from schemas.task_configs import ExamplesConfig, TrialConfig


def check_inputs(steps: Iterable[Step]) -> None:
    """Check the task files, the vocabulary file and the checkpoints that these steps read.

    Dumps and books are not checked: the first step reads them.

    Raises:
        InputError, VocabularyError, CheckpointError: One file cannot be used.
        ConfigError: Several files cannot be used; lists all of them.
    """
    refuse_all([error for step in steps for error in _faults(step)])


def raw_paths(steps: Iterable[Step]) -> list[str]:
    """Paths and URLs of what the corpus stages among some steps read from outside the store."""
    found: list[str] = []
    for step in steps:
        if isinstance(step.config, DocumentsConfig):
            found += [path for source in step.config.sources for path in source.paths]
        elif isinstance(step.config, VocabularyConfig) and step.config.vocab_file is not None:
            found.append(step.config.vocab_file)
    return found


def refuse_all(faults: Sequence[BertloomError]) -> None:
    """Raise what was found, together where it is more than one."""
    told = {str(fault): fault for fault in faults}  # trials of a grid start from one checkpoint
    if len(told) > 1:
        listed = " ".join(f"({number}) {text}" for number, text in enumerate(told, start=1))
        raise ConfigError(f"{len(told)} things have to be put right: {listed}")
    for fault in told.values():
        raise fault


def examples_fault(config: ExamplesConfig) -> BertloomError | None:
    """Return what is wrong with the files of a task; only their first rows are read."""
    from model.build_examples import check_files  # start-up: 70 ms

    try:
        check_files(config)
    except (ConfigError, InputError) as error:
        return error
    return None


def checkpoint_fault(folder: str, *, needs_vocabulary: bool) -> BertloomError | None:
    """Return what is wrong with the files of a checkpoint, weights not read; None if nothing is."""
    from model.encoder.hf_config import check_layout, vocabulary_url  # start-up: 20 ms

    try:
        check_layout(folder, needs_vocabulary=needs_vocabulary)
        if needs_vocabulary and (url := vocabulary_url(folder)).endswith(TOKENIZER_FILE):
            read_lowercase(url)
    except (InputError, TrainingError, VocabularyError) as error:
        return error
    return None


def _faults(step: Step) -> Iterator[BertloomError]:
    config, fault = step.config, None
    if isinstance(config, ExamplesConfig):
        fault = examples_fault(config)
    elif isinstance(config, VocabularyConfig):
        fault = _vocabulary_fault(config)
    elif isinstance(config, TrialConfig | PretrainConfig) and config.init_checkpoint is not None:
        is_trial = isinstance(config, TrialConfig)
        fault = checkpoint_fault(config.init_checkpoint, needs_vocabulary=is_trial)
    if fault is not None:
        yield fault


def _vocabulary_fault(config: VocabularyConfig) -> BertloomError | None:
    try:
        raw_inputs(config)
    except (InputError, VocabularyError) as error:
        return error
    return None
