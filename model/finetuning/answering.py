"""Answering whole splits with a fine-tuned model or several, in the worker process. Loads torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from model.finetuning.jobs import EvaluationJob
from model.finetuning.predictor import Predictor, answer
from model.task_types import kind_module
from model.task_types.prediction_files import is_answered, predictions_file, to_lines
from model.tasks.examples import read_examples


def run_evaluation(job: EvaluationJob) -> dict[str, Any]:
    """Write `predictions-SPLIT.jsonl` for each split.

    Where questions may have no answer and several models answer, their threshold is tuned on dev.

    Returns:
        `threshold`: the tau that was used.
    """
    if job.threads:
        torch.set_num_threads(job.threads)
    predictors = [Predictor.open(member.data, device=job.device) for member in job.members]
    threshold = predictors[0].threshold
    task = predictors[0].task
    for split in job.splits:
        examples = read_examples(job.examples, split)
        tunes = task.has_unanswerable and len(predictors) > 1 and split == "dev"
        found = answer(
            predictors,
            examples,
            threshold=0.0 if tunes else threshold,
            micro_batch_tokens=job.micro_batch_tokens,
            progress=f"{job.name} {split}",
        )
        if tunes and is_answered(task.kind, examples):
            kind = kind_module(task.kind)
            threshold = kind.tune_threshold(examples, found)
            found = kind.apply_threshold(found, threshold)
        Path(job.folder, predictions_file(split)).write_bytes(to_lines(found))
    return {"threshold": threshold}
