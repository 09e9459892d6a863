"""Fine-tuned models in Hugging Face's layout: config.json and model.safetensors.

Written files load in transformers' class of the kind as they are. Read are these and any model
that transformers saved of one of the four classes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from safetensors.torch import save as save_tensors

from model.encoder.checkpoint_layout import shown
from model.encoder.hf_config import hf_config, model_config, named_architectures
from model.encoder.hf_folder import CONFIG_FILE, WEIGHTS_FILE, read_config, read_weights
from model.encoder.hf_weights import check_size, from_hf_state, hf_state
from model.finetuning.task_model import POOLED_KINDS, TaskModel, fill_parameters
from schemas.errors import CheckpointError
from schemas.task_configs import Kind

if TYPE_CHECKING:
    from model.finetuning.feature_tagger import FeatureTagger

ABOUT_KEY = "bertloom"
"""Key of config.json under which `about` is."""

_ARCHITECTURES: dict[Kind, str] = {
    "classification": "BertForSequenceClassification",
    "regression": "BertForSequenceClassification",
    "choice": "BertForMultipleChoice",
    "span": "BertForQuestionAnswering",
    "tagging": "BertForTokenClassification",
}
_PROBLEMS: dict[Kind, str] = {
    "classification": "single_label_classification",
    "regression": "regression",
}
_LABELLED = ("classification", "tagging")


class TunedModel(NamedTuple):
    """A fine-tuned model read back.

    Attributes:
        model: in training mode, as every new module; its `kind` says what it answers.
        labels: names of its outputs, in order; () for regression, choice and span.
        about: what was said of it when it was saved; empty for a model that transformers saved.
    """

    model: TaskModel | FeatureTagger
    labels: tuple[str, ...]
    about: dict[str, Any]


def save_task_model(
    model: TaskModel, *, labels: Sequence[str], about: Mapping[str, Any], pad_token_id: int = 0
) -> dict[str, bytes]:
    """The files of a model by name. Equal models give equal bytes.

    Args:
        model: to be saved.
        labels: names of the outputs, in order; () for regression, choice and span.
        about: JSON values, for config.json under "bertloom".
        pad_token_id: id of [PAD].

    Raises:
        CheckpointError: labels that do not fit the model, or `about` is not JSON.
    """
    described = {
        **hf_config(
            model.config,
            vocab_size=model.vocab_size,
            objective="left-to-right" if model.is_causal else "mlm+nsp",
            pad_token_id=pad_token_id,
        ),
        "architectures": [_ARCHITECTURES[model.kind]],
        "classifier_dropout": model.dropout.rate,
        **_label_fields(model.kind, tuple(labels), outputs=model.outputs),
        ABOUT_KEY: _plain(about),
    }
    # Labels stay in the order of their numbers.
    config = json.dumps(dict(sorted(described.items())), indent=2) + "\n"
    head = _head_name(model.kind)
    state = {
        name.replace("classifier", head) if name.startswith("classifier.") else name: parameter
        for name, parameter in model.named_parameters()
        if model.kind in POOLED_KINDS or not name.startswith("bert.pooler.")
    }
    weights = save_tensors(hf_state(state), metadata={"format": "pt"})
    return {CONFIG_FILE: config.encode(), WEIGHTS_FILE: weights}


def load_task_model(folder_url: str) -> TunedModel:
    """A fine-tuned model from its folder, a local path or any fsspec URL.

    The pooler of span and tagging, which they have no use for, is not saved; it is 0 here.

    Raises:
        CheckpointError: there is none, it cannot be read, or it is of another kind.
    """
    folder = folder_url.rstrip("/")
    described, where = read_config(folder)
    about = described.get(ABOUT_KEY, {})
    if not isinstance(about, dict):
        raise CheckpointError(f"{where}: {ABOUT_KEY} is {shown(about)}, expected a JSON object")
    if about.get("method") == "features":
        from model.finetuning.feature_tagger import load_feature_tagger

        tagger, names, about = load_feature_tagger(folder)
        return TunedModel(tagger, tuple(names), dict(about))
    kind = _kind(described, where=where)
    config, vocab_size, objective = model_config(described, where=where)
    state, weights_url = read_weights(folder)
    check_size(state, config, vocab_size=vocab_size, where=weights_url)
    head = _head_name(kind)
    outputs = _outputs(state, f"{head}.weight", kind=kind, where=weights_url)
    dropout = _dropout(described, where=where)
    model = TaskModel(
        config,
        vocab_size=vocab_size,
        kind=kind,
        outputs=outputs,
        dropout=config.hidden_dropout if dropout is None else dropout,
        is_causal=objective == "left-to-right",
        draws_weights=False,
    )
    labels = _labels(described, outputs=outputs, where=where) if kind in _LABELLED else ()
    shapes = {
        name.replace("classifier", head) if name.startswith("classifier.") else name: value.shape
        for name, value in model.named_parameters()
    }
    found = from_hf_state(state, shapes, where=weights_url)
    if kind in POOLED_KINDS and "bert.pooler.weight" not in found:
        raise CheckpointError(f"{weights_url}: no pooler, which {kind} reads: it is no whole model")
    fill_parameters(
        model, {name.replace("qa_outputs", "classifier"): value for name, value in found.items()}
    )
    return TunedModel(model, labels, about)


def _dropout(described: Mapping[str, Any], *, where: str) -> float | None:
    given = described.get("classifier_dropout")
    if given is not None and not (type(given) in (int, float) and 0.0 <= given <= 1.0):
        raise CheckpointError(
            f"{where}: classifier_dropout is {shown(given)}, expected a number from 0 to 1"
        )
    return given


def _plain(about: Mapping[str, Any]) -> Any:
    """JSON values in an order of their own."""
    try:
        return json.loads(json.dumps(about, sort_keys=True, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise CheckpointError(f"about: {error}: expected JSON values alone") from error


def _head_name(kind: Kind) -> str:
    return "qa_outputs" if kind == "span" else "classifier"


def _label_fields(kind: Kind, labels: tuple[str, ...], *, outputs: int) -> dict[str, Any]:
    """What config.json says of the outputs; transformers takes their number from id2label."""
    expected = outputs if kind in _LABELLED else 0
    if len(labels) != expected or len(set(labels)) != expected:
        raise CheckpointError(
            f"labels {labels} for {kind} with {outputs} outputs: expected {expected} different ones"
        )
    if kind in ("choice", "span"):
        return {}
    names = labels or ("LABEL_0",)
    return {
        "id2label": {str(number): name for number, name in enumerate(names)},
        "label2id": {name: number for number, name in enumerate(names)},
        **({"problem_type": _PROBLEMS[kind]} if kind in _PROBLEMS else {}),
    }


def _kind(hf: Mapping[str, Any], *, where: str) -> Kind:
    named = named_architectures(hf, where=where)
    kinds = [kind for kind, architecture in _ARCHITECTURES.items() if architecture in named]
    if not kinds:
        raise CheckpointError(
            f"{where}: architectures is {list(named)}, expected one of "
            f"{', '.join(sorted(set(_ARCHITECTURES.values())))}: this is no fine-tuned model; "
            "fine-tune it first"
        )
    if kinds != ["classification", "regression"]:
        return kinds[0]
    problem = hf.get("problem_type")
    if problem is None:  # transformers tells by the number of outputs then
        names = hf.get("id2label")
        is_one = isinstance(names, dict) and len(names) == 1
        return "regression" if is_one else "classification"
    for kind in kinds:
        if _PROBLEMS[kind] == problem:
            return kind
    raise CheckpointError(
        f"{where}: problem_type is {shown(problem)}, expected one of "
        f"{', '.join(_PROBLEMS.values())}"
    )


def _outputs(state: Mapping[str, torch.Tensor], name: str, *, kind: Kind, where: str) -> int:
    if name not in state:
        raise CheckpointError(
            f"{where}: no {name}: expected the head of a model fine-tuned for {kind}"
        )
    return state[name].shape[0]


def _labels(hf: Mapping[str, Any], *, outputs: int, where: str) -> tuple[str, ...]:
    """Names of the outputs in order; transformers' own where config.json has none."""
    plain = {str(number): f"LABEL_{number}" for number in range(outputs)}
    found = hf.get("id2label") or plain
    if not isinstance(found, dict) or set(found) != set(plain):
        raise CheckpointError(
            f"{where}: id2label is {shown(found)}, expected the numbers 0 to {outputs - 1}, since "
            f"the head has {outputs} outputs"
        )
    return tuple(str(found[number]) for number in plain)
