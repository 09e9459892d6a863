"""Lineage as text: tree, JSON, DOT and Mermaid."""

from __future__ import annotations

import json

from support.lineage_builder import DUMP, DUMP_SHA1, lose, put, put_recipe, raw_file

from flows.lineage.graph import LineageGraph, downstream_graph, file_id, upstream_graph
from flows.lineage.queries import lineage
from flows.lineage.text_formats import dot_text, graph_json, mermaid_text, tree_lines
from flows.store.artifacts import ArtifactStore

HOSTILE = 'a"b`c<script>alert(1)</script>\\n;#quot;[x]{y}|\n--> end'


def graph_of_file(store: ArtifactStore, name: str) -> LineageGraph:
    made = put(store, "build-documents", raw=[raw_file(name)])
    return upstream_graph([made], store=store)


def test_upstream_tree_has_missing_artifacts_groups_and_checksums(store: ArtifactStore) -> None:
    made = put_recipe(store)
    lost = [f"finetune.cola.bs16-lr2e-05-ep3-r{restart}" for restart in (0, 1)]
    for label in ("build-tokens", *lost):
        lose(store, made[label])
    lines = tree_lines(upstream_graph([made["tabulate"]], store=store))
    ids = {label: manifest.artifact_id for label, manifest in made.items()}
    outline = [line.partition(":")[0] for line in lines]
    assert outline == [
        f"tabulate {ids['tabulate']}",
        f"└── evaluate.cola {ids['evaluate.cola']}",
        f"    ├── build-examples {ids['build-examples.cola']}",
        f"    │   └── {lines[3].rpartition('── ')[2]}",
        f"    ├── finetune {ids['finetune.cola.bs16-lr2e-05-ep3-r4']}",
        f"    │   ├── build-examples {ids['build-examples.cola']}",
        f"    │   └── pretrain {ids['pretrain.phase-2']}",
        f"    │       ├── build-instances {ids['build-instances.short']}",
        f"    │       │   ├── build-vocabulary {ids['build-vocabulary']}",
        f"    │       │   │   └── build-documents {ids['build-documents']}",
        f"    │       │   │       └── {lines[10].rpartition('── ')[2]}",
        f"    │       │   └── build-tokens {ids['build-tokens']}",
        f"    │       └── build-vocabulary {ids['build-vocabulary']}",
        "    ├── compared with 2 other trials of the grid, missing from the store",
        "    └── compared with 2 other trials of the grid",
    ]
    assert lines[5].endswith("(see above)")
    assert lines[11].endswith(": missing from the store")
    assert "wiki.xml.bz2 (2.0 kB, sha256 " in lines[10]
    assert f"verified sha1 {DUMP_SHA1})" in lines[10]


def test_downstream_tree(store: ArtifactStore) -> None:
    made = put_recipe(store, runs=2)
    lines = tree_lines(downstream_graph([made["pretrain.phase-2"]], store=store))
    assert lines[0].startswith(f"pretrain {made['pretrain.phase-2'].artifact_id}: 1,000 steps")
    assert lines[1].startswith("├── finetune ")
    assert lines[2].startswith("│   └── evaluate.cola ")
    assert lines[3].startswith("│       └── tabulate ")
    assert lines[4:] == ["└── compared with 1 other trial of the grid"]


def test_many_files_are_counted(store: ArtifactStore) -> None:
    files = [raw_file(f"book-{number:03}.txt") for number in range(40)]
    made = put(store, "build-documents", raw=files)
    lines = tree_lines(upstream_graph([made], store=store))
    assert len(lines) == 7
    assert lines[-1] == "└── and 35 more files"
    assert len(tree_lines(upstream_graph([made], store=store, collapse=False))) == 41


def test_lineage_as_text_has_metrics_and_trees(store: ArtifactStore) -> None:
    made = put_recipe(store)
    result = lineage(store, "evaluate.cola:dev.matthews")
    assert result.graph is not None
    metric = "evaluate.cola metrics.dev.matthews = 40.0"
    assert str(result).splitlines() == [metric, *tree_lines(result.graph)]
    assert made["tabulate"].artifact_id in str(lineage(store, "wiki.xml.bz2"))
    both = str(lineage(store, "mine/build-tokens", direction="both"))
    upstream, downstream = both.split("downstream:")
    assert "wiki.xml.bz2" in upstream
    assert "pretrain" not in upstream
    assert "pretrain" in downstream


def test_json_has_nodes_and_edges(store: ArtifactStore) -> None:
    made = put_recipe(store)
    lose(store, made["build-vocabulary"])
    data = json.loads(json.dumps(graph_json(upstream_graph([made["build-tokens"]], store=store))))
    nodes = {node["id"]: node for node in data["nodes"]}
    documents = made["build-documents"].artifact_id
    assert data["focus"] == made["build-tokens"].artifact_id
    assert nodes[file_id(DUMP)]["checksum"] == DUMP.checksum
    assert nodes[made["build-vocabulary"].artifact_id]["is_gone"]
    assert {"from": file_id(DUMP), "to": documents, "name": "wiki.xml.bz2"} in data["edges"]


def test_hostile_name_is_escaped_in_dot(store: ArtifactStore) -> None:
    text = dot_text(graph_of_file(store, HOSTILE))
    (line,) = [line for line in text.splitlines() if "script" in line]
    label = line[line.index('label="') + 7 :]
    assert 'a\\"b`c<script>' in label
    assert "</script>\\\\n;" in label  # a backslash of the name is one in the picture
    assert label.count('"') - label.count('\\"') == 1  # only its own end
    assert "n1 -> n0;" in text


def test_hostile_name_is_escaped_in_mermaid(store: ArtifactStore) -> None:
    text = mermaid_text(graph_of_file(store, HOSTILE))
    (line,) = [line for line in text.splitlines() if "script" in line]
    label = line[line.index('"') + 1 : line.rindex('"')].replace("<br>", "")
    assert not set(label) & set('"`<>[]{}|\\')
    assert "#60;script#62;" in label
    assert text.splitlines()[0] == "flowchart LR"


def test_hostile_name_is_one_line_of_a_tree(store: ArtifactStore) -> None:
    lines = tree_lines(graph_of_file(store, "a\nb\x1b[31m\u202e[bold]" + "c" * 300))
    assert len(lines) == 2
    assert lines[1].startswith("└── a b [31m [bold]ccc")
    assert "c" * 300 in lines[1]
