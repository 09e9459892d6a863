"""GLUE's zip file: its names, rows, labels and bytes, and what does not go into it."""

from __future__ import annotations

import hashlib
import io
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from support.evaluation_builder import (
    SCRATCH,
    artifact,
    evaluations,
    written,
)

from model.tables.glue_submission import SERVER_FILES, Submission, build_submission, to_zip
from model.tasks import TASKS
from schemas.errors import ArtifactCorruptError
from schemas.manifest import StageInput

Predictions = Mapping[str, Sequence[Mapping[str, Any]]]


def labels(*names: str) -> list[dict[str, str]]:
    return [{"id": str(number), "label": name} for number, name in enumerate(names)]


def submit(folder: Path, *entries: tuple[dict[str, Any], Predictions]) -> Submission:
    inputs = {item["entry"]: artifact(folder, item, predictions=made) for item, made in entries}
    return build_submission(evaluations(*(item for item, _ in entries)), inputs=inputs)


def texts(data: bytes) -> dict[str, str]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        assert archive.testzip() is None
        return {name: archive.read(name).decode() for name in archive.namelist()}


def test_all_files_have_the_servers_names_and_order(tmp_path: Path) -> None:
    number = [{"id": "0", "score": 2.5}]
    # As texts, "10" would come before "2".
    shuffled = [{"id": str(n), "label": str(int(n == 10))} for n in (10, 3, 0, 1, 2)]
    shuffled += labels(*["0"] * 10)[4:]
    nli = labels("entailment", "not_entailment")
    mnli = labels("neutral", "contradiction", "entailment")
    two = labels("0", "1")
    submission = submit(
        tmp_path,
        (written("w", "wnli", [0.5]), {"test": labels("0", "0")}),
        (written("rte", "rte", [0.5]), {"test": nli}),
        (written("qnli", "qnli", [0.5]), {"test": nli}),
        (
            written("mnli", "mnli", [0.5]),
            {"test": mnli, "test-mismatched": mnli[:2], "diagnostic": mnli[:1]},
        ),
        (written("qqp", "qqp", [0.5]), {"test": two}),
        (written("sts-b", "sts-b", [0.5]), {"test": number}),
        (written("mrpc", "mrpc", [0.5]), {"test": two}),
        (written("sst-2", "sst-2", [0.5]), {"test": two}),
        (written("cola", "cola", [0.5]), {"test": shuffled}),
        (written("squad", "squad-1.1", [0.5]), {"dev": [{"id": "q", "text": "x"}]}),
    )
    assert SERVER_FILES == {
        "CoLA.tsv": 1_063, "SST-2.tsv": 1_821, "MRPC.tsv": 1_725, "STS-B.tsv": 1_379,
        "QQP.tsv": 390_965, "MNLI-m.tsv": 9_796, "MNLI-mm.tsv": 9_847, "QNLI.tsv": 5_463,
        "RTE.tsv": 3_000, "WNLI.tsv": 146, "AX.tsv": 1_104,
    }  # fmt: skip
    names = "CoLA SST-2 MRPC STS-B QQP MNLI-m MNLI-mm QNLI RTE WNLI AX"
    assert list(texts(submission.data)) == [f"{name}.tsv" for name in names.split()]
    assert submission.missing == ()
    rows = [f"{n}\t{int(n == 10)}" for n in range(11)]
    assert texts(submission.data)["CoLA.tsv"] == "\n".join(["index\tprediction", *rows]) + "\n"
    assert texts(submission.data)["MNLI-m.tsv"].splitlines()[1:] == [
        "0\tneutral",
        "1\tcontradiction",
        "2\tentailment",
    ]
    assert texts(submission.data)["RTE.tsv"].splitlines()[1:] == [
        "0\tentailment",
        "1\tnot_entailment",
    ]
    # Only the numbers of rows are too low, with one note per file.
    assert len([note for note in submission.notes if "the server expects" in note]) == 11


def test_numbers_of_sts_b_are_cut_to_the_scale_and_have_three_decimals(tmp_path: Path) -> None:
    scores = [-0.3, 5.2, 3.14159, 0, -0.0]
    made = [{"id": str(n), "score": score} for n, score in enumerate(scores)]
    submission = submit(tmp_path, (written("sts-b", "sts-b", [0.5]), {"test": made}))
    rows = [row.split("\t")[1] for row in texts(submission.data)["STS-B.tsv"].splitlines()[1:]]
    assert rows == ["0.000", "5.000", "3.142", "0.000", "0.000"]


def test_equal_predictions_are_equal_bytes_whatever_the_order_and_place(tmp_path: Path) -> None:
    cola = (written("cola", "cola", [0.5]), {"test": labels("0", "1")})
    rte = (written("rte", "rte", [0.5]), {"test": labels("entailment")})
    one = submit(tmp_path / "a", cola, rte)
    other = submit(tmp_path / "b", rte, cola)
    assert one.data == other.data


def test_the_zip_is_the_same_bytes_as_ever() -> None:
    data = to_zip({"CoLA.tsv": "index\tprediction\n0\t1\n"})
    digest = hashlib.sha256(data).hexdigest()
    assert digest == "23acfb05cfa9bcd4212920821556ef1c08eb88a87931ca95240cdbae589458d6"


def test_of_two_entries_the_better_on_dev_is_taken_and_both_are_named(tmp_path: Path) -> None:
    submission = submit(
        tmp_path,
        (written("scratch", "cola", [0.1, 0.2], model=SCRATCH), {"test": labels("0")}),
        (written("tuned", "cola", [0.4, 0.5]), {"test": labels("1")}),
    )
    assert submission.entries == {"CoLA.tsv": "tuned"}
    assert texts(submission.data)["CoLA.tsv"].endswith("0\t1\n")
    (note,) = [note for note in submission.notes if "answer it" in note]
    assert "tuned (matthews 50.0 on dev), scratch (matthews 20.0 on dev)" in note
    assert "taken: tuned" in note


def test_wnli_is_the_majority_class_of_its_training_data(tmp_path: Path) -> None:
    tuned = written("wnli", "wnli", [0.9]) | {"majority_label": "1"}
    submission = submit(tmp_path, (tuned, {"test": labels("0", "1", "0")}))
    assert texts(submission.data)["WNLI.tsv"].splitlines()[1:] == ["0\t1", "1\t1", "2\t1"]
    assert any("the majority class in each row" in note for note in submission.notes)


def test_what_the_server_asks_for_and_is_missing_is_noted(tmp_path: Path) -> None:
    none = submit(tmp_path, (written("cola", "cola", [0.5]), {"dev": labels("0")}))
    assert (none.data, none.notes) == (b"", ())
    submission = submit(tmp_path, (written("cola", "cola", [0.5]), {"test": labels("0")}))
    assert submission.missing == tuple(name for name in SERVER_FILES if name != "CoLA.tsv")
    assert any("missing: SST-2.tsv" in note for note in submission.notes)
    assert any("1 rows of cola; the server expects 1,063" in note for note in submission.notes)


@pytest.mark.parametrize("ids", [["0", "2"], ["1", "2"], ["0", "0", "1"], ["0", "01"], ["a", "b"]])
def test_predictions_with_other_ids_are_skipped(tmp_path: Path, ids: list[str]) -> None:
    made = [{"id": item, "label": "0"} for item in ids]
    submission = submit(
        tmp_path,
        (written("cola", "cola", [0.5]), {"test": made}),
        (written("rte", "rte", [0.5]), {"test": labels("entailment")}),
    )
    assert list(submission.entries) == ["RTE.tsv"]
    assert "CoLA.tsv" in submission.missing
    (note,) = [note for note in submission.notes if "skipped" in note]
    assert "of cola" in note


def test_predictions_that_are_not_those_of_the_manifest_are_refused(tmp_path: Path) -> None:
    evaluation = written("cola", "cola", [0.5])
    made: StageInput = artifact(tmp_path, evaluation, predictions={"test": labels("0")})
    (tmp_path / "cola" / "predictions-test.jsonl").write_text('{"id": "0", "label": "1"}\n')
    with pytest.raises(ArtifactCorruptError, match="of cola 0000"):
        build_submission(evaluations(evaluation), inputs={"cola": made})


def test_submitted_tasks_have_the_servers_labels() -> None:
    for task in TASKS.values():
        assert set(task.submission) <= set(task.splits)
        assert not task.submission or task.labels or task.type == "regression"
        # By name for inference, by number for the rest.
        if task.submission:
            inference = {"entailment", "not_entailment", "neutral", "contradiction"}
            assert set(task.labels) <= inference or task.labels == ("0", "1")


@pytest.mark.parametrize("folder", ["CoLA", "SST-2", "STS-B", "QNLI", "RTE", "WNLI", "AX"])
def test_server_expects_the_rows_of_the_real_files(real_data: Path, folder: str) -> None:
    name = "diagnostic.tsv" if folder == "AX" else "test.tsv"
    lines = (real_data / "glue" / folder / name).read_bytes().rstrip(b"\n").split(b"\n")
    assert len(lines) - 1 == SERVER_FILES[f"{folder}.tsv"]
    assert [line.split(b"\t")[0].decode() for line in lines[1:]] == [
        str(number) for number in range(len(lines) - 1)
    ]
