"""Upstream and downstream graphs of a store with the artifacts of several recipes."""

from __future__ import annotations

import itertools

import pytest
from support.lineage_builder import DUMP, lose, put, put_recipe, raw_file

from flows.lineage.graph import LineageGraph, downstream_graph, file_id, upstream_graph
from flows.store.artifacts import ArtifactStore
from schemas.manifest import Manifest


def _edges(graph: LineageGraph) -> set[tuple[str, str]]:
    return {
        (graph.nodes[source].title, graph.nodes[target].title)
        for source, target, _ in graph.edges()
    }


def test_upstream_graph_has_all_inputs(store: ArtifactStore) -> None:
    made = put_recipe(store)
    graph = upstream_graph(list(made.values()), store=store, collapse=False)
    assert graph.focus == made["tabulate"].artifact_id
    assert len(graph.nodes) == len(made) + 2
    assert ("wiki.xml.bz2", "build-documents") in _edges(graph)
    expected = set()
    for manifest in made.values():
        target = manifest.artifact_id
        expected |= {(ref.artifact_id, target, ref.name) for ref in manifest.inputs}
        expected |= {(file_id(raw), target, raw.name) for raw in manifest.raw_inputs}
    assert set(graph.edges()) == expected


def test_group_of_trials_has_their_inputs_and_outputs(store: ArtifactStore) -> None:
    made = put_recipe(store)
    graph = upstream_graph([made["tabulate"]], store=store)
    (group,) = [node for node in graph.nodes.values() if node.kind == "group"]
    assert group.title == "4 other trials of the grid"
    assert group.detail == "4 trials, matthews 0.0 to 30.0"
    assert set(graph.upstream(group.id)) == {
        made["build-examples.cola"].artifact_id,
        made["pretrain.phase-2"].artifact_id,
    }
    assert (group.title, "evaluate.cola") in _edges(graph)


def test_requested_trial_is_in_no_group(store: ArtifactStore) -> None:
    made = put_recipe(store)
    other = made["finetune.cola.bs16-lr2e-05-ep3-r0"]
    graph = downstream_graph([other], store=store)
    assert graph.nodes[other.artifact_id].manifest == other
    assert _edges(graph) == {("finetune", "evaluate.cola"), ("evaluate.cola", "tabulate")}
    together = upstream_graph([other, made["evaluate.cola"]], store=store)
    assert other.artifact_id in together.nodes
    titles = [node.title for node in together.nodes.values()]
    assert "3 other trials of the grid" in titles


def test_downstream_graph_of_raw_file(store: ArtifactStore) -> None:
    made = put_recipe(store)
    put(store, "build-documents", key="other", raw=[raw_file("other.txt")])
    graph = downstream_graph([], store=store, file=DUMP)
    assert graph.focus == file_id(DUMP)
    ids = {one.artifact_id for label, one in made.items() if label != "build-examples.cola"}
    shown = {key for key, node in graph.nodes.items() if node.kind == "artifact"}
    assert shown <= ids
    assert made["evaluate.cola"].artifact_id in shown
    everything = downstream_graph([], store=store, file=DUMP, collapse=False)
    assert everything.nodes.keys() == ids | {file_id(DUMP)}


def test_quarantined_and_missing_artifacts_hide_no_others(store: ArtifactStore) -> None:
    made = put_recipe(store)
    model = put(store, "pretrain")
    statistics = {"task": "cola", "metrics": {"dev": {"matthews": 0.1}}}
    for key in "ab":
        put(store, "finetune", {"checkpoint": model}, key=key, statistics=statistics)
    (group,) = downstream_graph([model], store=store).downstream(model.artifact_id)
    assert group.startswith("trials:")
    pointer = store.pointer("tabulate", made["tabulate"].cache_key)
    assert pointer is not None
    store.quarantine(pointer.path, expected=pointer.to_json(), reason="a test")
    evaluation = made["evaluate.cola"].artifact_id
    graph = downstream_graph([made["build-tokens"]], store=store)
    assert evaluation in graph.nodes
    assert graph.downstream(evaluation) == []
    lose(store, made["build-instances.short"])
    assert evaluation in downstream_graph([made["pretrain.phase-2"]], store=store).nodes


def test_rebuilt_artifact_has_the_downstream_of_the_old_one(store: ArtifactStore) -> None:
    old = put(store, "build-documents", key="before", text="same")
    tokens = put(store, "build-tokens", {"documents": old})
    new = put(store, "build-documents", key="after", text="same")
    assert new.artifact_id != old.artifact_id
    graph = downstream_graph([new], store=store)
    assert list(graph.edges()) == [(new.artifact_id, tokens.artifact_id, "documents")]


@pytest.mark.parametrize("ids", list(itertools.permutations("abc")))
def test_equal_checkpoints_make_no_cycle(store: ArtifactStore, ids: tuple[str, ...]) -> None:
    models: list[Manifest] = []
    for digit in ids:
        before = {"checkpoint": models[-1]} if models else {}
        models.append(
            put(store, "pretrain", before, key=digit, text="same", artifact_id=digit * 16)
        )
    last = downstream_graph([models[2]], store=store)
    assert last.nodes.keys() == {models[2].artifact_id}
    first = downstream_graph([models[0]], store=store)
    assert {(source, target) for source, target, _ in first.edges()} == {
        (models[0].artifact_id, models[1].artifact_id),
        (models[1].artifact_id, models[2].artifact_id),
    }
