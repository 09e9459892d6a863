"""Configurations of the model and its pretraining."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from schemas.base_configs import (
    Config,
    Device,
    DropoutProb,
    Fraction,
    Precision,
    Seed,
    SourceName,
    content_in_key,
    expect_one,
    not_in_key,
)
from schemas.corpus_configs import MaskingConfig

Objective = Literal["mlm+nsp", "mlm", "left-to-right"]
"""Training objective: masked tokens and next sentences, masked tokens, or each next token."""

PRESETS: dict[str, tuple[int, int, int]] = {
    "tiny": (2, 128, 2),  # Google's small models (Turc et al. 2019)
    "mini": (4, 256, 4),
    "small": (4, 512, 8),
    "medium": (8, 512, 8),
    "base": (12, 768, 12),  # paper, section 3
    "large": (24, 1024, 16),
    "3-768-12": (3, 768, 12),  # paper, Table 6: layers-hidden-heads
    "6-768-3": (6, 768, 3),
    "6-768-12": (6, 768, 12),
    "12-768-12": (12, 768, 12),
    "12-1024-16": (12, 1024, 16),
    "24-1024-16": (24, 1024, 16),
}
"""Layers, hidden size and attention heads by preset."""


class ModelConfig(Config):
    """Shape of the encoder (paper, section 3). The vocabulary is that of the instances.

    `preset` sets num_hidden_layers, hidden_size and num_attention_heads: `tiny`, `mini`, `small`,
    `medium`, `base`, `large`, or Table 6's `3-768-12`, `6-768-3`, `6-768-12`, `12-768-12`,
    `12-1024-16`, `24-1024-16`.
    """

    num_hidden_layers: int = Field(ge=1, le=256)
    """Number of transformer blocks (L)."""

    hidden_size: int = Field(ge=8)
    """Width of a token's vector (H)."""

    num_attention_heads: int = Field(ge=1)
    """Number of attention heads (A); divides hidden_size."""

    intermediate_size: int = Field(default=0, ge=0)
    """Width of the feed-forward layers. 0: 4 x hidden_size, as in the paper."""

    max_position_embeddings: int = Field(default=512, ge=8)
    """Maximum sequence length."""

    type_vocab_size: int = Field(default=2, ge=1)
    """Number of segment embeddings."""

    hidden_act: Literal["gelu", "gelu_tanh"] = "gelu"
    """Activation. `gelu`: x * Phi(x), as in Hugging Face's checkpoints. `gelu_tanh`: its tanh
    approximation, as in Google's code (modeling.py, lines 264-277)."""

    hidden_dropout_prob: DropoutProb = 0.1
    """Dropout of embeddings and block outputs (paper A.2: 0.1)."""

    attention_probs_dropout_prob: DropoutProb = 0.1
    """Dropout of attention weights (paper A.2: 0.1)."""

    initializer_range: float = Field(default=0.02, gt=0.0)
    """Standard deviation of initial weights, truncated at twice this value."""

    layer_norm_eps: float = Field(default=1e-12, gt=0.0)
    """Epsilon of layer norms."""

    @model_validator(mode="before")
    @classmethod
    def _expand_preset(cls, data: Any) -> Any:
        if not isinstance(data, dict) or "preset" not in data:
            return data
        name = data["preset"]
        if name not in PRESETS:
            raise ValueError(f"preset: no model {name!r}; choose from {', '.join(PRESETS)}")
        names = ("num_hidden_layers", "hidden_size", "num_attention_heads")
        rest = {key: value for key, value in data.items() if key != "preset"}
        return {**dict(zip(names, PRESETS[name], strict=True)), **rest}

    def _problems(self) -> Iterator[str]:
        if self.hidden_size % self.num_attention_heads:
            heads = f"num_attention_heads, {self.num_attention_heads}"
            yield f"hidden_size: expected a multiple of {heads}, got {self.hidden_size}"

    @property
    def feed_forward_size(self) -> int:
        """Width of the feed-forward layers."""
        return self.intermediate_size or 4 * self.hidden_size


BudgetUnit = Literal["steps", "tokens", "minutes"]


class BudgetConfig(Config):
    """Length of a phase: exactly one of these."""

    max_steps: int | None = Field(default=None, ge=1)
    """Number of optimizer steps."""

    max_tokens: int | None = Field(default=None, ge=1)
    """Number of tokens to read. The step that reaches it is the last."""

    max_minutes: float | None = Field(default=None, gt=0.0, allow_inf_nan=False)
    """Training time over all restarts. Such a run is not reproducible."""

    @property
    def unit(self) -> BudgetUnit:
        """Unit of the budget."""
        if self.max_steps is not None:
            return "steps"
        return "minutes" if self.max_tokens is None else "tokens"

    @property
    def size(self) -> float:
        """Size of the budget in its unit."""
        return float(self.max_steps or self.max_tokens or self.max_minutes or 0.0)

    def _problems(self) -> Iterator[str]:
        yield from expect_one(self, "max_steps", "max_tokens", "max_minutes")


class BatchConfig(Config):
    """Size of the batch of a step. Its instances lie end to end, without padding."""

    global_batch_size: int = Field(default=256, ge=1)
    """Number of instances of a global batch, over all processes."""

    per_device_max_tokens: int = not_in_key(16_384, ge=8)
    """Maximum number of tokens in the memory of one process. Gradients are accumulated up to the
    global batch."""


class OptimizerConfig(Config):
    """Optimizer and its hyper-parameters."""

    name: Literal["bert-adam", "adamw", "lamb"] = "bert-adam"
    """`bert-adam`: Adam without bias correction (Google's optimization.py). `adamw`: with it
    (Loshchilov and Hutter 2019). `lamb`: You et al. 2020, for very large batches."""

    learning_rate: float = Field(default=1e-4, gt=0.0)
    """Peak learning rate, reached after the warm-up."""

    adam_beta1: float = Field(default=0.9, ge=0.0, lt=1.0)
    """Decay of the running mean of gradients."""

    adam_beta2: float = Field(default=0.999, ge=0.0, lt=1.0)
    """Decay of the running mean of squared gradients."""

    adam_epsilon: float = Field(default=1e-6, gt=0.0)
    """Epsilon of the denominator."""

    weight_decay: float = Field(default=0.01, ge=0.0)
    """Decoupled weight decay; not for biases and layer norms."""

    max_grad_norm: float = Field(default=1.0, ge=0.0)
    """Maximum global norm of the gradients; larger ones are scaled down. 0: no limit."""


class ScheduleConfig(Config):
    """Learning rate over the budget, in the unit of the budget."""

    lr_scheduler_type: Literal["linear", "polynomial", "constant"] = "linear"
    """Decay after the warm-up: linear or by `power` to `min_lr_ratio`, or none."""

    warmup_ratio: float = Field(default=0.01, ge=0.0, lt=1.0)
    """Fraction of the total for the linear warm-up from 0. Paper: 10,000 of 1,000,000 steps."""

    total_budget: float | None = Field(default=None, gt=0.0, allow_inf_nan=False)
    """End of the decay in steps, tokens or minutes. None: the budget. Larger than the budget in the
    first of two phases that share a schedule."""

    power: float = Field(default=0.5, gt=0.0)
    """`polynomial` only: the degree. NVIDIA's recipe for LAMB: 0.5."""

    min_lr_ratio: Fraction = 0.0
    """Final learning rate as a fraction of the peak."""


class EvaluationConfig(Config):
    """Evaluation on held-out documents during training. The last step is always evaluated."""

    eval_steps: int = Field(default=0, ge=0)
    """Number of steps between evaluations. 0: only the last step."""

    max_eval_samples: int = Field(default=2_000, ge=1)
    """Number of held-out instances to evaluate, evenly spaced."""


class CheckpointConfig(Config):
    """Checkpoints for resuming after a crash."""

    save_steps: int = not_in_key(0, ge=0)
    """Number of steps between checkpoints. 0: by time only."""

    save_minutes: float = not_in_key(10.0, gt=0.0)
    """Minutes between checkpoints."""

    save_total_limit: int = not_in_key(2, ge=1)
    """Number of newest checkpoints to keep."""


class PretrainConfig(Config):
    """`pretrain`: one phase of pretraining (paper 3.1, A.2)."""

    instances: SourceName
    """Entry of build_instances to read."""

    model: ModelConfig | None = None
    """Shape of a new model. None: the shape of the checkpoint that the phase starts from."""

    init_from_phase: SourceName | None = None
    """Earlier phase to start from."""

    init_checkpoint: str | None = content_in_key(None)
    """Checkpoint folder in Hugging Face's layout (local or any fsspec URL, such as hf://ORG/NAME)
    to start from; or the name of a step, RECIPE/pretrain.PHASE."""

    optimizer_state: Literal["restore", "reset"] = "restore"
    """With `init_from_phase`: restore the moments and the position in the schedule of the earlier
    phase, or reset them, as Google's code does."""

    objective: Objective = "mlm+nsp"
    """Training objective. `left-to-right`: predict each token from its predecessors with causal
    attention (paper 5.1)."""

    masking: Literal["stored", "dynamic"] = "stored"
    """`stored`: the masks of the instances. `dynamic`: new masks in each epoch."""

    dynamic_masking: MaskingConfig = MaskingConfig()
    """Selection and replacement of tokens with `masking: dynamic`."""

    budget: BudgetConfig
    """Length of the phase."""

    batch: BatchConfig = BatchConfig()
    """Batch of a step."""

    optimizer: OptimizerConfig = OptimizerConfig()
    """Optimizer with its learning rate and weight decay."""

    schedule: ScheduleConfig = ScheduleConfig()
    """Learning-rate schedule."""

    evaluation: EvaluationConfig = EvaluationConfig()
    """Evaluation on held-out documents."""

    checkpoints: CheckpointConfig = not_in_key(CheckpointConfig())
    """Checkpoints for resuming."""

    snapshot_steps: tuple[Annotated[int, Field(ge=1)], ...] = ()
    """Steps of this phase whose models to publish too, each with its held-out loss (Figure 5). A
    fine-tuning selects one by `init_from_step`. A model has 4 bytes per parameter (BASE: 440 MB),
    twice that until the phase ends."""

    seed: Seed = 0
    """Seed of initial weights, instance order, dynamic masks and dropout."""

    precision: Precision = "auto"
    """`bf16`: matrix products in bfloat16 (autocast); weights, moments and sums in fp32. `auto`:
    bf16 on a GPU that has it, otherwise fp32 with TF32 products; fp32 on a CPU."""

    compile: bool = False
    """Compile the model with torch.compile."""

    device: Device = not_in_key("auto")
    """Device. `auto`: a GPU if there is one."""

    num_processes: Literal["auto"] | Annotated[int, Field(ge=1, le=1024)] = not_in_key("auto")
    """Number of processes on this machine; more than one run under torchrun. `auto`: one per GPU,
    one without a GPU."""

    num_threads: int = not_in_key(0, ge=0)
    """Number of CPU threads per process. 0: torch's default."""

    logging_steps: int = not_in_key(10, ge=1)
    """Number of steps between logged points of the curves."""

    divergence_threshold: float = not_in_key(3.0, ge=0.0)
    """Maximum rise of the mean loss over 50 steps above its minimum, in nats; a larger rise stops
    the run as diverged. 0: no limit. A loss that is not finite always stops it."""

    @property
    def kept_steps(self) -> tuple[int, ...]:
        """Snapshot steps without the last step, whose model is the published one."""
        return tuple(step for step in self.snapshot_steps if step != self.budget.max_steps)

    @property
    def published_steps(self) -> tuple[int, ...]:
        """Steps whose models are published, as far as they are known before the training."""
        last = (self.budget.max_steps,) if self.budget.max_steps else ()
        return (*self.kept_steps, *last)

    def _problems(self) -> Iterator[str]:
        yield from expect_one(self, "model", "init_from_phase", "init_checkpoint")
        steps, last = self.snapshot_steps, self.budget.max_steps
        if list(steps) != sorted(set(steps)):
            yield f"snapshot_steps: expected distinct steps in order, got {list(steps)}"
        if steps and (last is None or steps[-1] > last):
            yield f"snapshot_steps: expected at most budget.max_steps, {last}, got {steps[-1]}"
        is_masked = self.masking == "dynamic" and self.objective != "left-to-right"
        if is_masked and self.dynamic_masking.strategy == "none":
            yield "dynamic_masking.strategy: not supported with masking dynamic"
        budget = last or self.budget.max_tokens or self.budget.max_minutes or 0
        total = self.schedule.total_budget
        if total is not None and total < budget:
            yield f"schedule.total_budget: expected at least the budget, {budget:g}, got {total:g}"
