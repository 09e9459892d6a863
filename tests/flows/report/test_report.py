"""A run's page: what is in it, what is left out, what is escaped, and what it costs."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from support.cli_runner import Cli
from support.evaluation_builder import TASKS, evaluations, written
from support.lineage_builder import put, raw_file
from support.paths import ROOT
from support.report_builder import Written

from flows.lineage.graph import upstream_graph
from flows.record_counts import record_counts
from flows.report import lengths
from flows.report.corpus import Templates, read_corpus
from flows.report.curves import read_phases, thinned
from flows.report.lineage import overview
from flows.report.overview import TaskResult, result_figure
from flows.report.page import report_page, section, write_report
from flows.report.plots import Axis
from flows.report.records import Texts, read_lengths, read_texts
from flows.report.results import read_tables
from flows.report.run_steps import Built, read_steps
from flows.store.artifacts import ArtifactStore
from flows.store.runs import RunRecord, StepRecord, write_run
from model.tables.result_rows import result_rows
from schemas.checksummed import load_page
from schemas.errors import StoreError
from schemas.manifest import Reuse

Run = tuple[ArtifactStore, RunRecord]
HOSTILE = '<script>alert(1)</script><img src=x onerror="alert(2)"> $\\frac{1}{$ {{ 7 * 7 }}'
SECRET = "hunter2hunter2"


@pytest.fixture
def run(reported_run: Run, tmp_path: Path) -> Run:
    """A copy that a test may change."""
    store, record = reported_run
    shutil.copytree(store.root, tmp_path / "store")
    return ArtifactStore(str(tmp_path / "store")), record


class Page(HTMLParser):
    """What a browser would find in the page, as far as the tests ask."""

    _VOID = frozenset({"meta", "link", "br", "img", "hr", "input"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.tags: list[str] = []
        self.sections: dict[str, str] = {}
        self._open: list[tuple[str, str]] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.tags.append(tag)
        if found.get("id"):
            self.ids.append(str(found["id"]))
        for name in ("href", "xlink:href", "src"):
            if found.get(name):
                self.links.append(str(found[name]))
        assert not [name for name in found if name.startswith("on")], found
        if tag not in self._VOID:
            self._open.append((tag, found.get("id") or ""))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in self._VOID:
            self._open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop()[0] == tag

    def handle_data(self, data: str) -> None:
        for tag, name in self._open:
            if tag == "section":
                self.sections[name] = f"{self.sections.get(name, '')}{data} "


def words(text: str) -> str:
    return " ".join(text.split())


def test_the_page_tells_the_whole_run(run: Run) -> None:
    store, record = run
    text = report_page(store, record)
    page = Page(text)
    said = {name: words(content) for name, content in page.sections.items()}
    assert list(said) == [
        "summary", "story", "corpus", "documents", "instances", "dropped", "pretraining", "tasks",
        "steps", "lineage", "environment", "configuration",
    ]  # fmt: skip
    manifests = {step.label: store.read_manifest(step.manifest) for step in record.steps}
    assert f"{manifests['build-tokens'].counters['tokens']:,} tokens" in said["story"]
    assert "held-out perplexity of 12.18 after 80 updates over 80,000 tokens" in said["story"]
    assert record.run_id in said["environment"]
    for manifest in manifests.values():
        assert f"artifact-{manifest.artifact_id}" in page.ids
        assert manifest.artifact_id in said["steps"]
    assert "finetune.cola 4 trials, matthews 42.0 to 51.0 4 built" in said["steps"]
    assert "17 built" in said["steps"]
    assert "Tokens per sentence" in said["corpus"]
    assert "first 64 60 40,000 2.500 12.18 40.0 70.0" in said["pretraining"]
    assert "Dashed lines part the phases: first, then second." in said["pretraining"]
    assert "BERT_LARGE 86.7" in said["tasks"]  # of the paper's Table 1
    assert "ours: phase-2, L=2 H=128 A=2" in said["tasks"]
    assert manifests["build-tokens"].environment.python in said["environment"]
    assert "max_seq_length: 64" in said["configuration"]


def test_the_overview_has_a_box_for_each_stage(run: Run) -> None:
    text = report_page(*run)
    begin = text.index('class="scroll graph short"')
    overview = text[begin : text.index("</svg>", begin)]
    titles = re.findall('<text class="title"[^>]*>([^<]*)<', overview)
    stages = [title for title in titles if "." not in title and "files" not in title]
    assert sorted(stages) == [
        "build-documents", "build-examples", "build-instances", "build-tokens", "build-vocabulary",
        "evaluate", "finetune", "pretrain", "tabulate",
    ]  # fmt: skip
    for detail in ("2 phases", "7 trainings", "2 evaluations"):
        assert f">{detail}</text>" in overview


def test_the_overview_counts_every_file(tmp_path: Path) -> None:
    """Those too that the whole picture shows as `and N more files`."""
    store = ArtifactStore(str(tmp_path / "store"))
    raw = [raw_file(f"part-{number}.bz2") for number in range(41)]
    graph = upstream_graph([put(store, "build-documents", raw=raw)], store=store)
    assert "and 36 more files" in {node.title for node in graph.nodes.values()}
    small = overview(graph)
    [files] = [node for node in small.nodes.values() if node.kind == "group"]
    assert (files.title, files.detail) == ("41 files", "82.0 kB")
    assert len(small.nodes) == 2


def test_what_was_reused_is_said_where_something_was(run: Run) -> None:
    store, record = run
    assert "pieces reused" not in report_page(store, record)  # a first run
    made = Written(store, record)
    by = made.manifest("build-tokens").produced_by
    reuse = Reuse(pieces=4, pieces_reused=3, work=100, work_reused=80)
    made.publish("build-tokens.again", produced_by=by.model_copy(update={"reuse": reuse}))
    page = report_page(store, made.record)
    assert page.count("pieces reused") == 1
    assert "3 of 4 pieces reused, 80 % of the work" in page


def heading(text: str) -> str:
    """Return the text of a page's heading."""
    [found] = re.findall(r"<h1>(.*?)</h1>", text, re.S)
    return html.unescape(found)


def test_first_screen_has_headline_table_and_chart(run: Run) -> None:
    store, record = run
    tables = read_tables(store, Written(store, record).manifest("tabulate"))
    text = report_page(store, record)
    assert heading(text) == tables.headline != ""
    summary = text[text.index('<section id="summary">') : text.index('<section id="story">')]
    cells = dict(re.findall(r'data-name="([^"]*)">([^<]*)<', summary))
    assert cells["pretrained"] == "46.0 ± 3.9"
    assert cells["from scratch"] == "6.0 ± 4.6"
    assert cells["restarts"] == "4 / 3"
    assert cells["difference (95 % interval)"].startswith("+40.0 (")
    assert summary.count("<svg") == 1
    assert "warnings" not in Page(text).ids
    for sentence in (item.sentence for item in tables.verdicts[1:]):
        assert sentence in html.unescape(summary)


def test_warnings_stand_directly_below_results(run: Run) -> None:
    store, record = run
    made = Written(store, record)
    warnings = [{"kind": "chance", "text": "The model answers at chance."}]
    made.publish("build-examples.warned", statistics={"splits": {}, "warnings": warnings})
    sections = Page(report_page(store, made.record)).sections
    assert list(sections)[:2] == ["summary", "warnings"]
    assert "build-examples.warned The model answers at chance." in words(sections["warnings"])


def test_chart_shows_every_task_within_its_axis() -> None:
    def result(task: str, runs: list[float], majority: float | None) -> TaskResult:
        [row] = result_rows(evaluations(written(task, task, runs)), tasks=TASKS)
        row = row.model_copy(update={"majority": majority})
        return TaskResult(title=task, pretrained=row, scratch=None, verdict=None)

    results = [result("cola", [-0.1, 0.1], 0.0), result("sst-2", [1.0, 1.0], None)]
    [panel] = result_figure(results, name="x").panels
    dots = [float(x) for x in re.findall(r'<use [^>]*x="([\d.]+)"[^>]*--series-1', panel.svg)]
    assert len(dots) == 2
    assert dots[0] < dots[1] <= 288
    assert [key.label for key in result_figure(results, name="x").legend] == [
        "pretrained", "majority class",
    ]  # fmt: skip
    assert result_figure(results[1:], name="x").legend[0].label == "pretrained"


def test_runs_without_tasks_begin_with_what_they_built(run: Run) -> None:
    store, record = run
    corpus = record.model_copy(update={"steps": record.steps[:4], "planned": record.planned[:4]})
    page = report_page(store, corpus)
    tokens = Written(store, record).manifest("build-tokens").counters["tokens"]
    assert f"{tokens:,} tokens" in heading(page)
    assert 'class="cards"' in page
    ids = Page(page).ids
    assert any(name.startswith("first-tokens-") for name in ids)  # a figure of the corpus
    steps = [step for step in record.steps if step.label.startswith(("build", "pretrain"))]
    trained = record.model_copy(update={"steps": tuple(steps), "planned": ()})
    page = report_page(store, trained)
    assert "perplexity of 12.18" in heading(page)
    assert any(name.startswith("first-curves-") for name in Page(page).ids)


def test_nothing_is_loaded_and_every_link_leads_somewhere(run: Run) -> None:
    text = report_page(*run)
    page = Page(text)
    assert len(page.ids) == len(set(page.ids))
    assert "script" not in page.tags
    targets = [link.removeprefix("#") for link in page.links if link.startswith("#")]
    assert set(targets) <= set(page.ids)
    others = {link for link in page.links if not link.startswith("#")}
    assert "data:," in others
    web = {link for link in others if link != "data:,"}
    assert web
    assert all(
        re.fullmatch(r"https://sample\.example\.org/\?(curid|oldid)=\d+", link) for link in web
    )
    assert "default-src 'none'" in text
    assert "@import" not in text
    assert "url(" not in re.sub(r"url\(#[\w-]+\)", "", text)
    tokens = next(step for step in run[1].steps if step.label == "build-tokens")
    assert f"artifact-{tokens.manifest.split('/')[2]}" in targets  # from the lineage's box
    assert "step-finetune-cola" in targets


def test_texts_are_shown_beside_their_source(run: Run) -> None:
    page = Page(text := report_page(*run))
    said = {name: words(content) for name, content in page.sections.items()}
    assert "{{Infobox" in said["documents"]  # which the text beside it has not
    assert "Project Gutenberg eBook" in said["documents"]
    assert "characters before the first sentence were cut" in said["documents"]
    assert "B is the next segment : row" in said["instances"]
    assert "B is random : row" in said["instances"]
    assert text.count('<ruby class="mask') >= 3
    assert "pages: redirect" in said["dropped"]
    assert "#REDIRECT [[" in said["dropped"].replace("#redirect", "#REDIRECT")
    assert "Masked LM loss over tokens" not in said["pretraining"]  # its curves have none
    assert len(text) < 400_000


def test_texts_can_be_left_out(run: Run) -> None:
    store, record = run
    texts = read_texts(store, read_steps(store, record)).documents
    quiet = record.model_copy(update={"recipe": {**record.recipe, "report_include_text": False}})
    for page in (report_page(store, quiet), report_page(store, record, text=False)):
        assert "report_include_text: false" in page
        assert not any(item["title"] in page or item["sentences"][0] in page for item in texts)
    assert texts[0]["title"] in report_page(store, record)


def test_hostile_source_text_is_shown_and_not_executed(run: Run) -> None:
    store, record = run
    samples = read_texts(store, read_steps(store, record)).documents
    raw = f"{HOSTILE} \u202e\u05e9\u05dc\u05d5\u05dd"
    texts = Texts(documents=[{**sample, "raw": raw, "title": HOSTILE} for sample in samples])
    text = section("documents", texts=texts, corpus=None, shows_text=True)
    page = Page(f'<section id="documents">{text}</section>')
    assert "script" not in page.tags
    assert "img" not in page.tags
    assert HOSTILE in page.sections["documents"]
    assert "\u202e" not in text  # it would reverse the rest of the line
    assert "\u05e9\u05dc\u05d5\u05dd" in text
    assert text.count('<pre class="raw" dir="auto"') >= 3


def test_counts_add_up_to_the_manifests(run: Run) -> None:
    store, record = run
    step = next(step for step in record.steps if step.label == "build-documents")
    counters = store.read_manifest(step.manifest).counters
    found = record_counts(counters)
    assert {(b.record_type, b.source) for b in found} >= {("pages", ""), ("pages", "samplewiki")}
    for balance in found:
        assert balance.is_balanced
        suffix = f"@{balance.source}" if balance.source else ""
        assert balance.total == counters[f"{balance.record_type}-in{suffix}"]
    by_source = sum(b.kept for b in found if b.record_type == "documents" and b.source)
    assert by_source == counters["documents-kept"]
    dropped = next(b for b in found if b.record_type == "pages" and not b.source)
    assert sum(number for _, number in dropped.dropped_by_reason) == dropped.dropped > 0
    text = words(Page(report_page(store, record)).sections["corpus"])
    assert f"{dropped.total:,} {dropped.kept:,} {dropped.dropped:,}" in text.replace(
        f"pages build-documents {dropped.total}", f"pages build-documents {dropped.total:,}"
    )
    assert "does not add up" not in text
    wrong = record_counts(counters | {"pages-kept": 1})
    assert next(b.is_balanced for b in wrong if b.record_type == "pages") is False


def test_hostile_texts_are_shown_and_not_run(run: Run) -> None:
    store, record = run
    made = Written(store, record)
    made.publish("build-examples.evil", statistics={"splits": {HOSTILE: 3}}, notes=(HOSTILE,))
    steps = [*made.record.steps]
    steps[0] = steps[0].model_copy(update={"warning": HOSTILE})
    update = {"steps": tuple(steps), "failures": {f"finetune.{HOSTILE}": HOSTILE}}
    page = Page(text := report_page(store, made.record.model_copy(update=update)))
    assert "script" not in page.tags
    assert "img" not in page.tags
    assert page.sections["steps"].count(HOSTILE) >= 4
    assert HOSTILE in page.sections["failures"]
    assert "<script" not in text
    assert " 49" not in page.sections["failures"]


def test_secrets_stay_out(run: Run) -> None:
    store, record = run
    made = Written(store, record)
    address = f"s3://key:{SECRET}@bucket/dump?x-signature={SECRET}"
    made.publish("build-examples.secret", notes=(f"read {address}",), statistics={"splits": {}})
    recipe = {**record.recipe, "store": address}
    changed = {"recipe": recipe, "failures": {"evaluate.x": f"OSError: {address}"}}
    text = report_page(store, made.record.model_copy(update=changed))
    assert "bucket/dump" in text
    assert SECRET not in text


def test_what_a_run_has_not_is_left_out(run: Run) -> None:
    store, record = run
    corpus = {"steps": record.steps[:4], "planned": record.planned[:4]}
    record = record.model_copy(update=corpus)
    page = Page(report_page(store, record))
    assert list(page.sections) == [
        "summary", "story", "corpus", "documents", "instances", "dropped", "steps", "lineage",
        "environment", "configuration",
    ]  # fmt: skip
    assert not {"#pretraining", "#tasks"} & set(page.links)
    nothing = record.model_copy(update={"steps": (), "planned": (), "state": "interrupted"})
    page = Page(report_page(store, nothing))
    assert list(page.sections) == ["steps", "environment", "configuration"]


def test_a_failed_run_has_its_page(run: Run) -> None:
    store, record = run
    changed = {
        "state": "failed",
        "steps": record.steps[:2],
        "failures": {"build-tokens": "RunnerError: the disk is full"},
    }
    url = write_report(store, record.model_copy(update=changed))
    page = Page(Path(url).read_text())
    assert next(iter(page.sections)) == "failures"
    assert heading(Path(url).read_text()) == "build-tokens failed"
    failures = words(page.sections["failures"])
    assert "build-tokens RunnerError: the disk is full" in failures
    assert "run the same command again: it reuses the 2 steps that are finished" in failures
    steps = words(page.sections["steps"])
    assert "2 built 1 failed 14 not run" in steps
    assert "failed build-tokens" in steps
    assert "not run tabulate" in steps


def test_what_ends_a_run_is_no_step(run: Run) -> None:
    store, record = run
    changed = {
        "state": "interrupted",
        "steps": record.steps[:2],
        "failures": {"": "it was stopped by Ctrl-C"},
    }
    page = Page(report_page(store, record.model_copy(update=changed)))
    assert "Why it ended early it was stopped by Ctrl-C" in words(page.sections["failures"])
    assert words(page.sections["steps"]).startswith(
        "What ran and what was cached 2 built 15 not run"
    )
    assert "15 steps did not run" in words(page.sections["story"])


def test_unknown_templates_are_told_once_with_texts_and_without(run: Run) -> None:
    store, record = run
    found = read_corpus(store, read_steps(store, record))
    assert found is not None
    rows = [Templates("wiki", 7, 0.001, "odd 4, rare 3")]
    for texts in (Texts(), Texts(problem="damaged")):
        corpus = replace(found, templates=rows)
        both = section("corpus", corpus=corpus) + section("dropped", corpus=corpus, texts=texts)
        assert both.count("<h3>Unknown templates") == 1
        assert len(re.findall(r"\bodd\b", both)) == 1
        assert "100.0" in both


def test_text_from_right_to_left_keeps_numbers_and_order(run: Run) -> None:
    """A list's direction is its text's, and what is ours within a segment does not decide it."""
    page = report_page(*run)
    assert page.count('<ol class="sentences" dir="auto"') >= 3
    assert "<li dir" not in page
    decoded = re.findall(r'<p class="decoded" dir="auto">(.*?)</p>', page, re.S)
    assert decoded
    for text in decoded:
        ours = re.findall(r"<(?:b|ruby|rt|small)\b[^>]*>|<span class=.special.[^>]*>", text)
        assert ours
        assert all(" dir=" in tag for tag in ours)


def _delete_manifest(store: ArtifactStore, step: StepRecord) -> None:
    store.backend.delete(step.manifest)


def _damage_manifest(store: ArtifactStore, step: StepRecord) -> None:
    store.backend.replace(step.manifest, b'{"manifest_version": 1}')


def _delete_files(store: ArtifactStore, step: StepRecord) -> None:
    store.backend.delete_folder(store.read_manifest(step.manifest).data)


def _damage_files(store: ArtifactStore, step: StepRecord) -> None:
    manifest = store.read_manifest(step.manifest)
    for entry in manifest.files:
        store.backend.replace(f"{manifest.data}/{entry.object}", b"\0" * 100)


@pytest.mark.parametrize("harm", [_delete_manifest, _damage_manifest, _delete_files, _damage_files])
def test_what_is_missing_or_damaged_is_said(
    run: Run, harm: Callable[[ArtifactStore, StepRecord], None]
) -> None:
    store, record = run
    store.backend.delete_folder("reports/figures")
    for step in record.steps:
        if step.label in ("build-tokens", "pretrain.first", "tabulate"):
            harm(store, step)
    page = Page(text := report_page(store, record))
    assert text.count('class="problem"') >= 3
    steps = [step for step in record.steps if step.label.startswith("finetune")]
    assert all(step.label in page.sections["steps"] for step in steps)
    if "manifest" in harm.__name__:
        assert "the manifest is gone" in text or "manifest.json" in text


def test_figures_are_drawn_once(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    store, record = run
    store.backend.delete_folder("reports/figures")
    first = report_page(store, record)
    names = store.backend.names("reports/figures")
    assert len(names) == 5  # lengths of documents and instances, curves, overview and restarts

    def refuse(*_: Any, **__: Any) -> str:
        raise AssertionError("drawn again")

    monkeypatch.setattr(lengths, "token_figure", refuse)
    assert report_page(store, record) == first
    store.backend.replace(names[0], b"{}x")
    monkeypatch.undo()
    assert report_page(store, record) == first  # damaged, and drawn anew


_CACHED = """
import sys
from flows.store.artifacts import ArtifactStore
from flows.report.page import write_report
from flows.store.runs import read_run
store = ArtifactStore(sys.argv[1], create=False)
print(write_report(store, read_run(store, sys.argv[2])))
print([name for name in ("matplotlib", "torch", "prefect", "apache_beam", "httpx", "openlineage")
       if name in sys.modules])
"""


def test_a_cached_report_imports_nothing_that_draws(run: Run) -> None:
    store, record = run
    write_run(store, record)
    write_report(store, record)
    done = subprocess.run(
        [sys.executable, "-c", _CACHED, store.root, record.run_id],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    url, loaded = done.stdout.splitlines()
    assert loaded == "[]"
    assert Path(url).is_file()


def test_recorded_lengths_are_those_of_the_shards(run: Run) -> None:
    store, record = run
    built = {item.label: item for item in read_steps(store, record).built}
    tokens = built["build-tokens"]
    lengths = read_lengths(store, tokens)
    shards = tokens.manifest.shards
    assert lengths["documents"]["records"] == sum(entry.rows or 0 for entry in shards)
    num_tokens = sum(int(entry.statistics["tokens"]) for entry in shards)
    for name in ("documents", "words"):
        item = lengths[name]
        assert item["mean"] * item["records"] == pytest.approx(num_tokens)
    assert lengths["sentences"]["mean"] * lengths["sentences"]["records"] == pytest.approx(
        lengths["words"]["records"]
    )
    instances = built["build-instances.length-64"]
    found = read_lengths(store, instances)["instances"]
    assert found["longest"] == 64
    assert found["mean"] * found["records"] == pytest.approx(instances.counters["tokens"])


def test_report_shows_how_well_labels_can_be_guessed_from_lengths(run: Run) -> None:
    store, record = run
    built = read_steps(store, record).of_type("instances")
    figure = lengths.instance_figure(store, built, name="x")
    assert f"{read_lengths(store, built[0])['guess_accuracy']:.3f}" in figure.panels[0].note


def test_tables_of_another_make_are_said_to_be_so(run: Run) -> None:
    store, record = run
    manifest = Written(store, record).manifest("tabulate")
    entry = next(entry for entry in manifest.files if entry.path == "tables.json")
    data = {"results": [{"is_main": True, "split": "dev"}], "comparisons": [], "tables": []}
    store.backend.replace(f"{manifest.data}/{entry.object}", json.dumps(data).encode())
    said = Page(report_page(store, record)).sections["tasks"]
    assert "tables.json is not as expected: results.0.runs: Field required" in said


def test_phases_stand_end_to_end(run: Run) -> None:
    store, record = run
    made = Written(store, record)
    labels = ("pretrain.first", "pretrain.second")
    first, second = read_phases(store, [Built(label, made.manifest(label)) for label in labels])
    assert (first.begin, first.end, second.begin, second.end) == (0, 60, 60, 80)
    assert [x for x, _ in second.points("mlm_loss", factor=1)] == [70, 80]
    assert first.points("held_out_mlm_accuracy", factor=1) == []  # nan
    assert first.points("tokens_per_second", factor=1e-3)[-1] == (60, 9)


def test_many_points_become_means_of_neighbours() -> None:
    points = [(float(n), float(n % 2)) for n in range(1600)]
    fewer = thinned(points)
    assert len(fewer) == 400
    assert fewer[0] == (1.5, 0.5)
    assert thinned(points[:5]) == points[:5]
    assert thinned([]) == []


@pytest.mark.parametrize("values", [[3.0], [0.0], [-2.0, 5.0], [1e-9, 2e-9], [1e12, 3e12]])
@pytest.mark.parametrize("from_zero", [False, True])
def test_an_axis_reaches_over_all_values(values: list[float], from_zero: bool) -> None:
    axis = Axis.around(values, from_zero=from_zero and min(values) >= 0)
    assert axis.low <= min(values) <= max(values) <= axis.high
    assert axis.low < axis.high


def test_names_that_would_leave_the_folder_are_refused(run: Run) -> None:
    store, record = run
    for changed in ({"run_id": "../../x"}, {"recipe": {**record.recipe, "name": "../x"}}):
        with pytest.raises(StoreError, match="they name the report's file"):
            write_report(store, record.model_copy(update=changed))


def test_the_command_writes_the_page_anew(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store, record = run
    cli = Cli(capsys)
    older = record.model_copy(update={"run_id": "20000101t000000-00000000", "state": "failed"})
    for each in (record, older):
        write_run(store, each)
    out = tmp_path / "page.html"
    said = cli("report", "test", "--store", store.root, "--out", str(out), "--json")
    assert said.code == 0, said.err
    found = json.loads(said.out)
    assert found["run_id"] == record.run_id
    assert found["state"] == "completed"
    newest = Path(store.root) / "reports" / "test.html"
    alone = load_page(out.read_bytes()).decode()
    assert "index.html" not in alone  # which is not beside it
    for page, index in (
        (Path(found["report"]), "../../reports/index.html"),
        (newest, "index.html"),
    ):
        link = f'<a href="{index}">bertloom, all runs</a>'
        assert load_page(page.read_bytes()).decode().replace(link, "bertloom") == alone
        assert (page.parent / index).is_file()
    before = newest.read_bytes()
    said = cli("report", "2000", "--store", store.root)
    assert older.run_id in said.out
    assert newest.read_bytes() == before  # an old run's page does not take the newest one's place
    assert cli("report", "--store", store.root).out.split()[3] == f"{record.run_id},"
    said = cli("report", "20", "--store", store.root)
    assert said.code == 1
    assert "20000101t000000-00000000" in said.err
    assert "'other'" in cli("report", "other", "--store", store.root).err
