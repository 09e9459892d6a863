"""Pictures of lineage: boxes do not overlap, texts fit into them, everything is escaped."""

from __future__ import annotations

import itertools
import random
import re
from xml.dom import minidom

import networkx as nx
import pytest
from support.lineage_builder import put, put_recipe, raw_file

from flows.lineage.graph import upstream_graph
from flows.lineage.svg import graph_svg, lay_out, lineage_page
from flows.store.artifacts import ArtifactStore

HOSTILE = "a\"b'c<script>alert(1)</script>&amp;\x00\x1b.txt"


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


def test_hostile_names_are_escaped_and_shortened(store: ArtifactStore) -> None:
    files = [raw_file(HOSTILE), raw_file("維基百科" * 40), raw_file("é" * 200)]
    graph = upstream_graph([put(store, "build-documents", raw=files)], store=store)
    page = lineage_page(graph)
    assert page.count("<script>") == 1  # the page's own
    assert "&lt;script&gt;alert(1)" in page
    assert not re.search("[\x00-\x08\x0b-\x1f]", page)
    svg = minidom.parseString(graph_svg(graph, name="x")).documentElement
    assert svg is not None
    assert float(svg.getAttribute("width")) < 900


def test_compact_picture_is_narrow_and_keeps_a_readable_size(store: ArtifactStore) -> None:
    graph = upstream_graph([put_recipe(store)["tabulate"]], store=store)
    widths = []
    for is_compact in (True, False):
        svg = graph_svg(graph, name="x", is_compact=is_compact)
        match = re.search(r'style="min-width:(\d+)px" [^>]*width="([\d.]+)"', svg)
        assert match is not None
        assert float(match[1]) / float(match[2]) == pytest.approx(0.8 * is_compact, abs=0.01)
        widths.append(float(match[2]))
    assert widths[0] < 0.8 * widths[1]


def test_page_is_self_contained_and_names_checksums(store: ArtifactStore) -> None:
    made = put_recipe(store)
    page = lineage_page(upstream_graph([made["build-tokens"]], store=store))
    for raw in made["build-documents"].raw_inputs:
        assert raw.checksum in page
        assert raw.sha256 in page
    assert not re.search(r'(src|href)="(?!#)', page)
    assert "prefers-color-scheme: dark" in page
    assert 'name="viewport"' in page
