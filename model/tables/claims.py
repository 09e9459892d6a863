"""The paper's seven claims, each with the paper's figures and our test.

A claim is shown if its one-sided test is below `LEVEL`: 0.05 divided by seven (Bonferroni), so that
the probability of any false "shown" is at most 0.05. Scores on other data than the task's own are
not compared with the paper's: there a claim compares two of our models.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

from model.monitoring.formatting import format_percent
from model.tables.document import Tables
from model.tables.filled_tables import FilledTable, OurRow
from model.tables.paper_results import GLUE_COLUMNS, PAPER_TABLES
from model.tables.results import DEV, ResultRow, TableModel
from model.tables.significance import TestResult, mean_difference, prediction_p_value, welch_test
from model.tasks import TASKS

LEVEL = 0.05 / 7
CLOSE = 0.9
"""Features are close to fine-tuning if they reach this share of its gain over the embeddings; 0.94
in the paper: 96.1 between 91.0 and 96.4."""

_PRIOR_GLUE = ("pre-OpenAI SOTA", "BiLSTM+ELMo+Attn", "OpenAI GPT")
_PRIOR_SQUAD_1, _PRIOR_SQUAD_2 = 91.7, 78.0  # test F1: nlnet (ensemble), MIR-MRC (single)
_HURT_WITHOUT_NSP = ("QNLI", "MNLI-m", "SQuAD F1")  # paper 5.1
_SMALL_TASK = "MRPC"  # 3,600 training examples (paper 5.2)

Status = Literal["shown", "not shown", "not run"]


class Finding(TableModel):
    """Evidence of one recipe's tables for a claim."""

    recipe: str
    artifact: str
    of: str
    """Tables or entries of the evidence."""

    data: str
    """Data of the scores, if not the tasks' own."""

    ours: str
    """Our figures in a line, times 100."""

    low: float | None
    """Lower end of the 95 % interval of the tested difference, in fractions of 1."""

    high: float | None
    p: float | None
    """One-sided p-value; None without enough restarts."""

    status: Status


class JudgedClaim(TableModel):
    """Claim with its findings."""

    key: str
    says: str
    paper: str
    findings: tuple[Finding, ...]

    @property
    def status(self) -> Status:
        """`shown` if every finding shows it."""
        if not self.findings:
            return "not run"
        return "shown" if all(one.status == "shown" for one in self.findings) else "not shown"


class Source(NamedTuple):
    """Tables of a recipe's last run."""

    recipe: str
    artifact: str
    tables: Tables

    def table(self, key: str) -> FilledTable | None:
        """Return a table if it has our rows."""
        return next((one for one in self.tables.tables if one.key == key and one.rows), None)

    def rows(self, task: str) -> list[ResultRow]:
        """Return the entries of a task on dev in its main metric."""
        return [row for row in self.tables.main if row.task == task]

    def runs(self, entry: str, metric: str) -> tuple[float, ...]:
        """Return the restarts of an entry on dev; () if one of them has no value."""
        for row in self.tables.results:
            if (row.entry, row.split, row.metric) == (entry, DEV, metric):
                return () if row.failed else row.runs
        return ()

    @property
    def swept(self) -> set[str]:
        """Entries that are variants of a sweep; they are compared only with each other."""
        rows = (row for table in self.tables.tables for row in table.rows if row.variant)
        return {entry for row in rows for entry in row.entries}


class _Tested(NamedTuple):
    of: str
    data: str
    ours: str
    found: TestResult
    is_more: bool = True  # False if an untested condition of the claim does not hold


class Claim(NamedTuple):
    """One of the paper's claims."""

    key: str
    says: str
    paper: str
    test: Callable[[Source], Iterator[_Tested]]


def judge(sources: Sequence[Source]) -> tuple[JudgedClaim, ...]:
    """Return each claim with the findings in the tables of several recipes."""
    return tuple(
        JudgedClaim(
            key=claim.key,
            says=claim.says,
            paper=claim.paper,
            findings=tuple(
                _finding(source, tested) for source in sources for tested in claim.test(source)
            ),
        )
        for claim in CLAIMS
    )


def _finding(source: Source, tested: _Tested) -> Finding:
    p = tested.found.p_greater
    is_shown = p is not None and p < LEVEL and tested.is_more
    return Finding(
        recipe=source.recipe,
        artifact=source.artifact,
        of=tested.of,
        data=tested.data,
        ours=tested.ours,
        low=tested.found.low,
        high=tested.found.high,
        p=p,
        status="shown" if is_shown else "not shown",
    )


def _above_prior(source: Source) -> Iterator[_Tested]:
    """Return the mean difference over the columns of Table 1 to the best earlier system."""
    yield from _pretrained_over_scratch(source, "table-1")
    paper, table = PAPER_TABLES["table-1"], source.table("table-1")
    if table is None or table.data:
        return
    best = {
        column.key: max(paper.systems[name][place] or 0.0 for name in _PRIOR_GLUE)
        for place, column in enumerate(paper.columns)
    }
    metrics = {column.key: column.metric for column in table.columns}
    row = max(table.rows, key=lambda row: len(row.cells))
    runs = {key: source.runs(cell.entry, metrics[key]) for key, cell in row.cells.items()}
    known = {key: values for key, values in runs.items() if len(values) > 1}
    if not known:
        return
    weights = [1 / len(known)] * len(known)
    bar = statistics.fmean(best[key] for key in known) / 100
    found = welch_test(list(known.values()), weights, null_value=bar)
    ours = (
        f"{row.name}: {format_percent(found.estimate + bar)} on dev, the best before "
        f"{100 * bar:.1f} on test, mean of {len(known)} of {len(GLUE_COLUMNS)} columns"
    )
    yield _Tested("Table 1", "", ours, found)


def _pretrained_over_scratch(source: Source, table: str) -> Iterator[_Tested]:
    """Compare entries with and without pretraining on data that is not the tasks' own."""
    pairs: dict[str, tuple[Sequence[float], Sequence[float]]] = {}
    swept, data = source.swept, ""
    for task in dict.fromkeys(row.task for row in source.tables.main):
        known = [row for row in source.rows(task) if row.entry not in swept and row.data]
        known = [row for row in known if row.method == "fine-tune" and len(row.runs) > 1]
        ours = [row for row in known if row.start != "scratch" and row.mean is not None]
        scratch = [row for row in known if row.start == "scratch" and row.mean is not None]
        if ours and scratch and _is_of(task, table):
            best, other = (max(rows, key=lambda row: row.mean or 0.0) for rows in (ours, scratch))
            pairs[task], data = (best.runs, other.runs), best.data
    if pairs:
        found = mean_difference(list(pairs.values()))
        ours_text = f"pretrained less from scratch on {', '.join(pairs)}: {_difference(found)}"
        yield _Tested(", ".join(pairs), data, ours_text, found)


def _is_of(task: str, table: str) -> bool:
    """Return whether a task is in a table of the paper."""
    return task in TASKS and any(key == table for key, _ in TASKS[task].paper.values())


def _variants(
    source: Source, key: str, first: str, second: str, *, only: Sequence[str] = ()
) -> Iterator[_Tested]:
    """Compare two variants of a table on the mean of their common columns."""
    table = source.table(key)
    if table is None:
        return
    for a, b in _pairs_of_rows(table, first, second):
        pairs = _column_runs(source, table, a, b, only=only)
        if pairs:
            found = mean_difference(list(pairs.values()))
            yield _Tested(_title(table), table.data, _said(a, b, pairs, found), found)


def _title(table: FilledTable) -> str:
    return table.title.partition(":")[0]


def _said(
    a: OurRow, b: OurRow, pairs: Mapping[str, tuple[Sequence[float], ...]], found: TestResult
) -> str:
    means = [statistics.fmean(statistics.fmean(pair[n]) for pair in pairs.values()) for n in (0, 1)]
    return (
        f"{a.name} {format_percent(means[0])}, {b.name} {format_percent(means[1])}: "
        f"{_difference(found)} on {', '.join(pairs)}"
    )


def _pairs_of_rows(table: FilledTable, first: str, second: str) -> Iterator[tuple[OurRow, OurRow]]:
    """Yield the rows of two variants with equal contexts."""
    for a in table.rows:
        for b in table.rows:
            if (a.variant, b.variant) == (first, second) and a.context == b.context:
                yield a, b


def _column_runs(
    source: Source, table: FilledTable, a: OurRow, b: OurRow, *, only: Sequence[str] = ()
) -> dict[str, tuple[Sequence[float], Sequence[float]]]:
    found: dict[str, tuple[Sequence[float], Sequence[float]]] = {}
    for column in table.columns:
        cells = [row.cells.get(column.key) for row in (a, b)]
        if any(cell is None for cell in cells) or (only and column.key not in only):
            continue
        runs = [source.runs(cell.entry, column.metric) for cell in cells if cell is not None]
        if all(len(values) > 1 for values in runs):
            found[column.key] = (runs[0], runs[1])
    return found


def _both_directions(source: Source) -> Iterator[_Tested]:
    yield from _variants(source, "table-5", "no-nsp", "left-to-right")
    table = source.table("figure-5")
    if table is None or not all(row.variant.isdecimal() for row in table.rows):
        return
    last = str(max(int(row.variant) for row in table.rows))
    ends = {", ".join(row.context.values()): row for row in table.rows if row.variant == last}
    a, b = ends.get("masked-lm"), ends.get("left-to-right")
    if a is not None and b is not None and (pairs := _column_runs(source, table, a, b)):
        found = mean_difference(list(pairs.values()))
        yield _Tested("Figure 5", table.data, _said(a, b, pairs, found), found)


def _next_sentences(source: Source) -> Iterator[_Tested]:
    yield from _variants(source, "table-5", "bert-base", "no-nsp", only=_HURT_WITHOUT_NSP)


def _size(source: Source) -> Iterator[_Tested]:
    """Compare the largest with the smallest size, on all tasks and on the small one."""
    table = source.table("table-6")
    variants = list(dict.fromkeys(row.variant for row in table.rows)) if table else []
    for only in ((), (_SMALL_TASK,)) if len(variants) > 1 else ():
        yield from _variants(source, "table-6", variants[-1], variants[0], only=only)


def _ensemble(source: Source) -> Iterator[_Tested]:
    """Compare ensembles on SQuAD 1.1 with single models; on SQuAD itself also with the best before.

    Several ensembles are compared by Welch's test. The score of one ensemble has no variance to
    test by, so it must exceed the prediction interval of one more single model (t distribution).
    """
    rows = source.rows("squad-1.1")
    groups: dict[tuple[str, str, int], list[ResultRow]] = {}
    for row in rows:
        if row.ensemble is not None:
            groups.setdefault((row.data, row.start, row.ensemble_of), []).append(row)
    for (data, _, size), group in groups.items():
        scores = [row.ensemble for row in group if row.ensemble is not None]
        single = [run for row in group for run in row.runs] or [
            run
            for row in rows
            if (row.data, row.method) == (data, "fine-tune") and row.start != "scratch"
            for run in row.runs
        ]
        mean = statistics.fmean(scores)
        ours = f"F1 {format_percent(mean)} on dev of {size} models together"
        if len(scores) > 1:
            ours += f", mean of {len(scores)} ensembles"
        gain = 0.0
        if single:
            gain = mean - statistics.fmean(single)
            ours += f", {format_percent(statistics.fmean(single))} of single ones"
        if len(scores) > 1 and single:
            found = mean_difference([(scores, single)])
        else:
            found = TestResult(gain, None, None, None, prediction_p_value(mean, single), "")
        is_above = bool(data) or 100 * mean > _PRIOR_SQUAD_1
        yield _Tested(", ".join(row.entry for row in group), data, ours, found, is_above)


def _squad_2(source: Source) -> Iterator[_Tested]:
    yield from _pretrained_over_scratch(source, "table-3")
    for row in source.rows("squad-2.0"):
        if row.data or row.start == "scratch" or row.entry in source.swept or len(row.runs) < 2:
            continue
        found = welch_test([row.runs], [1.0], null_value=_PRIOR_SQUAD_2 / 100)
        f1 = format_percent(row.mean, row.sd)
        ours = f"{row.entry}: F1 {f1} on dev, the best before 78.0 on test"
        yield _Tested("Table 3", "", ours, found)


def _features(source: Source) -> Iterator[_Tested]:
    """Compare Table 7: the last four layers reach `CLOSE` of fine-tuning's gain on embeddings.

    The gain must be significant: without it, closeness proves nothing about the layers.
    """
    rows = [row for row in source.rows("conll-2003") if row.mean is not None and len(row.runs) > 1]
    for start in dict.fromkeys(row.start for row in rows if row.features):
        known = {row.features: row for row in rows if row.start == start and row.features}
        tuned = [row for row in rows if row.start == start and row.method == "fine-tune"]
        fine = max(tuned, key=lambda row: row.mean or 0.0, default=None)
        last, floor = known.get("concat-last-4"), known.get("embeddings")
        if fine is None or last is None or floor is None:
            continue
        found = welch_test([last.runs, fine.runs, floor.runs], [1.0, -CLOSE, CLOSE - 1.0])
        ours = (
            f"F1 {format_percent(last.mean, last.sd)} of the last four layers, "
            f"{format_percent(fine.mean, fine.sd)} fine-tuned, "
            f"{format_percent(floor.mean, floor.sd)} of the embeddings: "
            f"{_difference(found)} above {100 * CLOSE:.0f} % of the way"
        )
        yield _Tested("Table 7", fine.data, ours, found)
        gain = welch_test([fine.runs, floor.runs], [1.0, -1.0])
        ours = f"fine-tuned less features of the embeddings: {_difference(gain)}"
        yield _Tested("Table 7", fine.data, ours, gain)


def _difference(found: TestResult) -> str:
    interval = ""
    if found.low is not None and found.high is not None:
        interval = f" ({100 * found.low:+.1f} to {100 * found.high:+.1f})"
    return f"{100 * found.estimate:+.1f}{interval}"


CLAIMS = (
    Claim(
        "glue",
        "BERT is above all systems before it on GLUE",
        "Table 1: average 82.1 (LARGE), 79.6 (BASE), 75.1 of OpenAI GPT before",
        _above_prior,
    ),
    Claim(
        "both-directions",
        "Both directions matter: a masked LM is above a left-to-right one",
        "Table 5, no NSP less left-to-right: MNLI 1.8, QNLI 0.6, MRPC 9.0, SST-2 0.5, SQuAD 10.1",
        _both_directions,
    ),
    Claim(
        "next-sentences",
        "Next-sentence prediction helps tasks on pairs of texts",
        "Table 5, full less no NSP: QNLI 3.5, SQuAD 0.6, MNLI 0.5",
        _next_sentences,
    ),
    Claim(
        "ensemble",
        "An ensemble, trained on TriviaQA first, is above all before it on SQuAD 1.1",
        "Table 2: test F1 93.2, the best before 91.7; on dev 92.2, a single model 91.1",
        _ensemble,
    ),
    Claim(
        "squad-2.0",
        "BERT is above all systems before it on SQuAD 2.0",
        "Table 3: test F1 83.1, the best before 78.0",
        _squad_2,
    ),
    Claim(
        "size",
        "Larger is better, on small tasks too",
        "Table 6, largest less smallest: MNLI 8.7, MRPC 8.0, SST-2 5.3",
        _size,
    ),
    Claim(
        "features",
        "Features of the frozen model come close to fine-tuning",
        "Table 7: dev F1 96.1 of the last four layers, 96.4 fine-tuned, 91.0 of the embeddings",
        _features,
    ),
)
"""Claims in the order of the paper."""
