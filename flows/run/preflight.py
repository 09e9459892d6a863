"""Preflight checks: report every configuration problem before a run starts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from flows.run.dependencies import missing_dependencies
from flows.run.graph import Step
from model.build_examples import check_files
from model.encoder.hf_config import check_layout, vocabulary_url
from pipelines.runners.checks import check_execution
from pipelines.runners.launch import check_known
from pipelines.wordpiece.plan import raw_inputs
from pipelines.wordpiece.vocab_files import TOKENIZER_FILE, read_lowercase
from schemas.configs import DocumentsConfig, VocabularyConfig
from schemas.errors import (
    BertloomError,
    ConfigError,
    InputError,
    TrainingError,
    VocabularyError,
    raise_all,
)
from schemas.model_configs import PretrainConfig
from schemas.recipe import Recipe
from schemas.task_configs import ExamplesConfig, TrialConfig


def check_environment(recipe: Recipe, steps: Sequence[Step]) -> None:
    """Check the runner, what its workers can reach, and that the needed packages are installed.

    Raises:
        ConfigError: The runner is unknown or lacks a setting, or a package is not installed.
        RunnerError: The engine of the runner does not answer.
    """
    check_known(recipe.execution.runner)
    if any(step.stage.module.startswith("pipelines.") for step in steps):
        check_execution(recipe.execution, store=recipe.store, inputs=raw_paths(steps))
    if problem := missing_dependencies(steps):
        raise ConfigError(problem)


def check_inputs(steps: Iterable[Step]) -> None:
    """Check the task files, the vocabulary file and the checkpoints that these steps read.

    Dumps and books are not checked: the first step reads them.

    Raises:
        InputError, VocabularyError, CheckpointError: One file cannot be used.
        ConfigError: Several files cannot be used; lists all of them.
    """
    raise_all([error for step in steps for error in _input_errors(step)])


def raw_paths(steps: Iterable[Step]) -> list[str]:
    """Return the paths and URLs that the corpus steps among these read from outside the store."""
    paths: list[str] = []
    for step in steps:
        if isinstance(step.config, DocumentsConfig):
            paths += [path for source in step.config.sources for path in source.paths]
        elif isinstance(step.config, VocabularyConfig) and step.config.vocab_file is not None:
            paths.append(step.config.vocab_file)
    return paths


def check_examples(config: ExamplesConfig) -> BertloomError | None:
    """Return what is wrong with the files of a task; only their first rows are read."""
    try:
        check_files(config)
    except (ConfigError, InputError) as error:
        return error
    return None


def check_checkpoint(folder: str, *, needs_vocabulary: bool) -> BertloomError | None:
    """Return what is wrong with the files of a checkpoint, weights not read; None if nothing is."""
    try:
        check_layout(folder, needs_vocabulary=needs_vocabulary)
        if needs_vocabulary and (url := vocabulary_url(folder)).endswith(TOKENIZER_FILE):
            read_lowercase(url)
    except (InputError, TrainingError, VocabularyError) as error:
        return error
    return None


def _input_errors(step: Step) -> Iterator[BertloomError]:
    config, error = step.config, None
    if isinstance(config, ExamplesConfig):
        error = check_examples(config)
    elif isinstance(config, VocabularyConfig):
        error = _check_vocabulary(config)
    elif isinstance(config, TrialConfig | PretrainConfig) and config.init_checkpoint is not None:
        is_trial = isinstance(config, TrialConfig)
        error = check_checkpoint(config.init_checkpoint, needs_vocabulary=is_trial)
    if error is not None:
        yield error


def _check_vocabulary(config: VocabularyConfig) -> BertloomError | None:
    try:
        raw_inputs(config)
    except (InputError, VocabularyError) as error:
        return error
    return None
