"""The page of a run: its sections, what it omits and escapes, missing files, figures."""

from __future__ import annotations

import html
import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from support.cli_runner import Cli
from support.evaluation_builder import evaluations, written
from support.fake_stages import FakeStages
from support.lineage_builder import put
from support.report_builder import Written

from flows.report.page import report_page, write_report
from flows.report.result_charts import overview_figure
from flows.report.results import read_tables
from flows.report.run_steps import Built, collect_warnings, read_steps
from flows.report.task_results import TaskResult, overview_table
from flows.report.training_curves import average_points, curve_figure, read_phases
from flows.running import run_recipe
from flows.store.artifacts import ArtifactStore
from flows.store.runs import RunRecord, write_run
from model.tables.results import result_rows
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
    """Elements that a browser finds in a page."""

    _VOID = frozenset({"meta", "link", "br", "img", "hr", "input"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.tags: list[str] = []
        self.sections: dict[str, str] = {}
        """Text of each section, with single spaces."""

        self._open: list[tuple[str, str]] = []
        self.feed(text)
        self.close()
        assert self._open == []
        self.sections = {name: " ".join(text.split()) for name, text in self.sections.items()}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.tags.append(tag)
        if values.get("id"):
            self.ids.append(str(values["id"]))
        for name in ("href", "xlink:href", "src"):
            if values.get(name):
                self.links.append(str(values[name]))
        assert not [name for name in values if name.startswith("on")], values
        if tag not in self._VOID:
            self._open.append((tag, values.get("id") or ""))

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


def heading(text: str) -> str:
    """Return the text of a page's heading."""
    [title] = re.findall(r"<h1>(.*?)</h1>", text, re.S)
    return html.unescape(title)


def first_chart(text: str) -> str:
    """Return the title of the chart at the top of a page."""
    [title, *_] = re.findall(r'<svg class="plot" [^>]*aria-label="([^"]*)"', text)
    return title


def test_page_has_all_sections_of_a_run(run: Run) -> None:
    store, record = run
    page = Page(report_page(store, record))
    texts = page.sections
    assert list(texts) == [
        "summary", "corpus", "rows", "dropped", "pretraining", "tasks", "steps", "environment",
        "configuration",
    ]  # fmt: skip
    manifests = {step.label: store.read_manifest(step.manifest) for step in record.steps}
    for manifest in manifests.values():
        assert f"artifact-{manifest.artifact_id}" in page.ids
        assert manifest.artifact_id in texts["steps"]
    assert "finetune.cola 4 trials, matthews 42.0 to 51.0 4 built" in texts["steps"]
    assert "Tokens per sentence" in texts["corpus"]
    assert "first 64 60 40,000 2.500 12.18 40.0 70.0" in texts["pretraining"]
    assert "BERT_LARGE 86.7" in texts["tasks"]  # from the paper's Table 1
    assert "ours: phase-2, L=2 H=128 A=2" in texts["tasks"]
    assert record.run_id in texts["environment"]
    assert manifests["build-tokens"].environment.python in texts["environment"]
    assert "max_seq_length: 64" in texts["configuration"]
    counters = manifests["build-documents"].counters
    pages = f"{counters['pages-in']:,} {counters['pages-kept']:,}"
    assert f"pages build-documents {pages}" in texts["corpus"]


def test_top_of_page_has_headline_table_and_chart(run: Run) -> None:
    store, record = run
    tables = read_tables(store, Written(store, record).manifest("tabulate"))
    text = report_page(store, record)
    assert heading(text) == tables.headline != ""
    summary = text[text.index('<section id="summary">') : text.index('<section id="corpus">')]
    cells = dict(re.findall(r'data-name="([^"]*)">(?:<a [^>]*>)?([^<]*)<', summary))
    assert cells["pretrained"] == "46.0 ± 3.9"
    assert cells["from scratch"] == "6.0 ± 4.6"
    assert cells["restarts"] == "4 / 3"
    assert cells["difference (95 % interval)"].startswith("+40.0 (")
    assert summary.count("<svg") == 1
    assert all(item.sentence in html.unescape(summary) for item in tables.verdicts[1:])


def test_overview_chart_stays_within_its_axis() -> None:
    entries = (written("cola", "cola", [-0.1, 0.1]), written("sst-2", "sst-2", [1.0, 1.0]))
    rows = result_rows(evaluations(*entries))
    results = [TaskResult(r.task, pretrained=r.model_copy(update={"majority": 0.0})) for r in rows]
    figure = overview_figure(results)
    positions = re.findall(r'<g class="series-1"><circle cx="([\d.]+)"', figure.panels[0].svg)
    first, second = map(float, positions)
    assert first < second <= 288
    assert [key.label for key in figure.legend] == ["pretrained", "majority class"]


@pytest.mark.parametrize(
    ("data", "title", "tasks"),
    [
        (("", ""), "times 100", ("CoLA", "SST-2")),
        (("letters", "letters"), "times 100 (letters)", ("CoLA", "SST-2")),
        (("letters", ""), "times 100", ("CoLA (letters)", "SST-2")),
        (("letters", "mails"), "times 100", ("CoLA (letters)", "SST-2 (mails)")),
    ],
)
def test_overview_names_shared_data_once(
    data: tuple[str, str], title: str, tasks: tuple[str, str]
) -> None:
    entries = (written("cola", "cola", [0.5]), written("sst-2", "sst-2", [0.6]))
    rows = result_rows(evaluations(*entries))
    results = [TaskResult(row.title, name, row) for row, name in zip(rows, data, strict=True)]
    table = overview_table(results)
    assert table.title.endswith(title)
    assert tuple(cells[0] for cells in table.groups[0]) == tasks


def test_runs_without_tasks_start_with_their_corpus_or_curves(run: Run) -> None:
    store, record = run
    corpus = record.model_copy(update={"steps": record.steps[:4], "planned": record.planned[:4]})
    text = report_page(store, corpus)
    page = Page(text)
    tokens = Written(store, record).manifest("build-tokens").counters["tokens"]
    assert f"{tokens:,} tokens" in heading(text)
    assert list(page.sections) == [
        "summary", "corpus", "rows", "dropped", "steps", "environment", "configuration",
    ]  # fmt: skip
    assert not {"#pretraining", "#tasks"} & set(page.links)
    assert first_chart(text) == "Tokens per document"
    steps = [step for step in record.steps if step.label.startswith(("build", "pretrain"))]
    text = report_page(store, record.model_copy(update={"steps": tuple(steps), "planned": ()}))
    assert "perplexity 12.18" in heading(text)
    assert first_chart(text) == "LM loss"
    update = {"steps": (), "planned": (), "state": "interrupted"}
    empty = Page(report_page(store, record.model_copy(update=update)))
    assert list(empty.sections) == ["steps", "environment", "configuration"]


def test_failed_run_shows_its_failure_first(run: Run) -> None:
    store, record = run
    failures = {"build-tokens": "RunnerError: the disk is full", "": "Ctrl-C"}
    update = {"state": "failed", "steps": record.steps[:2], "failures": failures}
    text = Path(write_report(store, record.model_copy(update=update))).read_text()
    sections = Page(text).sections
    assert next(iter(sections)) == "failures"
    assert heading(text) == "build-tokens failed"
    assert "build-tokens RunnerError: the disk is full" in sections["failures"]
    assert "Ctrl-C" in sections["failures"]
    assert "2 built 1 failed 14 not run" in sections["steps"]
    assert "failed build-tokens" in sections["steps"]
    assert "not run tabulate" in sections["steps"]


def test_page_loads_nothing_and_links_have_targets(run: Run) -> None:
    text = report_page(*run)
    page = Page(text)
    assert len(page.ids) == len(set(page.ids))
    assert "script" not in page.tags
    targets = [link.removeprefix("#") for link in page.links if link.startswith("#")]
    assert set(targets) <= set(page.ids)
    others = {link for link in page.links if not link.startswith("#")} - {"data:,"}
    store, record = run
    ids = {store.read_manifest(step.manifest).artifact_id for step in record.steps}
    assert others == {f"artifacts/{artifact_id}.html" for artifact_id in ids}
    assert "default-src 'none'" in text
    assert "@import" not in text
    assert "url(" not in re.sub(r"url\(#[\w-]+\)", "", text)
    assert len(text) < 400_000


def test_report_links_to_rows_unless_texts_are_omitted(run: Run) -> None:
    store, record = run
    text = report_page(store, record)
    steps = read_steps(store, record)
    rows = text[text.index('<section id="rows">') : text.index('<section id="dropped">')]
    for built in steps.of_type("documents", "tokens", "instances"):
        assert f'<a href="artifacts/{built.id}.html">{built.label}</a>' in rows
    quiet = record.model_copy(update={"recipe": {**record.recipe, "report_include_text": False}})
    for page in (report_page(store, quiet), report_page(store, record, text=False)):
        assert "report_include_text: false" in page


def test_report_shows_dropped_records_by_reason_and_step(run: Run) -> None:
    store, record = run
    documents = read_steps(store, record).last_of_type("documents")
    assert documents is not None
    pages = documents.counters["pages-dropped-redirect"]
    assert f"redirect {pages:,}" in Page(report_page(store, record)).sections["corpus"]


def test_artifacts_record_no_copies_of_their_rows(run: Run) -> None:
    store, record = run
    records = {
        built.label.partition(".")[0]: entry.path
        for built in read_steps(store, record).of_type("documents", "instances")
        for entry in built.manifest.files
        if entry.path.startswith("__records__/")
    }
    assert records == {"build-instances": "__records__/lengths.json"}


def test_hostile_texts_of_steps_are_escaped(run: Run) -> None:
    store, record = run
    made = Written(store, record)
    reuse = Reuse(items=4, items_reused=3, weight=100, weight_reused=80)
    produced_by = made.manifest("build-tokens").produced_by.model_copy(update={"reuse": reuse})
    made.publish(
        "build-examples.evil", statistics={"splits": {HOSTILE: 3}}, notes=(HOSTILE,),
        produced_by=produced_by,
    )  # fmt: skip
    steps = [*made.record.steps]
    steps[0] = steps[0].model_copy(update={"warning": HOSTILE})
    failure = f"{HOSTILE} \u202e\u05e9\u05dc\u05d5\u05dd"
    update = {"steps": tuple(steps), "failures": {f"finetune.{HOSTILE}": failure}}
    page = Page(text := report_page(store, made.record.model_copy(update=update)))
    assert not {"script", "img"} & set(page.tags)
    assert page.sections["steps"].count(HOSTILE) >= 4
    assert text.count("3 of 4 work items reused, 80 % of the work") == 1
    assert HOSTILE in page.sections["failures"]
    assert "<script" not in text
    assert "\u202e" not in text  # it would reverse the rest of the line
    assert "\u05e9\u05dc\u05d5\u05dd" in text


def test_secrets_are_redacted(run: Run) -> None:
    store, record = run
    made = Written(store, record)
    address = f"s3://key:{SECRET}@bucket/dump?x-signature={SECRET}"
    made.publish("build-examples.secret", notes=(f"read {address}",), statistics={"splits": {}})
    recipe = {**record.recipe, "store": address}
    update = {"recipe": recipe, "failures": {"evaluate.x": f"OSError: {address}"}}
    text = report_page(store, made.record.model_copy(update=update))
    assert "bucket/dump" in text
    assert SECRET not in text


@pytest.mark.parametrize("content", [None, b"\0" * 100], ids=["missing", "damaged"])
@pytest.mark.parametrize("kind", ["manifest", "files"])
def test_page_names_missing_and_damaged_files(run: Run, kind: str, content: bytes | None) -> None:
    store, record = run
    for step in record.steps:
        if step.label in ("build-tokens", "pretrain.first", "tabulate"):
            manifest = store.read_manifest(step.manifest)
            paths = [f"{manifest.data_path}/{entry.stored_name}" for entry in manifest.files]
            for path in [step.manifest] if kind == "manifest" else paths:
                if content is None:
                    store.backend.delete(path)
                else:
                    store.backend.replace(path, content)
    page = Page(text := report_page(store, record))
    assert text.count('class="problem"') >= 3
    steps = [step for step in record.steps if step.label.startswith("finetune")]
    assert all(step.label in page.sections["steps"] for step in steps)


def test_figures_are_drawn_each_time(run: Run) -> None:
    store, record = run
    text = report_page(store, record)
    assert text.count('<svg class="plot"') > 10
    assert "Not drawn" not in text
    assert report_page(store, record) == text
    assert store.backend.names("reports/figures") == []


def test_phases_are_placed_end_to_end(run: Run) -> None:
    store, record = run
    labels = ("pretrain.first", "pretrain.second")
    built = [Built(label, Written(store, record).manifest(label)) for label in labels]
    first, second = read_phases(store, built)
    assert (first.start, first.end) == (0, 60)
    assert (second.start, second.end) == (60, 80)
    assert [x for x, _ in second.points("mlm_loss")] == [70, 80]
    assert first.points("held_out_mlm_accuracy") == []  # nan
    assert first.points("tokens_per_second", factor=1e-3)[-1] == (60, 9)
    many = [(float(n), float(n % 2)) for n in range(1600)]
    assert len(average_points(many)) == 400
    assert average_points(many)[0] == (1.5, 0.5)
    assert average_points(many[:5]) == many[:5]


def test_shares_and_rates_are_drawn_from_zero_and_losses_are_not(run: Run) -> None:
    store, record = run
    label = "pretrain.first"
    figure = curve_figure(store, [Built(label, Written(store, record).manifest(label))])
    lowest = {
        panel.title: min(float(tick) for tick in re.findall(r'"end">([-\d.]+)<', panel.svg))
        for panel in figure.panels
    }
    is_from_zero = {title: value == 0 for title, value in lowest.items()}
    assert is_from_zero == {
        "LM loss": False,
        "LM accuracy": True,
        "Next sentence loss": False,
        "Next sentence accuracy": False,
        "Learning rate": True,
        "Throughput": True,
    }


@pytest.mark.parametrize("field", ["run_id", "recipe"])
def test_names_outside_the_folder_are_refused(run: Run, field: str) -> None:
    store, record = run
    value = "../../x" if field == "run_id" else {**record.recipe, "name": "../x"}
    with pytest.raises(StoreError):
        write_report(store, record.model_copy(update={field: value}))


_PAGE_LINK = r'href="([^"]*artifacts/[0-9a-f]{16}.html)"'


def test_report_command_writes_the_page_of_any_run(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    store, record = run
    cli = Cli(capsys)
    older = record.model_copy(update={"run_id": "20000101t000000-00000000", "state": "failed"})
    for each in (record, older):
        write_run(store, each)
    result = cli("report", "test", "--store", store.root, "--json")
    assert result.code == 0, result.err
    output = json.loads(result.out)
    assert (output["run_id"], output["state"]) == (record.run_id, "completed")
    newest = Path(store.root) / "reports" / "test.html"
    for page, index in (
        (Path(output["report"]), "../../reports/index.html"),
        (newest, "index.html"),
    ):
        text = page.read_text("utf-8")
        assert f'<a href="{index}">bertloom, all runs</a>' in text
        links = re.findall(_PAGE_LINK, text)
        assert links
        assert all((page.parent / link).is_file() for link in (*links, index))
    before = newest.read_bytes()
    assert older.run_id in cli("report", "2000", "--store", store.root).out
    assert newest.read_bytes() == before  # the page of an old run does not replace it
    assert record.run_id in cli("report", "--store", store.root).out
    ambiguous = cli("report", "20", "--store", store.root)
    assert (ambiguous.code, older.run_id in ambiguous.err) == (1, True)
    assert "'other'" in cli("report", "other", "--store", store.root).err


TEXT = "The masked-LM loss (6.91) is no better than that of <word> frequencies alone (6.88)"


def warned(text: str = TEXT, kind: str = "unigram-loss") -> dict[str, Any]:
    return {"warnings": [{"kind": kind, "text": text}]}


def test_warnings_of_evaluated_trials_are_omitted(store: ArtifactStore) -> None:
    phase = put(store, "pretrain", statistics=warned())
    evaluated = put(store, "finetune", key="read", statistics=warned("one restart", "one-answer"))
    alone = put(store, "finetune", key="alone", statistics=warned("alone", "one-answer"))
    worst = warned("1 of 3 restarts: one restart", "one-answer")
    evaluation = put(store, "evaluate", {"r0": evaluated}, statistics=worst)
    built = [
        Built("pretrain.phase-1", phase),
        Built("finetune.a.r0", evaluated),
        Built("finetune.b.r0", alone),
        Built("evaluate.a", evaluation),
    ]
    assert [tuple(warning) for warning in collect_warnings(built)] == [
        ("pretrain.phase-1", "unigram-loss", TEXT),
        ("finetune.b.r0", "one-answer", "alone"),
        ("evaluate.a", "one-answer", "1 of 3 restarts: one restart"),
    ]


def test_step_reports_its_warnings_when_it_is_built_and_not_when_cached(
    fakes: FakeStages, store: ArtifactStore
) -> None:
    warnings = repr(warned()["warnings"])
    text = (fakes.package / "stages.py").read_text()
    made = 'statistics={"vocab_size": config.vocab_size'
    fakes.write("stages", text.replace(made, f'{made}, "warnings": {warnings}'))
    recipe = fakes.recipe(store.root)
    first, second = list[str](), list[str]()
    run_recipe(recipe, log=first.append, engine="local")
    results = run_recipe(recipe, log=second.append, engine="local")
    assert first.count(f"  warning: {TEXT}") == 1
    assert not any("warning" in line for line in second)
    assert [result.label for result in results if result.warnings] == ["build-vocabulary"]


def test_page_has_a_box_of_warnings_after_its_summary(run: Run) -> None:
    changed = Written(*run)
    changed.publish("pretrain.third", statistics=warned(), counters={"steps": 5, "tokens": 9})
    page = report_page(changed.store, changed.record)
    assert page.index('id="summary"') < page.index('id="warnings"') < page.index('id="corpus"')
    assert html.escape(TEXT) in page
    assert "<strong>pretrain.third</strong>" in page
