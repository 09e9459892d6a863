"""Fine-tuned models in Hugging Face's layout: config.json and model.safetensors.

Written files load in transformers' class of the task type; for a feature-based tagger or a model
with a BiLSTM, `BertModel` loads the encoder. Models that transformers saved from one of the four
classes can be read too.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from safetensors.torch import save as save_tensors
from torch import Tensor

from model.encoder.bert import BertModel
from model.encoder.hf_config import (
    CONFIG_FILE,
    WEIGHTS_FILE,
    hf_config,
    named_architectures,
    shown,
    some_of,
)
from model.encoder.hf_weights import fill_parameters, from_hf_state, hf_state, read_checkpoint
from model.finetuning.feature_tagger import FeatureTagger
from model.finetuning.task_model import BILSTM_PREFIX, TaskModel
from model.task_types.by_name import TASK_TYPES
from schemas.errors import CheckpointError, ConfigError
from schemas.finetune_configs import TaskTypeName
from schemas.model_configs import ModelConfig

ABOUT_KEY = "bertloom"
SHAPE_KEY = "bertloom_feature_tagger"
BILSTM_KEY = "bertloom_bilstm"
"""Keys of config.json: description of the model, shape of a feature-based tagger, and shape of a
BiLSTM on the encoder."""

_BILSTM_NOTE = (
    "model.safetensors holds an encoder, which transformers.BertModel loads, and under bilstm. two "
    "LSTM layers and a dense one, which no class of transformers has: without them these are not "
    "the fine-tuned model; bertloom predict asks it"
)


class TunedModel(NamedTuple):
    """Loaded fine-tuned model.

    Attributes:
        model: Model in training mode, like every new module.
        labels: Names of its outputs, in order; () for regression, choice and span.
        about: Description given when it was saved; empty for a model that transformers saved.
    """

    model: TaskModel | FeatureTagger
    labels: tuple[str, ...]
    about: dict[str, Any]


def save_task_model(
    model: TaskModel | FeatureTagger,
    *,
    labels: Sequence[str],
    about: Mapping[str, Any],
    pad_token_id: int = 0,
) -> dict[str, bytes]:
    """Return the files of a model by name. Equal models have equal bytes.

    Args:
        model: Model to save.
        labels: Names of the outputs, in order; () for regression, choice and span.
        about: JSON values for config.json under "bertloom".
        pad_token_id: Id of [PAD].

    Raises:
        CheckpointError: The labels do not match the model, or `about` is not JSON.
    """
    described = hf_config(
        model.config,
        vocab_size=model.vocab_size,
        objective="left-to-right" if model.is_causal else "mlm+nsp",
        pad_token_id=pad_token_id,
    )
    described |= _label_fields(model.kind, tuple(labels), outputs=model.outputs)
    if isinstance(model, FeatureTagger):
        described["architectures"] = ["BertModel"]
        described[ABOUT_KEY] = _plain({"method": "feature-based", **about})
        described[SHAPE_KEY] = {
            "layers": model.layers,
            "lstm_hidden_size": model.lstm_hidden_size,
            "dropout": model.dropouts[0].rate,
        }
        tensors = _own_tensors(model)
        config = json.dumps(described, indent=2, sort_keys=True)
    elif model.lstm_hidden_size is not None:
        described["architectures"] = ["BertModel"]
        described[ABOUT_KEY] = _plain(about)
        described[BILSTM_KEY] = {
            "kind": model.kind,
            "lstm_hidden_size": model.lstm_hidden_size,
            "dropout": model.dropout.rate,
            "note": _BILSTM_NOTE,
        }
        tensors = _own_tensors(model)
        # Labels stay in the order of their numbers.
        config = json.dumps(dict(sorted(described.items())), indent=2)
    else:
        described["architectures"] = [TASK_TYPES[model.kind].architecture]
        described["classifier_dropout"] = model.dropout.rate
        described[ABOUT_KEY] = _plain(about)
        state = {
            _hf_name(name, model.kind): value
            for name, value in model.named_parameters()
            if TASK_TYPES[model.kind].is_pooled or not name.startswith("bert.pooler.")
        }
        tensors = hf_state(state)
        # Labels stay in the order of their numbers.
        config = json.dumps(dict(sorted(described.items())), indent=2)
    weights = save_tensors(tensors, metadata={"format": "pt"})
    return {CONFIG_FILE: f"{config}\n".encode(), WEIGHTS_FILE: weights}


def load_task_model(folder_url: str) -> TunedModel:
    """Load a fine-tuned model from its folder, a local path or any fsspec URL.

    Span and tagging do not use the pooler, so it is not saved and is 0 here.

    Raises:
        CheckpointError: The model is missing, unreadable, or of another type.
    """
    read = read_checkpoint(folder_url)
    config, described, where = read.config, read.described, read.where
    state, weights_url = read.state, read.weights_url
    about = described.get(ABOUT_KEY, {})
    if not isinstance(about, dict):
        raise CheckpointError(f"{where}: {ABOUT_KEY} is {shown(about)}, expected a JSON object")
    is_tagger = about.get("method") == "feature-based"
    bilstm = _bilstm(described, where=where)
    kind: TaskTypeName
    if is_tagger:
        kind = "tagging"
    else:
        kind = _kind(described, where=where) if bilstm is None else bilstm["kind"]
    dense = "classifier.weight"
    head = f"{BILSTM_PREFIX}{dense}" if bilstm is not None else _hf_name(dense, kind)
    outputs = _outputs(state, head, kind=kind, where=weights_url)
    shape: dict[str, Any] = {
        "vocab_size": read.vocab_size,
        "outputs": outputs,
        "is_causal": read.objective == "left-to-right",
    }
    model: TaskModel | FeatureTagger
    if is_tagger:
        model = _tagger(described.get(SHAPE_KEY), config, shape=shape, where=where)
        found = _read_own_tensors(model, state, where=weights_url)
    elif bilstm is not None:
        model = TaskModel(config, draws_weights=False, **bilstm, **shape)
        found = _read_own_tensors(model, state, where=weights_url)
    else:
        dropout = _dropout(described, where=where)
        model = TaskModel(
            config,
            kind=kind,
            dropout=config.hidden_dropout_prob if dropout is None else dropout,
            draws_weights=False,
            **shape,
        )
        found = _task_tensors(model, state, where=weights_url)
    labels = (
        _labels(described, outputs=outputs, where=where) if TASK_TYPES[kind].outputs is None else ()
    )
    fill_parameters(model, found)
    return TunedModel(model, labels, about)


def _tagger(
    described: Any, config: ModelConfig, *, shape: dict[str, Any], where: str
) -> FeatureTagger:
    if not isinstance(described, dict):
        raise CheckpointError(
            f"{where}: no {SHAPE_KEY}: expected a tagger that method: features made"
        )
    # Weights stay zero: the file has all of them.
    encoder = BertModel(config, vocab_size=shape["vocab_size"], is_causal=shape["is_causal"])
    try:
        return FeatureTagger(
            config,
            layers=described["layers"],
            lstm_hidden_size=int(described["lstm_hidden_size"]),
            dropout=float(described["dropout"]),
            encoder=encoder,
            **shape,
        )
    except (KeyError, TypeError, ValueError, ConfigError) as error:
        raise CheckpointError(f"{where}: {SHAPE_KEY} is not that of a tagger: {error!r}") from error


def _bilstm(described: Mapping[str, Any], *, where: str) -> dict[str, Any] | None:
    """Return `kind`, `lstm_hidden_size` and `dropout` of a BiLSTM model; otherwise None."""
    given = described.get(BILSTM_KEY)
    if given is None:
        return None
    try:
        found = {"kind": given["kind"], "lstm_hidden_size": int(given["lstm_hidden_size"])}
        found["dropout"] = float(given["dropout"])
        is_right = found["kind"] in TASK_TYPES and found["lstm_hidden_size"] > 0
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"{where}: {BILSTM_KEY} is not that of a model: {error!r}") from error
    if not (is_right and 0.0 <= found["dropout"] < 1.0):
        raise CheckpointError(
            f"{where}: {BILSTM_KEY} is {shown(json.dumps(found))}: expected a kind of task, units "
            "of an LSTM and a share of dropout"
        )
    return found


def _own_tensors(model: TaskModel | FeatureTagger) -> dict[str, Tensor]:
    """Return the encoder without pooler by Hugging Face's names, and the rest by our names."""
    encoder = {
        name: value
        for name, value in model.named_parameters()
        if name.startswith("bert.") and not name.startswith("bert.pooler.")
    }
    return dict(sorted((hf_state(encoder) | _own_parameters(model)).items()))


def _read_own_tensors(
    model: TaskModel | FeatureTagger, state: Mapping[str, Tensor], *, where: str
) -> dict[str, Tensor]:
    shapes = {f"bert.{name}": value.shape for name, value in model.bert.named_parameters()}
    encoder = {name: value for name, value in state.items() if name.startswith("bert.")}
    found = from_hf_state(encoder, shapes, where=where)
    expected = {name: value.shape for name, value in _own_parameters(model).items()}
    given = {name: value for name, value in state.items() if not name.startswith("bert.")}
    if set(given) != set(expected):
        raise CheckpointError(
            f"{where}: {some_of(set(given) ^ set(expected))}: missing or not known: expected the "
            f"tensors of {_called(model)}; the two files are not of one model"
        )
    for name, value in given.items():
        if value.shape != expected[name] or value.dtype != torch.float32:
            raise CheckpointError(
                f"{where}: {name} is {value.dtype} {tuple(value.shape)}, expected float32 "
                f"{tuple(expected[name])}: the two files are not of one model"
            )
    prefix = _prefix(model)
    return found | {name.removeprefix(prefix): value for name, value in given.items()}


def _called(model: TaskModel | FeatureTagger) -> str:
    if isinstance(model, FeatureTagger):
        return f"a tagger with {model.layers}"
    return f"a model for {model.kind} with a BiLSTM"


def _prefix(model: TaskModel | FeatureTagger) -> str:
    return "" if isinstance(model, FeatureTagger) else BILSTM_PREFIX


def _own_parameters(model: TaskModel | FeatureTagger) -> dict[str, Tensor]:
    """Return all tensors but the encoder's, on the CPU, by the names of the file.

    Tensors of a BiLSTM have a separate prefix, so that transformers does not load its dense layer
    as one on the encoder if the sizes happen to match.
    """
    prefix = _prefix(model)
    return {
        f"{prefix}{name}": value.detach().cpu().contiguous()
        for name, value in model.named_parameters()
        if not name.startswith("bert.")
    }


def _task_tensors(
    model: TaskModel, state: Mapping[str, Tensor], *, where: str
) -> dict[str, Tensor]:
    kind = model.kind
    names = {_hf_name(name, kind): name for name, _ in model.named_parameters()}
    parameters = dict(model.named_parameters())
    shapes = {theirs: parameters[name].shape for theirs, name in names.items()}
    found = from_hf_state(state, shapes, where=where)
    if TASK_TYPES[kind].is_pooled and "bert.pooler.weight" not in found:
        raise CheckpointError(f"{where}: no pooler, which {kind} reads: the model is incomplete")
    return {names[theirs]: value for theirs, value in found.items()}


def _hf_name(name: str, kind: TaskTypeName) -> str:
    """Return Hugging Face's name of a head parameter."""
    return name.replace("classifier.", "qa_outputs.") if kind == "span" else name


def _dropout(described: Mapping[str, Any], *, where: str) -> float | None:
    given = described.get("classifier_dropout")
    if given is not None and not (type(given) in (int, float) and 0.0 <= given <= 1.0):
        raise CheckpointError(
            f"{where}: classifier_dropout is {shown(given)}, expected a number from 0 to 1"
        )
    return given


def _plain(about: Mapping[str, Any]) -> Any:
    """Return canonical JSON values with sorted keys."""
    try:
        return json.loads(json.dumps(about, sort_keys=True, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise CheckpointError(f"about: {error}: expected JSON values alone") from error


def _label_fields(kind: TaskTypeName, labels: tuple[str, ...], *, outputs: int) -> dict[str, Any]:
    """Return the fields of config.json about outputs; transformers counts id2label."""
    expected = outputs if TASK_TYPES[kind].outputs is None else 0
    if len(labels) != expected or len(set(labels)) != expected:
        raise CheckpointError(
            f"labels {labels} for {kind} with {outputs} outputs: expected {expected} different ones"
        )
    if kind in ("choice", "span"):
        return {}
    names = labels or ("LABEL_0",)
    problem = TASK_TYPES[kind].problem
    return {
        "id2label": {str(number): name for number, name in enumerate(names)},
        "label2id": {name: number for number, name in enumerate(names)},
        **({"problem_type": problem} if problem else {}),
    }


def _kind(hf: Mapping[str, Any], *, where: str) -> TaskTypeName:
    named = named_architectures(hf, where=where)
    kinds = [kind for kind, found in TASK_TYPES.items() if found.architecture in named]
    if not kinds:
        known = sorted({found.architecture for found in TASK_TYPES.values()})
        raise CheckpointError(
            f"{where}: architectures is {list(named)}, expected one of {', '.join(known)}: this is "
            "not a fine-tuned model; fine-tune it first"
        )
    if kinds != ["classification", "regression"]:
        return kinds[0]
    problem = hf.get("problem_type")
    if problem is None:  # transformers then decides by the number of outputs
        names = hf.get("id2label")
        is_one = isinstance(names, dict) and len(names) == 1
        return "regression" if is_one else "classification"
    for kind in kinds:
        if TASK_TYPES[kind].problem == problem:
            return kind
    raise CheckpointError(
        f"{where}: problem_type is {shown(problem)}, expected one of "
        f"{', '.join(TASK_TYPES[kind].problem for kind in kinds)}"
    )


def _outputs(state: Mapping[str, Tensor], name: str, *, kind: TaskTypeName, where: str) -> int:
    if name not in state:
        raise CheckpointError(
            f"{where}: no {name}: expected the head of a model fine-tuned for {kind}"
        )
    return state[name].shape[0]


def _labels(hf: Mapping[str, Any], *, outputs: int, where: str) -> tuple[str, ...]:
    """Return the names of the outputs in order; transformers' defaults without id2label."""
    plain = {str(number): f"LABEL_{number}" for number in range(outputs)}
    found = hf.get("id2label") or plain
    if not isinstance(found, dict) or set(found) != set(plain):
        raise CheckpointError(
            f"{where}: id2label is {shown(found)}, expected the numbers 0 to {outputs - 1}, since "
            f"the head has {outputs} outputs"
        )
    return tuple(str(found[number]) for number in plain)
