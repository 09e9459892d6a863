"""Stages of the model. The module of a stage is imported when it runs."""

from __future__ import annotations

from schemas.finetune_configs import EvaluateConfig, ExamplesConfig, TabulateConfig, TrialConfig
from schemas.model_configs import PretrainConfig
from schemas.stage import VARIADIC, Stage

STAGES = (
    Stage(
        name="pretrain",
        version=6,
        run="model.pretrain:pretrain",
        config=PretrainConfig,
        output_type="checkpoint",
        libraries=("torch", "numpy", "pyarrow", "safetensors"),
        inputs=("vocabulary", "instances"),
        optional_inputs=("checkpoint",),
        raw_inputs="model.pretrain:raw_inputs",
        supports_resume=True,
        has_metrics=True,
        uses_gpu=True,
        summarize="model.summaries:summarize_phase",
    ),
    Stage(
        name="build-examples",
        version=4,
        run="model.build_examples:build_examples",
        config=ExamplesConfig,
        output_type="examples",
        libraries=("pyarrow",),
        raw_inputs="model.build_examples:raw_inputs",
        summarize="model.summaries:summarize_examples",
    ),
    Stage(
        name="finetune",
        version=8,
        run="model.finetune:finetune",
        config=TrialConfig,
        output_type="trial",
        libraries=("torch", "numpy", "pyarrow", "safetensors"),
        inputs=("examples",),
        optional_inputs=("checkpoint", "vocabulary"),
        raw_inputs="model.finetune:raw_inputs",
        supports_resume=True,
        uses_gpu=True,
        summarize="model.summaries:summarize_trial",
        summarize_many="model.summaries:summarize_trials",
    ),
    Stage(
        name="evaluate",
        version=9,
        run="model.evaluate:evaluate",
        config=EvaluateConfig,
        output_type="evaluation",
        libraries=("torch", "numpy", "pyarrow"),
        inputs=("examples", VARIADIC),
        has_metrics=True,
        uses_gpu=True,
        summarize="model.summaries:summarize_evaluation",
    ),
    Stage(
        name="tabulate",
        version=10,
        run="model.tabulate:tabulate",
        config=TabulateConfig,
        output_type="tables",
        libraries=("numpy",),
        inputs=(VARIADIC,),
        has_metrics=True,
        summarize="model.summaries:summarize_tables",
    ),
)
"""Stages, each after those that it reads."""
