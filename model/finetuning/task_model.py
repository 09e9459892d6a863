"""Fine-tuning models: the encoder with the head of a task type (paper, section 4 and Figure 4).

Letters for shapes as in `model.data.batches`; U units, P tagged tokens, R real tokens, L units per
LSTM direction.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from model.attention import Dropout, seed_dropout
from model.bert import BertModel, Dense, initialize_weights
from model.data.batches import TokenBatch
from model.finetuning.batches import TaskBatch, TaskOutput, device_tensor
from model.finetuning.window_lstm import BiLSTM, lay_out_windows
from model.hf_config import names_in
from model.hf_weights import (
    HFCheckpoint,
    from_hf_state,
    read_checkpoint,
)
from model.tasks.features import IGNORED
from pipelines.arrays import Int64s
from pipelines.io.file_systems import file_system
from schemas.errors import TrainingError
from schemas.finetune_configs import TaskTypeName
from schemas.model_configs import ModelConfig

BILSTM_PREFIX = "bilstm."
"""Prefix of a BiLSTM, and of the dense layer on it, in a checkpoint."""

_HEADS = ("cls.", "classifier.", "qa_outputs.", BILSTM_PREFIX)
"""Prefixes of heads in checkpoints."""


class Head(NamedTuple):
    """Dense layer on the encoder, with its loss."""

    reads: Literal["pooled", "tokens", "tagged"]
    """Input of the dense layer: the pooled vector of each sequence (B, H), all tokens (T, H), or
    the tagged tokens (P, H)."""

    loss: Callable[[torch.Tensor, TaskBatch, torch.Tensor], torch.Tensor]
    """Function of logits, batch and its labels that returns the summed loss, a scalar."""

    architecture: str
    """transformers' class of the model."""

    outputs: int | None = None
    """Number of outputs; None for one per label."""

    is_softmax: bool = False
    """True if the outputs are logits of a softmax."""

    has_dropout: bool = True
    """True if dropout applies to the input of the dense layer."""

    problem: str = ""
    """`problem_type` in config.json, for classes with several; "" for none."""

    shape: Callable[[torch.Tensor, TaskBatch], torch.Tensor] = lambda logits, _: logits
    """Function of the dense layer's outputs and the batch that returns the logits."""


def cross_entropy_sum(logits: torch.Tensor, batch: TaskBatch, labels: torch.Tensor) -> torch.Tensor:
    """Return the sum of the cross-entropies of labels that are not IGNORED."""
    del batch
    return functional.cross_entropy(logits, labels, ignore_index=IGNORED, reduction="sum")


def squared_error_sum(logits: torch.Tensor, batch: TaskBatch, labels: torch.Tensor) -> torch.Tensor:
    """Return the sum of squared errors."""
    del batch
    return functional.mse_loss(logits, labels, reduction="sum")


def span_loss_sum(logits: torch.Tensor, batch: TaskBatch, labels: torch.Tensor) -> torch.Tensor:
    """Return the sum over sequences of the mean negative log-likelihood of start and end.

    The paper (4.2) uses their sum, run_squad.py (line 652) and transformers their mean. The softmax
    covers only the tokens of the sequence. run_squad.py and transformers include padding, so that
    their loss depends on the padding of a batch; without padding all three are equal.

    Args:
        logits: Start and end logits, float32 (T, 2).
        batch: Batch of the logits.
        labels: Positions in the sequence, int64 (B, 2). A label past the end of a sequence has an
            infinite loss.
    """
    lengths, width = batch.tokens.lengths, int(batch.tokens.lengths.max())
    # Rows of equal width; the softmax is 0 past the end of a sequence.
    is_real = np.arange(width) < lengths[:, None]  # (B, W)
    places = device_tensor(
        is_real * (host_starts(batch.tokens)[:, None] + np.arange(width)), logits.device
    )
    past_end = device_tensor(~is_real, logits.device)
    table = logits.index_select(0, places.view(-1)).view(len(lengths), width, 2)  # (B, W, 2)
    table = table.masked_fill(past_end.unsqueeze(2), -torch.inf)
    chosen = table.gather(1, labels.unsqueeze(1)).squeeze(1)  # (B, 2)
    return (torch.logsumexp(table, dim=1) - chosen).sum() / 2


def host_starts(tokens: TokenBatch) -> Int64s:
    """Return `tokens.starts` without waiting for a GPU."""
    starts: Int64s = np.cumsum(tokens.lengths) - tokens.lengths
    return starts


HEADS: dict[TaskTypeName, Head] = {
    # run_classifier.py, lines 590-611
    "classification": Head(
        "pooled",
        cross_entropy_sum,
        architecture="BertForSequenceClassification",
        problem="single_label_classification",
        is_softmax=True,
    ),
    "regression": Head(
        "pooled",
        squared_error_sum,
        architecture="BertForSequenceClassification",
        problem="regression",
        outputs=1,
        shape=lambda logits, _: logits.squeeze(1),
    ),
    # A vector C whose product with each sequence of a unit is its score (paper 4.4): (U, choices)
    "choice": Head(
        "pooled",
        cross_entropy_sum,
        architecture="BertForMultipleChoice",
        outputs=1,
        is_softmax=True,
        shape=lambda logits, batch: logits.view(len(batch.units), -1),
    ),
    # A start and an end vector (paper 4.2)
    "span": Head(
        "tokens",
        span_loss_sum,
        architecture="BertForQuestionAnswering",
        outputs=2,
        has_dropout=False,
    ),
    # The tagged tokens, no CRF (paper 5.3)
    "tagging": Head(
        "tagged",
        cross_entropy_sum,
        architecture="BertForTokenClassification",
        is_softmax=True,
    ),
}


def add_loss(
    logits: torch.Tensor, batch: TaskBatch, *, kind: TaskTypeName, scale: float
) -> TaskOutput:
    """Return logits with the loss of a batch, if it has labels.

    Args:
        logits: Logits of the head.
        batch: Batch of the logits.
        kind: Task type.
        scale: Factor of the summed loss: 1 / terms of the global batch (units, or labeled tokens
            for tagging), so that the losses of all micro-batches add up to its mean.
    """
    if batch.labels is None:
        return TaskOutput(logits, None)
    return TaskOutput(logits, HEADS[kind].loss(logits, batch, batch.labels) * scale)


class TaskModel(nn.Module):
    """Encoder with one dense layer and its fine-tuning loss.

    A causal model (paper 5.1) is pooled at the last token of each sequence, because [CLS] attends
    only to itself. transformers' classes read [CLS] nevertheless.

    With `lstm_hidden_size`, a BiLSTM between encoder and dense layer (paper 5.1, Table 5) reads all
    tokens of each sequence in float32. The paper does not describe it; it has two layers, like the
    feature-based tagger. Spans and tags are read from its outputs. The pooled vector is replaced by
    the forward output at the last token and the backward output at the first token, which have both
    read the whole sequence.

    Parameters that do not affect the output require no gradient: the pooler of span, tagging and
    BiLSTM models, and the bias of choice, which cancels in the softmax.

    Attributes:
        bert: Encoder.
        lstm: BiLSTM, or None.
        dropout: Dropout of the head; span has none.
        classifier: Dense layer, on 2 L values with a BiLSTM.
        head: Head of the task type.
        kind, outputs, config, vocab_size, is_causal, lstm_hidden_size: Constructor arguments.

    Raises:
        TrainingError: The task type does not support this number of outputs.
    """

    def __init__(
        self,
        config: ModelConfig,
        *,
        vocab_size: int,
        kind: TaskTypeName,
        outputs: int,
        dropout: float = 0.1,
        is_causal: bool = False,
        lstm_hidden_size: int | None = None,
        seed: int = 0,
        draws_weights: bool = True,
    ) -> None:
        """Build a new model.

        Args:
            config: Shape and dropout of the encoder.
            vocab_size: Number of word pieces.
            kind: Task type.
            outputs: Outputs of the head, see `Head.outputs`.
            dropout: Dropout rate of the head.
            is_causal: Whether tokens attend only to earlier tokens and themselves.
            lstm_hidden_size: L of a BiLSTM on the encoder; None for none.
            seed: Seed of all weights (`initialize_weights`).
            draws_weights: False leaves weights zero, for a caller that loads them.
        """
        super().__init__()
        self.head = HEADS[kind]
        expected = self.head.outputs
        if outputs < 1 or expected not in (None, outputs):
            raise TrainingError(
                f"{kind} with {outputs} outputs: expected {expected or 'one for each label'}"
            )
        self.config = config
        self.vocab_size = vocab_size
        self.kind: TaskTypeName = kind
        self.outputs = outputs
        self.is_causal = is_causal
        self.lstm_hidden_size = lstm_hidden_size
        self.bert = BertModel(config, vocab_size=vocab_size, is_causal=is_causal)
        self.lstm: BiLSTM | None = None
        size = config.hidden_size
        if lstm_hidden_size is not None:
            self.lstm, size = BiLSTM(size, units=lstm_hidden_size), 2 * lstm_hidden_size
            self.lstm_dropouts = nn.ModuleList([Dropout(dropout) for _ in self.lstm][1:])
        self.dropout = Dropout(dropout)
        self.classifier = Dense(size, outputs)
        if draws_weights:
            initialize_weights(self, initializer_range=config.initializer_range, seed=seed)
            self.draw_lstm(seed=seed)
        seed_dropout(self, 0)
        if not self.reads_pooler:
            self.bert.pooler.requires_grad_(False)
        if kind == "choice":
            self.classifier.bias.requires_grad_(False)

    @property
    def reads_pooler(self) -> bool:
        """Return whether the head reads the encoder's pooler."""
        return self.head.reads == "pooled" and self.lstm is None

    def draw_lstm(self, *, seed: int) -> None:
        """Initialize the BiLSTM, if any."""
        if self.lstm is not None:
            self.lstm.draw("lstm", seed=seed)

    def forward(self, batch: TaskBatch, *, scale: float = 1.0) -> TaskOutput:
        """Return the outputs for a batch, and the loss if it has labels.

        Args:
            batch: Units on the model's device.
            scale: See `add_loss`.
        """
        return add_loss(self._logits(batch), batch, kind=self.kind, scale=scale)

    def _logits(self, batch: TaskBatch) -> torch.Tensor:
        tokens = batch.tokens
        if self.is_causal:
            # The encoder pools at `starts` and does not use it otherwise.
            last = device_tensor(tokens.lengths - 1, tokens.starts.device)
            tokens = tokens._replace(starts=tokens.starts + last)
        encoded = self.bert(tokens, positions=self._read_positions(batch))
        sequence, pooled = encoded.sequence, encoded.pooled  # (T, H) or (P, H), (B, H)
        if self.lstm is not None:
            sequence, pooled = self._through_lstm(sequence, batch.tokens)  # (T, 2 L), (B, 2 L)
            if batch.positions is not None:
                sequence = sequence.index_select(0, batch.positions)  # (P, 2 L)
        x = pooled if self.head.reads == "pooled" else sequence
        return self.head.shape(
            self._classify(self.dropout(x) if self.head.has_dropout else x), batch
        )

    def _read_positions(self, batch: TaskBatch) -> torch.Tensor | None:
        """Return the positions that the head reads in addition to [CLS], or None for all."""
        if self.lstm is not None or self.head.reads == "tokens":
            return None
        return batch.tokens.starts[:0] if batch.positions is None else batch.positions

    def _through_lstm(
        self, sequence: torch.Tensor, tokens: TokenBatch
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the BiLSTM's outputs (T, 2 L), meaningless in padding, and the final outputs of
        both directions (B, 2 L)."""
        assert self.lstm is not None  # noqa: S101  # asked before
        lengths, device = tokens.lengths, sequence.device
        starts = host_starts(tokens)
        windows = lay_out_windows(starts, lengths, positions=len(sequence), device=device)
        with torch.autocast(device.type, enabled=False):
            read = self.lstm(sequence.float(), windows, between=list(self.lstm_dropouts))
        last = device_tensor(starts + lengths - 1, device)
        forwards, backwards = read.chunk(2, dim=1)
        ends = (forwards.index_select(0, last), backwards.index_select(0, tokens.starts))
        return read, torch.cat(ends, dim=1)

    def _classify(self, x: torch.Tensor) -> torch.Tensor:
        """Apply the dense layer in float32, also under autocast: it is cheap, and bfloat16 logits
        are so coarse that starts and ends of spans tie."""
        with torch.autocast(x.device.type, enabled=False):
            logits: torch.Tensor = self.classifier(x.float())
        return logits


def task_model_from_checkpoint(
    folder_url: str,
    *,
    kind: TaskTypeName,
    outputs: int,
    dropout: float,
    seed: int,
    lstm_hidden_size: int | None = None,
) -> tuple[TaskModel, list[str]]:
    """Return a model with the encoder of a checkpoint in Hugging Face's layout, and notes.

    The checkpoint may be a pretrained model with or without heads, or a model fine-tuned for
    another task. Its heads are ignored. A causal model stays causal (paper 5.1).

    Args:
        folder_url: Folder of the checkpoint, a local path or any fsspec URL.
        kind, outputs: Task type and outputs of the new head.
        dropout: Dropout rate of attention, hidden layers and head; overrides the checkpoint.
        seed: Seed of the head, and of the pooler if the checkpoint has none; they equal those of a
            new model with this seed.
        lstm_hidden_size: See `TaskModel`.

    Raises:
        CheckpointError: The checkpoint is missing, unreadable, or not a supported BERT.
        TrainingError: The task type does not support this number of outputs.
    """
    read = _read_shared(folder_url, _versions(folder_url))
    state, weights_url = read.state, read.weights_url
    model = TaskModel(
        with_dropout(read.config, dropout),
        vocab_size=read.described.vocab_size,
        kind=kind,
        outputs=outputs,
        dropout=dropout,
        is_causal=read.described.is_decoder,
        lstm_hidden_size=lstm_hidden_size,
        draws_weights=False,
    )
    encoder = {name: tensor for name, tensor in state.items() if not name.startswith(_HEADS)}
    shapes = {f"bert.{name}": parameter.shape for name, parameter in model.bert.named_parameters()}
    parameters = from_hf_state(encoder, shapes, where=weights_url)
    model.load_state_dict(parameters, strict=False)
    has_pooler = "bert.pooler.weight" in parameters
    _draw_head(model, seed=seed, draws_pooler=not has_pooler)
    notes = []
    if not has_pooler and model.reads_pooler:
        notes.append(f"{weights_url}: pooler not in checkpoint, newly initialized with seed {seed}")
    if any(name.startswith(_HEADS[1:]) for name in state):
        notes.append(f"{weights_url}: fine-tuned model; its encoder is used, its head is ignored")
    if model.is_causal:
        notes.append(
            f"{read.where}: causal model, stays causal"
            + (", pooled at the last token of each sequence" if model.reads_pooler else "")
        )
    return model, notes


@functools.lru_cache(maxsize=1)
def _read_shared(folder_url: str, versions: tuple[str, ...]) -> HFCheckpoint:
    """Read a checkpoint, once for consecutive trials that start from it. Do not change it."""
    del versions
    return read_checkpoint(folder_url)


def _versions(folder_url: str) -> tuple[str, ...]:
    """Return a value per file of a folder that changes with the file's size or time."""
    names = names_in(folder_url)
    fs, folder = file_system(folder_url)
    return tuple(fs.ukey(f"{folder}/{name}") for name in names)


def with_dropout(config: ModelConfig, dropout: float) -> ModelConfig:
    """Return a configuration with another dropout rate of attention and hidden layers."""
    return config.model_copy(
        update={"hidden_dropout_prob": dropout, "attention_probs_dropout_prob": dropout}
    )


def _draw_head(model: TaskModel, *, seed: int, draws_pooler: bool) -> None:
    """Initialize head and pooler as in a new model, keyed by their full names."""
    model.draw_lstm(seed=seed)
    drawn = nn.ModuleDict({"classifier": model.classifier})
    if draws_pooler:
        drawn["bert"] = nn.ModuleDict({"pooler": model.bert.pooler})
    initialize_weights(drawn, initializer_range=model.config.initializer_range, seed=seed)
