"""Configurations of fine-tuning and evaluation: data of tasks, grids, trials, evaluations.

A recipe says `build_examples` and `finetune`; the trials of each grid and the evaluations are made
of those (`flows.finetuning`). As elsewhere, a field marked `not_identity` says where and how to
run: it is in no cache key, and a training goes on with another value of it. Of those,
`per_device_max_tokens` decides how dropout is drawn, a micro-batch at a time, and `device` and
`threads` the last bits of sums.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from schemas.configs import Config, Paths, SourceName, not_identity
from schemas.model_configs import CheckpointConfig, ModelConfig, OptimizerConfig

TaskTypeName = Literal["classification", "regression", "choice", "span", "tagging"]
"""What a task asks of the model: a label or a number for a text or a pair of texts, one of several
continuations, a span of a passage, a tag for each word."""

LayerChoice = Literal[
    "embeddings",
    "second-to-last",
    "last",
    "weighted-sum-last-4",
    "concat-last-4",
    "weighted-sum-all",
]
"""The six choices of Table 7 for the feature-based approach (paper 5.3)."""

MIN_LAYERS: dict[LayerChoice, int] = {
    "embeddings": 1,
    "second-to-last": 2,
    "last": 1,
    "weighted-sum-last-4": 4,
    "concat-last-4": 4,
    "weighted-sum-all": 1,
}
"""Layers that an encoder has at least, for each choice to be what it is called."""


Column = (
    Annotated[int, Field(strict=True, ge=0, lt=10_000)]
    | Annotated[str, Field(strict=True, min_length=1)]
)
"""Of a table: its number, counted from 0, or its name in the header."""


class FileFormatConfig(Config):
    """How the lines of a task's files are cut, where `columns` are named."""

    delimiter: Literal["auto", "tab", "comma", "semicolon", "spaces"] = "auto"
    """`auto`: of a table a tab if its first line has one, else a comma; of tagged words a tab in
    lines that have one, else spaces."""

    header: bool | None = None
    """Whether the first line has the columns' names. None: yes if a column is given by its name."""

    quoted: bool | None = None
    """Whether quotation marks may stand around a field, as RFC 4180 says. None: where commas or
    semicolons separate."""

    comment_prefix: str = Field(default="", max_length=8)
    """Lines that begin with this are left out. "": of tagged words, those that begin with `#` where
    the word is not in the first column."""


class ExamplesConfig(Config):
    """`build-examples`: the official files of a task become examples, each row counted."""

    task: str
    """A name in `model.tasks.TASKS`."""

    data_dir: str | None = not_identity(None)
    """Folder (local or any fsspec URL) with the task's files under their official names; their
    content is what counts."""

    data_files: dict[str, Paths] = not_identity({})
    """Files by split (`train`, `dev`, `test`, ...), in place of those of the folder. Their bytes
    are what counts, not their names."""

    columns: dict[str, Column] = Field(default={})
    """Of tables and of tagged words: which column holds what. Of texts `text` (of pairs `text_a`
    and `text_b`), `label` or `score`, and `id`; of tagged words `words` and `tags`. {}: official
    names and places."""

    file_format: FileFormatConfig = FileFormatConfig()
    """How the lines of files whose `columns` are named are cut."""

    labels: tuple[Annotated[str, Field(min_length=1)], ...] = ()
    """Names of the labels or tags that files hold as numbers, in the order of the numbers, from 0.
    []: the names that `datasets` writes into Parquet files; without those, the numbers."""

    data_label: str = Field(default="", max_length=40)
    """What the files are, where they are not the task's own but others in its format, as those of
    the sample: tables say it, and set no score of the paper beside; nothing is handed in."""

    evidence_dir: str | None = not_identity(None)
    """Of TriviaQA's questions, which SQuAD's tasks take as `augmentation`: the folder that holds
    `wikipedia` and `web`, their documents. None: `evidence` beside `qa`, as in its archive. Its
    content is what counts."""

    max_samples: dict[str, int] = Field(default={})
    """By split: take the first so many examples; for small machines. Those left out are counted."""

    max_invalid_fraction: float = Field(default=0.01, ge=0.0, le=1.0)
    """Rows of a file that may be bad (malformed, label unknown). They are dropped and counted; more
    of them make an error, since then it is the wrong file."""

    @model_validator(mode="after")
    def _has_files(self) -> Self:
        if self.data_dir is None and not self.data_files:
            raise ValueError(
                "expected data_dir (with the task's official file names) or data_files (by "
                "split), found "
                "neither"
            )
        return self

    @model_validator(mode="after")
    def _labels_are_different(self) -> Self:
        if len(set(self.labels)) < len(self.labels):
            raise ValueError(f"labels: expected different names, got {list(self.labels)}")
        return self

    @model_validator(mode="after")
    def _columns_are_different(self) -> Self:
        if not self.columns and self.file_format != FileFormatConfig():
            raise ValueError("file_format: is of files whose columns are named: give columns too")
        held: dict[Column, str] = {}
        for name, column in self.columns.items():
            if column in held:
                raise ValueError(
                    f"columns: {held[column]} and {name} are both {column!r}: expected a column "
                    "for each"
                )
            held[column] = name
            if isinstance(column, str) and self.file_format.header is False:
                raise ValueError(
                    f"columns.{name}: {column!r} is a name, and file_format.header says that "
                    f"there are "
                    "none: give its number, counted from 0"
                )
        return self


class FeaturesConfig(Config):
    """How examples become sequences of tokens, and answers are read from the model's outputs."""

    max_seq_length: int = Field(default=128, ge=8, le=65_535)
    """Tokens of the longest sequence, [CLS] and [SEP] included. Paper's code: 128 for GLUE, 384 for
    SQuAD."""

    doc_stride: int = Field(default=128, ge=1)
    """`span`: tokens between the starts of two windows over a long passage (run_squad.py)."""

    max_query_length: int = Field(default=64, ge=1)
    """`span`: longer questions are cut."""

    n_best_size: int = Field(default=20, ge=1)
    """`span`: best starts and ends that are paired."""

    max_answer_length: int = Field(default=30, ge=1)
    """`span`: answers have at most so many word pieces."""

    document_context: bool = True
    """`tagging`: fill windows with the neighbouring sentences of the document (paper 5.3)."""


class TaskTrainingConfig(FeaturesConfig):
    """What all trials of a grid have in common."""

    examples: SourceName = not_identity(...)
    """Name of the recipe's entry in build_examples; its content is what counts."""

    init_from_phase: SourceName | None = not_identity(None)
    """Name of the pretraining phase to start from; its checkpoint's content is what counts."""

    init_from_step: int | None = Field(default=None, ge=1)
    """With `init_from_phase`: start from the phase's model of this step, one of its
    `snapshot_steps`. None: for the model that the phase publishes."""

    init_checkpoint: str | None = not_identity(None)
    """In place of `init_from_phase`: folder of a checkpoint in Hugging Face's layout with its
    vocab.txt or tokenizer.json (local or any fsspec URL); its content is what counts."""

    model: ModelConfig | None = None
    """In place of both: a new model of this shape, trained on the task from scratch."""

    method: Literal["fine-tune", "feature-based", "majority"] = "fine-tune"
    """`feature-based`: the encoder is frozen, a BiLSTM is trained on its layers (`tagging` only).
    `majority`: no model, always the most frequent label of the training data."""

    feature_layers: LayerChoice = "concat-last-4"
    """`feature-based` only: which of the encoder's layers."""

    bilstm: bool = False
    """`fine-tune` only: two new BiLSTM layers on the encoder's outputs, trained with it (Table 5,
    last row)."""

    lstm_hidden_size: int = Field(default=768, ge=1)
    """`feature-based` and `bilstm`: units of each direction of the two BiLSTM layers (paper 5.3:
    768; of those of Table 5 it says nothing)."""

    dropout: float = Field(default=0.1, ge=0.0, lt=1.0)
    """Everywhere in encoder and classifier (paper A.3)."""

    max_steps: int | None = Field(default=None, ge=1)
    """Stop the schedule after so many updates, for small machines; None: all epochs."""

    augmentation_epochs: int = Field(default=1, ge=0)
    """Passes over the split `augmentation`, where there is one, before the training data (SQuAD
    after TriviaQA, paper 4.2), as a fine-tuning of its own: own schedule, new moments."""

    optimizer: OptimizerConfig = OptimizerConfig()
    """Its learning_rate is that of the grid."""

    warmup_ratio: float = Field(default=0.1, ge=0.0, lt=1.0)
    """Share of all updates (run_classifier.py: .1); then linear decay to 0."""

    seed: int = Field(default=0, ge=0, lt=1 << 63)
    """With the number of the restart it decides data order, new weights and dropout."""

    precision: Literal["fp32", "bf16"] = "fp32"
    """`bf16`: matrix products in bfloat16 (autocast); weights, moments and sums stay fp32."""

    batching: Literal["packed", "padded"] = "packed"
    """`packed`: sequences of a batch end to end, so that no length has to be sorted or padded."""

    per_device_max_tokens: int = not_identity(16_384, ge=8)
    """Tokens, padding counted, that are worked on at once; bounds memory."""

    device: Literal["auto", "cpu", "cuda"] = not_identity("auto")
    """Where to compute; `auto`: on a GPU where there is one."""

    num_threads: int = not_identity(0, ge=0)
    """CPU threads; 0 for torch's choice."""

    checkpoints: CheckpointConfig = not_identity(CheckpointConfig())
    """How often a training is saved, so that it can go on after a crash."""


def _as_several(value: Any) -> Any:
    """One value to try stands for a list of it."""
    return (value,) if isinstance(value, (int, float)) else value


class FinetuneConfig(TaskTrainingConfig):
    """`finetune`: a grid of hyper-parameters, each point trained with several restarts."""

    batch_size: Annotated[tuple[int, ...], BeforeValidator(_as_several)] = Field(
        default=(16, 32), min_length=1
    )
    """Examples of a batch (paper A.3)."""

    learning_rate: Annotated[tuple[float, ...], BeforeValidator(_as_several)] = Field(
        default=(5e-5, 3e-5, 2e-5), min_length=1
    )
    """Peak rates to try (paper A.3)."""

    num_epochs: Annotated[tuple[int, ...], BeforeValidator(_as_several)] = Field(
        default=(2, 3, 4), min_length=1
    )
    """Passes over the training data to try (paper A.3)."""

    restarts: int = Field(default=1, ge=1, le=1000)
    """Trainings of each grid point, with other data order and classifier weights (paper 4.1)."""

    ensemble_size: int = Field(default=1, ge=1, le=100)
    """The best so many trials on dev answer together."""

    @model_validator(mode="after")
    def _one_start(self) -> Self:
        given = [
            name for name in ("init_from_phase", "init_checkpoint", "model") if getattr(self, name)
        ]
        if self.method == "majority":
            if given:
                raise ValueError(f"method majority has no model: leave out {' and '.join(given)}")
        elif len(given) != 1:
            found = " and ".join(given) or "none"
            raise ValueError(
                "expected exactly one of init_from_phase (a phase of pretrain), init_checkpoint (a "
                f"folder) and model (from scratch), found {found}"
            )
        return self

    @model_validator(mode="after")
    def _step_is_of_a_phase(self) -> Self:
        if self.init_from_step is not None and self.init_from_phase is None:
            raise ValueError(
                f"init_from_step: {self.init_from_step} is a step of a phase of pretraining, and "
                "init_from_phase names none: add it, or remove init_from_step"
            )
        return self

    @model_validator(mode="after")
    def _bilstm_is_fine_tuned(self) -> Self:
        if self.bilstm and self.method != "fine-tune":
            raise ValueError(
                f"bilstm: with method {self.method} there is none to put on an encoder that is "
                "fine-tuned (feature-based has its own on a frozen one): leave one of the two out"
            )
        return self

    @model_validator(mode="after")
    def _grid_has_no_twins(self) -> Self:
        for name in ("batch_size", "learning_rate", "num_epochs"):
            values = getattr(self, name)
            if len(set(values)) < len(values):
                raise ValueError(f"{name}: expected different values, found {list(values)}")
            if not all(0 < value < math.inf for value in values):
                raise ValueError(f"{name}: expected values above 0, found {list(values)}")
        return self

    @model_validator(mode="after")
    def _rate_is_the_grids(self) -> Self:
        given, default = self.optimizer.learning_rate, OptimizerConfig().learning_rate
        if given != default:
            raise ValueError(
                f"optimizer.learning_rate: {given:g} would not be used: give learning_rate beside "
                "optimizer, a list of the values to try"
            )
        return self


class EnsembleConfig(Config):
    """Models that answer together: the mean of what they say (paper 4.2: seven of them)."""

    members: tuple[SourceName, ...] = Field(min_length=1)
    """Entries of `finetune`, all on the same examples."""

    ensemble_size: int = Field(default=7, ge=2, le=100)
    """The best so many of all their trials on dev."""

    @model_validator(mode="after")
    def _members_are_others(self) -> Self:
        if len(set(self.members)) < len(self.members):
            raise ValueError(f"members: expected different entries, found {list(self.members)}")
        return self


class TrialConfig(TaskTrainingConfig):
    """One training: a point of the grid and the number of the restart. A stage of its own."""

    batch_size: int = Field(ge=1)
    """Examples of a batch."""

    learning_rate: float = Field(gt=0.0)
    """The rate at its peak."""

    num_epochs: int = Field(ge=1)
    """Passes over the training data."""

    restart: int = Field(default=0, ge=0)
    """Number of the restart, counted from 0."""


class EvaluateConfig(Config):
    """`evaluate`: the trials of a grid compared on dev, the best (or an ensemble) on all splits."""

    examples: SourceName = not_identity(...)
    """Name of the recipe's entry in build_examples; its content is what counts."""

    entry: str
    """The entry of `finetune`, or of `ensembles`, that this is of."""

    start: str = ""
    """What its models started from, for tables: a phase, `scratch`, a folder's name, `majority`."""

    ensemble_size: int = Field(default=1, ge=1, le=100)
    """The best so many trials on dev answer together."""

    per_device_max_tokens: int = not_identity(16_384, ge=8)
    """Tokens, padding counted, that are worked on at once; bounds memory."""

    device: Literal["auto", "cpu", "cuda"] = not_identity("auto")
    """Where to compute; `auto`: on a GPU where there is one."""

    num_threads: int = not_identity(0, ge=0)
    """CPU threads; 0 for torch's choice."""


class ExpandedAxis(Config):
    """One thing that a recipe's `sweep` varies."""

    table: str = ""
    """The paper's table or figure whose rows the variants are, as `table-5`; "" for none."""

    variants: tuple[str, ...]
    """Their names, in the recipe's order."""


class ExpandedEntry(Config):
    """Which variants an entry that a sweep made stands for. One entry may stand for several."""

    entry: str
    """The entry of `finetune` or `ensembles` as the sweep made it; what is evaluated."""

    of: str
    """The entry as the recipe has it."""

    variants: dict[str, str]
    """By axis, the variant; of the axes alone that make a difference to the entry."""

    phase: str = ""
    """The pretraining phase that it starts from; "" for none, or where members have several."""


class TabulateConfig(Config):
    """`tabulate`: all evaluations of a recipe as tables beside the paper's.

    Its inputs are the evaluations by entry, and as `pretrain.PHASE` the phases that swept entries
    start from.
    """

    axes: dict[str, ExpandedAxis] = Field(default={})
    """The axes of the recipe's `sweep`, by name."""

    expanded_sweep: tuple[ExpandedEntry, ...] = ()
    """What the sweep made of the entries, in the order of the recipe and its variants."""
