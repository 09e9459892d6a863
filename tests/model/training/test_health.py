"""Warnings of trainings: each names its problem with the figures, and a sound training has none."""

from __future__ import annotations

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
from model.finetuning.trial import train_trial
from model.pretraining.loop import train
from model.pretraining.publish import publish
from model.summaries import summarize_phase
from model.training.health import (
    PAGE,
    SECTIONS,
    TrainingWarning,
    check_answers,
    check_end,
    check_unigram,
    read_warnings,
    summarize_restarts,
)
from model.training.stopping import StopRequest
from schemas.corpus_configs import DocumentsConfig, InstancesConfig, TextSource, VocabularyConfig
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


def kinds(statistics: dict[str, Any]) -> list[str]:
    return [warning.kind for warning in read_warnings(statistics)]


# Figures


@pytest.mark.parametrize(("loss", "is_reported"), [(6.9, True), (6.85, True), (6.7, False)])
def test_unigram_warning_leaves_a_margin(loss: float, is_reported: bool) -> None:
    warning = check_unigram(loss, 6.88)
    assert (warning is not None) == is_reported
    assert warning is None or f"{loss:.2f}" in warning.text


@pytest.mark.parametrize(
    ("end", "figures"),
    [(124, ("124.0", "20.0 at the end of phase-1")), (25, ("25.0", "20.0")), (23, ())],
)
def test_phase_is_compared_with_its_lowest_earlier_perplexity(
    end: float, figures: tuple[str, ...]
) -> None:
    earlier = {"after step 400": math.log(24), "at the end of phase-1": math.log(20)}
    warning = check_end(math.log(end), earlier)
    assert (warning is not None) == bool(figures)
    assert all(figure in warning.text for figure in figures if warning is not None)


@pytest.mark.parametrize(
    ("predicted", "expected", "is_reported"),
    [
        ({"1": 40}, {"0": 20, "1": 20}, True),
        ({"1": 40}, {"0": 2, "1": 38}, False),
        ({"1": 39, "0": 1}, {"0": 20, "1": 20}, False),
    ],
)
def test_one_answer_is_reported_only_where_other_answers_are_right(
    predicted: dict[str, int], expected: dict[str, int], is_reported: bool
) -> None:
    assert (check_answers(predicted, expected) is not None) == is_reported


def test_restarts_are_counted_by_kind() -> None:
    one = TrainingWarning("one-answer", "One.")
    assert summarize_restarts([[one], [], [one]]) == [
        TrainingWarning("one-answer", "2 of 3 restarts: One.")
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
    return publish(job, output=str(work / "output")).statistics


def test_sound_pretraining_has_no_warning(tmp_path: Path) -> None:
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


def test_phase_that_learns_nothing_is_reported(small_corpus: SmallCorpus, tmp_path: Path) -> None:
    statistics = pretrained(small_corpus, tmp_path, optimizer={"learning_rate": 1e-9})
    assert kinds(statistics) == ["unigram-loss"]


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
    statistics = publish(job, output=str(tmp_path / "output")).statistics
    phase = SimpleNamespace(statistics=statistics, counters={"steps": 9})
    for text in (statistics.get("held_out_caution", ""), summarize_phase(cast("Manifest", phase))):
        assert (f"{instances} instances of {documents} document" in text) == is_small


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
        optimizer={"learning_rate": 0.05},
        evaluation={"max_eval_samples": 40},
        divergence_threshold=0.0,
    )
    train(second, stop=StopRequest())
    by_kind = dict(read_warnings(publish(second, output=str(tmp_path / "output")).statistics))
    assert " at the end of phase-1" in by_kind["phase-ends-worse"]


# Fine-tuning


def tuned(
    folder: Path, examples: StageInput, *, vocab: tuple[str, ...] | None = None, **changes: Any
) -> dict[str, Any]:
    """Fine-tune a random checkpoint; the statistics of the trial."""
    more: dict[str, Any] = {} if vocab is None else {"vocab": vocab, "lowercase": False}
    checkpoint = write_checkpoint(folder / "checkpoint", **more)
    job = trial_job(folder / "work", examples, config=trial_config(checkpoint, **changes))
    actual: dict[str, Any] = train_trial(job, stop=StopRequest())["statistics"]
    return actual


def test_sound_finetuning_has_no_warning(tmp_path: Path) -> None:
    examples = sentiment(tmp_path / "examples", train=80, dev=40)
    statistics = tuned(tmp_path, examples, num_epochs=20, dropout=0.0)
    assert statistics["metrics"]["dev"]["accuracy"] > 0.9
    assert statistics["warnings"] == []


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
