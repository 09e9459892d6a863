"""The paper's seven claims, each with the paper's figures and our test.

A claim is shown if its one-sided test is below `LEVEL`: 0.05 divided by seven (Bonferroni), so that
the probability of any false "shown" is at most 0.05. Scores on other data than the task's own are
not compared with the paper's: there a claim compares two of our models.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from typing import Literal, NamedTuple

from pydantic import computed_field

from model.monitoring.formatting import format_percent
from model.tables.document import Tables
from model.tables.filled_tables import FilledTable, OurRow
from model.tables.paper_results import GLUE_COLUMNS, GLUE_TABLE
from model.tables.results import DEV, ResultRow, TableModel
from model.tables.significance import (
    Runs,
    TestResult,
    mean_difference,
    mean_of,
    prediction_p_value,
    welch_test,
)
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

    @computed_field  # type: ignore[prop-decorator]
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

    def runs(self, entry: str, metric: str) -> Runs:
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
    """Our figures with their test."""

    of: str
    data: str
    ours: str
    result: TestResult
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
    p = tested.result.p_greater
    is_shown = p is not None and p < LEVEL and tested.is_more
    return Finding(
        recipe=source.recipe,
        artifact=source.artifact,
        of=tested.of,
        data=tested.data,
        ours=tested.ours,
        low=tested.result.low,
        high=tested.result.high,
        p=p,
        status="shown" if is_shown else "not shown",
    )


def _difference(result: TestResult) -> str:
    interval = ""
    if result.low is not None and result.high is not None:
        interval = f" ({100 * result.low:+.1f} to {100 * result.high:+.1f})"
    return f"{100 * result.estimate:+.1f}{interval}"


def _pretrained_over_scratch(source: Source, table: str) -> Iterator[_Tested]:
    """Compare entries with and without pretraining on data that is not the tasks' own."""
    pairs: dict[str, tuple[Runs, Runs]] = {}
    swept, data = source.swept, ""
    for task in dict.fromkeys(row.task for row in source.tables.main):
        rows = [
            row
            for row in source.rows(task)
            if row.data and row.entry not in swept and row.method == "fine-tune"
            if row.mean is not None and len(row.runs) > 1
        ]
        ours = max((r for r in rows if r.start != "scratch"), key=mean_of, default=None)
        other = max((r for r in rows if r.start == "scratch"), key=mean_of, default=None)
        tables = {key for key, _ in TASKS[task].paper.values()} if task in TASKS else set()
        if ours and other and table in tables:
            pairs[task], data = (ours.runs, other.runs), ours.data
    if pairs:
        result = mean_difference(list(pairs.values()))
        text = f"pretrained less from scratch on {', '.join(pairs)}: {_difference(result)}"
        yield _Tested(", ".join(pairs), data, text, result)


def _above_prior(source: Source) -> Iterator[_Tested]:
    """Return the mean difference over the columns of Table 1 to the best earlier system."""
    yield from _pretrained_over_scratch(source, GLUE_TABLE.key)
    table = source.table(GLUE_TABLE.key)
    if table is None or table.data:
        return
    metrics = {column.key: column.metric for column in table.columns}
    row = max(table.rows, key=lambda row: len(row.cells))
    runs = {key: source.runs(cell.entry, metrics[key]) for key, cell in row.cells.items()}
    known = {key: values for key, values in runs.items() if len(values) > 1}
    if not known:
        return
    prior = (max(GLUE_TABLE.value(name, key) or 0.0 for name in _PRIOR_GLUE) for key in known)
    bar = statistics.fmean(prior) / 100
    weights = [1 / len(known)] * len(known)
    result = welch_test(list(known.values()), weights, null_value=bar)
    ours = (
        f"{row.name}: {format_percent(result.estimate + bar)} on dev, the best before "
        f"{100 * bar:.1f} on test, mean of {len(known)} of {len(GLUE_COLUMNS)} columns"
    )
    yield _Tested("Table 1", "", ours, result)


def _compare_rows(
    source: Source, table: FilledTable, a: OurRow, b: OurRow, *, only: Sequence[str] = ()
) -> Iterator[_Tested]:
    """Compare two rows on the mean of their common columns."""
    pairs: dict[str, tuple[Runs, Runs]] = {}
    for column in table.columns:
        cells = [row.cells[column.key] for row in (a, b) if column.key in row.cells]
        runs = [source.runs(cell.entry, column.metric) for cell in cells]
        is_tested = len(runs) == 2 and all(len(values) > 1 for values in runs)
        if is_tested and (not only or column.key in only):
            pairs[column.key] = (runs[0], runs[1])
    if not pairs:
        return
    result = mean_difference(list(pairs.values()))
    first, second = (
        format_percent(statistics.fmean(statistics.fmean(pair[n]) for pair in pairs.values()))
        for n in (0, 1)
    )
    ours = f"{a.name} {first}, {b.name} {second}: {_difference(result)} on {', '.join(pairs)}"
    yield _Tested(table.title.partition(":")[0], table.data, ours, result)


def _variants(
    source: Source, key: str, first: str, second: str, *, only: Sequence[str] = ()
) -> Iterator[_Tested]:
    """Compare two variants of a table in each context."""
    if table := source.table(key):
        for a in table.rows:
            for b in table.rows:
                if (a.variant, b.variant) == (first, second) and a.context == b.context:
                    yield from _compare_rows(source, table, a, b, only=only)


def _both_directions(source: Source) -> Iterator[_Tested]:
    """Compare objectives of Table 5, and of Figure 5 at its last step."""
    yield from _variants(source, "table-5", "no-nsp", "left-to-right")
    table = source.table("figure-5")
    if table is None or not all(row.variant.isdecimal() for row in table.rows):
        return
    last = str(max(int(row.variant) for row in table.rows))
    ends = {", ".join(row.context.values()): row for row in table.rows if row.variant == last}
    if "masked-lm" in ends and "left-to-right" in ends:
        yield from _compare_rows(source, table, ends["masked-lm"], ends["left-to-right"])


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
    tuned = [row for row in rows if row.method == "fine-tune" and row.start != "scratch"]
    groups: dict[tuple[str, str, int], dict[str, float]] = {}
    for row in rows:
        if row.ensemble is not None:
            group = groups.setdefault((row.data, row.start, row.ensemble_of), {})
            group[row.entry] = row.ensemble
    for (data, _, size), group in groups.items():
        scores = list(group.values())
        single = [run for row in rows if row.entry in group for run in row.runs]
        single = single or [run for row in tuned if row.data == data for run in row.runs]
        mean = statistics.fmean(scores)
        ours = f"F1 {format_percent(mean)} on dev of {size} models together"
        if len(scores) > 1:
            ours += f", mean of {len(scores)} ensembles"
        gain = 0.0
        if single:
            gain = mean - statistics.fmean(single)
            ours += f", {format_percent(statistics.fmean(single))} of single ones"
        if len(scores) > 1 and single:
            result = mean_difference([(scores, single)])
        else:
            result = TestResult(gain, p_greater=prediction_p_value(mean, single))
        is_above = bool(data) or 100 * mean > _PRIOR_SQUAD_1
        yield _Tested(", ".join(group), data, ours, result, is_above)


def _squad_2(source: Source) -> Iterator[_Tested]:
    """Compare entries on SQuAD 2.0 with the best before."""
    yield from _pretrained_over_scratch(source, "table-3")
    for row in source.rows("squad-2.0"):
        if row.data or row.start == "scratch" or row.entry in source.swept or len(row.runs) < 2:
            continue
        result = welch_test([row.runs], [1.0], null_value=_PRIOR_SQUAD_2 / 100)
        f1 = format_percent(row.mean, row.sd)
        ours = f"{row.entry}: F1 {f1} on dev, the best before 78.0 on test"
        yield _Tested("Table 3", "", ours, result)


def _features(source: Source) -> Iterator[_Tested]:
    """Compare Table 7: the last four layers reach `CLOSE` of fine-tuning's gain on embeddings.

    The gain must be significant: without it, closeness proves nothing about the layers.
    """
    rows = [row for row in source.rows("conll-2003") if row.mean is not None and len(row.runs) > 1]
    for start in dict.fromkeys(row.start for row in rows if row.features):
        known = {row.features: row for row in rows if row.start == start and row.features}
        tuned = [row for row in rows if row.start == start and row.method == "fine-tune"]
        fine = max(tuned, key=mean_of, default=None)
        last, floor = known.get("concat-last-4"), known.get("embeddings")
        if fine is None or last is None or floor is None:
            continue
        result = welch_test([last.runs, fine.runs, floor.runs], [1.0, -CLOSE, CLOSE - 1.0])
        ours = (
            f"F1 {format_percent(last.mean, last.sd)} of the last four layers, "
            f"{format_percent(fine.mean, fine.sd)} fine-tuned, "
            f"{format_percent(floor.mean, floor.sd)} of the embeddings: "
            f"{_difference(result)} above {100 * CLOSE:.0f} % of the way"
        )
        yield _Tested("Table 7", fine.data, ours, result)
        gain = welch_test([fine.runs, floor.runs], [1.0, -1.0])
        ours = f"fine-tuned less features of the embeddings: {_difference(gain)}"
        yield _Tested("Table 7", fine.data, ours, gain)


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
