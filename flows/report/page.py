"""The page of a run, whole in itself: style and figures are in it, it loads nothing.

It is written at the end of every run, so it must cost little: figures for which shards must be read
are kept in the store.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
import yaml
from markupsafe import Markup

from flows.formatting import format_bytes, format_duration
from flows.lineage.kept import kept_in_memory
from flows.report.contamination import read_contamination
from flows.report.corpus import Corpus, read_corpus
from flows.report.curves import curve_figure
from flows.report.figures import Figure, Panel, kept_figure
from flows.report.lineage import read_lineage
from flows.report.records import Texts, read_texts
from flows.report.results import Results, read_results
from flows.report.steps import Steps, read_software, read_steps, run_seconds
from flows.report.story import tell
from flows.report.warnings import collect_warnings
from flows.store.artifacts import ArtifactStore
from flows.store.runs import RunRecord
from model.tasks.cut_data import marked
from model.telling.percent import format_percent
from schemas.checksummed import dump_page
from schemas.errors import StoreError
from schemas.redaction import escape_control_characters, redact

INDEX_PAGE = "reports/index.html"
"""Page of all runs, which `flows.report.index` writes."""

_BRAND = '<p class="brand">bertloom</p>'
_TEMPLATES = Path(__file__).parent / "templates"
_SVG_ID = re.compile(r'(?<=[ "])([\w.-]+-(?:title|desc))(?=[ "])')
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def write_report(
    store: ArtifactStore, record: RunRecord, *, is_newest: bool = True, text: bool = True
) -> str:
    """Write a run's page to the store.

    Args:
        store: where the run's artifacts are.
        record: of a run in any state.
        is_newest: whether it is the recipe's last run, whose page is at `reports/RECIPE.html` too.
        text: as of `report_page`.

    Returns:
        URL of the page, `runs/RUN_ID/report.html` in the store.

    Raises:
        StoreError: the record's run id or recipe name cannot be part of a path.
    """
    name = str(record.recipe.get("name", ""))
    for value in (record.run_id, name):
        if not _NAME.fullmatch(value):
            raise StoreError(
                f"run {record.run_id!r} of recipe {name!r}: expected letters, digits, dots and "
                "dashes in both, as they name the report's file"
            )
    page = report_page(store, record, text=text)
    path = f"runs/{record.run_id}/report.html"
    store.backend.replace(path, _sealed(page, all_runs=f"../../{INDEX_PAGE}"))
    if is_newest:
        beside = INDEX_PAGE.rpartition("/")[2]
        store.backend.replace(f"reports/{name}.html", _sealed(page, all_runs=beside))
    return store.url(path)


@kept_in_memory()
def report_page(store: ArtifactStore, record: RunRecord, *, text: bool = True) -> str:
    """The page as HTML.

    What cannot be read, such as an artifact that is gone, is said in its section. Texts of the
    corpus are in it unless the recipe says `report_include_text: false`, or `text` is False.
    """
    steps = read_steps(store, record)
    shows_text = text and record.recipe.get("report_include_text") is not False
    corpus, results = read_corpus(store, steps), read_results(store, steps)
    tables = results.tables if results else None
    curves = _curves(store, steps)
    sections = {
        "record": record,
        "recipe": str(record.recipe.get("name", "?")),
        "store": store.root,
        "seconds": run_seconds(record),
        "steps": steps,
        "story": tell(store, record, steps, corpus=corpus, tables=tables),
        "corpus": corpus,
        "shows_text": shows_text,
        "texts": read_texts(store, steps) if shows_text else Texts(),
        "contamination": read_contamination(store, steps),
        "phases": steps.holding("checkpoint"),
        "curves": curves,
        "results": results,
        "warnings": collect_warnings(steps.built),
        "chart": _first_chart(results, curves, corpus),
        "lineage": read_lineage(store, steps),
        "software": read_software(steps.built),
        "recipe_text": _recipe_text(record.recipe),
    }
    return render("page.html.j2", **sections)


def _sealed(page: str, *, all_runs: str) -> bytes:
    link = f'<p class="brand"><a href="{all_runs}">bertloom, all runs</a></p>'
    return dump_page(page.replace(_BRAND, link, 1).encode())


def render(template: str, **found: Any) -> str:
    """A whole page, of what its template shows."""
    style = Markup((_TEMPLATES / "style.css").read_text(encoding="utf-8"))  # noqa: S704 - a packaged file
    return _environment().get_template(template).render({**found, "style": style})


def section(name: str, **found: Any) -> str:
    """A section of the page alone, of what its template shows."""
    return _environment().get_template(f"{name}.html.j2").render(found)


def _curves(store: ArtifactStore, steps: Steps) -> Figure | None:
    phases = steps.holding("checkpoint")
    if not phases:
        return None
    made_of = [(phase.label, phase.manifest.artifact_id) for phase in phases]
    return kept_figure(
        store, "curves", made_of=made_of, draw=lambda name: curve_figure(store, phases, name=name)
    )


def _first_chart(
    results: Results | None, curves: Figure | None, corpus: Corpus | None
) -> Figure | None:
    """Return the figure of the first screen: all tasks, a sweep, the training loss or lengths."""
    if results is not None and results.overview_figure is not None:
        return results.overview_figure
    swept = [view.figure for view in results.paper if view.figure] if results else []
    drawn = [*swept, *filter(None, [curves]), *(corpus.figures.values() if corpus else ())]
    figure = next((figure for figure in drawn if figure.panels), None)
    if figure is None:
        return None
    panel = figure.panels[0]
    svg = _SVG_ID.sub(r"first-\1", panel.svg)  # the same figure has these ids in its own section
    panels = (Panel(title=panel.title, note=panel.note, svg=svg),)
    return Figure(panels=panels, legend=figure.legend, note=figure.note)


def _recipe_text(recipe: Mapping[str, Any]) -> str:
    """The recipe as YAML, credentials cut out."""
    # libyaml's writer takes a tenth of the time; not every build of PyYAML has it.
    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    text: str = yaml.dump(redact(dict(recipe)), Dumper=dumper, sort_keys=False, allow_unicode=True)
    return text


@cache
def _environment() -> jinja2.Environment:
    """Return the jinja2 environment. Its filters return "" for missing values."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        autoescape=True,
        optimized=False,  # compiling costs a third more with it, and a template is rendered once
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_shown,
    )
    environment.filters |= {
        "after": lambda text, before: f"{before}{text}" if text else "",
        "bytes": _of_numbers(format_bytes),
        "count": _of_numbers("{:,}".format),
        "decimals": _decimals,
        "drawn": Markup,  # by this program, with every text escaped where it was drawn
        "duration": _of_numbers(format_duration),
        "followed_by": lambda text, after: f"{text}{after}" if text else "",
        "in_rows": in_rows,
        "marked": marked,
        "moment": _moment,
        "percent": format_percent,
        "some_of": _some_of,
    }
    return environment


def _shown(value: Any) -> Any:
    """Redact secrets and escape control characters of a printed value."""
    if isinstance(value, str) and not hasattr(value, "__html__"):
        return escape_control_characters(redact(value))
    return value


def _of_numbers(write: Any) -> Any:
    """A filter that writes numbers, and nothing for anything else."""
    return lambda value: write(value) if isinstance(value, (int, float)) else ""


def _decimals(value: Any, digits: int, factor: int = 1) -> str:
    return f"{factor * value:,.{digits}f}" if isinstance(value, (int, float)) else ""


def _moment(text: str) -> str:
    try:
        return f"{datetime.fromisoformat(text):%Y-%m-%d %H:%M:%S} UTC"
    except ValueError:
        return text


def _some_of(texts: Sequence[str], most: int) -> str:
    more = f" and {len(texts) - most} more" if len(texts) > most else ""
    return ", ".join(texts[:most]) + more


def in_rows(columns: Iterable[tuple[str, Iterable[Any]]]) -> tuple[list[str], list[Sequence[Any]]]:
    """A table given by columns, (title, cells), as its header and rows.

    Empty columns are omitted.

    >>> in_rows([("a", ["1", "2"]), ("b", ["", None]), ("c", ["3", ""])])
    (['a', 'c'], [('1', '3'), ('2', '')])
    """
    listed = [(title, list(cells)) for title, cells in columns]
    kept = [
        (title, cells) for title, cells in listed if any(cell not in ("", None) for cell in cells)
    ]
    return [title for title, _ in kept], list(zip(*(cells for _, cells in kept), strict=True))
