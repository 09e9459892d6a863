"""Warnings of the trainings of a run, for its page and for the end of a command."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from flows.report.steps import Built
from model.evaluate import STAGE as EVALUATE
from model.training.health import read_warnings


class StepWarning(NamedTuple):
    """A problem of a step's training."""

    label: str
    """Label of the step."""

    kind: str
    """Key of `model.training.health.SECTIONS`."""

    text: str


def collect_warnings(built: Iterable[Built]) -> list[StepWarning]:
    """Return the warnings of all steps, of cached ones too.

    An evaluation sums up the warnings of its trials, so the list skips trials that an evaluation
    has read.
    """
    steps = list(built)
    summarized = {
        ref.artifact_id
        for step in steps
        if step.manifest.stage == EVALUATE.name
        for ref in step.manifest.inputs
    }
    return [
        StepWarning(step.label, warning.kind, warning.text)
        for step in steps
        if step.manifest.artifact_id not in summarized
        for warning in read_warnings(step.statistics)
    ]
