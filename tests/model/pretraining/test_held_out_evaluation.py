"""Evaluation of pretraining on held-out documents: which instances it measures."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import torch
from support.corpus_builder import as_input, run_corpus
from support.training_builder import tiny_config

from model.pretraining.evaluation import HeldOutEvaluator
from model.pretraining.job import TrainingJob
from model.pretraining.setup import open_setup
from model.training.distributed import ProcessGroup
from pipelines.instances import HELD_OUT_PREFIX
from schemas.corpus_configs import DocumentsConfig, InstancesConfig, TextSource, VocabularyConfig
from schemas.recipe import Recipe

WORDS = {
    "english": ("the", "mill", "was", "built", "of", "stone", "beside", "a", "river"),
    "greek": ("ο", "μύλος", "ήταν", "από", "πέτρα", "δίπλα", "στο", "ποτάμι"),  # noqa: RUF001
}
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> TrainingJob:
    """A training on an English and a Greek source, with half of the documents held out."""
    folder = tmp_path_factory.mktemp("bilingual")
    chooser = random.Random("bilingual")
    sources = []
    for language, words in WORDS.items():
        path = folder / f"{language}.txt"
        lines = (" ".join(chooser.choices(words, k=12)) for _ in range(160))
        path.write_text("".join(f"{line}.\n" for line in lines), encoding="utf-8")
        sources.append(TextSource(name=language, paths=(str(path),), document_delimiter="line"))
    recipe = Recipe(
        name="bilingual",
        build_documents=DocumentsConfig(sources=tuple(sources)),
        build_vocabulary=VocabularyConfig(vocab_size=200),
        build_instances={"length-32": InstancesConfig(max_seq_length=32, held_out_fraction=0.5)},
    )
    outputs = run_corpus(recipe, folder / "stages")
    vocabulary, instances = (
        as_input(name, outputs[stage], str(folder / "stages" / stage))
        for name, stage in (
            ("vocabulary", "build-vocabulary"),
            ("instances", "build-instances.length-32"),
        )
    )
    return TrainingJob(
        name="pretrain test",
        config=tiny_config(),
        instances=instances,
        vocabulary=vocabulary,
        work=str(folder / "work"),
    )


def held_out_loss(job: TrainingJob, *, instances: int, group: ProcessGroup) -> float:
    """Masked LM loss of a model that expects English words only."""
    evaluation = job.config.evaluation.model_copy(update={"max_eval_samples": instances})
    config = job.config.model_copy(update={"evaluation": evaluation})
    job = job.model_copy(update={"config": config})
    setup = open_setup(job, group=group)
    pieces = [entry for entry in job.vocabulary.files if entry.path == "vocab.txt"]
    vocab = Path(job.vocabulary.data, pieces[0].stored_name).read_text(encoding="utf-8").split("\n")
    is_english = [piece.removeprefix("##").isascii() for piece in vocab[:-1]]
    with torch.no_grad():
        setup.model.mlm_head.output_bias += torch.tensor(is_english) * 10.0
    held_out = HeldOutEvaluator.open(setup)
    assert held_out is not None
    return held_out.evaluate(setup.model, is_bf16=False)["mlm_loss"]


@pytest.mark.parametrize("instances", [20, 31])
def test_held_out_sample_covers_all_sources(job: TrainingJob, instances: int) -> None:
    alone = ProcessGroup(0, 1, CPU)
    whole = held_out_loss(job, instances=10_000, group=alone)
    assert held_out_loss(job, instances=instances, group=alone) == pytest.approx(whole, rel=0.2)


def test_held_out_documents_without_instances_are_not_evaluated(job: TrainingJob) -> None:
    """A document of one word makes no pair."""
    files = tuple(
        entry.model_copy(update={"rows": 0}) if entry.path.startswith(HELD_OUT_PREFIX) else entry
        for entry in job.instances.files
    )
    assert files != job.instances.files
    empty = job.instances.model_copy(update={"files": files})
    setup = open_setup(job.model_copy(update={"instances": empty}), group=ProcessGroup(0, 1, CPU))
    assert HeldOutEvaluator.open(setup) is None
