"""What a run whose steps are all cached reads from the store, and what it says of its report."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from support.counting_fs import counted_reads
from support.fake_stages import FakeStages

from flows.cli.progress import StepPrinter
from flows.cli.run import print_results
from flows.report import page
from flows.report.index import read_rows
from flows.running import run_recipe
from flows.store.artifacts import ArtifactStore
from flows.store.runs import record_path, run_ids
from schemas.errors import StoreError
from schemas.recipe import Recipe


def run_and_print(recipe: Recipe, *, as_json: bool = False) -> None:
    """Run a recipe as `bertloom run` does, with the summary at its end."""
    printer = StepPrinter(as_json=as_json)
    run_recipe(recipe, listeners=[printer])
    assert printer.run is not None
    print_results(printer.run, seconds=1.0, as_json=as_json)


def read_counts(reads: Counter[str], name: str) -> dict[str, int]:
    return {path: count for path, count in reads.items() if path.endswith(f"/{name}")}


def test_cached_run_reads_each_manifest_and_run_record_once(fakes: FakeStages, root: str) -> None:
    recipe = fakes.recipe(root)
    results = run_recipe(recipe, log=lambda _: None)
    for _ in range(2):
        run_and_print(recipe)
    with counted_reads() as reads:
        run_and_print(recipe)
    manifests, records = read_counts(reads, "manifest.json"), read_counts(reads, "run.json")
    assert len(manifests) == len(results)
    assert set(manifests.values()) == {1}
    earlier = run_ids(ArtifactStore(root))[:-1]
    assert {path.removeprefix(f"{root}/") for path in records} == set(map(record_path, earlier))
    assert set(records.values()) == {1}


def test_run_whose_report_fails_names_no_report(
    fakes: FakeStages,
    root: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    recipe = fakes.recipe(root)
    run_and_print(recipe, as_json=True)
    address = f"{root}/reports/{recipe.name}.html"
    assert json.loads(capsys.readouterr().out)["report"] == address

    def fail(*_: object, **__: object) -> str:
        raise StoreError("the disk is full")

    monkeypatch.setattr(page, "report_page", fail)
    run_and_print(recipe, as_json=True)
    assert json.loads(capsys.readouterr().out)["report"] is None
    run_and_print(recipe)
    assert address not in capsys.readouterr().out


def test_index_leaves_out_a_run_that_is_deleted_while_it_is_read(
    fakes: FakeStages, root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe, store = fakes.recipe(root), ArtifactStore(root)
    for _ in range(2):
        run_recipe(recipe, log=lambda _: None)
    deleted, kept = run_ids(store)
    read_many = store.backend.read_many

    def delete_then_read(paths: object) -> dict[str, bytes]:
        store.backend.delete_folder(f"runs/{deleted}")
        return read_many(paths)  # type: ignore[arg-type]  # paths as they are

    monkeypatch.setattr(store.backend, "read_many", delete_then_read)
    assert [row.run_id for row in read_rows(store)] == [kept]
