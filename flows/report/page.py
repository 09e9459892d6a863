"""The HTML page of a run. It contains its style and figures, and loads nothing."""

from __future__ import annotations

from flows.report.contamination import read_contamination
from flows.report.corpus import Corpus, read_corpus
from flows.report.figures import Figure, try_draw
from flows.report.headline import run_headline
from flows.report.rendering import INDEX_PAGE, pages_folder, render, to_yaml, with_pages_in
from flows.report.results import Results, read_results
from flows.report.run_steps import Steps, collect_warnings, read_steps, run_seconds
from flows.report.training_curves import curve_figure
from flows.store.artifacts import ArtifactStore
from flows.store.runs import RunRecord, report_path

_BRAND = '<p class="brand">bertloom</p>'


def write_report(
    store: ArtifactStore,
    record: RunRecord,
    steps: Steps | None = None,
    *,
    is_newest: bool = True,
    text: bool = True,
) -> str:
    """Write a run's page to the store.

    Args:
        store: Store of the run's artifacts.
        record: Record of a run in any state.
        steps: Its steps, if they have been read.
        is_newest: Whether it is the last run of its recipe, and also written to
            `reports/RECIPE.html`.
        text: Include texts of the corpus, see `report_page`.

    Returns:
        URL of the page, `runs/RUN_ID/report.html` in the store.

    Raises:
        StoreError: The run id or the recipe's name leads out of the store.
    """
    page = report_page(store, record, steps, text=text)
    folder = pages_folder(shows_text=includes_text(record, text=text))
    path = report_path(record.run_id)
    store.backend.replace(
        path, _with_links(page, pages=f"../../{folder}", index=f"../../{INDEX_PAGE}")
    )
    if is_newest:
        pages, index = (name.removeprefix("reports/") for name in (folder, INDEX_PAGE))
        newest = _with_links(page, pages=pages, index=index)
        store.backend.replace(f"reports/{record.recipe_name}.html", newest)
    return store.url(path)


def _with_links(page: str, *, pages: str, index: str) -> bytes:
    """Return a page with links to the pages of artifacts, and to the page of all runs."""
    link = f'<p class="brand"><a href="{index}">bertloom, all runs</a></p>'
    return with_pages_in(pages, page).replace(_BRAND, link, 1).encode()


def includes_text(record: RunRecord, *, text: bool = True) -> bool:
    """Return whether a run's pages show texts of the corpus."""
    return text and record.recipe.get("report_include_text") is not False


def report_page(
    store: ArtifactStore, record: RunRecord, steps: Steps | None = None, *, text: bool = True
) -> str:
    """Return the page of a run as HTML, with links to `artifacts/ID.html`.

    Each section shows what could not be read. Texts of the corpus are included unless the recipe
    has `report_include_text: false`, or `text` is False.
    """
    steps = steps or read_steps(store, record)
    shows_text = includes_text(record, text=text)
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
        contamination=read_contamination(store, steps),
        phases=phases,
        curves=curves,
        results=results,
        warnings=collect_warnings(steps.built),
        chart=_first_chart(results, curves, corpus),
        recipe_text=to_yaml(record.recipe),
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
