"""Pages of artifacts: complete, linked, escaped, right after later runs, and written once."""

from __future__ import annotations

import re
import shutil
from html.parser import HTMLParser
from pathlib import Path

import pytest
from support.cli_runner import Cli
from support.lineage_builder import DUMP, DUMP_SHA1, lose, put, put_recipe, raw_file
from support.report_builder import Written

from flows.report.artifact_pages import write_artifact_pages
from flows.report.index import write_index
from flows.report.listener import write_run_report
from flows.report.row_samples import read_row_samples
from flows.report.run_steps import read_steps
from flows.store.artifacts import ArtifactStore
from flows.store.runs import RunRecord, write_run
from schemas.manifest import Manifest

FOLDER, QUIET_FOLDER = "reports/artifacts", "reports/artifacts-without-text"
HOSTILE = "<script>alert(1)</script>"
SECRET = "hunter2hunter2"


class Links(HTMLParser):
    """Links and ids of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.targets, self.ids, self.tags = set[str](), set[str](), set[str]()
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        values = dict(attributes)
        self.targets |= {values["href"] or ""} if tag == "a" and "href" in values else set()
        self.ids |= {values["id"] or ""} if "id" in values else set()


def page(store: ArtifactStore, manifest: Manifest, folder: str = FOLDER) -> str:
    return store.backend.read(f"{folder}/{manifest.artifact_id}.html").decode()


def broken_links(store: ArtifactStore) -> list[str]:
    """Return the relative links of all pages below `reports/` and `runs/` without a target."""
    write_index(store)  # each page links to it
    root = Path(store.root)
    files = [path for folder in ("reports", "runs") for path in (root / folder).rglob("*.html")]
    pages = {path.resolve(): Links(path.read_text("utf-8")) for path in files}
    broken = []
    for path, links in pages.items():
        for target in links.targets:
            name, _, part = target.partition("#")
            if "://" not in target:
                linked = (path.parent / name).resolve() if name else path
                if linked not in pages or (part and part not in pages[linked].ids):
                    broken.append(f"{path}: {target}")
    return broken


@pytest.fixture
def run(
    reported_run: tuple[ArtifactStore, RunRecord], tmp_path: Path
) -> tuple[ArtifactStore, RunRecord]:
    """A copy of a run with trainings, whose record is in the store."""
    store, record = reported_run
    shutil.copytree(store.root, tmp_path / "copy")
    copy = ArtifactStore(str(tmp_path / "copy"))
    copy.backend.delete_folder("reports")
    write_run(copy, record)
    return copy, record


def test_report_links_numbers_to_pages_and_no_link_is_broken(
    run: tuple[ArtifactStore, RunRecord],
) -> None:
    store, record = run
    assert write_run_report(store, record)
    steps = read_steps(store, record)
    names = {f"{FOLDER}/{built.id}.html" for built in steps.built}
    assert set(store.backend.names(FOLDER)) == names
    assert broken_links(store) == []
    report = store.backend.read(f"reports/{record.recipe_name}.html").decode()
    body = report[report.index("<main") :]
    ids = {built.label: built.id for built in steps.built}
    for label in ("evaluate.cola", "pretrain.first", "build-tokens", "build-documents"):
        assert re.search(rf'<td[^>]*><a href="artifacts/{ids[label]}.html">[\d.,]+', body), label
    cells = re.findall(r'<td class="number"[^>]*>(.*?)</td>', body)
    numbers = [cell for cell in cells if re.search(r"\d", cell)]
    unlinked = [cell for cell in numbers if "<a href" not in cell]
    assert len(numbers) - len(unlinked) > 50
    # The paper's numbers, which no artifact has.
    assert all(re.fullmatch(r"[\d.]+( \(test\))?|0\.\d{3}", cell) for cell in unlinked)


def test_page_shows_rows_source_files_and_configuration(
    run: tuple[ArtifactStore, RunRecord],
) -> None:
    store, record = run
    write_run_report(store, record)
    made = Written(store, record)
    documents = made.manifest("build-documents")
    labels = [step.label for step in record.steps if step.label.startswith("build-instances")]
    instances = made.manifest(labels[0])
    text = page(store, documents)
    for raw in documents.raw_inputs:
        assert raw.sha256 in text
        assert raw.checksum.partition(":")[2] in text
        assert raw.uri in text
    for entry in documents.files:
        assert entry.sha256 in text
    assert "{{Infobox" in text  # source of a wiki page
    assert "min_words" in text  # configuration
    assert f"{documents.counters['pages-in']:,}" in text
    assert "build-vocabulary" in text[text.index('id="outputs"') :]
    decoded = page(store, instances)
    assert 'class="masked"' in decoded
    assert "Source of segment A" in decoded
    assert re.search(rf'href="{documents.artifact_id}.html#file-[0-9a-f]{{16}}"', decoded)


def test_recipe_without_texts_has_pages_without_rows(run: tuple[ArtifactStore, RunRecord]) -> None:
    store, record = run
    quiet = record.model_copy(update={"recipe": {**record.recipe, "report_include_text": False}})
    write_run_report(store, quiet)
    assert store.backend.names(FOLDER) == []
    documents = Written(store, record).manifest("build-documents")
    samples = read_row_samples(store.artifact(documents))
    texts = [source.text for sample in samples for source in sample.sources]
    assert len(texts) >= 2
    shown = page(store, documents, QUIET_FOLDER)
    assert all(text[:60] not in shown for text in texts)
    assert "report_include_text: false" in shown
    assert broken_links(store) == []


def test_what_was_built_later_is_added_to_existing_pages(store: ArtifactStore) -> None:
    documents = put(store, "build-documents", raw=[DUMP])
    write_artifact_pages(store, [documents])
    assert 'id="outputs"' not in page(store, documents)
    vocabulary = put(
        store, "build-vocabulary", {"documents": documents}, statistics={"vocab_size": 9}
    )
    write_artifact_pages(store, [vocabulary])
    assert f'href="{vocabulary.artifact_id}.html"' in page(store, documents)
    paths = [f"{FOLDER}/{manifest.artifact_id}.html" for manifest in (documents, vocabulary)]
    for path in paths:
        store.backend.replace(path, b"as it is")
    write_artifact_pages(store, [documents, vocabulary])
    assert [store.backend.read(path) for path in paths] == [b"as it is"] * 2
    # The page of a run that was killed before its report is written by the next one.
    store.backend.delete(paths[1])
    write_artifact_pages(store, [vocabulary])
    assert f'href="{vocabulary.artifact_id}.html"' in page(store, documents)
    assert broken_links(store) == []


def test_deleted_inputs_and_groups_have_no_broken_links(store: ArtifactStore) -> None:
    made = put_recipe(store)
    files = [raw_file(f"part-{number}.bz2") for number in range(40)]
    many = put(store, "build-documents", raw=files, key="many")
    lose(store, made["build-vocabulary"])
    write_artifact_pages(store, [*(m for k, m in made.items() if k != "build-vocabulary"), many])
    assert broken_links(store) == []
    assert "missing from the store" in page(store, made["build-tokens"])
    assert f"{many.artifact_id}.html#inputs" in page(store, many)  # "and 35 more files"
    evaluation = made["evaluate.cola"]
    assert f"{evaluation.artifact_id}.html#inputs" in page(store, evaluation)  # other trials
    assert DUMP_SHA1 in page(store, made["build-documents"])


def test_inputs_of_another_store_have_pages(store: ArtifactStore, tmp_path: Path) -> None:
    other = ArtifactStore(str(tmp_path / "other"))
    documents = put(other, "build-documents", raw=[DUMP])
    tokens = put(store, "build-tokens", {"documents": documents})
    refs = tuple(ref.model_copy(update={"store": other.root}) for ref in tokens.inputs)
    write_artifact_pages(store, [tokens.model_copy(update={"inputs": refs})])
    name = f"other-store-{documents.artifact_id}.html"
    assert f'href="{name}"' in page(store, tokens)
    assert DUMP.sha256 in store.backend.read(f"{FOLDER}/{name}").decode()


def test_hostile_texts_are_escaped_and_redacted(store: ArtifactStore) -> None:
    address = f"s3://key:{SECRET}@bucket/dump?x-signature={SECRET}"
    raw = raw_file(f"a'{HOSTILE}\x1b.bz2").model_copy(update={"uri": address})
    manifest = put(
        store,
        "build-documents",
        raw=[raw],
        text=f"{HOSTILE} \u202e {address}\n",
        notes=(f"{HOSTILE} {address}",),
        config={"password": SECRET, "url": address, "name": HOSTILE},
        counters={HOSTILE: 3},
        statistics={HOSTILE: f"{HOSTILE} {address}"},
    )
    write_artifact_pages(store, [manifest])
    text = page(store, manifest)
    links = Links(text)
    assert not {"script", "img"} & links.tags
    assert "<script" not in text
    assert text.count("&lt;script&gt;alert(1)") >= 6
    assert SECRET not in text
    assert "bucket/dump" in text
    assert not re.search("[\x00-\x08\x0b-\x1f\u202e]", text)
    assert broken_links(store) == []


@pytest.mark.parametrize("content", [None, b"\0" * 100], ids=["missing", "damaged"])
def test_page_names_files_that_cannot_be_read(
    run: tuple[ArtifactStore, RunRecord], content: bytes | None
) -> None:
    store, record = run
    tokens = Written(store, record).manifest("build-tokens")
    for entry in tokens.files:
        path = f"{tokens.data_path}/{entry.stored_name}"
        if content is None:
            store.backend.delete(path)
        else:
            store.backend.replace(path, content)
    assert write_run_report(store, record)
    assert 'class="problem"' in page(store, tokens)


def test_garbage_collection_deletes_pages_and_links_to_them_with_the_reports(
    store: ArtifactStore, cli: Cli
) -> None:
    documents = put(store, "build-documents")
    deleted = put(store, "build-vocabulary", {"documents": documents}, statistics={"vocab_size": 9})
    write_artifact_pages(store, [documents, deleted])
    store.set_ref("mine/kept", documents)
    path = f"{FOLDER}/{deleted.artifact_id}.html"
    collect = ("gc", "--store", store.root, "--keep-runs", "0", "--grace-period", "0", "--delete")
    assert cli(*collect).code == 0
    assert path in store.backend.names(FOLDER)  # a report may still link to it
    assert cli(*collect, "--delete-run-records").code == 0
    assert store.backend.names(FOLDER) == [f"{FOLDER}/{documents.artifact_id}.html"]
    assert deleted.artifact_id not in page(store, documents)
    assert broken_links(store) == []
