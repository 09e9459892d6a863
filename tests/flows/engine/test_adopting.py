"""`bertloom adopt`: artifacts of earlier code taken as those of today's."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from support.cli_runner import Cli
from support.fake_stages import FakeStages, forget_code

from flows.bert import plan, run_recipe, steps
from flows.engine.adopting import AdoptedStep
from flows.engine.adopting import adopt as adopt_steps
from flows.engine.code import Code
from flows.store.artifacts import ArtifactStore
from flows.store.verification import verify, withdraw
from schemas.configs import DocumentsConfig, InstancesConfig, TextSource
from schemas.errors import ArtifactCorruptError
from schemas.fingerprint import code_fingerprint
from schemas.manifest import Manifest
from schemas.recipe import Recipe
from schemas.stage import Stage

EDITED = "def change(word):\n    return str(word).lower()\n"  # another tree, the same bytes


def run(recipe: Recipe, *, until: str = "") -> dict[str, Manifest]:
    results = run_recipe(recipe, engine="local", say=lambda line: None, until=until)
    return {result.label: result.manifest for result in results}


def adopt(recipe: Recipe, *, store: ArtifactStore, until: str = "") -> list[AdoptedStep]:
    return adopt_steps(recipe, steps(recipe, until), store=store)


def states(recipe: Recipe, store: ArtifactStore) -> list[str]:
    return [step.state for step in plan(recipe, store=store)]


def test_an_edit_that_changes_no_byte_builds_nothing_again(
    fakes: FakeStages, tmp_path: Path
) -> None:
    recipe = fakes.recipe(str(tmp_path / "store"))
    before = run(recipe)
    store = ArtifactStore(recipe.store)
    fakes.write("letters", EDITED)
    forget_code()
    assert states(recipe, store)[0] == "build"
    done = adopt(recipe, store=store)
    assert [step.state for step in done] == ["adopted"] * len(before)
    assert states(recipe, store) == ["cached"] * len(before)
    assert len(fakes.calls) == len(before)
    run(recipe)
    assert fakes.calls == []
    for step in done:
        ref = store.ref(f"fake/{step.label}")
        assert ref is not None
        old, new = before[step.label], store.read_manifest(ref.manifest)
        assert new.adopted is not None
        assert (new.adopted.artifact_id, new.adopted.cache_key) == (old.artifact_id, old.cache_key)
        assert new.adopted.changed == ("fakestages.letters",)
        assert new.adopted.code == old.key_spec["code"] != new.key_spec["code"]
        assert (new.content, new.produced_by) == (old.content, old.produced_by)
        assert new.files == old.files  # a checkpoint is found by the names of its files
        assert {item.artifact_id for item in new.inputs} <= {item.artifact_id for item in done}
    # Nothing of an adopted artifact needs the one it was adopted of.
    assert all(verdict.is_sound for verdict in verify(store, list(store.pointers()), deep=True))
    assert [step.state for step in adopt(recipe, store=store)] == ["cached"] * len(before)


def test_what_differs_in_more_than_code_is_left_alone(fakes: FakeStages, tmp_path: Path) -> None:
    recipe = fakes.recipe(str(tmp_path / "store"))
    run(recipe)
    fakes.write("letters", EDITED)
    fakes.raw.write_text("The dog sat\n")
    forget_code()
    store = ArtifactStore(recipe.store)
    first, *others = adopt(recipe, store=store)
    assert first.state == "different"
    assert "raw_inputs" in first.reason
    assert {step.state for step in others} == {"unknown"}
    fakes.raw.write_text("The cat sat\n")
    fakes.raise_version()
    (first, *_) = adopt(recipe, store=store)
    assert (first.state, "stage_version" in first.reason) == ("different", True)


def test_from_closure_to_version_keeps_what_is_there(fakes: FakeStages, tmp_path: Path) -> None:
    before = run(fakes.recipe(str(tmp_path / "store")))
    fakes.write("letters", EDITED)
    forget_code()
    recipe = fakes.recipe(str(tmp_path / "store"), code_identity="version")
    assert states(recipe, ArtifactStore(recipe.store)) == ["cached"] * len(before)
    assert len(fakes.calls) == len(before)
    after = run(recipe)
    assert fakes.calls == []
    for label, manifest in after.items():
        assert manifest.adopted is not None
        assert manifest.adopted.artifact_id == before[label].artifact_id
    assert run(recipe) == after
    fakes.raise_version()
    assert states(recipe, ArtifactStore(recipe.store))[0] == "build"


@pytest.mark.parametrize("is_found_out", [True, False])
def test_what_is_damaged_is_built_and_not_adopted(
    fakes: FakeStages, tmp_path: Path, caplog: pytest.LogCaptureFixture, is_found_out: bool
) -> None:
    recipe = fakes.recipe(str(tmp_path / "store"))
    before = run(recipe)
    documents = before["build-documents"]
    file = tmp_path / "store" / documents.data / documents.files[0].object
    file.chmod(0o644)
    file.write_bytes(file.read_bytes().swapcase())
    store = ArtifactStore(recipe.store)
    if is_found_out:
        withdraw(store, verify(store, list(store.pointers("build-documents"))))
    assert len(fakes.calls) == len(before)
    after = run(fakes.recipe(str(tmp_path / "store"), code_identity="version"))
    assert fakes.calls == ["documents"]
    assert after["build-documents"].adopted is None
    assert after["build-documents"].content == documents.content
    assert after["build-tokens"].adopted is not None
    assert ("built, and not adopted" in caplog.text) != is_found_out


def test_a_damaged_artifact_is_not_adopted(fakes: FakeStages, tmp_path: Path) -> None:
    recipe = fakes.recipe(str(tmp_path / "store"))
    documents = run(recipe)["build-documents"]
    file = tmp_path / "store" / documents.data / documents.files[0].object
    file.chmod(0o644)
    file.write_bytes(file.read_bytes().swapcase())
    fakes.write("letters", EDITED)
    forget_code()
    store = ArtifactStore(recipe.store)
    with pytest.raises(ArtifactCorruptError, match="verify --deep"):
        adopt(recipe, store=store)
    assert states(recipe, store)[0] == "build"
    folder = tmp_path / "store" / "artifacts" / "build-documents"
    assert [path.name for path in folder.iterdir()] == [documents.artifact_id]


def test_finished_work_goes_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next build, of one input more, takes over the splits of what was adopted."""
    texts = [tmp_path / f"{name}.txt" for name in "abc"]
    for number, path in enumerate(texts):
        path.write_text(f"One story of many, number {number}. It has two sentences.\n" * 3)
    recipe = text_recipe(tmp_path / "store", texts[:2])
    before = run(recipe, until="build-documents")["build-documents"]
    monkeypatch.setattr("flows.engine.code.code_on_disk", _other_code)
    forget_code()
    store = ArtifactStore(recipe.store)
    (done,) = adopt(recipe, store=store, until="build-documents")
    assert done.state == "adopted"
    store.backend.delete_folder(before.location)  # as garbage collection does in time
    more = text_recipe(tmp_path / "store", texts)
    built = run(more, until="build-documents")["build-documents"]
    assert built.produced_by.reuse is not None
    assert (built.produced_by.reuse.pieces, built.produced_by.reuse.pieces_reused) == (3, 2)


def _other_code(stage: Stage) -> Code:
    digest, modules = code_fingerprint(stage.module, packages=stage.packages)
    return Code(f"{digest}0", {**modules, "schemas.another": "sha256:0"})


def text_recipe(store: Path, paths: Sequence[Path]) -> Recipe:
    source = TextSource(name="mine", paths=tuple(map(str, paths)), split_bytes=1024)
    return Recipe(
        name="texts",
        store=str(store),
        build_documents=DocumentsConfig(sources=(source,)),
        build_instances={"one": InstancesConfig()},
    )


def test_the_command_says_what_it_did(
    fakes: FakeStages,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    recipe = fakes.recipe(str(tmp_path / "store"))
    run(recipe)
    fakes.write("letters", EDITED)
    forget_code()
    monkeypatch.setattr("flows.cli.run.load_recipe", lambda *_, **__: recipe)
    cli = Cli(capsys)
    said = cli("adopt", "fake")
    assert said.code == 0, said.err
    assert "5 of 5 adopted" in said.out
    assert "build-tokens" in said.out
    assert {row["state"] for row in json.loads(cli("adopt", "fake", "--json").out)} == {"cached"}
    shown = cli("lineage", "fake/build-tokens", "--store", recipe.store)
    assert "adopted of" in shown.out
