"""SQuAD 2.0 with probabilities of no answer, next to a second, plain implementation."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.cli_runner import Cli

from model.task_types.squad_metrics import (
    Gold,
    official_figures,
    score_question,
)
from schemas.arrow import SPAN_EXAMPLES
from schemas.errors import PredictionsError

ANSWERS = ["", " ", "the", "mill", "a mill race", "river"]
PROBABILITIES = [0.0, 0.1, 0.5, 0.5, 1.0]


def table(golds: list[list[str]]) -> pa.Table:
    rows = [
        {
            **dict.fromkeys(("title", "question", "context"), ""),
            "id": f"q{number}",
            "answers": answers,
            "answer_starts": [-1] * len(answers),
            "is_impossible": not answers,
        }
        for number, answers in enumerate(golds)
    ]
    return pa.Table.from_pylist(rows, schema=SPAN_EXAMPLES)


def worth(text: str, answers: list[str], *, metric: str) -> float:
    right = tuple(a for a in answers if a.strip() and a != "the") or ("",)
    gold = Gold("q", right, bool(answers))
    return float(getattr(score_question(text, gold, has_unanswerable=True), metric))


def best_by_trying_all(
    golds: list[list[str]], said: list[str], odds: list[float], *, metric: str
) -> float:
    """The best mean over every cut of the questions in the order of their probabilities.

    What stands before the cut keeps its answer, what stands behind it has none. As in the official
    script, a question without an answer that is answered by white space counts as answered.
    """
    order = sorted(range(len(golds)), key=lambda n: odds[n])
    means = []
    for cut in range(len(order) + 1):
        total = 0.0
        for place, number in enumerate(order):
            keeps = place < cut
            if golds[number]:
                total += worth(said[number], golds[number], metric=metric) if keeps else 0.0
            else:
                total += 0.0 if keeps and said[number] else 1.0
        means.append(100 * total / len(golds))
    return max(means)


QUESTIONS = st.lists(
    st.tuples(
        st.lists(st.sampled_from(ANSWERS), max_size=2),
        st.sampled_from(ANSWERS),
        st.sampled_from(PROBABILITIES),
    ),
    min_size=1,
    max_size=8,
)


@settings(deadline=None)  # the first call pays for what it imports
@given(QUESTIONS)
def test_the_best_thresholds_are_those_of_trying_every_cut(
    questions: list[tuple[list[str], str, float]],
) -> None:
    golds, said, odds = (list(column) for column in zip(*questions, strict=True))
    ids = [f"q{n}" for n in range(len(golds))]
    found = official_figures(
        table(golds),
        dict(zip(ids, said, strict=True)),
        dict(zip(ids, odds, strict=True)),
        threshold=0.5,
    )
    for name, metric in (("exact", "em"), ("f1", "f1")):
        tried = best_by_trying_all(golds, said, odds, metric=metric)
        assert found[f"best_{name}"] == pytest.approx(tried)
        assert found[f"best_{name}_thresh"] in {0.0, *odds}
        kept = [
            float(not gold) if p > 0.5 else worth(text, gold, metric=metric)
            for gold, text, p in questions
        ]
        assert found[name] == pytest.approx(100 * sum(kept) / len(kept))
        for group, has in (("HasAns", True), ("NoAns", False)):
            own = [value for value, gold in zip(kept, golds, strict=True) if bool(gold) == has]
            assert found.get(f"{group}_total", 0) == len(own)
            if own:
                assert found[f"{group}_{name}"] == pytest.approx(100 * sum(own) / len(own))


def test_an_example_by_hand() -> None:
    """Two with an answer, one without; the right answers have the lower probabilities."""
    golds = [["mill"], ["river"], []]
    found = official_figures(
        table(golds),
        {"q0": "mill", "q1": "boat", "q2": "boat"},
        {"q0": 0.1, "q1": 0.2, "q2": 0.9, "of another set": 0.0},
    )
    assert found == pytest.approx(
        {
            "exact": 100 / 3, "f1": 100 / 3, "total": 3,
            "HasAns_exact": 50, "HasAns_f1": 50, "HasAns_total": 2,
            "NoAns_exact": 0, "NoAns_f1": 0, "NoAns_total": 1,
            "best_exact": 200 / 3, "best_exact_thresh": 0.1,
            "best_f1": 200 / 3, "best_f1_thresh": 0.1,
        }
    )  # fmt: skip


def test_a_question_without_a_prediction_counts_nothing() -> None:
    found = official_figures(table([["mill"], []]), {}, {"q0": 0.9, "q1": 0.9}, threshold=0.0)
    assert found["exact"] == found["best_exact"] == found["NoAns_exact"] == 0.0


def test_every_question_needs_one() -> None:
    with pytest.raises(PredictionsError, match=r"1 of 2 questions .* first q1"):
        official_figures(table([["mill"], []]), {"q0": "mill"}, {"q0": 0.5})


def gold_file(folder: Path) -> str:
    questions: list[dict[str, Any]] = [
        {"id": "q0", "question": "what?", "answers": [{"text": "mill", "answer_start": 4}]},
        {"id": "q1", "question": "who?", "answers": [], "is_impossible": True},
        {"id": "q2", "question": "why?", "answers": [{"text": " ", "answer_start": 3}]},
    ]
    data = [{"title": "T", "paragraphs": [{"context": "the mill", "qas": questions}]}]
    path = folder / "dev.json"
    path.write_text(json.dumps({"version": "v2.0", "data": data}))
    return str(path)


def test_the_command_prints_what_the_official_script_prints(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cli, gold = Cli(capsys), gold_file(tmp_path)
    (tmp_path / "said.json").write_text(json.dumps({"q0": "mill", "q1": "mill", "q2": ""}))
    (tmp_path / "odds.json").write_text(json.dumps({"q0": 0.2, "q1": 0.8, "q2": 0.4}))
    predictions = ("--predictions", str(tmp_path / "said.json"))
    odds = ("--na-prob-file", str(tmp_path / "odds.json"))
    said = cli("evaluate", "squad-2.0", gold, *predictions, *odds)
    assert said.code == 0, said.err
    figures = dict(line.rsplit(maxsplit=1) for line in said.out.splitlines())
    assert figures["exact"] == "66.667"
    assert figures["HasAns_total"] == "2"  # that of white space alone too
    assert figures["HasAns_exact"] == "100.000"
    assert figures["NoAns_f1"] == "0.000"
    assert figures["best_exact"] == "100.000"
    assert figures["best_exact_thresh"] == "0.400000"
    assert "3 of 11,873 dev rows" in said.out
    said = cli("evaluate", "squad-2.0", gold, *predictions, *odds, "--na-prob-thresh", "0.5")
    figures = dict(line.rsplit(maxsplit=1) for line in said.out.splitlines())
    assert figures["exact"] == "100.000"
    assert cli("evaluate", "squad-1.1", gold, *predictions, *odds).code == 1
    assert cli("evaluate", "squad-2.0", gold, "--model", "nope", *odds).code == 2
