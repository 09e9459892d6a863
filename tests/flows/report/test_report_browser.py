"""The page of a run in a browser: a dark phone, a small phone, a desktop."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from flows.report.page import report_page
from flows.store.artifacts import ArtifactStore
from flows.store.runs import RunRecord

playwright = pytest.importorskip(
    "playwright.sync_api", reason="no playwright: pip install 'bertloom[dev]'"
)
_ARGUMENTS = ("--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking")
_CONTRAST = 4.5  # WCAG AA, for text of any size
_TEXTS = (
    "h1, h2, h3, h4, dt, dd, th, td, small, .note, .pill, .label, nav a, footer a, figcaption, "
    "pre, ruby, rt, .sentences li, .decoded span, figure svg text, .lineage text"
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
    assert (len(lefts), len(set(lefts))) == (11, columns)  # lengths 4, curves 6, results 1

    [body] = page.evaluate(_BRIGHTNESS.replace("SELECTOR", "'body'"))
    assert body["ground"] < 0.05 if scheme == "dark" else body["ground"] > 0.85
    texts = page.evaluate(_BRIGHTNESS.replace("SELECTOR", repr(_TEXTS)))
    assert len(texts) > 100
    assert [text for text in texts if text["contrast"] < _CONTRAST] == []
    page.close()
