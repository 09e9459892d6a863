"""Task types by their names in tasks and model files."""

from __future__ import annotations

from model.task_types.classification import Choice, Classification, Regression
from model.task_types.span import Span
from model.task_types.tagging import Tagging
from model.task_types.task_type import TaskType
from schemas.finetune_configs import TaskTypeName

TASK_TYPES: dict[TaskTypeName, TaskType] = {
    "classification": Classification(),
    "regression": Regression(),
    "choice": Choice(),
    "span": Span(),
    "tagging": Tagging(),
}
