"""Model folders in the layout of Hugging Face, which sentence-transformers opens too."""

from __future__ import annotations

import json

from flows.export.atomic_folder import AtomicFolder
from flows.store.artifacts import ArtifactStore
from model.hf_config import CONFIG_FILE, WEIGHTS_FILE
from model.task_results import read_evaluation
from pipelines.io.file_systems import file_system, open_stream
from pipelines.io.stage_inputs import InputFile, input_file
from pipelines.wordpiece.vocab_files import TOKENIZER_CONFIG_FILE, TOKENIZER_FILE, VOCAB_FILE
from schemas.errors import ConfigError
from schemas.manifest import Manifest, StageInput

_SENTENCE_MODULES = [
    {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
    {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
]


def published_model(manifest: Manifest, *, store: ArtifactStore) -> Manifest:
    """Return the artifact that holds the weights: of an evaluation, its best trial.

    Raises:
        ConfigError: The artifact is an ensemble, or no model in the layout of Hugging Face.
    """
    if manifest.stage == "evaluate":
        members = read_evaluation(manifest).members
        if len(members) != 1:
            raise ConfigError(
                f"{manifest.artifact_id}: expected one model, got an ensemble of {len(members)}. "
                f"Export one of {', '.join(members)}."
            )
        [chosen] = [ref for ref in manifest.inputs if ref.name == members[0]]
        manifest = store.read_manifest(chosen.manifest)
    method = manifest.statistics.get("method", "fine-tune")
    if method != "fine-tune":
        raise ConfigError(
            f"{manifest.artifact_id}: expected a model of pretrain, or of finetune with method "
            f"fine-tune, got method {method}. transformers has no class for it."
        )
    return manifest


def write_model(source: StageInput, *, folder: AtomicFolder, add_pooling: bool) -> None:
    """Copy the files of a model; `add_pooling` makes it an encoder of sentences, too.

    Raises:
        ArtifactCorruptError: A file does not match the manifest.
    """
    for name in (CONFIG_FILE, WEIGHTS_FILE):
        _copy(input_file(source, name), folder, name)
    write_tokenizer(source, folder=folder)
    if add_pooling:
        config = json.loads(input_file(source, CONFIG_FILE).read())
        encoder = {"max_seq_length": config["max_position_embeddings"], "do_lower_case": False}
        pooling = {
            "word_embedding_dimension": config["hidden_size"],
            "pooling_mode_mean_tokens": True,
            "pooling_mode_cls_token": False,
            "pooling_mode_max_tokens": False,
        }
        _write_json("modules.json", _SENTENCE_MODULES, folder)
        _write_json("sentence_bert_config.json", encoder, folder)
        _write_json("1_Pooling/config.json", pooling, folder)


def write_tokenizer(source: StageInput, *, folder: AtomicFolder) -> None:
    """Copy the tokenizer's files under the names that `transformers` expects."""
    for name in (VOCAB_FILE, TOKENIZER_FILE, TOKENIZER_CONFIG_FILE):
        folder.write(name, input_file(source, name).read())


def _copy(file: InputFile, folder: AtomicFolder, name: str) -> None:
    fs, path = file_system(file.url)
    try:
        with open_stream(fs, path) as source:
            file.check(*folder.copy(name, source))
    except FileNotFoundError as error:
        raise file.missing() from error


def _write_json(name: str, value: object, folder: AtomicFolder) -> None:
    folder.write(name, (json.dumps(value, indent=2) + "\n").encode())
