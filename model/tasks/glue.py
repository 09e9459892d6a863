"""GLUE tasks (paper 4.1, B.1; Wang et al. 2019), from the official files and from the hub.

Labels have the names of the official files. The order of MNLI's labels is that of google-research/
bert's run_classifier.py, which differs from the hub's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from model.tasks.files import base_name, open_data, shown
from model.tasks.sentences import (
    CUSTOM_IDS,
    IDS,
    PAIR,
    SENTENCE,
    Answer,
    Example,
    build_text_row,
    read_text_rows,
)
from model.tasks.task import BadRow, FileLayout, InvalidRowError, Row, Task
from pipelines.io.raw_files import list_folder_of
from schemas.errors import TaskDataError

DEV_IDS = ("dev_ids.tsv", "mrpc_dev_ids.tsv")
"""Names of GLUE's list of the pairs of MSR's training file that are its dev set."""

MSR_TRAIN = "msr_paraphrase_train.txt"

_MNLI_LABELS = ("contradiction", "entailment", "neutral")
_TWO_WAY = ("entailment", "not_entailment")
_DIAGNOSTIC = ("diagnostic-full", "diagnostic", "AX")
_DIAGNOSTIC_FOLDERS = ("AX", "ax", "diagnostic")


def read_mrpc(task: Task, split: str, url: str) -> Iterator[Row | BadRow]:
    """Read the rows of an MRPC file; a `Reader`.

    GLUE may not redistribute MRPC. Users have either its TSV files, or Microsoft's two files with
    GLUE's list of dev pairs; each row of Microsoft's training file then belongs to one split.

    Raises:
        TaskDataError: It is Microsoft's training file without `dev_ids.tsv` next to it; or see
            `read_text_rows`.
    """
    if not base_name(url).startswith(MSR_TRAIN):
        yield from read_text_rows(task, split, url)
        return
    dev_pairs = _read_dev_pairs(url)

    def build(values: Mapping[str, Any], texts: Sequence[str], answer: Answer) -> Example:
        pair = tuple(str(name).strip() for name in values["pair"])
        if (pair in dev_pairs) != (split == "dev"):
            raise InvalidRowError("other-split", " ".join(pair), is_fault=False)
        return build_text_row(values, texts, answer)

    columns = {**task.layout.columns, "pair": (("#1 ID", "#2 ID"),)}
    with_pairs = replace(task, layout=replace(task.layout, columns=columns, named_columns={}))
    yield from read_text_rows(with_pairs, split, url, build=build)


def _read_dev_pairs(url: str) -> set[tuple[str, ...]]:
    siblings = {name: uri for uri, name in list_folder_of(url)}
    dev_ids = next((siblings[name] for name in DEV_IDS if name in siblings), None)
    if dev_ids is None:
        raise TaskDataError(
            f"{url}: contains GLUE's train and dev; expected {DEV_IDS[0]} next to it, GLUE's list "
            f"of the pairs that are dev, found {', '.join(sorted(siblings))}. Download GLUE's "
            f"{' or '.join(DEV_IDS)}, or give GLUE's own train.tsv and dev.tsv"
        )
    with open_data(dev_ids) as data:
        lines = [tuple(line.decode(errors="replace").split()) for line in data.lines()]
    for number, pair in enumerate(lines, start=1):
        if len(pair) != 2:
            raise TaskDataError(
                f"{dev_ids}: line {number}: expected two ids with a tab between, found "
                f"{shown(' '.join(pair))}"
            )
    return set(lines)


def _glue(
    name: str,
    title: str,
    sizes: tuple[int, ...],
    *,
    texts: Sequence[tuple[str, ...]] = PAIR,
    answers: Sequence[str] = ("label",),
    ids: Sequence[tuple[str, ...]] = IDS,
    labels: tuple[str, ...] = ("0", "1"),
    hub: str = "",
    hub_labels: Sequence[str] = (),
    metrics: tuple[str, ...] = ("accuracy",),
    layout: Mapping[str, Any] = {},
    **more: Any,
) -> Task:
    """Return a task of GLUE: `sizes` are the rows of its splits, `texts`, `answers` and `ids` its
    alternative columns, `hub` and `hub_labels` the hub's names of its folder and labels."""
    field = "label" if labels else "score"
    columns = {"text": tuple(texts), field: tuple((name,) for name in answers), "id": tuple(ids)}
    hub_names = dict(zip(hub_labels or labels, labels, strict=True))
    settings: dict[str, Any] = {
        "splits": {"train": ("train",), "dev": ("dev", "validation"), "test": ("test",)},
        "folders": (title, hub or name),
        "reader": read_text_rows,
        "submission": {"test": f"{title}.tsv"},
        "paper": _cells(title, metrics[0], "dev", "test"),
    } | more
    return Task(
        name=name,
        title=title,
        type="classification" if labels else "regression",
        layout=FileLayout(**{"columns": columns, "hub_labels": hub_names, **layout}),
        sizes=dict(zip(settings["splits"], sizes, strict=True)),
        labels=labels,
        label_words=dict(zip(labels, hub_labels, strict=True)) if hub_labels else {},
        metrics=metrics,
        is_pair=len(texts[0]) > 1,
        **settings,
    )


def _mnli_split(name: str) -> tuple[str, ...]:
    hub = name.replace("dev", "validation")
    return (*dict.fromkeys((name, hub)), f"multinli_1.0_{name}.jsonl", f"multinli_1.0_{name}.txt")


def _cells(column: str, metric: str, *splits: str) -> dict[str, tuple[str, str]]:
    """Cells of Table 1, which has test scores; dev scores are shown next to them."""
    return {f"{split}/{metric}": ("table-1", column) for split in splits}


_NLI: dict[str, Any] = {
    "texts": (*PAIR, ("Premise", "Hypothesis")),
    "labels": _MNLI_LABELS,
}
_MNLI_HUB = {name: name for name in ("entailment", "neutral", "contradiction")}

_MRPC = _glue(
    "mrpc",
    "MRPC",
    (3_668, 408, 1_725),
    texts=(("#1 String", "#2 String"), *PAIR),
    answers=("Quality", "label"),
    hub_labels=("not_equivalent", "equivalent"),
    metrics=("f1", "accuracy"),
    splits={
        "train": ("train", MSR_TRAIN),
        "dev": ("dev", "validation", MSR_TRAIN),
        "test": ("test", "msr_paraphrase_test.txt"),
    },
    reader=read_mrpc,
    layout={"companions": {MSR_TRAIN: DEV_IDS}},
)

_MNLI = _glue(
    "mnli",
    "MNLI",
    (392_702, 9_815, 9_796, 9_832, 9_847, 1_104),
    **_NLI,
    answers=("gold_label", "label", "Label"),
    layout={"hub_labels": _MNLI_HUB, "dropped_labels": frozenset({"-"})},
    splits={
        "train": _mnli_split("train"),
        "dev": _mnli_split("dev_matched"),
        "test": _mnli_split("test_matched"),
        "dev-mismatched": _mnli_split("dev_mismatched"),
        "test-mismatched": _mnli_split("test_mismatched"),
        "diagnostic": _DIAGNOSTIC,
    },
    folders=("MNLI", "mnli", *_DIAGNOSTIC_FOLDERS),
    submission={"test": "MNLI-m.tsv", "test-mismatched": "MNLI-mm.tsv", "diagnostic": "AX.tsv"},
    paper=_cells("MNLI-m", "accuracy", "dev", "test")
    | _cells("MNLI-mm", "accuracy", "dev-mismatched", "test-mismatched"),
)

_AX = _glue(
    "ax",
    "AX",
    (1_104,),
    **_NLI,
    answers=("label", "Label", "gold_label"),
    layout={"hub_labels": _MNLI_HUB},
    splits={"test": (*_DIAGNOSTIC, "test")},
    folders=_DIAGNOSTIC_FOLDERS,
    metrics=("matthews", "accuracy"),
    paper={},
)

GLUE_TASKS: dict[str, Task] = {
    task.name: task
    for task in (
        _glue(
            "cola",
            "CoLA",
            (8_551, 1_043, 1_063),
            texts=SENTENCE,
            hub_labels=("unacceptable", "acceptable"),
            metrics=("matthews", "accuracy"),
            layout={"headerless": ("source", "label", "author", "sentence")},
        ),
        _glue(
            "sst-2",
            "SST-2",
            (67_349, 872, 1_821),
            texts=SENTENCE,
            hub="sst2",
            hub_labels=("negative", "positive"),
        ),
        _MRPC,
        _glue(
            "sts-b",
            "STS-B",
            (5_749, 1_500, 1_379),
            labels=(),
            hub="stsb",
            metrics=("spearman", "pearson"),
            answers=("score", "label"),
            layout={"score_range": (0.0, 5.0)},
        ),
        _glue(
            "qqp",
            "QQP",
            (363_846, 40_430, 390_965),
            texts=(("question1", "question2"), ("text_a", "text_b")),
            hub_labels=("not_duplicate", "duplicate"),
            metrics=("f1", "accuracy"),
            answers=("is_duplicate", "label"),
            ids=CUSTOM_IDS,
        ),
        _MNLI,
        _glue(
            "qnli",
            "QNLI",
            (104_743, 5_463, 5_463),
            texts=(("question", "sentence"), ("text_a", "text_b")),
            labels=_TWO_WAY,
        ),
        _glue("rte", "RTE", (2_490, 277, 3_000), labels=_TWO_WAY),
        _glue("wnli", "WNLI", (635, 71, 146), hub_labels=_TWO_WAY[::-1], paper={}),
        _AX,
    )
}
"""GLUE's nine tasks and its diagnostic set, by name."""
