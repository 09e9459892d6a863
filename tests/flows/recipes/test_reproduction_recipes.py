"""The recipe that is read out of manifests makes the steps that the recipe before made."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
import yaml

from flows.bert import recipe_steps
from flows.recipes.loader import load_recipe
from flows.recipes.packaged import described_recipe
from flows.reproduction.inputs import placed
from flows.reproduction.recipe import recorded_recipe
from schemas.errors import ConfigError
from schemas.manifest import Environment, InputRef, Manifest, ProducedBy, RawInput
from schemas.recipe import Recipe

RECIPE = """
name: everything
build_documents:
  sources: [{kind: text, name: own, paths: [texts]}]
decontaminate: {tasks: [cola], min_overlap: 0.3}
find_near_duplicates: {threshold: 0.9}
build_vocabulary: {vocab_file: /given/vocab.txt}
build_instances: {short: {max_seq_length: 32}, long: {max_seq_length: 64}, unused: {}}
pretrain:
  first: {instances: short, model: {preset: tiny}, budget: {max_steps: 30}, snapshot_steps: [10]}
  second: {instances: long, init_from_phase: first, optimizer_state: reset, budget: {max_steps: 5}}
  other: {instances: short, init_checkpoint: /models/bert-mini, budget: {max_steps: 5}}
build_examples:
  cola: {task: cola, data_dir: /tasks/cola}
  mine: {task: sst-2, data_files: {train: [/a/train.tsv], dev: [/b/dev.tsv]}}
finetune:
  early: {examples: cola, init_from_phase: first, init_from_step: 10, batch_size: [8, 16],
      restarts: 2}
  last: {examples: cola, init_from_phase: first, init_from_step: 30, batch_size: 8,
      learning_rate: 1.0e-4, num_epochs: 1}
  given: {examples: cola, init_checkpoint: /store/artifacts/pretrain/ab12/data, batch_size: 8,
      num_epochs: 1}
  scratch: {examples: mine, model: {preset: tiny}, batch_size: 8, learning_rate: 1.0e-4,
      num_epochs: [1, 2]}
  guess: {examples: cola, method: majority}
ensembles:
  both: {members: [early, last], ensemble_size: 3}
"""
STAGES = ("evaluate", "tabulate", "find", "finetune.scratch", "pretrain.other")


def raw(name: str, uri: str, identity: str = "") -> RawInput:
    return RawInput(name=name, uri=uri, size=1, sha256="a" * 64, identity=identity)


def manifests_of(recipe: Recipe) -> dict[str, Manifest]:
    """What a run of it would leave, but for what is in the files."""
    made: dict[str, Manifest] = {}
    for step in recipe_steps(recipe):
        digest = hashlib.sha256(step.label.encode()).hexdigest()
        refs = [
            InputRef(
                name=name,
                stage=made[label].stage,
                artifact_id=made[label].artifact_id,
                cache_key=made[label].cache_key,
                content=made[label].content,
                manifest=made[label].path,
            )
            for name, label in step.inputs.items()
        ]
        made[step.label] = Manifest(
            artifact_id=digest[:16],
            stage=step.stage.name,
            stage_version=step.stage.version,
            cache_key=digest,
            key_spec={"stage": step.stage.name, "config": step.config.cache_key_fields()},
            content=f"sha256:{digest}",
            logical_content="",
            location=f"artifacts/{step.stage.name}/{digest[:16]}",
            files=(),
            counters={},
            statistics={},
            table="",
            notes=(),
            raw_inputs=tuple(
                raw("x.txt", "/x.txt", f"{source.name}\tx.txt\taa")
                for source in getattr(step.config, "sources", ())
            ),
            inputs=tuple(refs),
            produced_by=ProducedBy(
                run_id="r", runner="local", host_kind="", started="", ended="", seconds=1
            ),
            environment=Environment(python="3.11.7", platform="", packages={}),
            config=step.config.model_dump(mode="json"),
        )
    return made


def check(
    recipe: Recipe, folder: Path, *, stages: tuple[str, ...] = ("",), named: bool = True
) -> None:
    """Whatever of a recipe is asked for, its steps are made again, and no others."""
    made, whole = manifests_of(recipe), recipe_steps(recipe)
    labels = {manifest.path: label for label, manifest in made.items()} if named else {}
    for target in [label for label in made if label.startswith(stages)]:
        found = recorded_recipe(made[target], list(made.values()), labels=labels, name=recipe.name)
        path = folder / "again.yaml"
        path.write_text(yaml.safe_dump(found.data, sort_keys=False), encoding="utf-8")
        again = recipe_steps(load_recipe(str(path)), until=found.target)
        before = {step.label: step for step in whole.with_upstream([found.target])}
        assert {step.label for step in again} == set(before) == set(found.steps)
        for step in again:
            assert step.config.cache_key_fields() == before[step.label].config.cache_key_fields(), (
                step.label
            )
            assert step.inputs == before[step.label].inputs


def test_every_kind_of_step_with_its_run_and_without(tmp_path: Path) -> None:
    (tmp_path / "everything.yaml").write_text(RECIPE, encoding="utf-8")
    check(
        load_recipe(str(tmp_path / "everything.yaml")),
        tmp_path,
        stages=("evaluate", "tabulate", "find", "finetune.scratch", "pretrain.other"),
    )
    check(
        load_recipe(str(tmp_path / "everything.yaml")),
        tmp_path,
        stages=("tabulate",),
        named=False,
    )


@pytest.mark.parametrize("name", ["ablation-masking-sample", "squad-ensemble"])
def test_packaged_recipes_with_sweeps_and_ensembles(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in described_recipe(name).variables:
        monkeypatch.setenv(variable, f"/data/{variable.lower()}")
    check(load_recipe(name), tmp_path, stages=("tabulate",))


def test_an_artifact_of_two_corpora_is_refused(tmp_path: Path) -> None:
    (tmp_path / "everything.yaml").write_text(RECIPE, encoding="utf-8")
    made = manifests_of(load_recipe(str(tmp_path / "everything.yaml")))
    other = made["build-documents"].model_copy(
        update={"artifact_id": "0" * 16, "content": "sha256:" + "0" * 64}
    )
    ref = made["build-tokens"].inputs[0].model_copy(update={"artifact_id": other.artifact_id})
    tokens = made["build-tokens"].model_copy(
        update={"inputs": (ref, *made["build-tokens"].inputs[1:])}
    )
    with pytest.raises(ConfigError, match="build-documents: expected one artifact, found 0000"):
        recorded_recipe(tokens, [*made.values(), other], labels={}, name="x")


def test_files_keep_the_names_that_count(tmp_path: Path) -> None:
    (tmp_path / "everything.yaml").write_text(RECIPE, encoding="utf-8")
    made = manifests_of(load_recipe(str(tmp_path / "everything.yaml")))
    documents = made["build-documents"].model_copy(
        update={
            "raw_inputs": (
                raw("a/$1.txt", "s3://bucket/a/$1.txt", "own\ta/$1.txt\taa"),
                raw("b.dat", "/texts/b.dat", "own\tb.dat\taa"),
            )
        }
    )
    config, files = placed(documents, "documents", label="build-documents")
    root = "${BERTLOOM_INPUTS:-inputs}/documents/own"
    assert config["sources"][0]["paths"] == [root, f"{root}/b.dat"]
    assert [(one.file.path, one.file.source) for one in files] == [
        ("documents/own/a/$1.txt", "s3://bucket/a/$1.txt"),
        ("documents/own/b.dat", "b.dat"),
    ]
    mine = made["build-examples.mine"].model_copy(
        update={
            "raw_inputs": (
                raw("train/train.tsv", "/a/train.tsv", "train 0 sha256:aa"),
                raw("train/ids.tsv", "/a/ids.tsv", "train beside sha256:aa"),
                raw("dev/dev.tsv", "/b/dev.tsv", "dev 0 sha256:aa"),
            )
        }
    )
    config, files = placed(mine, "examples/mine", label="build-examples.mine")
    assert config["data_files"] == {
        "train": ["${BERTLOOM_INPUTS:-inputs}/examples/mine/train/train.tsv"],
        "dev": ["${BERTLOOM_INPUTS:-inputs}/examples/mine/dev/dev.tsv"],
    }
    assert "examples/mine/train/ids.tsv" in [one.file.path for one in files]
    given = next(one for label, one in made.items() if label.startswith("finetune.given"))
    weights = raw("model.safetensors", "/store/artifacts/pretrain/ab12/data/model.safetensors")
    config, files = placed(
        given.model_copy(update={"raw_inputs": (weights,)}), "checkpoints/x", label="finetune"
    )
    assert config["init_checkpoint"].endswith("inputs}/checkpoints/x/pretrain/ab12/data")
    assert files[0].file.path == "checkpoints/x/pretrain/ab12/data/model.safetensors"
