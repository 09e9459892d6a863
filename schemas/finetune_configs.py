"""Configurations of fine-tuning and evaluation: task data, grids, trials, evaluations, tables.

`flows.bert` derives the configurations of trials and evaluations from a recipe.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, PositiveInt

from schemas.base_configs import (
    Config,
    Device,
    Distinct,
    DropoutProb,
    Fraction,
    Paths,
    Precision,
    Seed,
    SourceName,
    content_in_key,
    expect_one,
    not_in_key,
)
from schemas.field_names import field_name
from schemas.model_configs import CheckpointConfig, ModelConfig, OptimizerConfig

TaskTypeName = Literal["classification", "regression", "choice", "span", "tagging"]
"""Output of a task: a label or a score for one or two texts, the best of several continuations, a
span of a passage, a tag per word."""

LayerChoice = Literal[
    "embeddings",
    "second-to-last",
    "last",
    "weighted-sum-last-4",
    "concat-last-4",
    "weighted-sum-all",
]
"""Choices of Table 7 for the feature-based approach (paper 5.3)."""

MIN_LAYERS: dict[LayerChoice, int] = {
    "embeddings": 1,
    "second-to-last": 2,
    "last": 1,
    "weighted-sum-last-4": 4,
    "concat-last-4": 4,
    "weighted-sum-all": 1,
}
"""Minimum number of layers of the encoder, by choice."""

Column = (
    Annotated[int, Field(strict=True, ge=0, lt=10_000)]
    | Annotated[str, Field(strict=True, min_length=1)]
)
"""Column of a table: 0-based number or name in the header."""


class FileFormatConfig(Config):
    """Format of text tables of a task."""

    delimiter: Literal["auto", "tab", "comma", "semicolon"] = "auto"
    """`auto`: a comma if the first line has one and no tab, otherwise a tab."""

    header: bool | None = None
    """True if the first line has the column names. None: true unless `columns` has numbers only.
    Files of tagged words have a header only if `columns` has a name or this is true."""

    quoted: bool | None = None
    """True if fields can be in quotation marks (RFC 4180). None: true for commas and semicolons."""


class ExamplesConfig(Config):
    """`build-examples`: the official files of a task become examples, and each row is counted."""

    task: str
    """Name in `model.tasks.TASKS`."""

    data_dir: str | None = content_in_key(None)
    """Folder (local or any fsspec URL) of the task's files under their official names."""

    data_files: dict[str, Paths] = content_in_key({})
    """Files by split (`train`, `dev`, `test`, ...); they replace those of the folder."""

    columns: dict[str, Column] = Field(default={})
    """Columns of the files by the task's name for them, such as `{sentence: review, label: 3}`.
    Each is a name in the header or, in a file without one, a number from 0. The others have the
    task's names."""

    file_format: FileFormatConfig = FileFormatConfig()
    """Format of text tables."""

    labels: Annotated[tuple[Annotated[str, Field(min_length=1)], ...], Distinct] = ()
    """Names of labels or tags that files hold as numbers, in order from 0. []: the names in the
    Parquet files of `datasets`, or the numbers."""

    dev_fraction: float = Field(default=0.0, ge=0, lt=1)
    """Fraction of the rows of `train` to use as `dev`, for own labels without a dev file. Rows with
    equal texts are in the same split. 0: `dev` has its own file."""

    data_label: str = Field(default="", max_length=40)
    """Name of data other than the task's own. Results show it, do not compare such scores with the
    paper's, and nothing is submitted. "": the text in `data-label.txt` of `data_dir`, if any, such
    as `generated sample`."""

    max_samples: dict[str, PositiveInt] = Field(default={})
    """Maximum number of examples by split, for small machines. The others are counted."""

    max_invalid_fraction: Fraction = 0.01
    """Maximum fraction of invalid rows (malformed, unknown label) of a file. They are dropped and
    counted; more of them are an error."""

    def _problems(self) -> Iterator[str]:
        if self.data_dir is None and not self.data_files:
            yield (
                f"expected {field_name('data_dir')} (official file names) or "
                f"{field_name('data_files')}, got neither"
            )
        if self.dev_fraction and "dev" in self.data_files:
            dev_files = field_name("data_files.dev")
            yield f"dev_fraction: expected 0, as {dev_files} is set. Remove one of them"
        columns = list(self.columns.values())
        if len(set(columns)) < len(columns):
            yield f"columns: expected one column per field, got {columns}"
        for field, column in self.columns.items():
            if isinstance(column, str) and self.file_format.header is False:
                expected = f"a 0-based number, as {field_name('file_format.header')} is false"
                yield f"columns.{field}: expected {expected}, got {column!r}"


class ComputeConfig(Config):
    """Device and memory of training and prediction."""

    per_device_max_tokens: int = not_in_key(16_384, ge=8)
    """Maximum number of tokens in memory."""

    device: Device = not_in_key("auto")
    """Device. `auto`: a GPU if there is one."""

    num_threads: int = not_in_key(0, ge=0)
    """Number of CPU threads. 0: torch's default."""


class FeaturesConfig(Config):
    """Conversion of examples to token sequences and of model outputs to answers."""

    max_seq_length: int = Field(default=128, ge=8, le=65_535)
    """Maximum number of tokens, [CLS] and [SEP] included. Paper's code: 128 for GLUE, 384 for
    SQuAD."""

    doc_stride: int = Field(default=128, ge=1)
    """`span`: number of tokens between the starts of two windows of a passage (run_squad.py)."""

    max_query_length: int = Field(default=64, ge=1)
    """`span`: maximum number of tokens of a question; longer ones are truncated."""

    n_best_size: int = Field(default=20, ge=1)
    """`span`: number of best starts and ends to pair."""

    max_answer_length: int = Field(default=30, ge=1)
    """`span`: maximum number of tokens of an answer."""

    document_context: bool = True
    """`tagging`: fill windows with neighboring sentences of the document (paper 5.3)."""


class TaskTrainingConfig(FeaturesConfig, ComputeConfig):
    """Settings shared by all trials of a grid."""

    examples: SourceName = content_in_key(...)
    """Entry of build_examples."""

    init_from_phase: SourceName | None = content_in_key(None)
    """Pretraining phase to start from."""

    init_from_step: int | None = Field(default=None, ge=1)
    """With `init_from_phase`: start from the model of this step, one of the phase's
    `snapshot_steps`. None: the model that the phase publishes."""

    init_checkpoint: str | None = content_in_key(None)
    """Checkpoint folder in Hugging Face's layout (local or any fsspec URL, such as hf://ORG/NAME)
    to start from, with vocab.txt or tokenizer.json; or the name of a step, RECIPE/pretrain.PHASE.
    """

    model: ModelConfig | None = None
    """Shape of a new model to train on the task from scratch."""

    method: Literal["fine-tune", "feature-based"] = "fine-tune"
    """`feature-based`: freeze the encoder and train a BiLSTM on its layers (`tagging` only)."""

    feature_layers: LayerChoice = "concat-last-4"
    """`feature-based` only: layers of the encoder to use."""

    bilstm: bool = False
    """`fine-tune` only: add two BiLSTM layers on top of the encoder (Table 5, last row)."""

    lstm_hidden_size: int = Field(default=768, ge=1)
    """`feature-based` and `bilstm`: number of units per direction of the two BiLSTM layers (paper
    5.3: 768; not reported for Table 5)."""

    dropout: DropoutProb = 0.1
    """Dropout of encoder and classifier (paper A.3)."""

    max_steps: int | None = Field(default=None, ge=1)
    """Maximum number of optimizer steps, for small machines. None: all epochs."""

    augmentation_epochs: int = Field(default=1, ge=0)
    """Number of epochs on the split `augmentation` before the training data (SQuAD after TriviaQA,
    paper 4.2), with its own schedule and optimizer state."""

    optimizer: OptimizerConfig = OptimizerConfig()
    """Optimizer. The learning rate is that of the grid."""

    warmup_ratio: float = Field(default=0.1, ge=0.0, lt=1.0)
    """Fraction of all steps for the warm-up (run_classifier.py: 0.1), followed by linear decay."""

    seed: Seed = 0
    """Seed, together with the restart, of data order, new weights and dropout."""

    precision: Precision = "auto"
    """`bf16`: matrix products in bfloat16 (autocast); weights, moments and sums in fp32. `auto`:
    bf16 on a GPU that has it, otherwise fp32 with TF32 products; fp32 on a CPU."""

    checkpoints: CheckpointConfig = not_in_key(CheckpointConfig())
    """Checkpoints for resuming."""


def _as_tuple(value: Any) -> Any:
    return (value,) if isinstance(value, (int, float)) else value


PositiveNumber = Annotated[float, Field(gt=0, allow_inf_nan=False)]
GridOfIntegers = Annotated[tuple[PositiveInt, ...], BeforeValidator(_as_tuple), Distinct]
GridOfNumbers = Annotated[tuple[PositiveNumber, ...], BeforeValidator(_as_tuple), Distinct]


class FinetuneConfig(TaskTrainingConfig):
    """`finetune`: a grid of hyper-parameters with restarts."""

    batch_size: GridOfIntegers = Field(default=(16, 32), min_length=1)
    """Batch sizes to try (paper A.3)."""

    learning_rate: GridOfNumbers = Field(default=(5e-5, 3e-5, 2e-5), min_length=1)
    """Peak learning rates to try (paper A.3)."""

    num_epochs: GridOfIntegers = Field(default=(2, 3, 4), min_length=1)
    """Numbers of epochs to try (paper A.3)."""

    restarts: int = Field(default=1, ge=1, le=1000)
    """Number of trials per grid point, with other data order and classifier weights (paper 4.1)."""

    ensemble_size: int = Field(default=1, ge=1, le=100)
    """Number of best trials on dev to average."""

    def _problems(self) -> Iterator[str]:
        yield from expect_one(self, "init_from_phase", "init_checkpoint", "model")
        if self.init_from_step is not None and self.init_from_phase is None:
            yield "init_from_step: requires init_from_phase"
        if self.bilstm and self.method != "fine-tune":
            yield f"bilstm: expected method fine-tune, got {self.method}"
        if (rate := self.optimizer.learning_rate) != OptimizerConfig().learning_rate:
            yield f"optimizer.learning_rate: not used, got {rate:g}. Set learning_rate of the entry"


class EnsembleConfig(Config):
    """Ensemble that averages the outputs of several models (paper 4.2: seven)."""

    members: Annotated[tuple[SourceName, ...], Distinct] = Field(min_length=1)
    """Entries of `finetune`, all on the same examples."""

    ensemble_size: int = Field(default=7, ge=2, le=100)
    """Number of best trials on dev, over all members."""


class TrialConfig(TaskTrainingConfig):
    """`finetune`: one trial, which is a grid point and a restart."""

    batch_size: int = Field(ge=1)
    """Batch size."""

    learning_rate: float = Field(gt=0.0)
    """Peak learning rate."""

    num_epochs: int = Field(ge=1)
    """Number of epochs."""

    restart: int = Field(default=0, ge=0)
    """Restart, from 0."""


class EvaluateConfig(ComputeConfig):
    """`evaluate`: the trials of a grid compared on dev; the best or an ensemble on all splits."""

    examples: SourceName = content_in_key(...)
    """Entry of build_examples."""

    entry: str
    """Entry of `finetune` or `ensembles`."""

    start: str = ""
    """Start of the models as tables show it: a phase, `scratch`, a folder's name."""

    ensemble_size: int = Field(default=1, ge=1, le=100)
    """Number of best trials on dev to average."""


class ExpandedAxis(Config):
    """Axis of a recipe's `sweep`."""

    table: str = ""
    """Table or figure of the paper with a row per variant, such as `table-5`. "": none."""

    variants: tuple[str, ...]
    """Variant names in the order of the recipe."""


class ExpandedEntry(Config):
    """Entry that a sweep created, with the variants that it represents."""

    entry: str
    """Evaluated entry of `finetune` or `ensembles`."""

    of: str
    """Entry in the recipe's file."""

    variants: dict[str, str]
    """Variant by axis, for the axes that affect the entry."""

    phase: str = ""
    """Pretraining phase of the entry. "": none, or several phases of ensemble members."""


class TabulateConfig(Config):
    """`tabulate`: tables of a recipe's evaluations next to the paper's.

    The inputs are evaluations by entry, and the phases of expanded entries as `pretrain.PHASE`.
    """

    axes: dict[str, ExpandedAxis] = Field(default={})
    """Axes of the recipe's `sweep` by name."""

    expanded_sweep: tuple[ExpandedEntry, ...] = ()
    """Entries that the sweep created, in the order of the recipe and its variants."""
