"""The HTML page of a run. It contains its style and figures, and loads nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
import yaml
from markupsafe import Markup

from flows.formatting import format_bytes, format_duration
from flows.report.contamination import read_contamination
from flows.report.corpus import Corpus, read_corpus
from flows.report.figures import Figure, try_draw
from flows.report.headline import run_headline
from flows.report.records import Texts, read_texts
from flows.report.results import Results, read_results
from flows.report.run_steps import collect_warnings, read_steps, run_seconds
from flows.report.training_curves import curve_figure
from flows.store.artifacts import ArtifactStore
from flows.store.runs import RunRecord, report_path
from schemas.redaction import escape_control_characters, redact

INDEX_PAGE = "reports/index.html"
"""Page of all runs, which `flows.report.index` writes."""

_BRAND = '<p class="brand">bertloom</p>'
_TEMPLATES = Path(__file__).parent / "templates"


def write_report(
    store: ArtifactStore, record: RunRecord, *, is_newest: bool = True, text: bool = True
) -> str:
    """Write a run's page to the store.

    Args:
        store: Store of the run's artifacts.
        record: Record of a run in any state.
        is_newest: Whether it is the last run of its recipe, and also written to
            `reports/RECIPE.html`.
        text: Include texts of the corpus, see `report_page`.

    Returns:
        URL of the page, `runs/RUN_ID/report.html` in the store.

    Raises:
        StoreError: The run id or the recipe's name leads out of the store.
    """
    page = report_page(store, record, text=text)
    path = report_path(record.run_id)
    store.backend.replace(path, _with_link(page, f"../../{INDEX_PAGE}"))
    if is_newest:
        link = INDEX_PAGE.rpartition("/")[2]
        store.backend.replace(f"reports/{record.recipe_name}.html", _with_link(page, link))
    return store.url(path)


def _with_link(page: str, url: str) -> bytes:
    """Return a page with a link to the page of all runs."""
    link = f'<p class="brand"><a href="{url}">bertloom, all runs</a></p>'
    return page.replace(_BRAND, link, 1).encode()


def report_page(store: ArtifactStore, record: RunRecord, *, text: bool = True) -> str:
    """Return the page of a run as HTML.

    Each section shows what could not be read. Texts of the corpus are included unless the recipe
    has `report_include_text: false`, or `text` is False.
    """
    steps = read_steps(store, record)
    shows_text = text and record.recipe.get("report_include_text") is not False
    corpus, results = read_corpus(store, steps), read_results(store, steps)
    phases = steps.of_type("checkpoint")
    curves = try_draw(lambda: curve_figure(store, phases)) if phases else None
    return render(
        "page.html.j2",
        record=record,
        recipe=record.recipe_name,
        store=store.root,
        seconds=run_seconds(record),
        steps=steps,
        headline=run_headline(record, steps, results.tables if results else None),
        corpus=corpus,
        shows_text=shows_text,
        texts=read_texts(store, steps) if shows_text else Texts(),
        contamination=read_contamination(store, steps),
        phases=phases,
        curves=curves,
        results=results,
        warnings=collect_warnings(steps.built),
        chart=_first_chart(results, curves, corpus),
        recipe_text=_recipe_text(record.recipe),
    )


def _first_chart(
    results: Results | None, curves: Figure | None, corpus: Corpus | None
) -> Figure | None:
    """Return the chart at the top: all tasks, or the first panel of a sweep, curves, lengths."""
    if results is not None and results.overview_figure is not None:
        return results.overview_figure
    figures: list[Figure | None] = [
        *(table.figure for table in (results.paper if results else ())),
        curves,
        *(corpus.figures.values() if corpus else ()),
    ]
    for figure in figures:
        if figure is not None and figure.panels:
            return figure.first
    return None


def _recipe_text(recipe: Mapping[str, Any]) -> str:
    """Return the recipe as YAML without credentials."""
    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)  # ten times as fast
    text: str = yaml.dump(redact(dict(recipe)), Dumper=dumper, sort_keys=False, allow_unicode=True)
    return text


def render(template: str, **values: Any) -> str:
    """Return a whole page."""
    style = Markup((_TEMPLATES / "style.css").read_text("utf-8"))  # noqa: S704 - a packaged file
    return _environment().get_template(template).render(values, style=style)


def section(name: str, **values: Any) -> str:
    """Return one section of the page."""
    return _environment().get_template(f"{name}.html.j2").render(values)


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        autoescape=True,
        optimized=False,  # each template is rendered once
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_escape,
    )
    environment.filters |= {
        "bytes": _for_numbers(format_bytes),
        "count": _for_numbers("{:,}".format),
        "decimals": _decimals,
        "drawn": Markup,  # SVG, in which every text is escaped
        "duration": _for_numbers(format_duration),
        "followed_by": lambda text, suffix: f"{text}{suffix}" if text else "",
        "in_rows": in_rows,
        "moment": _moment,
        "some_of": _some_of,
    }
    return environment


def _escape(value: Any) -> Any:
    """Redact secrets and escape control characters of a printed value."""
    if isinstance(value, str) and not hasattr(value, "__html__"):
        return escape_control_characters(redact(value))
    return value


def _for_numbers(format: Callable[[Any], str]) -> Callable[[Any], str]:
    """Return a filter that formats numbers, and returns "" for missing values."""
    return lambda value: format(value) if isinstance(value, int | float) else ""


def _decimals(value: Any, digits: int, factor: int = 1) -> str:
    return f"{factor * value:,.{digits}f}" if isinstance(value, int | float) else ""


def _moment(text: str) -> str:
    try:
        return f"{datetime.fromisoformat(text):%Y-%m-%d %H:%M:%S} UTC"
    except ValueError:
        return text


def _some_of(texts: Sequence[str], max_texts: int) -> str:
    more = f" and {len(texts) - max_texts} more" if len(texts) > max_texts else ""
    return ", ".join(texts[:max_texts]) + more


def in_rows(columns: Iterable[tuple[str, Iterable[Any]]]) -> tuple[list[str], list[Sequence[Any]]]:
    """Return the header and the rows of a table given by its columns, (title, cells).

    Empty columns are omitted.

    >>> in_rows([("a", ["1", "2"]), ("b", ["", None]), ("c", ["3", ""])])
    (['a', 'c'], [('1', '3'), ('2', '')])
    """
    listed = [(title, list(cells)) for title, cells in columns]
    used = [(title, cells) for title, cells in listed if set(cells) - {"", None}]
    return [title for title, _ in used], list(zip(*(cells for _, cells in used), strict=True))
