"""What each kind of task does with examples, model outputs and predictions. No torch here.

A kind is a module with these functions:

    build_features(examples, tokenizer, *, task, labels, config, is_training) -> Features
    decode(examples, features, outputs, *, tokenizer, task, labels, config, threshold)
        -> list[dict]: one prediction a row of `examples`, in order, plain JSON values
    score(examples, predictions, *, task) -> dict[str, float]: metrics by name, shares of 1

`outputs` are the model's raw outputs, float32, end to end in the order of the features:
classification (U, labels), regression (U,), choice (U, choices), span (T, 2), tagging
(positions, labels). `threshold` is the tau of questions without answer, for `span` alone (else 0).

A prediction has `id` and, by kind: classification `label` (name) and `probabilities` (by name);
regression `score`; choice `label` (int) and `probabilities`; span `text` ("" for no answer),
`null_odds` (best null score minus best answer's), `n_best` (a list of `text`, `probability`,
`start_logit`, `end_logit`, best first); tagging `tags` (IOB2, one a word of the document).
"""

from __future__ import annotations

from types import ModuleType

from model.task_types import choice, span, tagging, text
from schemas.task_configs import Kind

TASK_TYPES: dict[Kind, ModuleType] = {
    "classification": text,
    "regression": text,
    "choice": choice,
    "span": span,
    "tagging": tagging,
}
"""The functions of each kind."""
