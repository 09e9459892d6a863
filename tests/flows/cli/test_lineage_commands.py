"""`bertloom lineage`, `trace` and `diff`, as a user runs them."""

from __future__ import annotations

import json
import re
from typing import Any

import pyarrow as pa
import pytest
from support.cli_runner import Cli
from support.lineage_builder import (
    DUMP,
    DUMP_SHA1,
    RUN_ID,
    put,
    put_recipe,
)

from flows.store.artifacts import ArtifactStore
from pipelines.io.shards import ShardWriter
from schemas.arrow import DOCUMENTS


class Made:
    """Store with the artifacts of a recipe."""

    def __init__(self, root: str) -> None:
        self.store = ArtifactStore(root)
        self.steps = put_recipe(self.store)

    def id(self, label: str) -> str:
        return self.steps[label].artifact_id


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return Made(str(tmp_path_factory.mktemp("lineage") / "store"))


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], made: Made, monkeypatch: pytest.MonkeyPatch) -> Cli:
    monkeypatch.setenv("BERTLOOM_STORE", made.store.root)
    return Cli(capsys)


def _lines(cli: Cli, *arguments: str) -> list[str]:
    result = cli(*arguments)
    assert result.code == 0, result.err
    return result.out.splitlines()


def test_default_is_last_metric_of_newest_run(cli: Cli, made: Made) -> None:
    lines = _lines(cli, "lineage")
    assert lines[0].startswith(f"evaluate.cola {made.id('evaluate.cola')}: matthews")
    assert any(f"verified sha1 {DUMP_SHA1}" in line for line in lines)


@pytest.mark.parametrize(
    ("text", "metric", "label"),
    [
        ("mine/evaluate.cola:dev.matthews", "metrics.dev.matthews = 40.0", "evaluate.cola"),
        ("pretrain:perplexity", "held_out.perplexity = 12.50", "pretrain.phase-2"),
        ("evaluate.cola:matthews", "metrics.dev.matthews = 40.0", "evaluate.cola"),
    ],
)
def test_metric_precedes_its_tree(cli: Cli, made: Made, text: str, metric: str, label: str) -> None:
    lines = _lines(cli, "lineage", text)
    assert lines[0].endswith(metric)
    assert made.id(label) in lines[1]
    assert any(f"verified sha1 {DUMP_SHA1}" in line for line in lines)
    data = json.loads("\n".join(_lines(cli, "lineage", text, "--json")))
    assert data["focus"] == data["metrics"][0]["artifact_id"] == made.id(label)


@pytest.mark.parametrize(
    "text",
    [
        "wiki.xml.bz2",
        "/raw/../raw/wiki.xml.bz2",
        f"sha1:{DUMP_SHA1}",
        DUMP.sha256[:12],
    ],
)
def test_raw_file_shows_downstream(cli: Cli, made: Made, text: str) -> None:
    lines = _lines(cli, "lineage", text)
    assert lines[0].startswith("wiki.xml.bz2 (2.0 kB, sha256 ")
    assert lines[0].endswith(f", verified sha1 {DUMP_SHA1})")
    assert f"└── build-documents {made.id('build-documents')}: 1 file" in lines
    assert any(made.id("evaluate.cola") in line for line in lines)
    assert len(_lines(cli, "lineage", text, "--upstream")) == 1


def test_directions_and_formats(cli: Cli, made: Made) -> None:
    name = "mine/build-tokens"
    assert "downstream:" not in _lines(cli, "lineage", name)
    assert "downstream:" in _lines(cli, "lineage", name, "--both")
    down = _lines(cli, "lineage", name, "--downstream")
    assert not any("wiki" in line for line in down)
    assert any(made.id("tabulate") in line for line in down)
    assert _lines(cli, "lineage", name, "--mermaid")[0] == "flowchart LR"
    trials = [
        len([line for line in _lines(cli, "lineage", *more) if "finetune" in line])
        for more in ((), ("--all",))
    ]
    assert trials == [1, 5]


def test_path_needs_no_store_option(cli: Cli, made: Made, monkeypatch: Any) -> None:
    monkeypatch.setenv("BERTLOOM_STORE", "/nowhere")
    tokens = made.steps["build-tokens"]
    path = f"{made.store.root}/{tokens.data_path}/{tokens.files[0].stored_name}"
    assert tokens.artifact_id in _lines(cli, "lineage", path)[0]
    monkeypatch.setenv("BERTLOOM_STORE", made.store.root)
    digest = f"sha256:{tokens.files[0].sha256[:16]}"
    assert _lines(cli, "lineage", digest) == _lines(cli, "lineage", path)


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (("lineage", "nothing-so"), 1, "'nothing-so'"),
        (("lineage", "evaluate.cola:nothing"), 1, "metrics.dev"),
        (("lineage", "--upstream", "--downstream"), 2, "--upstream"),
        (("lineage", "--json", "--mermaid"), 2, "--json"),
        (("trace", "mine/build-tokens:x"), 2, "SHARD:ROW"),
        (("trace", "mine/tabulate:0"), 1, "made.txt"),
        (("diff", "mine/tabulate", "mine/tabulat"), 1, "mine/tabulate"),
        (("diff", RUN_ID, "mine/tabulate"), 1, RUN_ID),
    ],
)
def test_wrong_arguments_are_named(
    cli: Cli, arguments: tuple[str, ...], code: int, text: str
) -> None:
    result = cli(*arguments)
    assert result.code == code
    assert text in result.err


def test_diff_compares_artifacts(cli: Cli, made: Made) -> None:
    one, other = "finetune.cola.bs16-lr2e-05-ep3-r0", "mine/finetune.cola.bs16-lr2e-05-ep3-r1"
    assert "  metrics.dev.matthews: 0.0 -> 10.0 (+10.0)" in _lines(cli, "diff", one, other)
    data = json.loads("\n".join(_lines(cli, "diff", one, other, "--json")))
    assert data["artifacts"] == [made.id(one), made.id(other.removeprefix("mine/"))]


def test_trace_shows_page_and_bytes(cli: Cli, made: Made) -> None:
    row = {
        "document_id": "wiki:7",
        "source": "wiki",
        "title": "A \x1b[31mtitle",
        "sentences": ["one two", "three"],
        "digest": bytes(16),
        "file": DUMP.sha256,
        "byte_start": 1000,
        "byte_end": 1500,
        "page_id": 7,
        "revision_id": 70,
        "timestamp": "2026-01-01T00:00:00Z",
    }
    attempt = made.store.begin("build-documents")
    with ShardWriter("part-00000.arrow", schema=DOCUMENTS, output=attempt.output) as writer:
        writer.write(pa.RecordBatch.from_pylist([row], schema=DOCUMENTS))
    traced = put(
        made.store,
        "build-documents",
        key=attempt.artifact_id,
        raw=[DUMP],
        artifact_id=attempt.artifact_id,
        artifact_path=attempt.location,
        files=(writer.entry(),),
    )
    result = cli("trace", f"{traced.artifact_id}:0")
    assert result.code == 0, result.err
    facts, _, text = result.out.partition("\n  text\n")
    fields = dict(re.findall(r"(?m)^ *(\w+)  +(.*?) *$", facts))
    expected = {
        "document": "wiki:7",
        "page": "7, revision 70, 2026-01-01T00:00:00Z",
        "verified": f"sha1 {DUMP_SHA1}",
        "bytes": "1,000 to 1,500 of the file as stored",
        "title": "A  [31mtitle",  # nothing that a file says steers the terminal
    }
    assert expected.items() <= fields.items()
    data = json.loads(cli("trace", f"{traced.artifact_id}:0:0", "--json", "--raw").out)
    assert text.split() == " ".join(data["segments"]["document"]["text"]).split()
    assert "no such file" in data["segments"]["document"]["raw"]["problem"]
    document = data["segments"]["document"]
    assert document["raw_file"]["checksum"] == DUMP.checksum
    assert (document["byte_start"], document["page_id"]) == (1000, 7)
