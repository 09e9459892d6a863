"""`bertloom lineage`, `trace` and `diff` as they are typed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.cli_runner import Cli
from support.lineage_builder import (
    DUMP,
    DUMP_SHA1,
    RUN_ID,
    lose,
    put,
    put_recipe,
    put_run,
    raw_file,
)

from flows.store.artifacts import ArtifactStore
from pipelines.io.shards import ShardWriter
from schemas.arrow import DOCUMENTS, tokens_schema
from schemas.manifest import Manifest


class Made:
    """A store with a recipe's artifacts."""

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
    said = cli(*arguments)
    assert said.code == 0, said.err
    return said.out.splitlines()


def test_without_a_name_it_is_the_last_number_of_the_newest_run(cli: Cli, made: Made) -> None:
    lines = _lines(cli, "lineage")
    assert lines[0].startswith(f"evaluate.cola {made.id('evaluate.cola')}: matthews")
    assert any(f"verified sha1 {DUMP_SHA1}" in line for line in lines)


@pytest.mark.parametrize(
    ("text", "metric", "label"),
    [
        ("evaluate.cola:matthews", "metrics.dev.matthews = 40.0", "evaluate.cola"),
        ("mine/evaluate.cola:dev.matthews", "metrics.dev.matthews = 40.0", "evaluate.cola"),
        ("pretrain.phase-2:held_out.perplexity", "held_out.perplexity = 12.50", "pretrain.phase-2"),
        ("pretrain:perplexity", "held_out.perplexity = 12.50", "pretrain.phase-2"),
        ("perplexity", "held_out.perplexity = 12.50", "pretrain.phase-2"),
        ("matthews", "metrics.dev.matthews = 40.0", "evaluate.cola"),
    ],
)
def test_a_metric_first_and_then_its_tree(
    cli: Cli, made: Made, text: str, metric: str, label: str
) -> None:
    lines = _lines(cli, "lineage", text)
    assert lines[0].endswith(metric)
    assert made.id(label) in lines[1]
    assert any(f"verified sha1 {DUMP_SHA1}" in line for line in lines)
    found = json.loads("\n".join(_lines(cli, "lineage", text, "--json")))
    assert found["focus"] == found["metrics"][0]["artifact_id"] == made.id(label)


def test_a_metric_of_several_steps_is_listed(cli: Cli, made: Made) -> None:
    other = put(made.store, "pretrain", key="third", statistics={"held_out": {"perplexity": 7.0}})
    put_run(made.store, "20270101t000000-00000009", {**made.steps, "pretrain.phase-3": other})
    try:
        lines = _lines(cli, "lineage", "perplexity")
        assert lines[:2] == [
            "pretrain.phase-2 held_out.perplexity = 12.50",
            "pretrain.phase-3 held_out.perplexity = 7.00",
        ]
        assert "pretrain.phase-2:held_out.perplexity" in lines[-1]
        found = json.loads("\n".join(_lines(cli, "lineage", "perplexity", "--json")))
        assert [metric["value"] for metric in found["metrics"]] == [12.5, 7.0]
    finally:
        made.store.backend.delete_folder("runs/20270101t000000-00000009")


@pytest.mark.parametrize(
    "text",
    [
        "wiki.xml.bz2",
        "/raw/wiki.xml.bz2",
        "/raw/../raw/wiki.xml.bz2",
        DUMP.sha256,
        f"sha256:{DUMP.sha256}",
        f"sha1:{DUMP_SHA1}",
        DUMP_SHA1,
        DUMP.sha256[:12],
    ],
)
def test_a_raw_file_leads_down(cli: Cli, made: Made, text: str) -> None:
    lines = _lines(cli, "lineage", text)
    assert lines[0].startswith("wiki.xml.bz2 (2.0 kB, sha256 ")
    assert lines[0].endswith(f", verified sha1 {DUMP_SHA1})")
    assert f"└── build-documents {made.id('build-documents')}: 1 file" in lines
    assert any(made.id("evaluate.cola") in line for line in lines)
    assert len(_lines(cli, "lineage", text, "--upstream")) == 1


@pytest.mark.parametrize("prefix", ["", "sha256:"])
def test_a_file_of_an_artifact_by_its_digest(cli: Cli, made: Made, prefix: str) -> None:
    tokens = made.steps["build-tokens"]
    lines = _lines(cli, "lineage", f"{prefix}{tokens.files[0].sha256[:16]}")
    assert lines[0].startswith(f"build-tokens {tokens.artifact_id}: ")
    assert _lines(cli, "lineage", "mine/build-tokens:made.txt") == lines


def test_two_files_of_one_name_are_told_apart_by_path(cli: Cli, made: Made) -> None:
    twins = [
        raw_file("twin.txt").model_copy(update={"uri": f"/{where}/twin.txt", "sha256": digit * 64})
        for where, digit in (("one", "1"), ("two", "2"))
    ]
    for twin in twins:
        put(made.store, "build-documents", key=twin.uri, raw=[twin])
    said = cli("lineage", "twin.txt")
    assert said.code == 1
    assert all(twin.uri in said.err for twin in twins)
    assert "sha256 222222222222" in _lines(cli, "lineage", "/two/twin.txt")[0]


def test_ways_and_forms(cli: Cli, made: Made, tmp_path: Path) -> None:
    name = "mine/build-tokens"
    assert "downstream:" not in _lines(cli, "lineage", name)
    assert "downstream:" in _lines(cli, "lineage", name, "--both")
    down = _lines(cli, "lineage", name, "--downstream")
    assert not any("wiki" in line for line in down)
    assert any(made.id("tabulate") in line for line in down)
    assert _lines(cli, "lineage", name, "--dot")[0] == "digraph lineage {"
    assert _lines(cli, "lineage", name, "--mermaid")[0] == "flowchart LR"
    page = tmp_path / "page.html"
    assert _lines(cli, "lineage", name, "--html", str(page)) == [f"wrote {page}"]
    assert DUMP_SHA1 in page.read_text()
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]
    trials = [
        len([line for line in _lines(cli, "lineage", *more) if "finetune" in line])
        for more in ((), ("--all",))
    ]
    assert trials == [1, 5]


def test_a_path_brings_its_own_store(cli: Cli, made: Made, monkeypatch: Any) -> None:
    monkeypatch.setenv("BERTLOOM_STORE", "/nowhere")
    tokens = made.steps["build-tokens"]
    path = f"{made.store.root}/{tokens.data}/{tokens.files[0].object}"
    assert tokens.artifact_id in _lines(cli, "lineage", path)[0]
    vocabulary = f"{made.store.root}/{made.steps['build-vocabulary'].location}"
    assert _lines(cli, "diff", path, vocabulary)[0].startswith("build-tokens -> build-vocabulary")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("lineage", "nothing-so"), "no artifact 'nothing-so'"),
        (("lineage", "nothing-so"), "no raw file of an artifact and no metric"),
        (("lineage", "evaluate.cola:nothing"), "no file or metric 'nothing'"),
        (
            ("lineage", "--upstream", "--downstream"),
            "at most one of --upstream, --downstream and --both",
        ),
        (("lineage", "--json", "--dot"), "at most one of --json"),
        (("lineage", "--html", "/nowhere/x.html"), "/nowhere/x.html"),
        (("trace", "mine/build-tokens"), "expected SHARD:ROW"),
        (("trace", "mine/build-tokens:x"), "expected SHARD:ROW"),
        (("trace", "mine/tabulate:0"), "expected a shard of instances, tokens or documents"),
        (("diff", RUN_ID, "mine/tabulate"), "expected two runs, or two artifacts"),
        (("diff", RUN_ID, "20250101t000000-00000000"), "'20250101t000000-00000000'"),
        (("diff", RUN_ID, f"{RUN_ID[:-1]}9"), f"'{RUN_ID[:-1]}9'"),
    ],
)
def test_what_cannot_be_told(cli: Cli, arguments: tuple[str, ...], message: str) -> None:
    said = cli(*arguments)
    is_usage = "at most one" in message or "SHARD:ROW" in message
    assert said.code == (2 if is_usage else 1)
    assert message in said.err


def test_a_store_without_runs(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    store = ArtifactStore(str(tmp_path / "store"))
    said = Cli(capsys)("lineage", "--store", store.root)
    assert said.code == 1
    assert "expected a run with finished steps" in said.err


def test_a_lost_ancestor_is_no_error(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    store = ArtifactStore(str(tmp_path / "store"))
    made = put_recipe(store)
    lose(store, made["build-documents"])
    lines = _lines(Cli(capsys), "lineage", "--store", store.root)
    assert any(line.endswith(": missing from the store") for line in lines)


def test_diff_of_artifacts_and_of_runs(cli: Cli, made: Made) -> None:
    one, other = "finetune.cola.bs16-lr2e-05-ep3-r0", "mine/finetune.cola.bs16-lr2e-05-ep3-r1"
    assert "  metrics.dev.matthews: 0.0 -> 10.0 (+10.0)" in _lines(cli, "diff", one, other)
    found = json.loads("\n".join(_lines(cli, "diff", one, other, "--json")))
    assert found["artifacts"] == [made.id(one), made.id(other.removeprefix("mine/"))]
    runs = _lines(cli, "diff", RUN_ID, RUN_ID)
    assert all(line.endswith("same artifact") or "5 trials the same" in line for line in runs[1:])
    steps = json.loads("\n".join(_lines(cli, "diff", RUN_ID, RUN_ID, "--json")))["steps"]
    assert [step["label"] for step in steps] == list(made.steps)


@pytest.fixture
def traced(made: Made) -> Manifest:
    """Tokens of one document, in shards."""
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
    tokens = {"document_id": "wiki:7", "token_ids": [5, 6, 7], "sentence_lengths": [2, 1]}
    documents = _put_shard(made.store, "build-documents", {}, DOCUMENTS, row)
    return _put_shard(
        made.store, "build-tokens", {"documents": documents}, tokens_schema(9), tokens
    )


def _put_shard(
    store: ArtifactStore,
    stage: str,
    inputs: dict[str, Manifest],
    schema: pa.Schema,
    row: dict[str, Any],
) -> Manifest:
    """An artifact that is a shard of one row."""
    attempt = store.begin(stage)
    with ShardWriter("part-00000.arrow", schema=schema, output=attempt.output) as writer:
        writer.write(pa.RecordBatch.from_pylist([row], schema=schema))
    return put(
        store,
        stage,
        inputs,
        key=attempt.artifact_id,
        raw=[] if inputs else [DUMP],
        artifact_id=attempt.artifact_id,
        location=attempt.location,
        files=(writer.entry(),),
    )


def test_trace_tells_the_page_and_the_bytes(cli: Cli, traced: Manifest) -> None:
    said = cli("trace", f"{traced.artifact_id}:0")
    assert said.code == 0, said.err
    facts, _, text = said.out.partition("\n  text\n")
    rows = dict(line.strip().split("  ", 1) for line in facts.splitlines()[3:])
    found = {name: value.strip() for name, value in rows.items()}
    assert found["document"] == "wiki:7"
    assert found["page"] == "7, revision 70, 2026-01-01T00:00:00Z"
    assert found["file"] == "/raw/wiki.xml.bz2"
    assert found["sha256"] == DUMP.sha256
    assert found["verified"] == f"sha1 {DUMP_SHA1}"
    assert found["bytes"] == "1,000 to 1,500 of the file as stored"
    assert found["title"] == "A  [31mtitle"  # nothing that a file says steers the terminal
    told = json.loads(cli("trace", f"{traced.artifact_id}:0:0", "--json", "--raw").out)
    assert text.split() == " ".join(told["segments"]["document"]["text"]).split()
    assert "no such file" in told["segments"]["document"]["raw"]["problem"]
    document = told["segments"]["document"]
    assert document["raw_file"]["checksum"] == DUMP.checksum
    assert (document["byte_start"], document["page_id"]) == (1000, 7)
    assert document["tokens"] == told["location"]


def test_what_a_list_says_is_called_believed_and_never_verified(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = ArtifactStore(str(tmp_path / "store"))
    monkeypatch.setenv("BERTLOOM_STORE", store.root)
    dump = raw_file("wiki.xml.bz2", believed="/raw/sha256sums.txt")
    spec = {"environment": {"numpy": "2.0.0"}}
    made = put(store, "build-documents", raw=[dump], key_spec=spec).artifact_id
    page = tmp_path / "page.html"
    assert _lines(cli, "lineage", made, "--html", str(page))
    told = {
        "show": "\n".join(_lines(cli, "show", made)),
        "tree": "\n".join(_lines(cli, "lineage", made)),
        "json": "\n".join(_lines(cli, "lineage", made, "--json")),
        "page": page.read_text("utf-8"),
    }
    for name, text in told.items():
        assert "verified" not in text, name
        assert "wiki.xml.bz2" in text, name
    assert "believed" in told["show"]
    assert ", from a list of checksums)" in told["tree"]
    assert "2.0 kB, believed" in told["json"]
    assert "from /raw/sha256sums.txt (believed)" in told["page"]


def test_nothing_heavy_is_loaded_to_tell_a_lineage(made: Made) -> None:
    heavy = ("apache_beam", "prefect", "torch", "matplotlib", "httpx", "openlineage", "jinja2")
    code = (
        "import sys\nfrom flows.cli.app import main\n"
        "try:\n"
        f"    main(['lineage', '--store', {made.store.root!r}, '--json'])\n"
        "except SystemExit as end:\n    assert not end.code\n"
        f"found = [name for name in {heavy!r} if name in sys.modules]\n"
        "print(found, file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stderr.strip().endswith("[]")
    assert json.loads(done.stdout)["focus"] == made.id("evaluate.cola")
