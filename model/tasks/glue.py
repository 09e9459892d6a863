"""The tasks of GLUE (paper 4.1, B.1; Wang et al. 2019), in their official files and on the hub.

Labels have the names of the official files. MNLI's are in the order of google-research/bert's
run_classifier.py, which is not the hub's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from model.tasks.example_files import table_globs
from model.tasks.raw_tables import Record, base_name, file_lines, shown
from model.tasks.task import Bad, Reader, Row, Task
from model.tasks.text_rows import TextColumns, read_text_rows
from pipelines.io.raw_files import list_folder_of
from schemas.errors import ExamplesError

DEV_IDS = ("dev_ids.tsv", "mrpc_dev_ids.tsv")
"""Names of GLUE's list of the pairs of MSR's training file that are its dev set."""

MSR_TRAIN = "msr_paraphrase_train.txt"
_MSR_IDS = ("#1 ID", "#2 ID")

_SENTENCE = (("sentence",), ("text",), ("text_a",))
_PAIR = (("sentence1", "sentence2"), ("premise", "hypothesis"), ("text_a", "text_b"))
_NLI = {"entailment": "entailment", "neutral": "neutral", "contradiction": "contradiction"}
_MNLI_ORDER = ("contradiction", "entailment", "neutral")
_TWO_WAY = {"entailment": "entailment", "not_entailment": "not_entailment"}
_DIAGNOSTIC = ("diagnostic-full", "diagnostic", "AX")
_DIAGNOSTIC_FOLDERS = ("AX", "ax", "diagnostic")


def read_mrpc(task: Task, split: str, url: str) -> Iterator[Row | Bad]:
    """The rows of an MRPC file; a `Reader`.

    GLUE may not hand MRPC on. What people have is either its TSV files, or Microsoft's two files
    with GLUE's list of the pairs that are its dev set: then a row of Microsoft's training file
    belongs to either split, and is left out of the other.

    Raises:
        ExamplesError: it is Microsoft's training file, and there is no `dev_ids.tsv` beside it; or
            as `read_text_rows` says.
    """
    if not base_name(url).startswith(MSR_TRAIN):
        yield from read_text_rows(task, split, url)
        return
    dev_pairs = _dev_pairs(url)

    def other_split(record: Record) -> Bad | None:
        pair = tuple(str(record.values[name]).strip() for name in _MSR_IDS)
        if (pair in dev_pairs) == (split == "dev"):
            return None
        return Bad(record.place, "other-split", " ".join(pair), is_fault=False)

    yield from read_text_rows(task, split, url, also=_MSR_IDS, left_out=other_split)


def _dev_pairs(url: str) -> set[tuple[str, ...]]:
    beside = {name: uri for uri, name in list_folder_of(url)}
    found = next((beside[name] for name in DEV_IDS if name in beside), None)
    if found is None:
        raise ExamplesError(
            f"{url}: has GLUE's train and dev in one; expected {DEV_IDS[0]} beside it, GLUE's list "
            f"of the pairs that are dev, found {', '.join(sorted(beside))}. Download GLUE's "
            f"{' or '.join(DEV_IDS)}, or give GLUE's own train.tsv and dev.tsv"
        )
    pairs = set[tuple[str, ...]]()
    for number, line in enumerate(file_lines(found), start=1):
        pair = tuple(line.data.decode(errors="replace").split())
        if len(pair) != 2:
            raise ExamplesError(
                f"{found}: line {number}: expected two ids with a tab between, found "
                f"{shown(' '.join(pair))}"
            )
        pairs.add(pair)
    return pairs


def _splits(folder: str, hub: str, **more: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    folders = (folder, hub)
    return {
        "train": (*table_globs("train", folders=folders), *more.get("train", ())),
        "dev": (*table_globs("dev", folders=folders, hub=("validation",)), *more.get("dev", ())),
        "test": (*table_globs("test", folders=folders), *more.get("test", ())),
    }


def _mnli_splits() -> dict[str, tuple[str, ...]]:
    folders = ("MNLI", "mnli")
    matched = {"train": ("train",), "dev": ("dev_matched",), "test": ("test_matched",)}
    mismatched = {"dev-mismatched": ("dev_mismatched",), "test-mismatched": ("test_mismatched",)}
    return {
        split: (
            *table_globs(
                *stems, folders=folders, hub=[s.replace("dev", "validation") for s in stems]
            ),
            *(f"multinli_1.0_{stem}.{end}" for stem in stems for end in ("jsonl", "txt")),
        )
        for split, stems in (matched | mismatched).items()
    } | {"diagnostic": table_globs(*_DIAGNOSTIC, folders=_DIAGNOSTIC_FOLDERS)}


def _cells(column: str, metric: str, *splits: str) -> dict[str, tuple[str, str]]:
    """Cells of Table 1, which has scores on test; those on dev stand beside them."""
    return {f"{split}/{metric}": ("table-1", column) for split in splits or ("dev", "test")}


def _sizes(train: int, dev: int, test: int) -> dict[str, int]:
    return {"train": train, "dev": dev, "test": test}


def _columns(texts: Sequence[tuple[str, ...]], **more: Any) -> dict[str, TextColumns]:
    return {"text": TextColumns(texts=tuple(texts), **more)}


def _binary(no: str, yes: str) -> Mapping[str, str]:
    """The hub's names of labels that the official files call 0 and 1."""
    return {no: "0", yes: "1"}


def _task(name: str, title: str, **more: Any) -> Task:
    settings: dict[str, Any] = {
        "kind": "classification",
        "reader": read_text_rows,
        "submission": {"test": f"{title}.tsv"},
        "is_pair": True,
    }
    return Task(name=name, title=title, **(settings | more))


_READ_MRPC: Reader = read_mrpc

GLUE_TASKS: dict[str, Task] = {
    task.name: task
    for task in (
        _task(
            "cola",
            "CoLA",
            splits=_splits("CoLA", "cola"),
            sizes=_sizes(8_551, 1_043, 1_063),
            is_pair=False,
            labels=("0", "1"),
            metrics=("matthews", "accuracy"),
            paper=_cells("CoLA", "matthews"),
            columns=_columns(
                _SENTENCE,
                headerless=("source", "label", "author", "sentence"),
                names=_binary("unacceptable", "acceptable"),
            ),
        ),
        _task(
            "sst-2",
            "SST-2",
            splits=_splits("SST-2", "sst2"),
            sizes=_sizes(67_349, 872, 1_821),
            is_pair=False,
            labels=("0", "1"),
            metrics=("accuracy",),
            paper=_cells("SST-2", "accuracy"),
            columns=_columns(_SENTENCE, names=_binary("negative", "positive")),
        ),
        _task(
            "mrpc",
            "MRPC",
            splits=_splits(
                "MRPC",
                "mrpc",
                train=(MSR_TRAIN,),
                dev=(MSR_TRAIN,),
                test=("msr_paraphrase_test.txt",),
            ),
            sizes=_sizes(3_668, 408, 1_725),
            reader=_READ_MRPC,
            labels=("0", "1"),
            metrics=("f1", "accuracy"),
            paper=_cells("MRPC", "f1"),
            columns=_columns(
                (("#1 String", "#2 String"), *_PAIR),
                answers=("Quality", "label"),
                names=_binary("not_equivalent", "equivalent"),
            )
            | {"beside": {MSR_TRAIN: DEV_IDS}},
        ),
        _task(
            "sts-b",
            "STS-B",
            kind="regression",
            splits=_splits("STS-B", "stsb"),
            sizes=_sizes(5_749, 1_500, 1_379),
            metrics=("spearman", "pearson"),
            paper=_cells("STS-B", "spearman"),
            columns=_columns(_PAIR, answers=("score", "label"), score_range=(0.0, 5.0)),
        ),
        _task(
            "qqp",
            "QQP",
            splits=_splits("QQP", "qqp"),
            sizes=_sizes(363_846, 40_430, 390_965),
            labels=("0", "1"),
            metrics=("f1", "accuracy"),
            paper=_cells("QQP", "f1"),
            columns=_columns(
                (("question1", "question2"), ("text_a", "text_b")),
                answers=("is_duplicate", "label"),
                ids=("id", "index", "idx"),
                names=_binary("not_duplicate", "duplicate"),
            ),
        ),
        _task(
            "mnli",
            "MNLI",
            splits=_mnli_splits(),
            sizes=_sizes(392_702, 9_815, 9_796)
            | {"dev-mismatched": 9_832, "test-mismatched": 9_847, "diagnostic": 1_104},
            labels=_MNLI_ORDER,
            metrics=("accuracy",),
            submission={
                "test": "MNLI-m.tsv",
                "test-mismatched": "MNLI-mm.tsv",
                "diagnostic": "AX.tsv",
            },
            paper=_cells("MNLI-m", "accuracy")
            | _cells("MNLI-mm", "accuracy", "dev-mismatched", "test-mismatched"),
            columns=_columns(
                (*_PAIR, ("Premise", "Hypothesis")),
                answers=("gold_label", "label", "Label"),
                names=_NLI,
                left_out=frozenset({"-"}),
            ),
        ),
        _task(
            "qnli",
            "QNLI",
            splits=_splits("QNLI", "qnli"),
            sizes=_sizes(104_743, 5_463, 5_463),
            labels=("entailment", "not_entailment"),
            metrics=("accuracy",),
            paper=_cells("QNLI", "accuracy"),
            columns=_columns((("question", "sentence"), ("text_a", "text_b")), names=_TWO_WAY),
        ),
        _task(
            "rte",
            "RTE",
            splits=_splits("RTE", "rte"),
            sizes=_sizes(2_490, 277, 3_000),
            labels=("entailment", "not_entailment"),
            metrics=("accuracy",),
            paper=_cells("RTE", "accuracy"),
            columns=_columns(_PAIR, names=_TWO_WAY),
        ),
        _task(
            "wnli",
            "WNLI",
            splits=_splits("WNLI", "wnli"),
            sizes=_sizes(635, 71, 146),
            labels=("0", "1"),
            metrics=("accuracy",),
            columns=_columns(_PAIR, names=_binary("not_entailment", "entailment")),
        ),
        _task(
            "ax",
            "AX",
            splits={"test": table_globs(*_DIAGNOSTIC, folders=_DIAGNOSTIC_FOLDERS, hub=("test",))},
            sizes={"test": 1_104},
            labels=_MNLI_ORDER,
            metrics=("matthews", "accuracy"),
            columns=_columns(
                (*_PAIR, ("Premise", "Hypothesis")),
                answers=("label", "Label", "gold_label"),
                names=_NLI,
            ),
        ),
    )
}
"""GLUE's nine tasks and its diagnostic set, by name."""
