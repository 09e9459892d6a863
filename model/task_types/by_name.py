"""Task types by their names in tasks and model files."""

from __future__ import annotations

from model.task_types.classification import Classification, MultipleChoice, Regression
from model.task_types.qa import QuestionAnswering
from model.task_types.tagging import TokenClassification
from model.task_types.task_type import TaskType
from schemas.finetune_configs import TaskTypeName

TASK_TYPES: dict[TaskTypeName, TaskType] = {
    "classification": Classification(),
    "regression": Regression(),
    "choice": MultipleChoice(),
    "span": QuestionAnswering(),
    "tagging": TokenClassification(),
}
