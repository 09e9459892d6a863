"""Warnings of trainings: each names its problem with the figures, and a sound training has none."""

from __future__ import annotations

import logging
import math
import random
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from support.corpus_builder import run_corpus
from support.finetuning_builder import (
    CASED_VOCAB,
    SHAPE,
    sentiment,
    span_rows,
    tag_rows,
    text_rows,
    trial_config,
    trial_job,
    write_checkpoint,
    write_examples,
)
from support.paths import ROOT
from support.store_builder import as_given
from support.training_builder import SmallCorpus, as_phase, published

from flows.recipes.loader import load_recipe
from model.finetuning.loop import train_trial
from model.launch.stopping import StopRequest
from model.monitoring.summaries import summarize_phase
from model.pretraining.loop import train
from model.pretraining.results import read_finished
from model.training.health import (
    PAGE,
    SECTIONS,
    TrainingWarning,
    check_answers,
    check_chance,
    check_evaluations,
    check_phases,
    check_unigram,
    read_warnings,
    summarize_restarts,
)
from pipelines.instances import HELD_OUT_PREFIX
from schemas.corpus_configs import DocumentsConfig, InstancesConfig, TextSource, VocabularyConfig
from schemas.errors import TrainingError
from schemas.manifest import Manifest, StageInput
from schemas.recipe import Recipe

pytestmark = pytest.mark.usefixtures("same_threads")

TOPICS = 4
"""Each document keeps to the words of one topic, so that seconds of training are enough to learn
more than word frequencies: log(8) in place of log(32) nats, about."""


class TopicCorpus(SmallCorpus):
    """Instances of 32 tokens, a fifth of the documents held out."""

    def __init__(self, folder: Path) -> None:
        letters = random.Random("topics")
        words = ["".join(letters.choices("abcdefgh", k=5)) for _ in range(8 * TOPICS)]
        lines = []
        for number in range(800):
            topic = 8 * (number % TOPICS)
            lines.append(" ".join(letters.choices(words[topic : topic + 8], k=24)) + ".\n")
        (folder / "topics.txt").write_text("".join(lines))
        source = TextSource(
            name="topics", paths=(str(folder / "topics.txt"),), document_delimiter="line"
        )
        instances = InstancesConfig(max_seq_length=32, held_out_fraction=0.2)
        recipe = Recipe(
            name="topics",
            build_documents=DocumentsConfig(sources=(source,)),
            build_vocabulary=VocabularyConfig(vocab_size=200),
            build_instances={"length-32": instances},
        )
        self.set_outputs(run_corpus(recipe, folder), folder, lengths=(32,))


class StopAfter(StopRequest):
    """Asks for a stop after a number of looks at it."""

    def __init__(self, looks: int) -> None:
        super().__init__()
        self._looks = looks

    @property
    def reason(self) -> str:
        self._looks -= 1
        return "a test" if self._looks < 0 else ""


def kinds(statistics: dict[str, Any]) -> list[str]:
    return [warning.kind for warning in read_warnings(statistics)]


# Figures


@pytest.mark.parametrize(("loss", "is_reported"), [(6.9, True), (6.85, True), (6.7, False)])
def test_unigram_warning_leaves_a_margin(loss: float, is_reported: bool) -> None:
    assert (check_unigram(loss, 6.88, steps=500, objective="mlm") is not None) == is_reported


def test_warnings_have_their_figures() -> None:
    unigram = check_unigram(6.91, 6.88, steps=500, objective="mlm+nsp")
    phases = check_phases(math.log(124), math.log(20), phase_before="phase-1")
    evaluations = check_evaluations(math.log(30), math.log(20), lowest_step=400)
    for warning, figures in (
        (unigram, ("6.91", "6.88", "500 steps")),
        (phases, ("20.0 in phase-1", "124.0")),
        (evaluations, ("30.0", "20.0 after step 400")),
    ):
        assert warning is not None
        assert PAGE in warning.text
        for figure in figures:
            assert figure in warning.text
    assert check_phases(math.log(23), math.log(20), phase_before="phase-1") is None
    assert check_evaluations(math.log(21), math.log(20), lowest_step=400) is None


def test_one_answer_is_reported_only_where_other_answers_are_right() -> None:
    assert check_answers({"1": 40}, {"0": 20, "1": 20}) is not None
    assert check_answers({"1": 40}, {"0": 2, "1": 38}) is None
    assert check_answers({"1": 39, "0": 1}, {"0": 20, "1": 20}) is None


@pytest.mark.parametrize(
    ("metric", "score", "constant", "examples", "is_reported"),
    [
        ("accuracy", 0.52, 0.50, 400, True),
        ("accuracy", 0.58, 0.50, 400, False),
        ("accuracy", 0.70, 0.68, 4_000, False),
        ("matthews", 0.03, 0.0, 1_000, True),
        ("matthews", 0.10, 0.0, 1_000, False),
        ("accuracy", 0.5, 0.5, 10, False),
    ],
)
def test_chance_is_judged_with_the_noise_of_dev(
    metric: str, score: float, constant: float, examples: int, is_reported: bool
) -> None:
    warning = check_chance(metric, score, constant_score=constant, examples=examples)
    assert (warning is not None) == is_reported


def test_restarts_are_counted_by_kind() -> None:
    chance, one = TrainingWarning("chance", "At chance."), TrainingWarning("one-answer", "One.")
    assert summarize_restarts([[chance], [], [chance]]) == [
        TrainingWarning("chance", "2 of 3 restarts: At chance.")
    ]
    assert summarize_restarts([[one]]) == [one]
    assert summarize_restarts([[], []]) == []


def test_every_warning_leads_to_a_section_of_the_page() -> None:
    text = (ROOT / PAGE).read_text(encoding="utf-8")
    headings = re.findall(r"^## (.+)$", text, re.MULTILINE)
    slugs = {re.sub(r"[^a-z0-9 -]", "", heading.lower()).replace(" ", "-") for heading in headings}
    assert {*SECTIONS.values(), "the-loss-becomes-nan"} <= slugs


RECIPE = """
name: mine
build_documents: {sources: [{kind: text, name: own, paths: [texts.txt]}]}
build_vocabulary: {vocab_size: 4000}
build_instances: {length-128: {max_seq_length: 128}}
pretrain:
  phase-1:
    {instances: length-128, model: {preset: tiny}, budget: {max_steps: 9},
        evaluation: {eval_steps: 3}}
  phase-2: {instances: length-128, init_from_phase: phase-1, budget: {max_steps: 100}}
build_examples: {sst-2: {task: sst-2, data_dir: glue}}
finetune: {sst-2: {examples: sst-2, init_from_phase: phase-2}}
"""


def test_changes_that_the_page_shows_are_valid(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(RECIPE)
    shown = re.findall(r"--set ([\w.-]+=[^`\s]+)", (ROOT / PAGE).read_text(encoding="utf-8"))
    assert len(shown) > 10
    for change in shown:
        load_recipe(str(file), overrides=[change])


# Pretraining


def pretrained(corpus: SmallCorpus, work: Path, **changes: Any) -> dict[str, Any]:
    """Train a phase; the statistics of its artifact."""
    job = corpus.job(work, **{"checkpoints": {"save_steps": 1000}, **changes})
    train(job, stop=StopRequest())
    return read_finished(job).statistics


def test_sound_pretraining_has_no_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    statistics = pretrained(
        TopicCorpus(tmp_path),
        tmp_path / "work",
        model={**SHAPE, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0},
        objective="mlm",
        budget={"max_steps": 250},
        batch={"global_batch_size": 32, "per_device_max_tokens": 4096},
        optimizer={"name": "adamw", "learning_rate": 3e-3},
        evaluation={"max_eval_samples": 40, "eval_steps": 100},
    )
    held_out = statistics["held_out"]
    assert held_out["unigram_loss"] == pytest.approx(math.log(8 * TOPICS), abs=0.4)
    assert held_out["mlm_loss"] < held_out["unigram_loss"] - 0.3
    assert statistics["warnings"] == []
    assert not warnings_of(caplog)


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [record for record in caplog.records if record.levelno >= logging.WARNING]


def test_unigram_warning_is_reported_once_when_training_is_resumed(
    small_corpus: SmallCorpus, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    changes: dict[str, Any] = {
        "optimizer": {"learning_rate": 1e-9},
        "evaluation": {"max_eval_samples": 40, "eval_steps": 2},
    }
    whole = pretrained(small_corpus, tmp_path / "whole", **changes)
    assert kinds(whole) == ["unigram-loss", "small-held-out-set"]
    # Evaluations up to step 8 of 12 come too early; the artifact has the warning of the end.
    [record] = warnings_of(caplog)
    assert "after 10 steps" in record.getMessage()
    caplog.clear()
    with pytest.raises(TrainingError):
        train(small_corpus.job(tmp_path / "part", **changes), stop=StopAfter(11))
    assert pretrained(small_corpus, tmp_path / "part", **changes) == whole
    assert len(warnings_of(caplog)) == 1


@pytest.mark.parametrize(
    ("instances", "documents", "is_small"), [(3, 1, True), (99, 40, True), (500, 19, True),
    (100, 20, False)],
)  # fmt: skip
def test_metrics_of_few_held_out_documents_carry_their_number(
    small_corpus: SmallCorpus, tmp_path: Path, instances: int, documents: int, is_small: bool
) -> None:
    job = small_corpus.job(tmp_path)
    counters = {
        **job.instances.counters,
        "held-out-instances": instances,
        "held-out-documents-kept": documents,
    }
    job = job.model_copy(
        update={"instances": job.instances.model_copy(update={"counters": counters})}
    )
    train(job, stop=StopRequest())
    statistics = read_finished(job).statistics
    assert ("small-held-out-set" in kinds(statistics)) == is_small
    phase = SimpleNamespace(statistics=statistics, counters={"steps": 9})
    for text in (statistics.get("held_out_caution", ""), summarize_phase(cast("Manifest", phase))):
        assert (f"{instances} instances of {documents} document" in text) == is_small


def test_training_loss_is_compared_without_held_out(
    small_corpus: SmallCorpus, tmp_path: Path
) -> None:
    held_in = small_corpus.instances[32]
    files = tuple(entry for entry in held_in.files if not entry.path.startswith(HELD_OUT_PREFIX))
    job = small_corpus.job(tmp_path, optimizer={"learning_rate": 1e-9}, objective="left-to-right")
    job = job.model_copy(update={"instances": held_in.model_copy(update={"files": files})})
    train(job, stop=StopRequest())
    statistics = read_finished(job).statistics
    assert statistics["held_out"] == {}
    assert kinds(statistics) == ["unigram-loss"]


def test_second_phase_that_is_worse_is_reported(small_corpus: SmallCorpus, tmp_path: Path) -> None:
    first = small_corpus.job(
        tmp_path / "first",
        budget={"max_steps": 60},
        optimizer={"learning_rate": 5e-3},
    )
    before = as_phase(first, published(first))
    second = small_corpus.job(
        tmp_path / "second",
        length=64,
        init_from_phase="phase-1",
        checkpoint=before,
        optimizer_state="reset",
        optimizer={"learning_rate": 0.5},
        evaluation={"max_eval_samples": 40, "eval_steps": 1},
        divergence_threshold=0.0,
    )
    train(second, stop=StopRequest())
    found = read_warnings(read_finished(second).statistics)
    by_kind = {warning.kind: warning.text for warning in found}
    assert {"perplexity-between-phases", "perplexity-within-phase"} <= by_kind.keys()
    assert " in phase-1 to " in by_kind["perplexity-between-phases"]
    assert "after step 1." in by_kind["perplexity-within-phase"]


# Fine-tuning


def tuned(
    folder: Path, examples: StageInput, *, vocab: tuple[str, ...] | None = None, **changes: Any
) -> dict[str, Any]:
    """Fine-tune a random checkpoint; the statistics of the trial."""
    more: dict[str, Any] = {} if vocab is None else {"vocab": vocab, "lowercase": False}
    checkpoint = write_checkpoint(folder / "checkpoint", **more)
    job = trial_job(folder / "work", examples, config=trial_config(checkpoint, **changes))
    found: dict[str, Any] = train_trial(job, stop=StopRequest())["statistics"]
    return found


def test_sound_finetuning_has_no_warning(tmp_path: Path) -> None:
    examples = sentiment(tmp_path / "examples", train=80, dev=40)
    statistics = tuned(tmp_path, examples, num_epochs=20, dropout=0.0)
    assert statistics["metrics"]["dev"]["accuracy"] > 0.9
    assert statistics["warnings"] == []


def test_shuffled_labels_leave_the_model_at_chance(tmp_path: Path) -> None:
    train_rows = text_rows(80, split="train")
    for number, row in enumerate(train_rows):
        row["label"] = str(number % 2)
    splits = {"train": train_rows, "dev": text_rows(60, split="dev")}
    examples = write_examples(tmp_path / "examples", "sst-2", splits=splits, labels=("0", "1"))
    statistics = tuned(tmp_path, examples, num_epochs=20, dropout=0.0)
    [warning] = read_warnings(statistics)
    assert warning.kind == "chance"
    assert "50.0, the score of one constant answer (60 examples)" in warning.text


def one_class(folder: Path) -> StageInput:
    train_rows = [{**row, "label": "1"} for row in text_rows(40, split="train")]
    splits = {"train": train_rows, "dev": text_rows(16, split="dev")}
    return write_examples(folder, "sst-2", splits=splits, labels=("0", "1"))


def no_entities(folder: Path) -> StageInput:
    rows = [{**row, "tags": ["O"] * len(row["tags"])} for row in tag_rows(16, split="train")]
    splits = {"train": rows, "dev": tag_rows(8, split="dev")}
    return write_examples(folder, "conll-2003", splits=splits, labels=("O", "B-PER", "I-PER"))


def no_answers(folder: Path) -> StageInput:
    none = {"answers": [], "answer_starts": [], "is_impossible": True}
    rows = [{**row, **none} for row in span_rows(24, split="train", unanswerable=True)]
    dev = [*span_rows(6, split="dev"), *({**row, **none} for row in span_rows(24, split="no"))]
    return write_examples(folder, "squad-2.0", splits={"train": rows, "dev": dev}, labels=())


@pytest.mark.parametrize(
    ("write", "changes", "answer"),
    [
        (one_class, {}, "1."),
        (no_entities, {"vocab": CASED_VOCAB}, "no entity"),
        (no_answers, {"num_epochs": 4}, "no answer"),
    ],
)
def test_model_that_learned_one_answer_is_reported(
    write: Callable[[Path], StageInput], changes: dict[str, Any], answer: str, tmp_path: Path
) -> None:
    [warning] = read_warnings(tuned(tmp_path, write(tmp_path / "examples"), **changes))
    assert warning.kind == "one-answer"
    assert answer in warning.text


def test_model_from_scratch_is_not_judged(tmp_path: Path) -> None:
    files = as_given("vocabulary", write_checkpoint(tmp_path / "checkpoint"))
    vocabulary = files.model_copy(update={"statistics": {"lowercase": True}})
    config = trial_config(None, model=SHAPE)
    examples = one_class(tmp_path / "examples")
    job = trial_job(tmp_path / "work", examples, config=config, vocabulary=vocabulary)
    assert train_trial(job, stop=StopRequest())["statistics"]["warnings"] == []
