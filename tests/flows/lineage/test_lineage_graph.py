"""What was made from what, both ways, in a store with more than one recipe's artifacts."""

from __future__ import annotations

import itertools

import pytest
from support.lineage_builder import DUMP, lose, put, put_recipe, raw_file

from flows.lineage.graph import (
    LineageGraph,
    downstream_graph,
    file_id,
    joined,
    upstream_graph,
)
from flows.store.artifacts import ArtifactStore
from schemas.manifest import Manifest


def _titles(graph: LineageGraph) -> list[str]:
    return sorted(node.title for node in graph.nodes.values())


def _edges(graph: LineageGraph) -> set[tuple[str, str]]:
    return {
        (graph.nodes[given].title, graph.nodes[user].title)
        for user, inputs in graph.made_from.items()
        for _, given in inputs
    }


def test_everything_upstream_of_a_run(store: ArtifactStore) -> None:
    made = put_recipe(store)
    graph = upstream_graph(list(made.values()), store=store, collapse=False)
    assert graph.focus == made["tabulate"].artifact_id
    assert len(graph.nodes) == len(made) + 2
    assert ("wiki.xml.bz2", "build-documents") in _edges(graph)
    for label, manifest in made.items():
        inputs = [(ref.name, ref.artifact_id) for ref in manifest.inputs]
        inputs += [(raw.name, file_id(raw)) for raw in manifest.raw_inputs]
        assert graph.made_from[manifest.artifact_id] == inputs, label
    assert all(key in graph.nodes for edges in graph.made_from.values() for _, key in edges)


def test_a_group_of_trials_is_made_from_what_they_are(store: ArtifactStore) -> None:
    made = put_recipe(store)
    graph = upstream_graph([made["tabulate"]], store=store)
    (group,) = [node for node in graph.nodes.values() if node.kind == "group"]
    assert group.id.startswith("trials:")
    assert (group.title, group.detail) == (
        "4 other trials of the grid",
        "4 trials, matthews 0.0 to 30.0",
    )
    assert {key for _, key in graph.made_from[group.id]} == {
        made["build-examples.cola"].artifact_id,
        made["pretrain.phase-2"].artifact_id,
    }
    assert (group.title, "evaluate.cola") in _edges(graph)
    left_out = {one.artifact_id for label, one in made.items() if label.endswith(("r0", "r1"))}
    assert not left_out & graph.nodes.keys()


def test_what_is_asked_for_is_in_no_group(store: ArtifactStore) -> None:
    made = put_recipe(store)
    other = made["finetune.cola.bs16-lr2e-05-ep3-r0"]
    graph = downstream_graph([other], store=store)
    assert graph.nodes[other.artifact_id].manifest == other
    assert _edges(graph) == {("finetune", "evaluate.cola"), ("evaluate.cola", "tabulate")}
    together = upstream_graph([other, made["evaluate.cola"]], store=store)
    assert other.artifact_id in together.nodes
    assert "3 other trials of the grid" in _titles(together)


def test_trials_without_an_evaluation_are_a_group_downstream(store: ArtifactStore) -> None:
    model = put(store, "pretrain")
    for number in range(3):
        put(
            store,
            "finetune",
            {"checkpoint": model},
            key=str(number),
            statistics={"task": "cola", "metrics": {"dev": {"matthews": 0.1}}},
        )
    assert _titles(downstream_graph([model], store=store)) == [
        "3 other trials of the grid",
        "pretrain",
    ]


def test_a_raw_file_leads_to_all_that_it_went_into(store: ArtifactStore) -> None:
    made = put_recipe(store)
    put(store, "build-documents", key="other", raw=[raw_file("other.txt")])
    graph = downstream_graph([], store=store, files=[DUMP])
    assert graph.focus == file_id(DUMP)
    ids = {one.artifact_id for label, one in made.items() if label != "build-examples.cola"}
    shown = {key for key, node in graph.nodes.items() if node.kind == "artifact"}
    assert shown <= ids
    assert made["evaluate.cola"].artifact_id in shown
    everything = downstream_graph([], store=store, files=[DUMP], collapse=False)
    assert everything.nodes.keys() == ids | {file_id(DUMP)}
    assert upstream_graph([], store=store, files=[DUMP]).nodes.keys() == {file_id(DUMP)}


def test_what_was_taken_back_is_not_downstream(store: ArtifactStore) -> None:
    made = put_recipe(store)
    pointer = store.pointer("tabulate", made["tabulate"].cache_key)
    assert pointer is not None
    store.quarantine(pointer.path, expected=pointer.to_json(), reason="a test")
    graph = downstream_graph([made["evaluate.cola"]], store=store)
    assert _titles(graph) == ["evaluate.cola"]


def test_a_manifest_that_is_gone_hides_nothing_else(store: ArtifactStore) -> None:
    made = put_recipe(store)
    lose(store, made["tabulate"])
    assert "evaluate.cola" in _titles(downstream_graph([made["build-tokens"]], store=store))


def test_an_artifact_rebuilt_to_the_same_files_stands_for_the_old_one(
    store: ArtifactStore,
) -> None:
    old = put(store, "build-documents", key="before", text="same")
    tokens = put(store, "build-tokens", {"documents": old})
    new = put(store, "build-documents", key="after", text="same")
    assert new.artifact_id != old.artifact_id
    graph = downstream_graph([new], store=store)
    assert graph.made_from[tokens.artifact_id] == [("documents", new.artifact_id)]
    assert graph.made_from.get(new.artifact_id, []) == []


@pytest.mark.parametrize("ids", list(itertools.permutations("abc")))
def test_equal_checkpoints_one_after_another_make_no_circle(
    store: ArtifactStore, ids: tuple[str, ...]
) -> None:
    models: list[Manifest] = []
    for digit in ids:
        before = {"checkpoint": models[-1]} if models else {}
        models.append(
            put(store, "pretrain", before, key=digit, text="same", artifact_id=digit * 16)
        )
    last = downstream_graph([models[2]], store=store)
    assert last.nodes.keys() == {models[2].artifact_id}
    first = downstream_graph([models[0]], store=store)
    edges = {key: [given for _, given in inputs] for key, inputs in first.made_from.items()}
    assert {key: given for key, given in edges.items() if given} == {
        models[1].artifact_id: [models[0].artifact_id],
        models[2].artifact_id: [models[1].artifact_id],
    }


def test_joined_graphs_have_each_edge_once(store: ArtifactStore) -> None:
    made = put_recipe(store)
    graph = upstream_graph([made["evaluate.cola"]], store=store)
    again = joined(graph, graph)
    assert again.made_from == graph.made_from
    assert again.nodes == graph.nodes
