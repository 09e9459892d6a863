"""A model's folder in Hugging Face's layout, which sentence-transformers opens too."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from flows.export.folders import NewFolder
from flows.store.artifacts import ArtifactStore
from model.encoder.hf_config import CONFIG_FILE, WEIGHTS_FILE
from pipelines.io.file_systems import file_system, open_stream
from pipelines.io.stage_inputs import InputFile, input_file
from pipelines.wordpiece.vocab_files import TOKENIZER_CONFIG_FILE, TOKENIZER_FILE, VOCAB_FILE
from schemas.errors import ConfigError
from schemas.manifest import Manifest, StageInput

TOKENIZER_FILES = (VOCAB_FILE, TOKENIZER_FILE, TOKENIZER_CONFIG_FILE)
_CHUNK = 1 << 20
_ENCODER, _POOLING = "sentence_transformers.models.Transformer", "1_Pooling"


def model_of(manifest: Manifest, *, store: ArtifactStore) -> Manifest:
    """The artifact that holds the model: itself, or of an evaluation the one that was chosen.

    Raises:
        ConfigError: it holds none that Hugging Face's classes know.
    """
    if manifest.stage == "evaluate":
        members = list(manifest.statistics.get("members", ()))
        if len(members) != 1:
            raise ConfigError(
                f"{manifest.artifact_id} is an ensemble of {len(members)} models, and a folder "
                f"holds one: export one of {', '.join(members)}"
            )
        [chosen] = [ref for ref in manifest.inputs if ref.name == members[0]]
        manifest = store.read_manifest(chosen.manifest)
    method = manifest.statistics.get("method", "fine-tune")
    if manifest.file(WEIGHTS_FILE) is None or method != "fine-tune":
        raise ConfigError(
            f"{manifest.artifact_id} of {manifest.stage} (method {method}) holds no model that "
            "Hugging Face's classes know: export one of pretrain, or of finetune with the method "
            "fine-tune"
        )
    return manifest


def write_model(source: StageInput, *, folder: NewFolder, pools: bool) -> None:
    """Copy the files of a model; with `pools` also what makes it an encoder of sentences.

    Raises:
        ArtifactCorruptError: a file is not what the manifest says.
    """
    for name in (CONFIG_FILE, WEIGHTS_FILE):
        _copy(input_file(source, name), folder=folder, name=name)
    write_tokenizer(source, folder=folder)
    if pools:
        config = json.loads(input_file(source, CONFIG_FILE).read())
        for name, value in _pooling(config).items():
            folder.write(name, (json.dumps(value, indent=2) + "\n").encode())


def write_tokenizer(source: StageInput, *, folder: NewFolder) -> None:
    """Copy what `transformers` makes a tokenizer of."""
    for name in TOKENIZER_FILES:
        folder.write(name, input_file(source, name).read())


def _copy(file: InputFile, *, folder: NewFolder, name: str) -> None:
    digest, size = hashlib.sha256(), 0
    fs, path = file_system(file.url)
    try:
        with open_stream(fs, path) as source, folder.open(name) as sink:
            while chunk := source.read(_CHUNK):
                digest.update(chunk)
                size += sink.write(chunk)
    except FileNotFoundError as error:
        raise file.missing() from error
    file.check(size, digest.hexdigest())


def _pooling(config: dict[str, Any]) -> dict[str, Any]:
    """What sentence-transformers reads: the encoder, then the mean over its tokens."""
    modules = [
        {"idx": 0, "name": "0", "path": "", "type": _ENCODER},
        {
            "idx": 1, "name": "1", "path": _POOLING, "type": "sentence_transformers.models.Pooling"
        },
    ]  # fmt: skip
    length = {"max_seq_length": config["max_position_embeddings"], "do_lower_case": False}
    mean = {
        "word_embedding_dimension": config["hidden_size"],
        "pooling_mode_mean_tokens": True,
        "pooling_mode_cls_token": False,
        "pooling_mode_max_tokens": False,
    }
    return {
        "modules.json": modules,
        "sentence_bert_config.json": length,
        f"{_POOLING}/config.json": mean,
    }
