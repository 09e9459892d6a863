"""Lineage as text: tree, JSON, DOT and Mermaid."""

from __future__ import annotations

import json

from support.lineage_builder import DUMP, DUMP_SHA1, lose, put, put_recipe, raw_file

from flows.lineage.graph import downstream_graph, file_id, joined, upstream_graph
from flows.lineage.queries import lineage
from flows.lineage.text_formats import dot_text, graph_json, mermaid_text, tree_lines
from flows.store.artifacts import ArtifactStore


def test_tree_goes_to_the_verified_checksum_of_the_dump(store: ArtifactStore) -> None:
    made = put_recipe(store)
    lines = tree_lines(upstream_graph([made["evaluate.cola"]], store=store))
    assert lines[0].startswith(f"evaluate.cola {made['evaluate.cola'].artifact_id}: matthews ")
    (dump,) = [line for line in lines if "wiki.xml.bz2" in line]
    assert f"verified sha1 {DUMP_SHA1})" in dump
    assert sum(made["pretrain.phase-2"].artifact_id in line for line in lines) == 1
    documents = made["build-documents"].artifact_id
    assert [line.endswith("(see above)") for line in lines if documents in line] == [False, True]


def test_unreported_trials_are_one_line(store: ArtifactStore) -> None:
    made = put_recipe(store)
    lines = tree_lines(upstream_graph([made["evaluate.cola"]], store=store))
    assert lines[-1] == "└── compared with 4 other trials of the grid"
    best = made["finetune.cola.bs16-lr2e-05-ep3-r4"].artifact_id
    assert [line for line in lines if "finetune " in line] == [
        line for line in lines if best in line
    ]


def test_one_other_trial(store: ArtifactStore) -> None:
    made = put_recipe(store, runs=2)
    lines = tree_lines(upstream_graph([made["evaluate.cola"]], store=store))
    assert lines[-1] == "└── compared with 1 other trial of the grid"


def test_missing_artifact_is_marked(store: ArtifactStore) -> None:
    made = put_recipe(store)
    lose(store, made["build-tokens"])
    lines = tree_lines(upstream_graph([made["build-instances.short"]], store=store))
    missing = made["build-tokens"].artifact_id
    assert f"├── build-tokens {missing}: missing from the store" in lines
    assert any("wiki.xml.bz2" in line for line in lines)  # by way of the vocabulary


def test_missing_trials_are_one_line_too(store: ArtifactStore) -> None:
    made = put_recipe(store)
    for restart in (0, 1):
        lose(store, made[f"finetune.cola.bs16-lr2e-05-ep3-r{restart}"])
    lines = tree_lines(upstream_graph([made["evaluate.cola"]], store=store))
    assert [line[4:] for line in lines[-2:]] == [
        "compared with 2 other trials of the grid, missing from the store",
        "compared with 2 other trials of the grid",
    ]


def test_many_files_are_counted(store: ArtifactStore) -> None:
    files = [raw_file(f"book-{number:03}.txt") for number in range(40)]
    made = put(store, "build-documents", raw=files)
    lines = tree_lines(upstream_graph([made], store=store))
    assert len(lines) == 7
    assert lines[-1] == "└── and 35 more files"
    everything = tree_lines(upstream_graph([made], store=store, collapse=False))
    assert len(everything) == 41


def test_downstream_tree(store: ArtifactStore) -> None:
    made = put_recipe(store)
    lines = tree_lines(downstream_graph([made["pretrain.phase-2"]], store=store))
    assert lines[0].startswith(f"pretrain {made['pretrain.phase-2'].artifact_id}: 1,000 steps")
    assert lines[1].startswith("├── finetune ")
    assert lines[2].startswith("│   └── evaluate.cola ")
    assert lines[3].startswith("│       └── tabulate ")
    assert lines[4] == "└── compared with 4 other trials of the grid"
    assert len(lines) == 5


def test_both_directions_are_two_trees(store: ArtifactStore) -> None:
    made = put_recipe(store)
    middle = [made["build-tokens"]]
    graph = joined(upstream_graph(middle, store=store), downstream_graph(middle, store=store))
    lines = tree_lines(graph)
    at = lines.index("downstream:")
    assert any("wiki.xml.bz2" in line for line in lines[:at])
    assert not any("pretrain" in line for line in lines[:at])
    assert any("pretrain" in line for line in lines[at:])


def test_lineage_as_text_has_metrics_and_tree(store: ArtifactStore) -> None:
    made = put_recipe(store)
    found = lineage(store, "evaluate.cola:dev.matthews")
    assert found.graph is not None
    assert str(found).splitlines() == [
        "evaluate.cola metrics.dev.matthews = 40.0",
        *tree_lines(found.graph),
    ]
    down = lineage(store, "wiki.xml.bz2")
    assert str(down).startswith("wiki.xml.bz2 (2.0 kB, sha256 ")
    assert made["tabulate"].artifact_id in str(down)
    both = lineage(store, "mine/build-tokens", direction="both")
    assert "downstream:" in str(both)


def test_json_has_nodes_and_edges(store: ArtifactStore) -> None:
    made = put_recipe(store)
    lose(store, made["build-vocabulary"])
    found = json.loads(json.dumps(graph_json(upstream_graph([made["build-tokens"]], store=store))))
    nodes = {node["id"]: node for node in found["nodes"]}
    assert found["focus"] == made["build-tokens"].artifact_id
    assert nodes[file_id(DUMP)]["checksum"] == DUMP.checksum
    assert nodes[made["build-vocabulary"].artifact_id]["is_gone"]
    assert {
        "from": file_id(DUMP),
        "to": made["build-documents"].artifact_id,
        "name": "wiki.xml.bz2",
    } in found["edges"]


HOSTILE = 'a"b`c<script>alert(1)</script>\\n;#quot;[x]{y}|\n--> end'


def test_hostile_name_is_escaped_in_dot(store: ArtifactStore) -> None:
    text = dot_text(
        upstream_graph([put(store, "build-documents", raw=[raw_file(HOSTILE)])], store=store)
    )
    (line,) = [line for line in text.splitlines() if "script" in line]
    label = line[line.index('label="') + 7 :]
    assert 'a\\"b`c<script>' in label
    assert "</script>\\\\n;" in label  # a backslash of the name is one in the picture
    assert label.count('"') - label.count('\\"') == 1  # only its own end
    assert "n1 -> n0;" in text


def test_hostile_name_is_escaped_in_mermaid(store: ArtifactStore) -> None:
    text = mermaid_text(
        upstream_graph([put(store, "build-documents", raw=[raw_file(HOSTILE)])], store=store)
    )
    (line,) = [line for line in text.splitlines() if "script" in line]
    label = line[line.index('"') + 1 : line.rindex('"')].replace("<br>", "")
    assert not set(label) & set('"`<>[]{}|\\')
    for escaped in ("#34;", "#96;", "#60;script#62;"):
        assert escaped in label
    assert text.splitlines()[0] == "flowchart LR"


def test_hostile_name_is_one_line_of_a_tree(store: ArtifactStore) -> None:
    name = "a\nb\x1b[31m\u202e[bold]" + "c" * 300
    lines = tree_lines(
        upstream_graph([put(store, "build-documents", raw=[raw_file(name)])], store=store)
    )
    assert len(lines) == 2
    assert lines[1].startswith("└── a b [31m [bold]ccc")
    assert "c" * 300 in lines[1]
