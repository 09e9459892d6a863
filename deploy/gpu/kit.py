"""Build the kit for a GPU machine without network: wheels, and the data of a small training.

    python -m deploy.gpu.kit [--recipe FILE] [--store FOLDER] [--kit FOLDER] [--no-wheels]

The kit has what a checkout lacks: `wheels/`, `data.tar.zst` (instances, vocabulary, examples) and
`plan.json` (the steps that train on them). Copy the checkout with the kit to the GPU machine.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Collection, Mapping
from pathlib import Path

import zstandard

from deploy.gpu.plan import DATA_FILE, PLAN_FILE, WHEELS_FOLDER, Plan, PlannedStep
from flows.bert import recipe_steps
from flows.recipes.loader import load_recipe
from flows.run.graph import Step
from flows.run.step_execution import stage_input
from flows.running import run_recipe
from flows.store.artifacts import ArtifactStore
from schemas.errors import BertloomError, ConfigError
from schemas.manifest import Manifest, StageInput
from schemas.recipe import Recipe

ROOT = Path(__file__).parents[2]
WHEELS = (
    "annotated-types",
    "pydantic",
    "pydantic_core",
    "rfc8785",
    "typing-inspection",
    "typing_extensions",
)
"""Packages of a training that a machine with torch and transformers lacks, or has too old."""

MAX_BYTES = 60_000_000
_TRAINING = ("pretrain", "finetune", "evaluate")
_PLATFORMS = ("manylinux_2_17_x86_64", "manylinux2014_x86_64")
_COMPRESSION_LEVEL = 12


def main() -> None:
    """Build the kit, or end with an error."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--recipe", default=str(Path(__file__).with_name("mini.yaml")))
    parser.add_argument("--store", default="build/gpu-store", help="store for the data")
    parser.add_argument("--kit", type=Path, default=Path("build/gpu-kit"))
    parser.add_argument("--no-wheels", action="store_true", help="leave the wheels out")
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    options = parser.parse_args()
    try:
        recipe = load_recipe(options.recipe, store=options.store, workers=options.workers)
        build_kit(recipe, options.kit, has_wheels=not options.no_wheels)
    except BertloomError as error:
        data = os.environ.get("BERTLOOM_DATA", "not set")
        sys.exit(f"error: {error}\nmini.yaml reads the folder BERTLOOM_DATA, which is {data}")
    sizes = {path.name: _size(path) for path in sorted(options.kit.iterdir())}
    for name, size in {**sizes, "in all": sum(sizes.values())}.items():
        print(f"{size / 1e6:8.1f} MB  {name}")


def build_kit(recipe: Recipe, kit: Path, *, has_wheels: bool = True) -> None:
    """Build the data of a recipe and write the kit.

    Raises:
        BertloomError: Data is missing or wrong, or the kit is larger than 60 MB.
        subprocess.CalledProcessError: pip could not download a wheel.
    """
    steps = [step for step in recipe_steps(recipe) if step.stage.name in _TRAINING]
    artifacts = _build_inputs(recipe, steps)
    shutil.rmtree(kit, ignore_errors=True)
    kit.mkdir(parents=True)
    write_archive(kit / DATA_FILE, artifacts)
    plan = Plan(
        recipe=recipe.name,
        artifacts={
            label: artifact.model_copy(update={"data": label})
            for label, artifact in artifacts.items()
        },
        steps=tuple(map(_planned, steps)),
    )
    (kit / PLAN_FILE).write_text(plan.model_dump_json(indent=1), encoding="utf-8")
    if has_wheels:
        download_wheels(kit / WHEELS_FOLDER)
    if (size := _size(kit)) > MAX_BYTES:
        raise ConfigError(
            f"{kit}: expected at most {MAX_BYTES / 1e6:.0f} MB, got {size / 1e6:.1f} MB. "
            "Take fewer sources in the recipe"
        )


def _build_inputs(recipe: Recipe, steps: Collection[Step]) -> dict[str, StageInput]:
    """Return the artifacts that the training reads, by label, after building them."""
    trained = {step.label for step in steps}
    labels = {label for step in steps for label in step.inputs.values()} - trained
    manifests: dict[str, Manifest] = {}
    for label in sorted(labels):
        results = run_recipe(recipe, engine="local", until=label)
        manifests |= {result.label: result.manifest for result in results}
    store = ArtifactStore(recipe.store)
    return {label: stage_input(label, manifests[label], store=store) for label in sorted(labels)}


def _planned(step: Step) -> PlannedStep:
    config = step.config.model_dump(mode="json")
    return PlannedStep(label=step.label, stage=step.stage.name, config=config, inputs=step.inputs)


def write_archive(path: Path, artifacts: Mapping[str, StageInput]) -> None:
    """Write the files of local artifacts to a compressed archive with a folder per artifact."""
    with (
        path.open("wb") as file,
        zstandard.ZstdCompressor(level=_COMPRESSION_LEVEL).stream_writer(file) as compressed,
        tarfile.open(fileobj=compressed, mode="w|") as archive,
    ):
        for label, artifact in artifacts.items():
            for entry in artifact.files:
                name = f"{label}/{entry.stored_name}"
                archive.add(Path(artifact.data, entry.stored_name), name, filter=_anonymous)


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
    return member.replace(mtime=0, mode=0o644, uid=0, gid=0, uname="", gname="", deep=False)


def download_wheels(folder: Path) -> None:
    """Download the wheels of Python 3.12 on Linux x86-64, in the versions of requirements.lock."""
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    pins = dict(re.findall(r"^([\w.-]+)==([\w.]+)", lock, re.M))
    platforms = [option for name in _PLATFORMS for option in ("--platform", name)]
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    command += ["--only-binary=:all:", "--python-version=3.12", "--implementation=cp", *platforms]
    subprocess.run(
        [*command, "--dest", str(folder), *(f"{name}=={pins[name]}" for name in WHEELS)],
        check=True,
    )


def _size(path: Path) -> int:
    return path.stat().st_size + sum(file.stat().st_size for file in path.rglob("*"))


if __name__ == "__main__":
    main()
