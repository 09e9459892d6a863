"""Runs the four corpus stages as plain functions, without a store, for tests that compare runs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from flows.sample import SampleFiles, write_sample
from pipelines.documents.job import build_documents
from pipelines.instances.job import build_instances
from pipelines.tokens.job import build_tokens
from pipelines.vocabulary.job import build_vocabulary
from schemas.corpus_configs import (
    BooksSource,
    DocumentsConfig,
    InstancesConfig,
    MaskingConfig,
    VocabularyConfig,
    WikipediaSource,
)
from schemas.execution_configs import ExecutionConfig
from schemas.manifest import StageInput, StageOutput
from schemas.recipe import Recipe

STAGES: dict[str, Any] = {
    "build-documents": build_documents,
    "build-vocabulary": build_vocabulary,
    "build-tokens": build_tokens,
    "build-instances": build_instances,
}


def as_input(name: str, output: StageOutput, data: str) -> StageInput:
    return StageInput(
        name=name,
        artifact_id=name,
        data=data,
        files=output.files,
        counters=output.counters,
        statistics=output.statistics,
    )


def run_corpus(
    recipe: Recipe, folder: Path | str, *, execution: ExecutionConfig | None = None
) -> dict[str, StageOutput]:
    """The outputs of each stage, below a folder or URL; instances by `build-instances.NAME`."""
    outputs: dict[str, StageOutput] = {}
    inputs: dict[str, StageInput] = {}
    configs: dict[str, Any] = {
        "build-documents": recipe.build_documents,
        "build-vocabulary": recipe.build_vocabulary,
        "build-tokens": recipe.build_tokens,
        **{f"build-instances.{name}": config for name, config in recipe.build_instances.items()},
    }
    for label, config in configs.items():
        data, name = _folder(folder, label), label.removeprefix("build-")
        outputs[label] = STAGES[label.partition(".")[0]](
            config, inputs=inputs, output=data, execution=execution or ExecutionConfig()
        )
        inputs[name] = as_input(name, outputs[label], data)
    return outputs


def _folder(folder: Path | str, name: str) -> str:
    if isinstance(folder, str):
        return f"{folder}/{name}"
    path = folder / name
    path.mkdir(parents=True)
    return str(path)


def digests(outputs: Mapping[str, StageOutput]) -> dict[str, dict[str, str]]:
    """sha256 of every file by stage and logical name, record files for the report included."""
    return {
        stage: {entry.path: entry.sha256 for entry in (*output.files, *output.records)}
        for stage, output in outputs.items()
    }


def small_sample(folder: Path | str) -> SampleFiles:
    """Write a sample of seven bz2 streams and three books below a folder or URL."""
    return write_sample(str(folder), articles=120, tales=3, pages_per_stream=20)


def small_recipe_file(folder: Path) -> Path:
    """The file of a recipe over a small sample, both of them in the folder."""
    recipe = small_recipe(small_sample(folder / "sample"))
    path = folder / "recipe.yaml"
    text = yaml.safe_dump(recipe.model_dump(mode="json", exclude={"store", "execution"}))
    path.write_text(text, encoding="utf-8")
    return path


def small_recipe(sample: SampleFiles, *, reverse: bool = False) -> Recipe:
    """A recipe over a written sample, in several splits of each source."""
    sources = [
        WikipediaSource(name="samplewiki", paths=(sample.pages,), target_split_bytes=4 << 10),
        BooksSource(name="tales", paths=(sample.books,), target_split_bytes=32 << 10),
    ]
    return Recipe(
        name="test",
        build_documents=DocumentsConfig(sources=tuple(sources[::-1] if reverse else sources)),
        build_vocabulary=VocabularyConfig(vocab_size=400),
        build_instances={
            "length-64": InstancesConfig(
                max_seq_length=64,
                dupe_factor=2,
                held_out_fraction=0.1,
                masking=MaskingConfig(max_predictions_per_seq=10),
            )
        },
    )
