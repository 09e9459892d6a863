"""Run the corpus stages in a folder laid out as a store, with finished items of earlier runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import fsspec
from support.corpus_builder import STAGES, as_input

from schemas.execution_configs import ExecutionConfig
from schemas.fingerprint import content_digest
from schemas.manifest import StageInput, StageOutput
from schemas.recipe import Recipe


def run_stages(
    recipe: Recipe,
    root: str,
    attempt: str,
    *,
    reuse: bool = True,
    workers: int = 1,
    until: str = "build-instances",
) -> dict[str, StageOutput]:
    """The outputs of the stages, whose files are in ROOT/artifacts/STAGE/ATTEMPT/data."""
    outputs: dict[str, StageOutput] = {}
    inputs: dict[str, StageInput] = {}
    (instances,) = recipe.build_instances.values()
    for stage, build in STAGES.items():
        provides = stage.removeprefix("build-")
        output = f"{root}/artifacts/{stage}/{attempt}/data"
        pieces = f"{root}/pieces/{stage}/0"
        for folder in (output, pieces):
            fs, path = fsspec.core.url_to_fs(folder)
            fs.makedirs(path, exist_ok=True)
        outputs[stage] = build(
            instances if provides == "instances" else getattr(recipe, f"build_{provides}"),
            inputs=inputs,
            output=output,
            execution=ExecutionConfig(workers=workers),
            pieces=pieces if reuse else "",
        )
        inputs[provides] = as_input(provides, outputs[stage], output)
        if stage == until:
            break
    return outputs


def describe_outputs(outputs: Mapping[str, StageOutput]) -> dict[str, Any]:
    """Return what stages report about their outputs, without physical names and reuse."""
    return {
        stage: (
            content_digest(output.files),
            [entry.model_copy(update={"stored_name": ""}) for entry in output.files],
            output.counters,
            output.statistics,
            output.notes,
        )
        for stage, output in outputs.items()
    }
