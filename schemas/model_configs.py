"""Configurations of the model and its pretraining: shapes, optimisers, budgets, batches.

As in `schemas.configs`, a field marked `not_identity` says how or where a stage runs, not what it
makes. Where such a field changes the order in which floating-point numbers are added (processes,
threads, device, micro-batches), results agree to rounding, and to the bit only where it is equal.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from schemas.configs import Config, MaskingConfig, SourceName, not_identity

Objective = Literal["mlm+nsp", "mlm", "left-to-right"]
"""What is predicted: masked tokens, next sentences, or each next token (paper 5.1)."""

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
"""Layers, hidden size and attention heads by name."""


class ModelConfig(Config):
    """Shape of the encoder (paper, section 3); its vocabulary is that of the instances.

    `preset: base` stands for its layers, hidden_size and heads; so do `tiny`, `mini`, `small`,
    `medium`, `large`, and Table 6's `3-768-12`, `6-768-3`, `6-768-12`, `12-768-12`, `12-1024-16`
    and `24-1024-16`.
    """

    num_hidden_layers: int = Field(ge=1, le=256)
    """Transformer blocks (L)."""

    hidden_size: int = Field(ge=8)
    """Width of every token's vector (H)."""

    num_attention_heads: int = Field(ge=1)
    """Attention heads (A); hidden_size is a multiple of it."""

    intermediate_size: int = Field(default=0, ge=0)
    """Width inside the feed-forward layers; 0 stands for 4 x hidden_size, as in the paper."""

    max_position_embeddings: int = Field(default=512, ge=8)
    """Longest sequence that has positions."""

    type_vocab_size: int = Field(default=2, ge=1)
    """Segment embeddings."""

    hidden_act: Literal["gelu", "gelu_tanh"] = "gelu"
    """`gelu` is x * Phi(x), as Hugging Face's checkpoints say; `gelu_tanh` its approximation, as
    Google's code computes it (modeling.py, lines 264-277)."""

    hidden_dropout_prob: float = Field(default=0.1, ge=0.0, lt=1.0)
    """Probability by which dropout takes an output of embeddings and blocks (paper A.2: .1)."""

    attention_probs_dropout_prob: float = Field(default=0.1, ge=0.0, lt=1.0)
    """Probability by which dropout takes an attention weight (paper A.2: .1)."""

    initializer_range: float = Field(default=0.02, gt=0.0)
    """Standard deviation of the normal, cut at twice this, that weights are drawn from."""

    layer_norm_eps: float = Field(default=1e-12, gt=0.0)
    """Added to the variance in layer norms, so that nothing is divided by 0."""

    @model_validator(mode="before")
    @classmethod
    def _from_preset(cls, data: Any) -> Any:
        """`preset: base` stands for its num_hidden_layers, hidden_size and num_attention_heads."""
        if not isinstance(data, dict) or "preset" not in data:
            return data
        name = data["preset"]
        if name not in PRESETS:
            raise ValueError(f"preset: no model {name!r}; choose from {', '.join(PRESETS)}")
        layers, hidden_size, heads = PRESETS[name]
        rest = {key: value for key, value in data.items() if key != "preset"}
        shape = {
            "num_hidden_layers": layers,
            "hidden_size": hidden_size,
            "num_attention_heads": heads,
        }
        return {**shape, **rest}

    @model_validator(mode="after")
    def _heads_divide(self) -> Self:
        if self.hidden_size % self.num_attention_heads:
            raise ValueError(
                f"hidden_size must be a multiple of num_attention_heads, found "
                f"{self.hidden_size} and "
                f"{self.num_attention_heads}: change one"
            )
        return self

    @property
    def feed_forward_size(self) -> int:
        """`intermediate_size`, or 4 x hidden_size where that is 0."""
        return self.intermediate_size or 4 * self.hidden_size


class BudgetConfig(Config):
    """How long a phase trains: exactly one of these."""

    max_steps: int | None = Field(default=None, ge=1)
    """Updates of the weights."""

    max_tokens: int | None = Field(default=None, ge=1)
    """Real tokens read, padding not counted; the step that reaches it is the last."""

    max_minutes: float | None = Field(default=None, gt=0.0)
    """Time spent training, over all restarts. Such a run cannot be repeated to the bit."""

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        if (
            sum(value is not None for value in (self.max_steps, self.max_tokens, self.max_minutes))
            != 1
        ):
            raise ValueError("expected exactly one of max_steps, max_tokens and max_minutes")
        return self


class BatchConfig(Config):
    """What one update of the weights sees, and how it is laid out."""

    global_batch_size: int | None = Field(default=None, ge=1)
    """Instances of a global batch, over all processes; 256 if `global_batch_tokens` is not given
    either."""

    global_batch_tokens: int | None = Field(default=None, ge=1)
    """In place of `global_batch_size`: as many as have together at most so many real tokens."""

    batching: Literal["packed", "bucketed", "padded"] = "packed"
    """`packed`: instances end to end without padding, attention kept apart. `bucketed`: batches of
    similar length, padded to their longest. `padded`: every row padded to max_seq_length."""

    bucket_batches: int = Field(default=64, ge=1)
    """`bucketed` only: number of batches whose instances are sorted by length together."""

    per_device_max_tokens: int = not_identity(16_384, ge=8)
    """Tokens, padding counted, that one process works on at once; gradients are accumulated up to
    the global batch. Bounds memory."""

    @model_validator(mode="after")
    def _one_size(self) -> Self:
        if self.global_batch_size is not None and self.global_batch_tokens is not None:
            raise ValueError("expected one of global_batch_size and global_batch_tokens, got both")
        return self


class OptimizerConfig(Config):
    """How gradients become updates."""

    name: Literal["bert-adam", "adamw", "lamb"] = "bert-adam"
    """`bert-adam`: Adam without bias correction (Google's optimization.py). `adamw`: with it
    (Loshchilov and Hutter 2019). `lamb`: You et al. 2020, for very large batches."""

    learning_rate: float = Field(default=1e-4, gt=0.0)
    """At its peak, right after the warm-up."""

    adam_beta1: float = Field(default=0.9, ge=0.0, lt=1.0)
    """Decay of the running mean of gradients, a step."""

    adam_beta2: float = Field(default=0.999, ge=0.0, lt=1.0)
    """Decay of the running mean of squared gradients, a step."""

    adam_epsilon: float = Field(default=1e-6, gt=0.0)
    """Added to the root of the squared gradients' mean, so that nothing is divided by 0."""

    weight_decay: float = Field(default=0.01, ge=0.0)
    """Decoupled, not applied to biases and layer norms."""

    max_grad_norm: float = Field(default=1.0, ge=0.0)
    """Gradients are scaled down to this global norm; 0 turns that off."""


class ScheduleConfig(Config):
    """The learning rate over the budget, in whatever unit the budget is."""

    lr_scheduler_type: Literal["linear", "polynomial", "constant"] = "linear"
    """Course of the rate after the warm-up: down to `min_lr_ratio` in a line or by `power`;
    level."""

    warmup_ratio: float = Field(default=0.01, ge=0.0, lt=1.0)
    """Share of the total in which the rate grows linearly from 0 to what the decay would be worth
    at its peak. Paper: 10,000 of 1,000,000 steps."""

    total_budget: float | None = Field(default=None, gt=0.0)
    """Where the decay ends, in steps, tokens or minutes as the budget; the budget itself if not
    given. Larger than the budget in the first of two phases that share one schedule."""

    power: float = Field(default=0.5, gt=0.0)
    """`polynomial` only: the degree. NVIDIA's recipe for LAMB: .5."""

    min_lr_ratio: float = Field(default=0.0, ge=0.0, le=1.0)
    """What is left of the peak at the end."""


class EvaluationConfig(Config):
    """Evaluation on held-out documents during training; there is one at the end in any case."""

    eval_steps: int = Field(default=0, ge=0)
    """Steps between evaluations; 0 for the one at the end alone."""

    max_eval_samples: int = Field(default=2_000, ge=1)
    """Number of held-out instances to evaluate on, spread evenly over all of them."""


class CheckpointConfig(Config):
    """What is kept of a run while it runs, so that it can go on after a crash."""

    save_steps: int = not_identity(0, ge=0)
    """Steps between checkpoints; 0: by time alone."""

    save_minutes: float = not_identity(10.0, gt=0.0)
    """Minutes between checkpoints."""

    save_total_limit: int = not_identity(2, ge=1)
    """Number of newest checkpoints to keep."""


class PretrainConfig(Config):
    """`pretrain`: one phase of pretraining (paper 3.1, A.2)."""

    instances: SourceName
    """Name of the recipe's entry in build_instances that this phase reads."""

    model: ModelConfig | None = None
    """The model's shape; not given where the phase starts from a checkpoint, whose shape it has."""

    init_from_phase: SourceName | None = None
    """Name of the phase that comes before this one."""

    init_checkpoint: str | None = not_identity(None)
    """In place of `init_from_phase`: folder of a checkpoint in Hugging Face's layout (local or any
    fsspec URL); its content is what counts."""

    optimizer_state: Literal["restore", "reset"] = "restore"
    """With `init_from_phase`: `restore` the earlier phase's moments and position in the schedule,
    or `reset` them, as Google's code does."""

    objective: Objective = "mlm+nsp"
    """`left-to-right`: every token from those before it, with causal attention (paper 5.1)."""

    masking: Literal["stored", "dynamic"] = "stored"
    """`stored`: the masks of the instances. `dynamic`: drawn anew in each epoch."""

    dynamic_masking: MaskingConfig = MaskingConfig()
    """How, with `masking: dynamic`."""

    budget: BudgetConfig
    """How long this phase trains: in steps, tokens or minutes."""

    batch: BatchConfig = BatchConfig()
    """What one step sees."""

    optimizer: OptimizerConfig = OptimizerConfig()
    """Which optimiser, at which rate."""

    schedule: ScheduleConfig = ScheduleConfig()
    """How the rate grows and falls over the budget."""

    evaluation: EvaluationConfig = EvaluationConfig()
    """When and on how much the held-out loss is measured."""

    checkpoints: CheckpointConfig = not_identity(CheckpointConfig())
    """How often the run is saved, so that it can go on after a crash."""

    snapshot_steps: tuple[Annotated[int, Field(ge=1)], ...] = ()
    """Steps of this phase (counted from its own begin) whose models stay in the artifact, each with
    what it scores on held-out documents (Figure 5); a fine-tuning names one by `init_from_step`. A
    model takes 4 bytes a parameter (BASE 440 MB), twice that until the phase ends."""

    keep: Literal["last", "best"] = "last"
    """Model to publish. `last`: the model of the last step, as in the paper. `best`: the model with
    the lowest held-out loss of all evaluations (see `evaluation.eval_steps`)."""

    seed: int = Field(default=0, ge=0, lt=1 << 63)
    """Decides initial weights, order of instances, dynamic masks and dropout."""

    precision: Literal["fp32", "bf16"] = "fp32"
    """`bf16`: matrix products in bfloat16 (autocast); weights, moments and sums stay fp32."""

    compile: bool = False
    """Run the model through torch.compile."""

    device: Literal["auto", "cpu", "cuda"] = not_identity("auto")
    """Where to compute; `auto`: on a GPU where there is one."""

    num_processes: int = not_identity(1, ge=1, le=1024)
    """Processes on this machine, one a GPU on GPUs; more than one run under torchrun."""

    num_threads: int = not_identity(0, ge=0)
    """CPU threads of a process; 0 for torch's choice."""

    logging_steps: int = not_identity(10, ge=1)
    """Steps between lines of the curves."""

    divergence_threshold: float = not_identity(3.0, ge=0.0)
    """The run stops as diverging when its mean loss over 50 steps is more than so many nats above
    its lowest such mean; 0 turns that off. A loss that is not finite always stops it."""

    @property
    def kept_steps(self) -> tuple[int, ...]:
        """Steps whose models are kept in addition to the published one.

        With `keep: last` the last step is not among them: its model is the published one.
        """
        published = self.budget.max_steps if self.keep == "last" else None
        return tuple(step for step in self.snapshot_steps if step != published)

    @model_validator(mode="after")
    def _snapshots_are_reached(self) -> Self:
        last = self.budget.max_steps
        if self.snapshot_steps and last is None:
            raise ValueError(
                "snapshot_steps: expected a budget in steps, found another, of which it is "
                "not known "
                "which steps it reaches"
            )
        if list(self.snapshot_steps) != sorted(set(self.snapshot_steps)):
            raise ValueError(
                f"snapshot_steps: expected different steps in order, found "
                f"{list(self.snapshot_steps)}"
            )
        if self.snapshot_steps and last is not None and self.snapshot_steps[-1] > last:
            raise ValueError(
                f"snapshot_steps: expected steps of this phase, at most {last:,}, got "
                f"{self.snapshot_steps[-1]:,}"
            )
        return self

    @model_validator(mode="after")
    def _has_models_to_choose_from(self) -> Self:
        if self.keep == "best" and not self.evaluation.eval_steps:
            raise ValueError(
                "keep: best chooses among evaluations, and there is only one, at the end. Set "
                "evaluation.eval_steps, or keep to last"
            )
        return self

    @model_validator(mode="after")
    def _masks_something(self) -> Self:
        draws = self.masking == "dynamic" and self.objective != "left-to-right"
        if draws and self.dynamic_masking.strategy == "none":
            raise ValueError(
                "masking is dynamic and dynamic_masking.strategy none, so there is nothing to "
                "predict: choose another strategy"
            )
        return self

    @model_validator(mode="after")
    def _schedule_reaches_the_end(self) -> Self:
        budget = self.budget.max_steps or self.budget.max_tokens or self.budget.max_minutes or 0
        if self.schedule.total_budget is not None and self.schedule.total_budget < budget:
            raise ValueError(
                f"schedule.total_budget: expected at least the budget of {budget:,}, found "
                f"{self.schedule.total_budget:g}: the rest would train at a rate of "
                f"{self.schedule.min_lr_ratio:g} times the peak"
            )
        return self

    @model_validator(mode="after")
    def _one_start(self) -> Self:
        given = [
            name for name in ("model", "init_from_phase", "init_checkpoint") if getattr(self, name)
        ]
        if len(given) != 1:
            found = " and ".join(given) or "none"
            raise ValueError(
                "expected exactly one of model (a new one), init_from_phase (an earlier phase) and "
                f"init_checkpoint (a folder), found {found}"
            )
        return self
