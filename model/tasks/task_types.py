"""Task types by their names in tasks and model files."""

from __future__ import annotations

from functools import partial

from model.tasks import classification, qa, tagging
from model.tasks.task_type import TaskType
from schemas.finetune_configs import TaskTypeName

TASK_TYPES: dict[TaskTypeName, TaskType] = {
    "classification": TaskType(
        answer_column="label",
        build_features=classification.build_features,
        decode=classification.decode_labels,
        score=partial(classification.score, column="label"),
        row_terms=partial(classification.row_terms, column="label"),
        list_answers=lambda row: [str(row["label"])],
        majority_answer=classification.find_majority_label,
    ),
    "regression": TaskType(
        answer_column="score",
        build_features=classification.build_features,
        decode=classification.decode_scores,
        score=partial(classification.score, column="score"),
        row_terms=partial(classification.row_terms, column="score"),
        list_answers=lambda row: [f"{row['score']:.2f}"],
        majority_answer=classification.find_mean_score,
    ),
    "choice": TaskType(
        answer_column="label",
        build_features=classification.build_choice_features,
        decode=classification.decode_choices,
        score=partial(classification.score, column="label"),
        row_terms=partial(classification.row_terms, column="label"),
        list_answers=lambda row: [str(row["label"])],
        majority_answer=classification.find_majority_choice,
    ),
    "span": TaskType(
        answer_column="is_impossible",
        build_features=qa.build_features,
        decode=qa.decode,
        score=qa.score,
        row_terms=qa.row_terms,
        list_answers=qa.list_answers,
        majority_answer=qa.find_majority_text,
        read_predictions=qa.read_predictions,
        official_files=qa.official_files,
    ),
    "tagging": TaskType(
        answer_column="tags",
        build_features=tagging.build_features,
        decode=tagging.decode,
        score=tagging.score,
        row_terms=tagging.row_terms,
        list_answers=lambda row: list(row["tags"]),
        majority_answer=tagging.find_majority_tag,
        majority_predictions=tagging.repeat_tag,
        official_files=tagging.official_files,
    ),
}
