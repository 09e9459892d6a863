"""State of a phase, and its setup: data, weights and optimizer, new or from a checkpoint."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import Field
from safetensors.torch import load as load_tensors

from model.bert import BertForPretraining
from model.data.batches import StepBatch
from model.data.collator import MicroBatchCollator
from model.data.dataset import InstanceDataset
from model.data.loader import PretrainingDataLoader
from model.hf_config import vocabulary_url
from model.hf_weights import load_pretrained
from model.optim import Optimizer, build_optimizer
from model.pretraining.job import TrainingJob
from model.training.artifact_files import OPTIMIZER_FILE, STATE_FILE
from model.training.checkpoints import Checkpoints
from model.training.distributed import ProcessGroup, choose_precision, device_name
from model.training.loop import StepMetrics, TrainingState, resume_from_checkpoint
from model.training.progress import Amounts
from pipelines.instances.masking import VocabularyIds, read_vocabulary_ids
from pipelines.io.file_systems import file_system, read_file
from pipelines.io.stage_inputs import input_file
from pipelines.wordpiece.text_rules import get_text_rules, read_stated_rules
from pipelines.wordpiece.vocab_files import VOCAB_FILE, read_vocab
from schemas.errors import CheckpointError, ConfigError, InstanceDataError
from schemas.manifest import StageInput
from schemas.model_configs import PretrainConfig

_LOGGER = logging.getLogger(__name__)


RECENT_STEPS = 50
"""Steps whose mean loss tells whether a run diverges."""


@dataclass
class IntervalSums:
    """Sums since the last line of the curves; kept in checkpoints so that no line is lost."""

    steps: int = 0
    loss: float = 0.0
    gradient_norm: float = 0.0
    mlm_loss: float = 0.0
    mlm_correct: float = 0.0
    predictions: int = 0
    nsp_loss: float = 0.0
    nsp_correct: float = 0.0
    pairs: int = 0

    def add(self, batch: StepBatch, metrics: StepMetrics) -> None:
        """Count one step more."""
        mlm_loss, mlm_correct, nsp_loss, nsp_correct = metrics.sums
        self.steps += 1
        self.loss += metrics.loss
        self.gradient_norm += metrics.gradient_norm
        self.mlm_loss += mlm_loss
        self.mlm_correct += mlm_correct
        self.predictions += batch.predictions
        self.nsp_loss += nsp_loss
        self.nsp_correct += nsp_correct
        self.pairs += batch.pairs


class PhaseState(TrainingState):
    """State of a phase."""

    earlier_phases: Amounts = Field(default_factory=Amounts)
    """Amount of training in earlier phases, if the optimizer state is restored; the position in the
    learning rate schedule is the sum of it and of `done`."""

    instances: int = 0
    """Instances trained on in this phase, the position of the loader."""

    recent: list[float] = Field(default_factory=list)
    """Losses of the last steps, at most RECENT_STEPS."""

    lowest_mean: float | None = None
    """Lowest mean of RECENT_STEPS losses so far."""

    evaluation: dict[str, float] = Field(default_factory=dict)
    """Result of the last evaluation."""

    lowest_evaluation: dict[str, float] = Field(default_factory=dict)
    """`step` and `mlm_loss` of the evaluation with the lowest held-out loss."""

    interval: IntervalSums = Field(default_factory=IntervalSums)
    trained_on: list[str] = Field(default_factory=list)
    """Names of the devices of each start, without repeats."""

    is_finished: bool = False
    """True when the budget is reached and the last evaluation is done."""

    def record_evaluation(self, step: int, metrics: Mapping[str, float]) -> None:
        """Record an evaluation after a step."""
        self.evaluation = {"step": step, **metrics}
        if not self.lowest_evaluation or metrics["mlm_loss"] < self.lowest_evaluation["mlm_loss"]:
            self.lowest_evaluation = {"step": step, "mlm_loss": metrics["mlm_loss"]}

    def check_divergence(self, loss: float, *, max_rise: float) -> str:
        """Record a finite loss; return why the losses diverge, or ""."""
        self.recent = [*self.recent[-(RECENT_STEPS - 1) :], loss]
        if len(self.recent) < RECENT_STEPS:
            return ""
        mean = math.fsum(self.recent) / RECENT_STEPS
        if self.lowest_mean is None or mean < self.lowest_mean:
            self.lowest_mean = mean
        if max_rise and mean > self.lowest_mean + max_rise:
            return (
                f"the mean loss over {RECENT_STEPS} steps has risen from {self.lowest_mean:.3f} to "
                f"{mean:.3f}, by more than divergence_threshold = {max_rise:g}"
            )
        return ""


@dataclass(frozen=True)
class PretrainingSetup:
    """Everything that a phase needs for its next step."""

    job: TrainingJob
    config: PretrainConfig
    """Configuration of the job, with the precision that `auto` stands for."""

    group: ProcessGroup
    checkpoints: Checkpoints
    instances: InstanceDataset
    vocabulary: VocabularyIds
    model: BertForPretraining
    optimizer: Optimizer
    state: PhaseState

    def collator(self) -> MicroBatchCollator:
        """Return the collator of training and evaluation batches."""
        return MicroBatchCollator(
            objective=self.config.objective,
            max_tokens=self.config.batch.per_device_max_tokens,
        )

    def loader(self) -> PretrainingDataLoader:
        """Return this process's remaining batches."""
        config = self.config
        return PretrainingDataLoader(
            self.instances,
            batch=config.batch,
            collator=self.collator(),
            seed=config.seed,
            vocabulary=self.vocabulary,
            dynamic_masking=config.dynamic_masking if config.masking == "dynamic" else None,
            rank=self.group.rank,
            world_size=self.group.world_size,
            position=self.state.instances,
            pin_memory=self.group.device.type == "cuda",
        )


def open_setup(job: TrainingJob, *, group: ProcessGroup) -> PretrainingSetup:
    """Check and open everything that a run needs before its first step.

    Raises:
        InstanceDataError, ArtifactCorruptError: A shard is missing, damaged, or not for this model.
        CheckpointError: A checkpoint cannot be read or does not match the model.
        ConfigError: The configuration is invalid for these inputs.
    """
    precision = choose_precision(job.config.precision, group.device)
    config = job.config.model_copy(update={"precision": precision})
    vocab = input_file(job.vocabulary, VOCAB_FILE)
    model = open_model(job)
    check_objective(job)
    instances = InstanceDataset.open(
        job.instances,
        vocab_size=model.vocab_size,
        max_seq_length=model.config.max_position_embeddings,
        ranks=group,
    )
    model.to(group.device)  # first: the optimizer's state is on this device
    optimizer = build_optimizer(model.named_parameters(), config.optimizer)
    state = PhaseState()
    if job.checkpoint is not None and config.optimizer_state == "restore":
        state.earlier_phases = _load_optimizer_state(job, job.checkpoint, optimizer=optimizer)
    device = f"{group.world_size} x {device_name(group.device)}, {config.precision}"
    checkpoints = job.checkpoints()
    state = resume_from_checkpoint(checkpoints, model=model, optimizer=optimizer, state=state)
    if device not in state.trained_on and not state.is_finished:
        state.trained_on.append(device)
    return PretrainingSetup(
        job=job,
        config=config,
        group=group,
        checkpoints=checkpoints,
        instances=instances,
        vocabulary=read_vocabulary_ids(vocab),
        model=model,
        optimizer=optimizer,
        state=state,
    )


def check_objective(job: TrainingJob) -> None:
    """Check that the instances have the pairs and masks that the objective needs.

    Raises:
        InstanceDataError: They do not.
    """
    config, counters = job.config, job.instances.counters
    instances = counters.get("instances", 0)
    pairs = instances - counters.get("without-segment-b", 0)
    if config.objective == "mlm+nsp" and instances and not pairs:
        raise InstanceDataError(
            f"{job.instances.data}: none of the {instances:,} instances has a segment B, so there "
            "is no next sentence to learn: set objective to mlm, or pairing of "
            f"build_instances.{config.instances} to nsp"
        )
    if config.objective == "left-to-right":
        return
    advice = f"set masking.strategy of build_instances.{config.instances} to another than none"
    if config.masking == "stored" and counters.get("masked-tokens") == 0:
        raise InstanceDataError(
            f"{job.instances.data}: the instances have no masks, so there is nothing to predict: "
            f"{advice}, or set masking to dynamic"
        )
    held_out = counters.get("held-out-instances", 0)
    if held_out and counters.get("held-out-masked-tokens") == 0:
        raise InstanceDataError(
            f"{job.instances.data}: the held-out instances have no masks, so there is nothing to "
            f"evaluate on: {advice} (with masking: dynamic, training undoes them), or "
            "held_out_fraction to 0"
        )


def open_model(job: TrainingJob) -> BertForPretraining:
    """Return the model before the phase's first step: a new one, or that of a checkpoint."""
    config = job.config
    vocab_size = int(job.vocabulary.statistics["vocab_size"])
    if config.model is not None:
        return BertForPretraining(
            config.model, vocab_size=vocab_size, objective=config.objective, seed=config.seed
        )
    if job.checkpoint is not None:
        folder, beside = job.checkpoint.data, input_file(job.checkpoint, VOCAB_FILE).url
    elif config.init_checkpoint is not None:
        folder = config.init_checkpoint.rstrip("/")
        beside = vocabulary_url(folder)
    else:
        raise ConfigError(f"{job.name}: init_from_phase names a phase whose artifact was not given")
    loaded = load_pretrained(folder, objective=config.objective, seed=config.seed)
    _check_vocabulary(beside, job.vocabulary, size=loaded.model.vocab_size)
    for note in loaded.notes:
        _LOGGER.info("%s: %s", job.name, note)
    return loaded.model


def _check_vocabulary(theirs: str, vocabulary: StageInput, *, size: int) -> None:
    """Check that a checkpoint has the vocabulary and the text rules of the instances.

    Args:
        theirs: URL of the checkpoint's vocabulary.
        vocabulary: Vocabulary of the instances.
        size: Number of the checkpoint's embeddings.

    Raises:
        CheckpointError: The checkpoint's vocabulary does not have one piece per embedding.
        InstanceDataError: The vocabularies or the rules differ.
        VocabularyError: A tokenizer file of the checkpoint cannot be read or used.
    """
    advice = (
        "Build the instances with the checkpoint's vocabulary "
        f"(build_vocabulary.vocab_file={theirs})."
    )
    ours, stated = get_text_rules(vocabulary.statistics), read_stated_rules(theirs)
    rules = get_text_rules({"lowercase": ours["lowercase"], **stated})
    if stated and rules != ours:
        raise InstanceDataError(
            f"{theirs}: expected a tokenizer with the text rules of the instances, {dict(ours)}, "
            f"got {dict(rules)}. {advice}"
        )
    expected = read_vocab(input_file(vocabulary, VOCAB_FILE))
    if size != len(expected):
        raise InstanceDataError(
            f"{theirs}: expected {len(expected):,} pieces, as in the vocabulary of the instances, "
            f"got a checkpoint with {size:,} embeddings. {advice}"
        )
    fs, path = file_system(theirs)
    if not fs.exists(path):
        _LOGGER.warning("%s not found; assuming the same vocabulary", theirs)
        return
    pieces = read_vocab(theirs)
    if len(pieces) != size:
        raise CheckpointError(
            f"{theirs}: expected {size:,} pieces, one per embedding of the checkpoint, got "
            f"{len(pieces):,}. Use the vocabulary that the checkpoint was trained with."
        )
    pairs = enumerate(zip(pieces, expected, strict=True), start=1)
    if differing := [(line, one, other) for line, (one, other) in pairs if one != other]:
        line, one, other = differing[0]
        raise InstanceDataError(
            f"{theirs}: {len(differing):,} pieces differ from the vocabulary of the instances, the "
            f"first in line {line}: {one!r} there, {other!r} here. {advice}"
        )


def _load_optimizer_state(
    job: TrainingJob, checkpoint: StageInput, *, optimizer: Optimizer
) -> Amounts:
    """Load the optimizer state of the previous phase; return its amount of training."""
    before = json.loads(read_file(input_file(checkpoint, STATE_FILE).url))
    name = job.config.optimizer.name
    if before["optimizer"] != name:
        raise ConfigError(
            f"{job.name}: the phase before was trained with {before['optimizer']}, whose state "
            f"{name} cannot load: set optimizer_state to reset, or optimizer.name to "
            f"{before['optimizer']}"
        )
    if job.config.budget.max_minutes is not None and not before["seconds"]:
        raise ConfigError(
            f"{job.name}: the budget is in minutes, that of the phase before was not, so its "
            "position in the schedule is not known in minutes: give both budgets in one unit, or "
            "set optimizer_state to reset"
        )
    where = input_file(checkpoint, OPTIMIZER_FILE).url
    optimizer.load_state_dict(load_tensors(read_file(where)), where=where)
    return Amounts(steps=before["steps"], tokens=before["tokens"], seconds=before["seconds"])
