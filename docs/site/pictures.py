"""Draw the pictures of README and the pages from a run of the recipe `sample`.

python docs/site/pictures.py STORE       # `make docs-outputs` does it with the store of its run

`pipeline.svg` follows a page of the sample through the stages. `report.png` and `artifact-page.png`
are screenshots, which need Chromium.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import NamedTuple

import bertloom

FOLDER = Path(__file__).parents[1]
PIPELINE = FOLDER / "pipeline.svg"
ROW = 30_022
"""Row of `build-instances.length-32` that the picture follows. A word of its page is a link."""

MAX_CHARACTERS = 40
_STAGE_HEIGHT = 76
_HEAD = """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 400 {height}" width="400" height="{height}" \
role="img" font-family="system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif" font-size="14">
  <title>The stages of bertloom, with figures of a run of the generated sample</title>
  <style>
    .page {{ fill: #fff; }}
    .line {{ stroke: #c4ccd4; stroke-width: 2; }}
    .dot {{ fill: #3949ab; }}
    .name {{ fill: #1f2328; font-weight: 600; }}
    .count {{ fill: #59636e; }}
    .data {{ fill: #1f2328; font: 13px ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; }}
    .card {{ fill: #f6f8fa; stroke: #c4ccd4; }}
  </style>
  <rect class="page" width="400" height="{height}" rx="8"/>
  <path class="line" d="M20 24 V{end}"/>
"""
_STAGE = """\
  <g transform="translate(0 {top})">
    <circle class="dot" cx="20" cy="24" r="6"/>
    <text class="name" x="38" y="29">{name}</text>
    <text class="count" x="388" y="29" text-anchor="end">{count}</text>
    <rect class="card" x="38" y="38" width="350" height="26" rx="6"/>
    <text class="data" x="48" y="55">{example}</text>
  </g>
"""


class Stage(NamedTuple):
    """A stage of the picture, with its output and a part of it."""

    name: str
    count: str
    example: str


def stages(store_root: str) -> Iterator[Stage]:
    """Yield the stages with the figures of the last run of the sample."""
    store = bertloom.open_store(store_root)

    def built(step: str) -> bertloom.Artifact:
        return store.artifact(f"sample/{step}")

    instances = built("build-instances.length-32")
    page = instances.trace(ROW, raw=True).segments["b"]
    (row,) = instances.load().take([ROW]).to_pylist()
    ids = list(row["input_ids"])
    pieces = built("build-vocabulary").file("vocab.txt").read_text(encoding="utf-8").splitlines()
    masked = " ".join(pieces[token] for token in ids[row["segment_b_start"] - 1 :])
    for position, token in zip(row["masked_lm_positions"], row["masked_lm_ids"], strict=True):
        ids[position] = token
    tokens = " ".join(str(token) for token in ids[row["segment_b_start"] : -1])
    yield Stage("raw files", "dump, books (generated)", _wikitext(page.raw.text, page.text[0]))
    yield Stage("build-documents", f"Beam: {built('build-documents').summary}", page.text[0])
    yield Stage("build-tokens", f"Beam: {built('build-tokens').summary}", tokens)
    yield Stage("build-instances", f"Beam: {instances.summary}", masked)
    yield Stage("pretrain", "PyTorch: 2 layers of 64", built("pretrain.phase-2").summary)
    pretrained, scratch = (
        built(f"evaluate.{name}").summary.split(" ±")[0] for name in ("sst-2", "sst-2-scratch")
    )
    scores = f"SST-2 {pretrained}, scratch {scratch.split()[-1]}"
    yield Stage("finetune, evaluate", "PyTorch: 4 tasks", scores)


def _wikitext(text: str, sentence: str) -> str:
    """Return the text of a page from a sentence on, whose words may be links."""
    words = re.findall(r"\w+", sentence)
    match = re.search(r"\W+(?:\w+\W)?".join(words), text)
    if match is None:
        raise LookupError(f"row {ROW}: {sentence!r} is not in its page")
    return text[match.start() :].splitlines()[0]


def draw(store_root: str) -> str:
    """Return the picture of the pipeline as SVG."""
    parts = [*stages(store_root)]
    height = _STAGE_HEIGHT * len(parts)
    text = _HEAD.format(height=height, end=height - _STAGE_HEIGHT + 24)
    for number, stage in enumerate(parts):
        example = stage.example
        if len(example) > MAX_CHARACTERS:
            example = example[: MAX_CHARACTERS - 1] + "…"
        text += _STAGE.format(
            top=number * _STAGE_HEIGHT,
            name=escape(stage.name),
            count=escape(stage.count),
            example=escape(example),
        )
    return text + "</svg>\n"


def take_screenshots(store_root: str) -> None:
    """Write screenshots of the sample's report and of the page of its documents."""
    from playwright.sync_api import sync_playwright

    reports = Path(store_root).resolve() / "reports"
    documents = bertloom.open_store(store_root).artifact("sample/build-documents")
    pages = {
        "report.png": reports / "sample.html",
        "artifact-page.png": reports / "artifacts" / f"{documents.id}.html",
    }
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        for name, path in pages.items():
            page = browser.new_page(viewport={"width": 1280, "height": 900})
            page.goto(path.as_uri())
            page.screenshot(path=FOLDER / name)
        browser.close()


def write_pictures(store_root: str) -> None:
    """Write all pictures; the screenshots only where Chromium is installed."""
    PIPELINE.write_text(draw(store_root), encoding="utf-8")
    if shutil.which("chromium"):
        take_screenshots(store_root)
    else:
        sys.stderr.write("no chromium: report.png and artifact-page.png stay as they are\n")


if __name__ == "__main__":
    write_pictures(sys.argv[1])
