"""Differences of artifacts and runs, and their text."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest
from support.lineage_builder import RUN_ID, put, put_recipe, put_run, raw_file

from flows.lineage.diff import (
    Change,
    changes,
    difference,
    run_differences,
    run_lines,
)
from flows.store.artifacts import ArtifactStore
from flows.store.runs import read_run
from schemas.manifest import Environment, Manifest


def _two(store: ArtifactStore) -> tuple[Manifest, Manifest]:
    """Two artifacts that differ in everything."""
    wiki = raw_file("wiki")
    before = put(
        store,
        "build-documents",
        key="before",
        raw=[wiki, raw_file("books")],
        config={"seed": 0, "sources": [{"name": "wiki", "paths": ["a"]}], "same": 1},
        counters={"documents-in": 10, "documents-kept": 8},
        statistics={"metrics": {"dev": {"f1": 0.5}}},
        cache_key_inputs={"environment": {"numpy": "2.0.0"}},
        environment=Environment(
            python="3.11", platform="here", packages={"numpy": "2.0.0", "rich": "1"}
        ),
    )
    after = put(
        store,
        "build-documents",
        key="after",
        raw=[wiki],
        config={"seed": 7, "sources": [{"name": "wiki", "paths": ["b"]}], "same": 1},
        counters={"documents-in": 10, "documents-kept": 6},
        statistics={"metrics": {"dev": {"f1": 0.75}}},
        cache_key_inputs={"environment": {"numpy": "2.1.0"}},
        environment=Environment(
            python="3.12", platform="there", packages={"numpy": "2.1.0", "rich": "2"}
        ),
    )
    return before, after


def test_groups_have_the_values_that_differ(store: ArtifactStore) -> None:
    result = difference(*_two(store))
    names = {group: [change.name for change in listed] for group, listed in result.groups.items()}
    assert names == {
        "configuration": ["seed", "sources.wiki.paths"],
        "raw files": ["books"],
        "counts": ["documents-kept"],
        "statistics": ["metrics.dev.f1"],
        "libraries": ["numpy", "python"],
        "other packages": ["rich"],
        "system": ["platform"],
        "files": ["made.txt"],
    }
    assert not result.is_same_artifact
    assert not result.is_same_content
    assert result.groups["configuration"][0] == Change("seed", 0, 7)
    json.dumps(asdict(result))


def test_input_rebuilt_to_the_same_bytes_is_no_difference(store: ArtifactStore) -> None:
    old = put(store, "build-documents", key="old", text="same")
    new = put(store, "build-documents", key="new", text="same")
    other = put(store, "build-documents", key="other", text="other")
    made = [
        put(store, "build-tokens", {"documents": one}, key=str(index))
        for index, one in enumerate((old, new, other))
    ]
    assert "inputs" not in difference(made[0], made[1]).groups
    assert [change.name for change in difference(made[0], made[2]).groups["inputs"]] == [
        "documents"
    ]


def test_lines_are_limited_unless_all_are_requested(store: ArtifactStore) -> None:
    made = [
        put(store, "s", key=str(value), counters={f"n{number:02}": value for number in range(20)})
        for value in (1, 2)
    ]
    result = difference(*made)
    short = result.lines()
    assert short[0] == f"s {made[0].artifact_id} -> {made[1].artifact_id}: other content"
    assert "  n00: 1 -> 2 (+1)" in short
    assert "  and 12 more (--all)" in short
    everything = result.lines(show_all=True)
    assert "  n19: 1 -> 2 (+1)" in everything
    assert not any("--all" in line for line in everything)


def test_artifact_is_the_same_as_itself(store: ArtifactStore) -> None:
    made = put(store, "s")
    assert difference(made, made).lines() == [f"s {made.artifact_id}: the same artifact"]


@pytest.mark.parametrize(
    ("before", "after", "text"),
    [
        (0.5, 0.75, "x: 0.5 -> 0.75 (+0.25)"),
        (1000, 1, "x: 1,000 -> 1 (-999)"),
        (None, 3, "x: none -> 3"),
        (True, False, "x: True -> False"),
        ("a", "b", "x: a -> b"),
        ([1], [1, 2], "x: [1] -> [1, 2]"),
    ],
)
def test_change_as_text(before: object, after: object, text: str) -> None:
    assert str(Change("x", before, after)) == text


def test_changes_of_missing_values_have_none() -> None:
    assert changes({"a": 1, "b": 2}, {"a": 1, "c": 3}) == [
        Change("b", 2, None),
        Change("c", None, 3),
    ]


def test_differences_of_runs_have_causes_by_step(store: ArtifactStore) -> None:
    first = put_recipe(store)
    second = dict(first)
    del second["tabulate"]
    second["build-vocabulary"] = put(
        store,
        "build-vocabulary",
        {"documents": first["build-documents"]},
        key="larger",
        config={"vocab_size": 3000},
    )
    second["build-tokens"] = put(
        store,
        "build-tokens",
        {"documents": first["build-documents"], "vocabulary": second["build-vocabulary"]},
    )
    trial = "finetune.cola.bs16-lr2e-05-ep3-r0"
    second[trial] = put(
        store,
        "finetune",
        {"examples": first["build-examples.cola"]},
        key="again",
        text=(
            Path(store.root) / first[trial].data_path / first[trial].files[0].stored_name
        ).read_text(),
    )
    second["extra"] = put(store, "extra")
    other_id = "20260102t000000-00000002"
    put_run(store, other_id, second)
    steps = run_differences(read_run(store, RUN_ID), read_run(store, other_id), store=store)
    rows = {row[0]: row for row in run_lines(steps)}
    assert rows["build-documents"][3] == "the same artifact"
    assert rows["build-vocabulary"][3] == "configuration: vocab_size"
    assert rows["build-tokens"][3] == "inputs: vocabulary"
    assert rows["tabulate"][2:] == ("-", "only in the first run")
    assert rows["extra"][1:] == ("-", second["extra"].artifact_id, "only in the second run")
    assert rows["finetune.cola"][3] == "4 trials the same"
    assert rows[trial][3].endswith("(the same content)")
    assert len(run_lines(steps, show_all=True)) == len(steps) == len(first) + 1
