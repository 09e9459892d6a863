"""Files and config.json of checkpoints in Hugging Face's layout, without torch.

Checkpoints are untrusted input: every value of their JSON is validated.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from pipelines.io.file_systems import file_system, read_file
from pipelines.io.hub import download_advice as hub_advice
from pipelines.io.hub import hub_error, is_hub_url, split_revision
from pipelines.io.raw_files import digest_file
from pipelines.wordpiece.vocab_files import TOKENIZER_FILE, VOCAB_FILE, read_vocab
from schemas.errors import BertloomError, CheckpointError, MissingInputError
from schemas.manifest import RawInput
from schemas.model_configs import ModelConfig, Objective

CONFIG_FILE = "config.json"
WEIGHTS_FILE = "model.safetensors"
_GOOGLE_MODEL = re.compile(r"bert-(base|large)-[a-z-]*(cased|chinese|masking)[a-z-]*")
_HUB_MODEL = re.compile(r"\w[\w.-]*/[\w.-]*bert-[\w.-]+", re.IGNORECASE)
_SHOWN_NAMES, _SHOWN_LETTERS, _SHOWN_PROBLEMS = 8, 60, 3

Activation = Literal["gelu", "gelu_tanh"]
Data = TypeVar("Data", bound=BaseModel)

_WRITTEN_ACTIVATIONS: dict[Activation, str] = {"gelu": "gelu", "gelu_tanh": "gelu_pytorch_tanh"}

READ_ACTIVATIONS: dict[str, Activation] = {
    "gelu": "gelu",
    "gelu_python": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_python_tanh": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_accurate": "gelu_tanh",
}
"""Hugging Face's names of the two forms of gelu."""

_ARCHITECTURES: dict[Objective, str] = {
    "mlm+nsp": "BertForPreTraining",
    "mlm": "BertForMaskedLM",
    "left-to-right": "BertLMHeadModel",
}


# Files


def shown(value: Any) -> str:
    """Return a short representation of a value from a file, for messages."""
    if isinstance(value, dict | list):
        return f"a {'list' if isinstance(value, list) else 'JSON object'}"
    text = str(value)[: _SHOWN_LETTERS + 1] if isinstance(value, str) else repr(value)
    if len(text) > _SHOWN_LETTERS:
        text = f"{text[:_SHOWN_LETTERS]}..."
    return repr(text) if isinstance(value, str) else text


def names_in(folder_url: str) -> list[str]:
    """Return the sorted names in a folder; none if there is no such folder.

    Raises:
        CheckpointError: It cannot be listed.
        InputError: It is in the Hugging Face Hub, which does not answer or refuses access.
    """
    try:
        fs, folder = file_system(folder_url)
        return sorted(
            str(path).rstrip("/").rpartition("/")[2] for path in fs.ls(folder, detail=False)
        )
    except Exception as error:  # exception types differ by protocol
        is_missing = isinstance(error, (FileNotFoundError, NotADirectoryError))
        if is_missing and not is_hub_url(folder_url):
            return []
        raise _unreadable(folder_url, error) from error


def _unreadable(url: str, error: Exception) -> BertloomError:
    if is_hub_url(url):
        return hub_error(url, error, advice=hub_advice(url))
    return CheckpointError(
        f"{url}: cannot be read: {error}. Expected a checkpoint in Hugging Face's layout at a "
        "local path or an fsspec URL; a remote one needs its own package (s3fs, gcsfs)"
    )


def check_layout(folder_url: str, *, needs_vocabulary: bool = False) -> HFConfig:
    """Check that a folder has a readable checkpoint, without reading its weights.

    Args:
        folder_url: local or any fsspec URL.
        needs_vocabulary: Read its vocab.txt or tokenizer.json, too.

    Returns:
        Its config.json.

    Raises:
        MissingInputError: A file is missing.
        CheckpointError: Its config.json does not describe a supported BERT, or its files cannot be
            read.
        VocabularyError: Its vocabulary is not a WordPiece vocabulary.
    """
    names = names_in(folder_url)
    folder = folder_url.rstrip("/")
    if CONFIG_FILE not in names or WEIGHTS_FILE not in names:
        advice = convert_advice(folder) if names else download_advice(folder)
        raise MissingInputError(
            f"{folder_url}: expected a checkpoint in Hugging Face's layout ({CONFIG_FILE}, "
            f"{WEIGHTS_FILE}), found {some_of(names)}{advice}"
        )
    config = read_config(folder)
    if needs_vocabulary:
        if VOCAB_FILE not in names and TOKENIZER_FILE not in names:
            raise MissingInputError(
                f"{folder_url}: expected {VOCAB_FILE} or {TOKENIZER_FILE}, got {some_of(names)}. "
                "Copy the vocabulary that the checkpoint was trained with there."
            )
        read_vocab(f"{folder}/{vocabulary_in(names)}")
    return config


def checkpoint_raw_inputs(folder_url: str, *, optional: Iterable[str] = ()) -> tuple[RawInput, ...]:
    """Return the files of a checkpoint in Hugging Face's layout outside the store.

    Args:
        folder_url: Folder of the checkpoint, local or any fsspec URL.
        optional: Names of further files that may be missing.

    Raises:
        MissingInputError: The checkpoint does not exist.
        CheckpointError: Its config.json does not describe a supported BERT.
    """
    check_layout(folder_url)
    names = names_in(folder_url)
    required = [CONFIG_FILE, WEIGHTS_FILE, *{vocabulary_in(names)}.intersection(names)]
    files = []
    for name in [*required, *(name for name in optional if name in names and name not in required)]:
        uri = f"{folder_url.rstrip('/')}/{name}"
        size, digests = digest_file(uri)
        files.append(RawInput(name=name, uri=uri, size_bytes=size, sha256=digests["sha256"]))
    return tuple(files)


def vocabulary_in(names: Collection[str]) -> str:
    """Return the name of a checkpoint's vocabulary: vocab.txt, or tokenizer.json without it."""
    has_only_json = TOKENIZER_FILE in names and VOCAB_FILE not in names
    return TOKENIZER_FILE if has_only_json else VOCAB_FILE


def vocabulary_url(folder_url: str) -> str:
    """Return the URL of a checkpoint's vocabulary."""
    return f"{folder_url.rstrip('/')}/{vocabulary_in(names_in(folder_url))}"


def convert_advice(folder: str) -> str:
    """Return how to convert a checkpoint in another layout."""
    arguments = repr(folder)
    if is_hub_url(folder):
        repository, revision = split_revision(folder)
        arguments = f"{repository!r}, revision={revision!r}"
    return (
        ". Convert it with transformers: "
        f"BertForPreTraining.from_pretrained({arguments}).save_pretrained(NEW)"
    )


def download_advice(name: str) -> str:
    """Return how to read a missing checkpoint that is named like a model of the Hub, or ""."""
    local = name.rpartition("/")[2]
    if _HUB_MODEL.fullmatch(name):
        hub_id = name
    elif _GOOGLE_MODEL.fullmatch(local) and "://" not in name:
        hub_id = f"google-bert/{local}"
    else:
        return ""
    return f". For a model of the Hugging Face Hub, pass hf://{hub_id}. {hub_advice(hub_id)}"


def some_of(names: Collection[str]) -> str:
    """Return the first sorted names and the number of the others."""
    listed = sorted(names)
    more = len(listed) - _SHOWN_NAMES
    return (", ".join(listed[:_SHOWN_NAMES]) or "nothing") + (
        f" and {more} more" if more > 0 else ""
    )


def read_part(folder: str, name: str) -> bytes:
    """Read a file of a checkpoint.

    Raises:
        CheckpointError: The file does not exist or cannot be read.
    """
    url = f"{folder}/{name}"
    try:
        return read_file(url)
    except Exception as error:  # exception types differ by protocol
        raise _unreadable(url, error) from error


# config.json


def hf_config(
    config: ModelConfig, *, vocab_size: int, objective: Objective, pad_token_id: int = 0
) -> dict[str, Any]:
    """Return the config.json of a model.

    It does not name a version of transformers, so that equal models have equal files. Versions 4
    and 5 read it.
    """
    is_causal = objective == "left-to-right"
    return {
        "architectures": [_ARCHITECTURES[objective]],
        "attention_probs_dropout_prob": config.attention_probs_dropout_prob,
        "dtype": "float32",
        "hidden_act": _WRITTEN_ACTIVATIONS[config.hidden_act],
        "hidden_dropout_prob": config.hidden_dropout_prob,
        "hidden_size": config.hidden_size,
        "initializer_range": config.initializer_range,
        "intermediate_size": config.feed_forward_size,
        "is_decoder": is_causal,
        "layer_norm_eps": config.layer_norm_eps,
        "max_position_embeddings": config.max_position_embeddings,
        "model_type": "bert",
        "num_attention_heads": config.num_attention_heads,
        "num_hidden_layers": config.num_hidden_layers,
        "pad_token_id": pad_token_id,
        "position_embedding_type": "absolute",
        "tie_word_embeddings": True,
        "type_vocab_size": config.type_vocab_size,
        "vocab_size": vocab_size,
    }


_MAX_SIZE = (1 << 31) - 1


class HFConfig(ModelConfig):
    """Fields of a config.json that determine a model, with the defaults of transformers."""

    model_config = ConfigDict(strict=True)

    vocab_size: int = Field(ge=1)
    intermediate_size: int = Field(default=3072, ge=1)
    initializer_range: float = Field(default=0.02, gt=0, le=1)
    layer_norm_eps: float = Field(default=1e-12, gt=0, le=1)
    model_type: Literal["bert"] = "bert"  # config.json had none before 2020
    position_embedding_type: Literal["absolute"] = "absolute"
    add_cross_attention: bool = False
    pruned_heads: dict[str, Any] = Field(default={}, max_length=0)
    is_decoder: bool = False
    architectures: list[str] = Field(default=[])

    # Of fine-tuned models
    problem_type: str | None = None
    id2label: dict[str, Any] | None = None
    classifier_dropout: float | None = Field(default=None, ge=0, le=1)
    bertloom: dict[str, Any] = Field(default={})
    bertloom_feature_tagger: dict[str, Any] | None = None
    bertloom_bilstm: dict[str, Any] | None = None

    @model_validator(mode="before")
    @classmethod
    def _keep_known(cls, values: Any) -> Any:
        """Drop nulls and the fields that do not determine a model."""
        if not isinstance(values, dict):
            return values
        return {name: values[name] for name in cls.model_fields if values.get(name) is not None}

    @field_validator("hidden_act", mode="before")
    @classmethod
    def _read_activation(cls, name: Any) -> Any:
        if name not in (names := list(READ_ACTIVATIONS)):
            raise ValueError(f"expected one of {', '.join(names)}")
        return READ_ACTIVATIONS[name]

    def _problems(self) -> Iterator[str]:
        yield from super()._problems()
        if self.add_cross_attention:
            yield "add_cross_attention: expected false, got true"
        for name, value in self:
            if isinstance(value, int) and value > _MAX_SIZE:
                yield f"{name}: expected at most {_MAX_SIZE:,}, got {shown(value)}"

    @property
    def objective(self) -> Objective:
        """Objective that the class implies; `mlm+nsp` for other classes."""
        if self.is_decoder:
            return "left-to-right"
        return "mlm" if "BertForMaskedLM" in self.architectures else "mlm+nsp"

    @property
    def shape(self) -> ModelConfig:
        """Shape of the encoder."""
        fields = {name: getattr(self, name) for name in ModelConfig.model_fields}
        if self.intermediate_size == 4 * self.hidden_size:
            # The preset's representation, so that a model read back equals itself.
            fields["intermediate_size"] = 0
        return ModelConfig(**fields)


def read_config(folder_url: str) -> HFConfig:
    """Read the config.json of a checkpoint.

    Raises:
        CheckpointError: It cannot be read, or describes another architecture or an unsupported
            kind of BERT.
    """
    folder = folder_url.rstrip("/")
    content = read_part(folder, CONFIG_FILE)
    try:
        return HFConfig.model_validate_json(content)
    except ValidationError as error:
        raise _invalid(error, f"{folder}/{CONFIG_FILE}") from error


def validate(data_type: type[Data], values: Any, *, where: str) -> Data:
    """Return values from a file as an object of a type.

    Raises:
        CheckpointError: A value is missing or wrong.
    """
    try:
        return data_type.model_validate(values)
    except ValidationError as error:
        raise _invalid(error, where) from error


def _invalid(error: ValidationError, where: str) -> CheckpointError:
    """Return the error for a file of a checkpoint, with its first problems."""
    problems = []
    for item in error.errors()[:_SHOWN_PROBLEMS]:
        problem = item["msg"].removeprefix("Value error, ")
        if name := ".".join(map(str, item["loc"])):
            problem = f"{name}: {problem}, got {shown(item['input'])}"
        problems.append(problem)
    more = error.error_count() - len(problems)
    if more:
        problems.append(f"and {more} more")
    return CheckpointError(f"{where}: {'; '.join(problems)}".replace("\n", " "))
