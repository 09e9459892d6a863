"""Preflight checks: report every configuration problem before a run starts."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from flows.run.dependencies import missing_dependencies
from flows.run.graph import Step
from model.build_examples import check_files
from model.hf_config import check_layout, vocabulary_url
from pipelines.runners.registry import check_known, get_runner
from pipelines.vocabulary.raw_inputs import raw_inputs
from pipelines.wordpiece.text_rules import read_stated_rules
from schemas.base_configs import Config
from schemas.corpus_configs import DocumentsConfig, VocabularyConfig
from schemas.errors import BertloomError, ConfigError, MissingInputError, raise_all
from schemas.finetune_configs import ExamplesConfig, TrialConfig
from schemas.model_configs import PretrainConfig
from schemas.recipe import Recipe

_SAMPLE_FOLDER = "runs/sample"
"""Folder that the sample's recipes read, unless BERTLOOM_SAMPLE names another."""


def check_environment(recipe: Recipe, steps: Sequence[Step]) -> None:
    """Check the runner, what its workers can reach, and that the needed packages are installed.

    Raises:
        ConfigError: The runner is unknown or lacks a setting, or a package is not installed.
        RunnerError: The engine of the runner does not answer.
    """
    check_known(recipe.execution.runner)
    if any(step.stage.package == "pipelines" for step in steps):
        get_runner(recipe.execution).preflight(store=recipe.store, inputs=raw_paths(steps))
    if problem := missing_dependencies(steps):
        raise ConfigError(problem)


def check_inputs(steps: Sequence[Step]) -> None:
    """Check the task files, the vocabulary file and the checkpoints that these steps read.

    Dumps and books are not checked: planning digests them.

    Raises:
        InputError, VocabularyError, CheckpointError: One file cannot be used.
        ConfigError: Several files cannot be used; lists all of them.
    """
    check_sample(steps)
    raise_all(_find_error(step.config) for step in steps)


def check_sample(steps: Sequence[Step]) -> None:
    """Raise MissingInputError if the steps read the sample and its folder does not exist."""
    sample = Path(_SAMPLE_FOLDER).absolute()
    if not sample.exists() and any(Path(path).is_relative_to(sample) for path in raw_paths(steps)):
        raise MissingInputError(
            f"{sample}: no such folder. Write the sample with `bertloom sample {_SAMPLE_FOLDER}`"
        )


def raw_paths(steps: Iterable[Step]) -> list[str]:
    """Return the paths and URLs that the corpus steps among these read from outside the store."""
    paths: list[str] = []
    for step in steps:
        if isinstance(step.config, DocumentsConfig):
            paths += [path for source in step.config.sources for path in source.paths]
        elif isinstance(step.config, VocabularyConfig) and step.config.vocab_file is not None:
            paths.append(step.config.vocab_file)
    return paths


def check_checkpoint(folder: str, *, needs_vocabulary: bool) -> None:
    """Check the files of a checkpoint, except its weights.

    Raises:
        InputError, VocabularyError, CheckpointError: A file is missing or cannot be used.
    """
    check_layout(folder, needs_vocabulary=needs_vocabulary)
    if needs_vocabulary:
        read_stated_rules(vocabulary_url(folder))


def _find_error(config: Config) -> BertloomError | None:
    """Return the error of the files and programs that a configuration needs."""
    try:
        match config:
            case ExamplesConfig():
                check_files(config)
            case VocabularyConfig():
                raw_inputs(config)
            case TrialConfig(init_checkpoint=str(folder)):
                check_checkpoint(folder, needs_vocabulary=True)
            case PretrainConfig():
                if config.compile:
                    _check_compiler()
                if config.init_checkpoint is not None:
                    check_checkpoint(config.init_checkpoint, needs_vocabulary=False)
    except BertloomError as error:
        return error
    return None


def _check_compiler() -> None:
    # torch.compile chooses the compiler in the same way.
    compiler = os.environ.get("CXX", "clang++" if sys.platform == "darwin" else "g++")
    if not shutil.which(compiler):
        raise ConfigError(
            f"pretrain: compile: true needs a C++ compiler, and {compiler!r:.80} is not installed. "
            "Install one, name another by CXX, or set compile: false"
        )
