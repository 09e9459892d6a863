"""Pages of a run in a browser: on phones and a desktop, and clicks from a number to its bytes."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from support.report_builder import Written, with_trainings

from flows.report.listener import write_run_report
from flows.report.page import report_page
from flows.store.artifacts import ArtifactStore
from flows.store.runs import RunRecord, write_run

playwright = pytest.importorskip(
    "playwright.sync_api", reason="no playwright: pip install 'bertloom[dev]'"
)
_ARGUMENTS = ("--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking")
_CONTRAST = 4.5  # WCAG AA, for text of any size
_TEXTS = (
    "h1, h2, h3, h4, dt, dd, th, td, small, .note, .pill, .label, nav a, footer a, figcaption, "
    "pre, figure svg text, .lineage text"
)
_BRIGHTNESS = """
([...document.querySelectorAll(SELECTOR)].filter(e => e.getClientRects().length).map(e => {
  const parts = c => c.match(/[\\d.]+/g).map(Number);
  const light = c => { const [r, g, b] = parts(c).slice(0, 3).map(v => v / 255)
      .map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const ground = e => { for (; e; e = e.parentElement) {
      const c = getComputedStyle(e).backgroundColor, p = parts(c);
      if (p.length < 4 || p[3] > 0) return c; } return 'rgb(255, 255, 255)'; };
  const style = getComputedStyle(e), ink = e.closest('svg') ? style.fill : style.color;
  const [a, b] = [light(ink), light(ground(e))];
  return { text: e.textContent.slice(0, 40), ground: b,
           contrast: (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05) };
}))
"""
"""Contrast of each visible text and luminance of its background."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    path = shutil.which("chromium")
    if path is None:
        pytest.skip("no chromium on the PATH, which the test needs")
    with playwright.sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=path, args=list(_ARGUMENTS))
        yield started
        started.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("width", "height", "scheme", "columns"),
    [(360, 800, "dark", 1), (320, 640, "light", 1), (1280, 900, "light", 3)],
    ids=["phone", "small", "desk"],
)
def test_page_fits_the_window_is_legible_and_requests_nothing(
    browser: Any,
    reported_run: tuple[ArtifactStore, RunRecord],
    tmp_path: Path,
    width: int,
    height: int,
    scheme: str,
    columns: int,
) -> None:
    file = tmp_path / "report.html"
    file.write_text(report_page(*reported_run), encoding="utf-8")
    page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)
    errors, requests = list[str](), list[str]()
    page.on("console", lambda message: errors.append(message.text))
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("request", lambda request: requests.append(request.url))
    page.goto(file.as_uri())
    page.wait_for_load_state("networkidle")
    assert [url for url in requests if not url.startswith("data:")] == [file.as_uri()]
    assert errors == []

    page.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
    assert page.evaluate("document.documentElement.scrollWidth") == width
    wide = page.evaluate(
        """[...document.querySelectorAll('main *')].filter(e => !e.closest('.scroll, pre, svg')
           && e.getBoundingClientRect().right > innerWidth + 1).map(e => e.outerHTML)"""
    )
    assert wide == []
    lefts = page.evaluate(
        """[...document.querySelectorAll('section:not(#summary) figure svg')]
           .map(e => Math.round(e.getBoundingClientRect().left))"""
    )
    assert (len(lefts), len(set(lefts))) == (10, columns)  # lengths 4, curves 6

    [body] = page.evaluate(_BRIGHTNESS.replace("SELECTOR", "'body'"))
    assert body["ground"] < 0.05 if scheme == "dark" else body["ground"] > 0.85
    texts = page.evaluate(_BRIGHTNESS.replace("SELECTOR", repr(_TEXTS)))
    assert len(texts) > 100
    assert [text for text in texts if text["contrast"] < _CONTRAST] == []
    page.close()


TASKS: Mapping[str, tuple[str, Sequence[float]]] = {
    "sst-2": ("sst-2", [0.91, 0.92]),
    "sst-2-scratch": ("sst-2", [0.61, 0.62]),
}


@pytest.fixture(scope="module")
def sst_run(
    reported_run: tuple[ArtifactStore, RunRecord], tmp_path_factory: pytest.TempPathFactory
) -> tuple[ArtifactStore, RunRecord]:
    """Return the corpus of a run, with trainings on SST-2 that are written by hand; its report."""
    corpus, record = reported_run
    folder = tmp_path_factory.mktemp("sst")
    shutil.copytree(corpus.root, folder / "store")
    store = ArtifactStore(str(folder / "store"))
    for stage in ("pretrain", "build-examples", "finetune", "evaluate", "tabulate"):
        store.backend.delete_folder(f"keys/{stage}")
    store.backend.delete_folder("reports")
    steps = tuple(step for step in record.steps if step.label.startswith("build-"))[:4]
    corpus_record = record.model_copy(
        update={"steps": steps, "planned": tuple(step.label for step in steps)}
    )
    record = with_trainings(store, corpus_record, folder, TASKS)
    write_run(store, record)
    assert write_run_report(store, record)
    return store, record


@pytest.mark.slow
@pytest.mark.parametrize(
    ("width", "scheme"), [(1280, "light"), (390, "dark")], ids=["desk", "phone"]
)
def test_clicks_lead_from_a_score_to_the_checksum_of_the_dump_and_to_source_text(
    browser: Any, sst_run: tuple[ArtifactStore, RunRecord], width: int, scheme: str
) -> None:
    store, record = sst_run
    documents = Written(store, record).manifest("build-documents")
    dump = next(item for item in documents.raw_inputs if item.checksum)
    page = browser.new_page(viewport={"width": width, "height": 844}, color_scheme=scheme)
    errors, requests = list[str](), set[str]()
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("request", lambda request: requests.add(request.url.partition("#")[0]))
    page.goto(f"{Path(store.root).as_uri()}/reports/{record.recipe_name}.html")

    page.locator("#tasks td.number a", has_text="91.5").first.click()
    assert "evaluate.sst-2" in page.locator(".about-run").inner_text()
    # A box of the picture links to the file in the list of the step that read it.
    page.locator(f".lineage a[href*='#file-{dump.sha256[:16]}']").click()
    assert "build-documents" in page.locator(".about-run").inner_text()
    target = page.locator("li:target")
    assert dump.sha256 in target.inner_text()
    assert dump.checksum.partition(":")[2] in target.inner_text()

    page.locator("nav a", has_text="Rows with their source").click()
    source = page.locator("#rows pre.raw", has_text="{{Infobox").first
    assert "[[" in source.inner_text()
    page.locator("#outputs a", has_text="build-tokens").click()
    assert page.locator("#rows .row .a").count() > 3  # decoded tokens

    assert page.evaluate("document.documentElement.scrollWidth") == width
    texts = page.evaluate(_BRIGHTNESS.replace("SELECTOR", repr(f"{_TEXTS}, .row span, li code")))
    assert [text for text in texts if text["contrast"] < _CONTRAST] == []
    assert errors == []
    web = {url for url in requests if not url.startswith(("file:", "data:"))}
    assert web == set()
    page.close()
