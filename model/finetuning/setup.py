"""Setup of a trial: tokenizer, features, model, and phases of training."""

from __future__ import annotations

import functools
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Unpack

import pyarrow as pa
import torch

from model.finetuning.batches import TaskStep, epoch_order, task_batches
from model.finetuning.feature_tagger import FeatureTagger
from model.finetuning.jobs import TrialJob
from model.finetuning.prediction import PredictionOptions
from model.finetuning.task_model import HEADS, TaskModel, task_model_from_checkpoint, with_dropout
from model.hf_config import vocabulary_url
from model.task_results import DEV, TRAINED_ON
from model.tasks import Task, find_task
from model.tasks.examples import labels_of, read_examples, splits_of
from model.tasks.features import Encoding, Features
from model.tasks.task_types import TASK_TYPES
from model.training.distributed import choose_precision, choose_worker_device
from model.training.loop import TrainingState
from model.training.progress import PROGRESS_FILE
from model.training.stopping import StopRequest
from pipelines.io.stage_inputs import InputFile, input_file
from pipelines.seeds import key_for
from pipelines.wordpiece.text_rules import (
    TextRules,
    complete_rules,
    get_text_rules,
    read_stated_rules,
)
from pipelines.wordpiece.tokenizer import WordPieceTokenizer
from pipelines.wordpiece.vocab_files import TOKENIZER_CONFIG_FILE, VOCAB_FILE, read_vocab
from schemas.errors import CheckpointError, ConfigError, TaskDataError
from schemas.finetune_configs import FeaturesConfig
from schemas.manifest import StageInput


class Split(NamedTuple):
    """Examples with their features."""

    examples: pa.Table
    features: Features


@dataclass(frozen=True, kw_only=True)
class TrialSetup(Encoding):
    """Trial before its first step, without optimizer."""

    job: TrialJob
    model: TaskModel | FeatureTagger
    device: torch.device
    is_bf16: bool
    """True to train and predict under autocast to bfloat16."""

    splits: dict[str, Split]
    """`train`, and `augmentation` and `dev` if present."""

    notes: list[str] = field(default_factory=list)
    """Sentences that a user should read."""

    def prediction_options(self, split: str, *, stop: StopRequest) -> PredictionOptions:
        """Return the options to compute outputs of a split; `split` is named in its progress."""
        return PredictionOptions(
            per_device_max_tokens=self.job.config.per_device_max_tokens,
            device=self.device,
            is_bf16=self.is_bf16,
            progress=f"{self.job.name}: {split}",
            progress_file=self.job.folder() / PROGRESS_FILE,
            stop=stop,
        )

    @property
    def counters(self) -> dict[str, int]:
        """Counters of examples by name and split."""
        return {
            f"{name}@{split}": count
            for split, (examples, features) in self.splits.items()
            for name, count in {
                "examples": len(examples),
                "sequences": len(features.lengths),
                "tokens": int(features.offsets[-1]),
                **features.counters,
            }.items()
        }


def open_trial(job: TrialJob) -> TrialSetup:
    """Read examples, build features and the model, on the trial's device.

    Raises:
        TaskDataError: The training data is missing or has no labels.
        ConfigError: Sequences exceed the model's positions, or the configuration is invalid.
        CheckpointError, VocabularyError: The model or its vocabulary cannot be read.
    """
    task = find_task(str(job.examples.statistics["task"]))
    labels = labels_of(job.examples)
    notes: list[str] = []
    tokenizer = _open_tokenizer(job, notes=notes)
    if note := task.case_note(lowercase=tokenizer.lowercase):
        notes.append(note)
    outputs = HEADS[task.type].outputs or len(labels)
    model = _open_model(job, task=task, outputs=outputs, tokenizer=tokenizer, notes=notes)
    if job.config.max_seq_length > (positions := model.config.max_position_embeddings):
        raise ConfigError(
            f"{job.name}: max_seq_length: expected at most {positions}, the model's "
            f"max_position_embeddings, got {job.config.max_seq_length}. Lower it, or start from a "
            "model with more positions"
        )
    splits = _open_splits(
        job.examples.model_dump_json(),
        job.features.model_dump_json(),
        tokenizer=tokenizer,
        names=_split_names(job, notes=notes),
    )
    for name, (_, features) in splits.items():
        if name != DEV and not features.units:
            raise TaskDataError(
                f"{job.name}: the split {name} of {task.name} has no examples: expected labeled "
                "ones to train on; see the files of build_examples"
            )
    device = choose_worker_device(job.config.device)
    return TrialSetup(
        task=task,
        labels=labels,
        tokenizer=tokenizer,
        config=job.config,
        job=job,
        model=model.to(device),
        device=device,
        is_bf16=choose_precision(job.config.precision, device) == "bf16",
        splits=splits,
        notes=notes,
    )


def _split_names(job: TrialJob, *, notes: list[str]) -> tuple[str, ...]:
    present = splits_of(job.examples)
    has_augmentation = "augmentation" in present and job.config.augmentation_epochs
    if DEV not in present:
        notes.append("there is no dev split, so that nothing is scored")
    names = {"augmentation": has_augmentation, "train": True, DEV: DEV in present}
    return tuple(name for name, is_read in names.items() if is_read)


@functools.lru_cache(maxsize=1)
def _open_splits(
    examples: str, config: str, *, tokenizer: WordPieceTokenizer, names: tuple[str, ...]
) -> dict[str, Split]:
    """Read and tokenize splits, once for consecutive trials with equal data. Do not change them.

    Args:
        examples, config: Artifact and `FeaturesConfig`, as JSON.
        tokenizer: Tokenizer from `_shared_tokenizer`.
        names: Names of the splits.
    """
    artifact = StageInput.model_validate_json(examples)
    task = find_task(str(artifact.statistics["task"]))
    encoding = Encoding(
        task=task,
        labels=labels_of(artifact),
        tokenizer=tokenizer,
        config=FeaturesConfig.model_validate_json(config),
    )
    splits = {}
    for name in names:
        table = read_examples(artifact, name)
        features = TASK_TYPES[task.type].build_features(table, encoding, is_training=name != DEV)
        splits[name] = Split(table, features)
    return splits


# The vocabulary


def _open_tokenizer(job: TrialJob, *, notes: list[str]) -> WordPieceTokenizer:
    if job.checkpoint is None and job.vocabulary is not None:
        vocab = read_vocab(input_file(job.vocabulary, VOCAB_FILE))
        return _shared_tokenizer(tuple(vocab), **get_text_rules(job.vocabulary.statistics))
    file: str | InputFile
    if job.checkpoint is not None:
        file = input_file(job.checkpoint, VOCAB_FILE)
        url = file.url
    else:
        file = url = vocabulary_url(str(job.config.init_checkpoint))
    vocab, stated = read_vocab(file), read_stated_rules(url)
    rules = complete_rules(stated, vocab)
    if "lowercase" not in stated:
        notes.append(
            f"{url.rpartition('/')[0]} does not say whether its vocabulary is cased "
            f"({TOKENIZER_CONFIG_FILE}, do_lower_case); by its pieces it is "
            f"{'uncased' if rules['lowercase'] else 'cased'}"
        )
    return _shared_tokenizer(tuple(vocab), **rules)


@functools.lru_cache(maxsize=1)
def _shared_tokenizer(vocab: tuple[str, ...], **rules: Unpack[TextRules]) -> WordPieceTokenizer:
    """Return the same object for consecutive trials with one vocabulary."""
    return WordPieceTokenizer(vocab, **rules)


# The model


def _open_model(
    job: TrialJob, *, task: Task, outputs: int, tokenizer: WordPieceTokenizer, notes: list[str]
) -> TaskModel | FeatureTagger:
    config = job.config
    # New weights, data order and dropout differ by restart (paper 4.1).
    seed = key_for(config.seed, "task-weights", config.restart)
    shared: dict[str, Any] = {"outputs": outputs, "dropout": config.dropout, "seed": seed}
    on_top = config.lstm_hidden_size if config.bilstm else None
    head: dict[str, Any] = {"kind": task.type, "lstm_hidden_size": on_top, **shared}
    if config.model is not None:
        shape = with_dropout(config.model, config.dropout)
        model = TaskModel(shape, vocab_size=tokenizer.vocab_size, **head)
    else:
        folder = str(config.init_checkpoint if job.checkpoint is None else job.checkpoint.data)
        model, own_notes = task_model_from_checkpoint(folder, **head)
        notes += own_notes
        if tokenizer.vocab_size > model.vocab_size:
            raise CheckpointError(
                f"{folder}: expected at most {model.vocab_size:,} pieces in the vocabulary, one "
                f"per embedding, got {tokenizer.vocab_size:,}. Use the model's own vocabulary."
            )
    if config.method == "fine-tune":
        return model
    return FeatureTagger(
        model.bert,
        vocab_size=model.vocab_size,
        is_causal=model.is_causal,
        layers=config.feature_layers,
        lstm_hidden_size=config.lstm_hidden_size,
        **shared,
    )


class Phase(NamedTuple):
    """Phase of a trial: the training data, or the augmentation before it."""

    name: str
    split: Split
    batches: int
    """Steps per epoch."""

    start: int
    """Steps of the phases before it."""

    steps: int
    """Steps of the phase; the learning rate ends at 0 there."""

    whole: int
    """Steps of all epochs; more than `steps` if `max_steps` ends the phase early."""

    @property
    def end(self) -> int:
        """Steps of the trial at the end of the phase."""
        return self.start + self.steps


class TrialState(TrainingState):
    """State of a trial; `done` is the sum of all phases."""

    examples: int = 0
    """Number of units trained on."""

    loss: float = 0.0
    losses: int = 0
    """Sum and number of the losses since the curve's last line."""


def phases_of(setup: TrialSetup) -> tuple[Phase, ...]:
    """Return the phases of a trial in order; each has its own schedule and optimizer state."""
    phases: list[Phase] = []
    config = setup.job.config
    numbers = (config.augmentation_epochs, config.num_epochs)
    for name, epochs in zip(TRAINED_ON, numbers, strict=True):
        if name not in setup.splits:
            continue
        split = setup.splits[name]
        batches = -(-split.features.units // config.batch_size)
        whole = steps = batches * epochs
        if config.max_steps is not None:
            steps = min(steps, config.max_steps)
        start = phases[-1].end if phases else 0
        phases.append(Phase(name, split, batches, start, steps, whole))
    return tuple(phases)


def steps_of(phase: Phase, setup: TrialSetup, *, done: int) -> Generator[TaskStep]:
    """Yield the batches of a phase after the first `done`; each epoch has its own order."""
    config, features = setup.job.config, phase.split.features
    while done < phase.steps:
        epoch, begin = divmod(done, phase.batches)
        order = epoch_order(
            features.units,
            seed=config.seed,
            restart=config.restart,
            phase=phase.name,
            epoch=epoch,
        )
        left = min(phase.batches - begin, phase.steps - done)
        yield from task_batches(
            features,
            order[begin * config.batch_size : (begin + left) * config.batch_size],
            batch=config.batch_size,
            per_device_max_tokens=config.per_device_max_tokens,
        )
        done += left
