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

from schemas.task_configs import Kind


def kind_module(kind: Kind) -> ModuleType:
    """The functions of a kind. Written as imports, so that they are in the stages' fingerprints."""
    if kind == "choice":
        from model.task_types import choice as choice_kind

        return choice_kind
    if kind == "span":
        from model.task_types import span as span_kind

        return span_kind
    if kind == "tagging":
        from model.task_types import tagging as tag_kind

        return tag_kind
    from model.task_types import text as text_kind

    return text_kind
