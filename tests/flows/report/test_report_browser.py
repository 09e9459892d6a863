"""The page of a run in a browser: a dark phone, a small phone, a desktop."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from flows.report.page import report_page
from flows.store.artifacts import ArtifactStore
from flows.store.runs import RunRecord

playwright = pytest.importorskip(
    "playwright.sync_api", reason="no playwright: pip install 'bertloom[dev]'"
)
pytestmark = pytest.mark.slow

_ARGUMENTS = ("--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking")
_CONTRAST = 4.5  # WCAG AA, for text of any size


class Screen(NamedTuple):
    width: int
    height: int
    scheme: str


PHONE, SMALL, DESK = Screen(360, 800, "dark"), Screen(320, 640, "light"), Screen(1280, 900, "light")


@pytest.fixture(scope="module")
def page_file(
    reported_run: tuple[ArtifactStore, RunRecord], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    file = tmp_path_factory.mktemp("page") / "report.html"
    file.write_text(report_page(*reported_run), encoding="utf-8")
    return file


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    path = shutil.which("chromium")
    if path is None:
        pytest.skip("no chromium on the PATH, which the test needs")
    with playwright.sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=path, args=list(_ARGUMENTS))
        yield started
        started.close()


class Opened:
    """The page in a window, with its requests and logged errors."""

    def __init__(self, browser: Any, file: Path, screen: Screen) -> None:
        size = {"width": screen.width, "height": screen.height}
        self.page = browser.new_page(viewport=size, color_scheme=screen.scheme)
        self.errors: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda message: self.errors.append(message.text))
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(file.as_uri())

    def ask(self, script: str) -> Any:
        return self.page.evaluate(script)


@pytest.fixture(params=[PHONE, DESK], ids=["phone", "desk"])
def opened(
    browser: Any, page_file: Path, request: pytest.FixtureRequest
) -> Iterator[tuple[Opened, Screen]]:
    window = Opened(browser, page_file, request.param)
    yield window, request.param
    window.page.close()


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


def brightness(opened: Opened, selector: str) -> list[dict[str, Any]]:
    """Return the contrast of each visible text and the luminance of its background."""
    values: list[dict[str, Any]] = opened.ask(_BRIGHTNESS.replace("SELECTOR", repr(selector)))
    assert values, f"no visible element is {selector}"
    return values


def test_page_requests_nothing_and_logs_no_error(opened: tuple[Opened, Screen]) -> None:
    window, _ = opened
    window.page.wait_for_load_state("networkidle")
    outside = [url for url in window.requests if not url.startswith(("file:", "data:"))]
    assert outside == []
    assert sum(url.startswith("file:") for url in window.requests) == 1
    assert window.errors == []


@pytest.mark.parametrize(
    "opened", [PHONE, SMALL, DESK], ids=["phone", "small", "desk"], indirect=True
)
def test_page_fits_the_window(opened: tuple[Opened, Screen]) -> None:
    window, screen = opened
    window.ask("document.querySelectorAll('details').forEach(each => each.open = true)")
    assert window.ask("document.documentElement.scrollWidth") == screen.width
    wide = window.ask(
        """[...document.querySelectorAll('main *')].filter(e => !e.closest('.scroll, pre, svg')
           && e.getBoundingClientRect().right > innerWidth + 1).map(e => e.outerHTML)"""
    )
    assert wide == []
    letters = window.ask("document.querySelector('.graph.short svg text').getScreenCTM().a * 12")
    assert letters >= 9.5  # the overview of the lineage is legible


@pytest.mark.parametrize(
    "opened", [PHONE, SMALL, DESK], ids=["phone", "small", "desk"], indirect=True
)
def test_text_has_contrast_and_size(opened: tuple[Opened, Screen]) -> None:
    window, screen = opened
    window.ask("document.querySelectorAll('details').forEach(each => each.open = true)")
    body = brightness(window, "body")[0]
    assert (body["ground"] < 0.05) if screen.scheme == "dark" else (body["ground"] > 0.85)
    selector = (
        "h1, h2, h3, h4, dt, dd, th, td, small, .note, .pill, .label, nav a, footer a, figcaption, "
        "pre, ruby, rt, .sentences li, .decoded span"
    )
    weak = [each for each in brightness(window, selector) if each["contrast"] < _CONTRAST]
    assert weak == []
    drawn = brightness(window, "figure svg text, .lineage text")
    assert [each for each in drawn if each["contrast"] < _CONTRAST] == []
    sizes = window.ask(
        """[...document.querySelectorAll('figure svg text')].filter(e => e.textContent.trim())
           .map(e => e.getBoundingClientRect().height)"""
    )
    assert min(sizes) >= 8


def test_figures_have_size_and_description(opened: tuple[Opened, Screen]) -> None:
    window, screen = opened
    boxes = window.ask(
        """[...document.querySelectorAll('section:not(#summary) figure')].map(e => {
           const b = e.querySelector('svg').getBoundingClientRect();
           return [b.width, b.height, b.left]; })"""
    )
    assert len(boxes) == 11  # lengths 4, curves 6, results 1
    assert all(230 <= width <= screen.width and height >= 60 for width, height, _ in boxes)
    columns = len({round(left) for _, _, left in boxes})
    assert columns == (3 if screen is DESK else 1)
    described = window.ask(
        """[...document.querySelectorAll('figure svg')].every(e => e.getAttribute('role') === 'img'
           && e.getAttribute('aria-labelledby').split(' ')
              .every(id => document.getElementById(id).textContent))"""
    )
    assert described is True


def test_links_of_lineage_open_the_details_of_steps(opened: tuple[Opened, Screen]) -> None:
    window, _ = opened
    page = window.page
    assert page.locator("details").count() >= 5
    links = window.ask(
        "[...document.querySelectorAll('svg.lineage a')].map(e => e.getAttribute('href'))"
    )
    assert len(set(links)) >= 8
    assert window.ask(f"{links!r}.every(e => document.getElementById(e.slice(1)))") is True
    window.ask("document.querySelectorAll('details').forEach(each => each.open = false)")
    cell = page.locator("details .step[id]").first
    assert not cell.is_visible()
    window.ask(f"location.hash = {cell.get_attribute('id')!r}")
    page.wait_for_timeout(50)
    assert cell.is_visible()  # the browser opens what a link leads into


def test_page_prints_on_white(opened: tuple[Opened, Screen]) -> None:
    window, _ = opened
    window.page.emulate_media(media="print")
    assert brightness(window, "body")[0]["ground"] == 1
    assert min(each["contrast"] for each in brightness(window, "h2, td, .note")) >= _CONTRAST
    assert not window.page.locator("nav").is_visible()
