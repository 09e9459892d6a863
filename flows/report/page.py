"""A run as one page of HTML: what it did, what the corpus, the training and the tasks came to.

The page is whole in itself: style and figures are in it, it has no script and loads nothing. It is
written at the end of every run, so it must cost little: figures are drawn once for the artifacts
they show and are kept in the store, and nothing that draws is imported where all are there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from flows.report import (
    corpus_view,
    lineage_view,
    result_tables,
    run_view,
    setting_view,
    training_view,
)
from flows.report.kept_figures import Shown, kept_figure
from flows.report.result_tables import Table
from flows.report.run_view import Fact
from flows.store.artifacts import ArtifactStore
from flows.store.runs import RunRecord
from schemas.disclosure import visible, without_secrets
from schemas.errors import StoreError
from schemas.manifest import Manifest
from schemas.sealed import sealed_page

_PARTS = Path(__file__).parent
_TEMPLATE, _STYLE = "page.html.j2", "style.css"
_CORPUS = ("build-documents", "build-vocabulary", "build-tokens", "build-instances")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def write_report(store: ArtifactStore, record: RunRecord, *, is_newest: bool = True) -> str:
    """Write a run's page to the store.

    Args:
        store: where the run's artifacts are.
        record: of a run in any state.
        is_newest: whether it is the recipe's last run, whose page is at `reports/RECIPE.html` too.

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
    page = sealed_page(report_page(store, record).encode())
    path = f"runs/{record.run_id}/report.html"
    store.backend.replace(path, page)
    if is_newest:
        store.backend.replace(f"reports/{name}.html", page)
    return store.url(path)


def report_page(store: ArtifactStore, record: RunRecord) -> str:
    """The page as HTML.

    What cannot be read, such as an artifact that is gone, is said in its place.
    """
    import jinja2
    from markupsafe import Markup

    steps = run_view.read_steps(store, record)
    results = _results(store, steps.manifests)
    recipe = str(record.recipe.get("name", "?"))
    page = {
        "title": f"{recipe}, run {record.run_id}",
        "recipe": recipe,
        "record": record,
        "store": without_secrets(store.root),
        "facts_of_head": run_view.head_facts(record, steps),
        "summary": [*training_view.summary_facts(steps.manifests), *results.best],
        "groups": steps.groups,
        "counts": run_view.step_counts(steps.groups),
        "failures": [(k, without_secrets(text)) for k, text in record.failures.items()],
        "corpus": _corpus(store, steps.manifests),
        "pretraining": _pretraining(store, steps.manifests),
        "results": results,
        "lineage": lineage_view.lineage_view(store, steps),
        "environment": setting_view.environment_view(steps.manifests),
        "recipe_text": setting_view.recipe_text(record.recipe),
        "style": Markup((_PARTS / _STYLE).read_text()),  # noqa: S704 - a file of this package
        # Drawn by this program, with every text in it escaped where it was drawn.
        "drawn": Markup,
    }
    loader = jinja2.FileSystemLoader(_PARTS)
    engine = jinja2.Environment(
        loader=loader,
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_shown,
    )
    return engine.get_template(_TEMPLATE).render(page)


def _shown(value: Any) -> Any:
    """What the page prints: names of files and titles are shown, whatever characters they have."""
    return visible(value) if isinstance(value, str) and not hasattr(value, "__html__") else value


@dataclass(frozen=True, kw_only=True)
class CorpusView:
    """The section about the corpus."""

    by_source: Table | None
    holes: Table | None
    totals: Sequence[corpus_view.Balance]
    sources: Sequence[corpus_view.Balance]
    """The same counts for each source."""

    duplicates: Sequence[Fact]
    vocabulary: Sequence[Fact]
    instances: Table | None
    figures: Sequence[tuple[str, Shown]]


def _corpus(store: ArtifactStore, manifests: Mapping[str, Manifest]) -> CorpusView | None:
    own = {label: item for label, item in manifests.items() if item.stage in _CORPUS}
    if not own:
        return None
    counted = [b for label, item in own.items() for b in corpus_view.balances(label, item.counters)]
    figures = []
    if (tokens := own.get("build-tokens")) is not None:
        figures.append(("Documents and sentences", _token_figure(store, tokens)))
    if instances := training_view.of_stage(own, "build-instances"):
        figures.append(("Instances", _instance_figure(store, instances)))
    return CorpusView(
        by_source=corpus_view.source_table(own),
        totals=[balance for balance in counted if not balance.source],
        sources=[balance for balance in counted if balance.source],
        holes=corpus_view.hole_table(own),
        duplicates=corpus_view.duplicate_facts(own),
        vocabulary=corpus_view.vocabulary_facts(own),
        instances=corpus_view.instance_table(own),
        figures=figures,
    )


def _token_figure(store: ArtifactStore, tokens: Manifest) -> Shown:
    def draw(name: str) -> Any:
        from flows.report.corpus_figures import token_figure

        return token_figure(store, tokens, name=name)

    return kept_figure(store, "tokens", made_of=[("", tokens.artifact_id)], draw=draw)


def _instance_figure(store: ArtifactStore, found: Sequence[tuple[str, Manifest]]) -> Shown:
    def draw(name: str) -> Any:
        from flows.report.corpus_figures import instance_figure

        return instance_figure(store, found, name=name)

    return kept_figure(store, "instances", made_of=_ids(found), draw=draw)


def _ids(found: Sequence[tuple[str, Manifest]]) -> list[tuple[str, str]]:
    return [(label, item.artifact_id) for label, item in found]


class PretrainingView(NamedTuple):
    """The section about pretraining."""

    table: Table | None
    curves: Shown


def _pretraining(store: ArtifactStore, manifests: Mapping[str, Manifest]) -> PretrainingView | None:
    found = training_view.of_stage(manifests, "pretrain")
    if not found:
        return None

    def draw(name: str) -> Any:
        from flows.report.curve_figures import curve_figure

        return curve_figure(store, found, name=name)

    shown = kept_figure(store, "curves", made_of=_ids(found), draw=draw)
    return PretrainingView(training_view.pretraining_table(manifests), shown)


@dataclass(frozen=True, kw_only=True)
class ResultsView:
    """The section about fine-tuning and evaluation."""

    is_there: bool = False
    problem: str = ""
    best: Sequence[Fact] = ()
    results: Table | None = None
    comparisons: Table | None = None
    paper: Sequence[Table] = ()
    figure: Shown | None = None


def _results(store: ArtifactStore, manifests: Mapping[str, Manifest]) -> ResultsView:
    found = training_view.of_stage(manifests, "tabulate")
    if not found:
        is_begun = any(item.stage in ("finetune", "evaluate") for item in manifests.values())
        said = "The tables were not made in this run; the steps say what each training scored."
        return ResultsView(is_there=is_begun, problem=said if is_begun else "")
    manifest = found[-1][1]
    try:
        data = result_tables.read_tables(store, manifest)
        view = _results_view(data)
    except StoreError as error:
        return ResultsView(is_there=True, problem=without_secrets(str(error)))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        said = f"{manifest.path}: {result_tables.TABLES_FILE} is not as expected: {error!r}"
        return ResultsView(is_there=True, problem=said)

    def draw(name: str) -> Any:
        from flows.report.result_figures import result_figure

        return result_figure(data, name=name)

    made_of = [("", manifest.artifact_id)]
    return replace(view, figure=kept_figure(store, "results", made_of=made_of, draw=draw))


def _results_view(data: dict[str, Any]) -> ResultsView:
    return ResultsView(
        is_there=True,
        best=training_view.best_metrics(data),
        results=result_tables.results_table(data),
        comparisons=result_tables.comparison_table(data) if data["comparisons"] else None,
        paper=result_tables.paper_tables(data),
    )
