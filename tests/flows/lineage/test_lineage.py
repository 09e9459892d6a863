"""Upstream and downstream graphs, their text (tree, JSON, Mermaid) and their picture."""

from __future__ import annotations

import itertools
import json
import math
import random
import re
from xml.dom import minidom

import networkx as nx
import pytest
from support.lineage_builder import DUMP, DUMP_SHA1, lose, put, put_recipe, raw_file

from flows.lineage.graph import LineageGraph, downstream_graph, file_id, upstream_graph
from flows.lineage.queries import lineage
from flows.lineage.svg import graph_svg, lay_out
from flows.lineage.text_formats import graph_json, mermaid_text, tree_lines
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
    assert (group.members, group.stage) == ("trials", "finetune")
    assert group.title.startswith("4 other trials")
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
    graph = downstream_graph([model], store=store)
    (group,) = graph.downstream(model.artifact_id)
    assert graph.nodes[group].members == "trials"
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


HOSTILE_FILE = "a\"b'c<script>alert(1)</script>&amp;\x00\x1b.txt"


@pytest.mark.parametrize("seed", range(3))
def test_boxes_do_not_overlap_and_edges_pass_between_them(seed: int) -> None:
    rng = random.Random(seed)
    graph: nx.DiGraph[str] = nx.DiGraph()
    for number in range(40):
        graph.add_node(f"n{number}")
        for _ in range(rng.randrange(1, 4) if number else 0):
            graph.add_edge(f"n{rng.randrange(number)}", f"n{number}")
    sizes = {name: (rng.uniform(20, 200), rng.uniform(10, 60)) for name in graph}
    layout = lay_out(graph, sizes, column_gap=56)
    for one, other in itertools.combinations(layout.boxes, 2):
        (x1, y1), (x2, y2) = layout.boxes[one], layout.boxes[other]
        (w1, h1), (w2, h2) = sizes[one], sizes[other]
        assert not (x1 < x2 + w2 and x2 < x1 + w1 and y1 < y2 + h2 and y2 < y1 + h1), (one, other)
    for source, target in graph.edges:
        assert layout.boxes[source][0] + sizes[source][0] < layout.boxes[target][0]
    for points in layout.lines:
        assert [x for x, _ in points] == sorted(x for x, _ in points)
        for (x, y), name in itertools.product(points[1:-1], layout.boxes):
            left, top = layout.boxes[name]
            assert not (left < x < left + sizes[name][0] and top < y < top + sizes[name][1])
    for name, (x, y) in layout.boxes.items():
        assert -0.001 < x < layout.width + 0.001 - sizes[name][0]
        assert -0.001 < y < layout.height + 0.001 - sizes[name][1]


def test_picture_is_xml_with_a_box_link_and_tooltip_per_node(store: ArtifactStore) -> None:
    graph = upstream_graph([put_recipe(store)["tabulate"]], store=store)
    links = {key: f'page.html#"{key}"' for key in graph.nodes}
    svg = minidom.parseString(graph_svg(graph, name="x", links=links))
    anchors = svg.getElementsByTagName("a")
    assert {link.getAttribute("href") for link in anchors} == set(links.values())
    boxes = [g for g in svg.getElementsByTagName("g") if g.getAttribute("id").startswith("x-node")]
    assert len(boxes) == len(graph.nodes)
    for box, node in zip(boxes, graph.nodes.values(), strict=True):
        (title,) = box.getElementsByTagName("title")
        assert node.title in title.toxml()
        assert node.kind == "group" or node.id in title.toxml()


def test_boxes_lie_in_the_picture_and_edges_join_them(store: ArtifactStore) -> None:
    graph = upstream_graph([put_recipe(store)["tabulate"]], store=store)
    svg = minidom.parseString(graph_svg(graph, name="x")).documentElement
    assert svg is not None

    def numbers(element: minidom.Element, *names: str) -> list[float]:
        return [float(element.getAttribute(name)) for name in names]

    width, height = numbers(svg, "width", "height")
    left_sides, right_sides = [], []
    for box in svg.getElementsByTagName("rect"):
        x, y, box_width, box_height = numbers(box, "x", "y", "width", "height")
        texts = box.parentNode.getElementsByTagName("text")
        widest = max(len(text.firstChild.data) for text in texts) * 7.2  # of 12 px
        margin = numbers(texts[0], "x")[0] - x
        assert box_width == pytest.approx(widest + 2 * margin, abs=0.11)
        assert 0 < x < x + box_width < width
        assert 0 < y < y + box_height < height
        left_sides.append((x, y + box_height / 2))
        right_sides.append((x + box_width, y + box_height / 2))
    (path,) = svg.getElementsByTagName("path")
    for edge in path.getAttribute("d").split("M")[1:]:
        start, *commands = re.findall(r"([HC]?)([^HC]+)", edge)
        x, y = map(float, start[1].split())
        assert any(math.dist((x, y), side) < 0.2 for side in right_sides)
        for command, values in commands:
            *_, x, y = [*map(float, values.split()), *([y] if command == "H" else [])]
        assert any(math.dist((x, y), side) < 0.2 for side in left_sides)


def test_hostile_names_are_escaped_and_shortened(store: ArtifactStore) -> None:
    files = [raw_file(HOSTILE_FILE), raw_file("維基百科" * 40), raw_file("é" * 200)]
    graph = upstream_graph([put(store, "build-documents", raw=files)], store=store)
    picture = graph_svg(graph, name="x")
    assert "<script>" not in picture
    assert "&lt;script&gt;alert(1)" in picture
    assert not re.search("[\x00-\x08\x0b-\x1f]", picture)
    svg = minidom.parseString(picture).documentElement
    assert svg is not None
    assert float(svg.getAttribute("width")) < 900


def test_picture_has_checksums_and_loads_nothing(store: ArtifactStore) -> None:
    graph = upstream_graph([put_recipe(store)["build-tokens"]], store=store)
    picture = graph_svg(graph, name="lineage")
    svg = minidom.parseString(picture).documentElement
    assert svg is not None
    assert svg.namespaceURI == "http://www.w3.org/2000/svg"
    assert not re.search(r"(src|href)=|url\(|@import", picture)
    assert DUMP.sha256 in picture
    assert DUMP.checksum in picture
