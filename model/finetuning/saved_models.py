"""Fine-tuned models in Hugging Face's layout: config.json and model.safetensors.

Written files load in transformers' class of the task type; for a feature-based tagger or a model
with a BiLSTM, `BertModel` loads the encoder. Models that transformers saved from one of the four
classes can be read too, with `problem_type` for sequence classification.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict, Field
from safetensors.torch import save as save_tensors

from model.bert import BertModel
from model.finetuning.feature_tagger import FeatureTagger
from model.finetuning.task_model import BILSTM_PREFIX, HEADS, TaskModel
from model.hf_config import (
    CONFIG_FILE,
    WEIGHTS_FILE,
    HFConfig,
    hf_config,
    read_config,
    shown,
    some_of,
    validate,
)
from model.hf_weights import (
    HFCheckpoint,
    from_hf_state,
    hf_state,
    read_checkpoint,
)
from schemas.base_configs import DropoutProb
from schemas.errors import CheckpointError, ConfigError
from schemas.finetune_configs import LayerChoice, TaskTypeName

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
    """
    described = hf_config(
        model.config,
        vocab_size=model.vocab_size,
        objective="left-to-right" if model.is_causal else "mlm+nsp",
        pad_token_id=pad_token_id,
    )
    described |= _label_fields(model.kind, tuple(labels))
    is_tagger = isinstance(model, FeatureTagger)
    described[ABOUT_KEY] = _plain({"method": "feature-based", **about} if is_tagger else about)
    if isinstance(model, FeatureTagger) or model.lstm is not None:
        described["architectures"] = ["BertModel"]
        described |= _lstm_fields(model)
    else:
        described["architectures"] = [HEADS[model.kind].architecture]
        described["classifier_dropout"] = model.dropout.rate
    state = {
        name_in_file: model.get_parameter(name)
        for name_in_file, name in _names(model).items()
        if _reads_pooler(model) or not name.startswith("bert.pooler.")
    }
    # Labels stay in the order of their numbers, except in a tagger.
    config = json.dumps(dict(sorted(described.items())), indent=2, sort_keys=is_tagger)
    weights = save_tensors(hf_state(state), metadata={"format": "pt"})
    return {CONFIG_FILE: f"{config}\n".encode(), WEIGHTS_FILE: weights}


def describe_task_model(folder_url: str) -> tuple[tuple[str, ...], dict[str, Any]]:
    """Read `TunedModel.labels` and `about` of a fine-tuned model, without its weights.

    Raises:
        CheckpointError: The config.json is missing, unreadable, or of another model.
    """
    hf, where = read_config(folder_url), f"{folder_url.rstrip('/')}/{CONFIG_FILE}"
    kind, _ = _find_kind(hf, where=where)
    return _labels(hf, kind=kind, outputs=len(hf.id2label or ()), where=where), hf.bertloom


def load_task_model(folder_url: str) -> TunedModel:
    """Load a fine-tuned model from its folder, a local path or any fsspec URL.

    Span and tagging do not use the pooler, so it is not saved and is 0 here.

    Raises:
        CheckpointError: The model is missing, unreadable, or of another type.
    """
    read = read_checkpoint(folder_url)
    hf, where = read.described, read.where
    kind, lstm = _find_kind(hf, where=where)
    head = _file_name("classifier.weight", kind, has_bilstm=isinstance(lstm, _BiLSTMFields))
    if head not in read.state:
        raise CheckpointError(
            f"{read.weights_url}: no {head}: expected the head of a model fine-tuned for {kind}"
        )
    outputs = read.state[head].shape[0]
    model = _build(read, lstm, kind=kind, outputs=outputs)
    names = _names(model)
    shapes = {name_in_file: model.get_parameter(name).shape for name_in_file, name in names.items()}
    parameters = from_hf_state(read.state, shapes, where=read.weights_url)
    if _reads_pooler(model) and "bert.pooler.weight" not in parameters:
        raise CheckpointError(
            f"{read.weights_url}: no pooler, which {kind} reads: the model is incomplete"
        )
    weights = {names[in_file]: value for in_file, value in parameters.items()}
    model.load_state_dict(weights, strict=False)
    labels = _labels(hf, kind=kind, outputs=outputs, where=where)
    return TunedModel(model, labels, hf.bertloom)


class _LSTMFields(BaseModel):
    model_config = ConfigDict(strict=True)

    lstm_hidden_size: int = Field(gt=0, lt=1 << 31)
    dropout: DropoutProb


class _TaggerFields(_LSTMFields):
    """Shape of a feature-based tagger."""

    layers: LayerChoice


class _BiLSTMFields(_LSTMFields):
    """Shape of a BiLSTM on the encoder."""

    kind: TaskTypeName


def _lstm_fields(model: TaskModel | FeatureTagger) -> dict[str, Any]:
    """Return the field of config.json about LSTM layers."""
    size = {"lstm_hidden_size": model.lstm_hidden_size}
    if isinstance(model, FeatureTagger):
        return {SHAPE_KEY: {"layers": model.layers, **size, "dropout": model.dropouts[0].rate}}
    fields = {"kind": model.kind, **size, "dropout": model.dropout.rate, "note": _BILSTM_NOTE}
    return {BILSTM_KEY: fields}


def _build(
    read: HFCheckpoint, lstm: _LSTMFields | None, *, kind: TaskTypeName, outputs: int
) -> TaskModel | FeatureTagger:
    """Return a model whose weights are zero: the file has all of them."""
    config, hf = read.config, read.described
    shape: dict[str, Any] = {"vocab_size": hf.vocab_size, "is_causal": hf.is_decoder}
    if isinstance(lstm, _TaggerFields):
        encoder = BertModel(config, **shape)
        try:
            return FeatureTagger(encoder, outputs=outputs, **shape, **dict(lstm))
        except ConfigError as error:
            raise CheckpointError(f"{read.where}, {SHAPE_KEY}: {error}") from error
    if lstm is not None:
        dropout, size = lstm.dropout, lstm.lstm_hidden_size
    else:
        own = hf.classifier_dropout
        dropout, size = config.hidden_dropout_prob if own is None else own, None
    return TaskModel(
        config,
        kind=kind,
        outputs=outputs,
        dropout=dropout,
        lstm_hidden_size=size,
        draws_weights=False,
        **shape,
    )


def _names(model: TaskModel | FeatureTagger) -> dict[str, str]:
    """Return the names of all parameters by their names in the file (`_file_name`)."""
    has_bilstm = isinstance(model, TaskModel) and model.lstm is not None
    return {
        _file_name(name, model.kind, has_bilstm=has_bilstm): name
        for name, _ in model.named_parameters()
    }


def _file_name(name: str, kind: TaskTypeName, *, has_bilstm: bool) -> str:
    """Return the name of a parameter in a file. `hf_state` renames those of the encoder.

    Tensors of a BiLSTM have a separate prefix, so that transformers does not load its dense layer
    as one on the encoder if the sizes happen to match.
    """
    if name.startswith("bert."):
        return name
    if has_bilstm:
        return f"{BILSTM_PREFIX}{name}"
    return name.replace("classifier.", "qa_outputs.") if kind == "span" else name


def _reads_pooler(model: TaskModel | FeatureTagger) -> bool:
    return isinstance(model, TaskModel) and model.reads_pooler


def _plain(about: Mapping[str, Any]) -> Any:
    """Return canonical JSON values with sorted keys."""
    return json.loads(json.dumps(about, sort_keys=True, allow_nan=False))


def _label_fields(kind: TaskTypeName, labels: tuple[str, ...]) -> dict[str, Any]:
    """Return the fields of config.json about outputs; transformers counts id2label."""
    if kind in ("choice", "span"):
        return {}
    names = labels or ("LABEL_0",)
    problem = HEADS[kind].problem
    return {
        "id2label": {str(number): name for number, name in enumerate(names)},
        "label2id": {name: number for number, name in enumerate(names)},
        **({"problem_type": problem} if problem else {}),
    }


def _find_kind(hf: HFConfig, *, where: str) -> tuple[TaskTypeName, _LSTMFields | None]:
    """Return the task type of a model, and the shape of its LSTM layers, if any."""
    if hf.bertloom.get("method") == "feature-based":
        at = f"{where}, {SHAPE_KEY}"
        return "tagging", validate(_TaggerFields, hf.bertloom_feature_tagger, where=at)
    if hf.bertloom_bilstm is not None:
        fields = validate(_BiLSTMFields, hf.bertloom_bilstm, where=f"{where}, {BILSTM_KEY}")
        return fields.kind, fields
    for kind, head in HEADS.items():
        if head.architecture in hf.architectures and head.problem in ("", hf.problem_type):
            return kind, None
    known = sorted({head.architecture for head in HEADS.values()})
    raise CheckpointError(
        f"{where}: expected architectures with one of {', '.join(known)}, and the problem_type of "
        f"bertloom's task types, got {some_of(hf.architectures)} and {shown(hf.problem_type)}. "
        "Fine-tune the model first"
    )


def _labels(hf: HFConfig, *, kind: TaskTypeName, outputs: int, where: str) -> tuple[str, ...]:
    """Return the names of the outputs in order; transformers' defaults without id2label."""
    if HEADS[kind].outputs is not None:
        return ()
    defaults = {str(number): f"LABEL_{number}" for number in range(outputs)}
    names = hf.id2label or defaults
    if set(names) != set(defaults):
        raise CheckpointError(
            f"{where}: id2label has the keys {some_of(names)}, expected the numbers 0 to "
            f"{outputs - 1}, since the head has {outputs} outputs"
        )
    return tuple(str(names[number]) for number in defaults)
