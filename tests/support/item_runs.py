"""Run the corpus stages in a folder laid out as a store, with the finished items of earlier runs.

`python -m support.item_runs RECIPE.json ROOT ATTEMPT STAGE [CHARACTERS]` runs them up to a stage,
with documents in batches of this many characters, in a process that a test may kill.
"""

from __future__ import annotations

import functools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import fsspec
from support.corpus_builder import as_input
from support.paths import PYTHONPATH

from pipelines.build_documents import build_documents
from pipelines.build_instances import build_instances
from pipelines.build_tokens import build_tokens
from pipelines.build_vocabulary import build_vocabulary
from pipelines.documents import build_shard
from schemas.execution_configs import ExecutionConfig
from schemas.fingerprint import content_digest
from schemas.manifest import StageInput, StageOutput
from schemas.recipe import Recipe

STAGES: dict[str, Any] = {
    "build-documents": build_documents,
    "build-vocabulary": build_vocabulary,
    "build-tokens": build_tokens,
    "build-instances": build_instances,
}


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


def run_and_kill(recipe: Recipe, root: Path, *, batch_characters: int | None = None) -> list[Path]:
    """Run build-documents in a process, kill it, and return the records of finished items.

    Args:
        recipe: Recipe to run.
        root: Folder of the store, in which ATTEMPT is `killed`.
        batch_characters: Length of a batch of documents; None: the default.
    """
    file = root.parent / "recipe.json"
    file.write_text(recipe.model_dump_json(), encoding="utf-8")
    command = [sys.executable, "-m", "support.item_runs", str(file), str(root), "killed"]
    command += ["build-documents", *([str(batch_characters)] if batch_characters else [])]
    process = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": PYTHONPATH})

    def records() -> list[Path]:
        return sorted(root.glob("pieces/*/0/*/*.json"))

    try:
        while process.poll() is None and len(records()) < 3:
            time.sleep(0.002)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == -signal.SIGKILL
    return records()


def told(outputs: Mapping[str, StageOutput]) -> dict[str, Any]:
    """All that stages say of what they made, apart from physical names and reuse."""
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


if __name__ == "__main__":
    given, root, attempt, until, *batches = sys.argv[1:]
    if batches:
        build_shard.document_batches = functools.partial(
            build_shard.document_batches, batch_characters=int(batches[0])
        )
    run_stages(
        Recipe.model_validate_json(Path(given).read_text("utf-8")), root, attempt, until=until
    )
