"""Pictures of lineages: boxes that do not overlap, texts that stay in them, nothing unescaped."""

from __future__ import annotations

import itertools
import random
import re
from xml.dom import minidom

import pytest
from support.lineage_builder import put, put_recipe, raw_file

from flows.lineage.graph import upstream_graph
from flows.lineage.layout import Layout, lay_out
from flows.lineage.svg import graph_svg, lineage_page
from flows.store.artifacts import ArtifactStore


def _overlapping(layout: Layout, sizes: dict[str, tuple[float, float]]) -> list[tuple[str, str]]:
    found = []
    for one, other in itertools.combinations(layout.boxes, 2):
        (x1, y1), (x2, y2) = layout.boxes[one], layout.boxes[other]
        (w1, h1), (w2, h2) = sizes[one], sizes[other]
        if x1 < x2 + w2 and x2 < x1 + w1 and y1 < y2 + h2 and y2 < y1 + h1:
            found.append((one, other))
    return found


@pytest.mark.parametrize("seed", range(5))
def test_no_boxes_overlap_and_every_line_leads_right(seed: int) -> None:
    rng = random.Random(seed)
    names = [f"n{number}" for number in range(40)]
    sizes = {name: (rng.uniform(20, 200), rng.uniform(10, 60)) for name in names}
    edges = [
        (names[rng.randrange(number)], names[number])
        for number in range(1, 40)
        for _ in range(rng.randrange(1, 4))
    ]
    layout = lay_out(sizes, edges)
    assert layout.boxes.keys() == sizes.keys()
    assert _overlapping(layout, sizes) == []
    for source, target in edges:
        assert layout.boxes[source][0] + sizes[source][0] < layout.boxes[target][0]
    for points in layout.lines:
        assert [x for x, _ in points] == sorted(x for x, _ in points)
    for name, (x, y) in layout.boxes.items():
        assert -0.001 < x < layout.width + 0.001 - sizes[name][0]
        assert -0.001 < y < layout.height + 0.001 - sizes[name][1]


def test_lines_pass_between_boxes() -> None:
    sizes = dict.fromkeys("abcd", (50.0, 30.0))
    layout = lay_out(sizes, [("a", "b"), ("b", "c"), ("c", "d"), ("a", "d"), ("b", "d")])
    for points in layout.lines:
        for x, y in points[1:-1]:
            for name, (left, top) in layout.boxes.items():
                inside = left < x < left + 50 and top < y < top + 30
                assert not inside, (name, x, y)


def test_two_rows_that_can_do_without_a_crossing_have_none() -> None:
    sizes = dict.fromkeys("abcxyz", (50.0, 30.0))
    layout = lay_out(sizes, [("a", "z"), ("b", "y"), ("c", "x")])
    order = sorted("abc", key=lambda name: layout.boxes[name][1])
    to = {"a": "z", "b": "y", "c": "x"}
    assert [to[name] for name in order] == sorted("xyz", key=lambda name: layout.boxes[name][1])


def test_a_graph_of_nothing_and_of_one() -> None:
    assert lay_out({}, []).width == 0
    assert lay_out({"a": (10.0, 5.0)}, []).boxes == {"a": (0.0, 0.0)}


def test_a_tall_picture_does_not_begin_with_nothing() -> None:
    sizes = dict.fromkeys(["root", *(f"n{number}" for number in range(40))], (50.0, 30.0))
    layout = lay_out(sizes, [("root", name) for name in sizes if name != "root"])
    assert layout.boxes["root"][1] <= 60
    assert _overlapping(layout, sizes) == []
    assert layout.height > 1000


def test_the_picture_is_xml_and_shows_every_node(store: ArtifactStore) -> None:
    made = put_recipe(store)
    graph = upstream_graph([made["tabulate"]], store=store)
    svg = minidom.parseString(graph_svg(graph))
    boxes = svg.getElementsByTagName("rect")
    assert len(boxes) == len(graph.nodes)
    for group in svg.getElementsByTagName("g"):
        (box,) = group.getElementsByTagName("rect")
        right = float(box.getAttribute("x")) + float(box.getAttribute("width"))
        for text in group.getElementsByTagName("text"):
            end = float(text.getAttribute("x")) + float(text.getAttribute("textLength"))
            assert end <= right
    (focus,) = [g for g in svg.getElementsByTagName("g") if "focus" in g.getAttribute("class")]
    assert "tabulate" in focus.toxml()


NASTY = "a\"b'c<script>alert(1)</script>&amp;\x00\x1b.txt"


def test_names_are_escaped_and_shortened(store: ArtifactStore) -> None:
    made = put(
        store,
        "build-documents",
        raw=[raw_file(NASTY), raw_file("維基百科" * 40), raw_file("é" * 200)],
    )
    graph = upstream_graph([made], store=store)
    page = lineage_page(graph)
    assert page.count("<script>") == 1  # the page's own
    assert "&lt;script&gt;alert(1)" in page
    assert not re.search("[\x00-\x08\x0b-\x1f]", page)
    svg = minidom.parseString(graph_svg(graph))
    widths = [float(box.getAttribute("width")) for box in svg.getElementsByTagName("rect")]
    assert max(widths) < 400


def test_a_compact_picture_is_narrow_and_has_a_least_width(store: ArtifactStore) -> None:
    made = put_recipe(store)
    graph = upstream_graph([made["tabulate"]], store=store)
    svg = graph_svg(graph, is_compact=True)
    widths = [float(w) for w in re.findall(r'class="box"[^>]* width="([\d.]+)"', svg)]
    assert len(widths) == len(graph.nodes)
    assert max(widths) <= 170
    whole, least = re.findall(r'width="(\d+)" height="\d+" style="min-width:(\d+)px"', svg)[0]
    assert 0.79 < int(least) / int(whole) < 0.81
    assert "min-width" not in graph_svg(graph)


def test_links_lead_from_nodes(store: ArtifactStore) -> None:
    made = put(store, "build-documents")
    graph = upstream_graph([made], store=store)
    svg = graph_svg(graph, links={made.artifact_id: 'report.html#"x"'})
    (link,) = minidom.parseString(svg).getElementsByTagName("a")
    assert link.getAttribute("href") == 'report.html#"x"'


def test_the_page_needs_no_other_file_and_tells_the_checksum(store: ArtifactStore) -> None:
    made = put_recipe(store)
    page = lineage_page(upstream_graph([made["build-tokens"]], store=store))
    for raw in made["build-documents"].raw_inputs:
        assert raw.checksum in page
        assert raw.sha256 in page
    assert not re.search(r'(src|href)="(?!#)', page)
    assert "prefers-color-scheme: dark" in page
    assert 'name="viewport"' in page
