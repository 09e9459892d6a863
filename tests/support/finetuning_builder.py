"""Tiny tasks, checkpoints and trials, written here, for tests that fine-tune."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from model.bert import BertForPretraining
from model.finetuning.jobs import TrialJob
from model.finetuning.saved_models import save_task_model
from model.finetuning.task_model import TaskModel
from model.hf_weights import save_model
from model.tasks import TASKS
from model.tasks.features import IGNORED, Features
from pipelines.io.shards import ShardWriter
from pipelines.seeds import rng_for
from pipelines.wordpiece.tokenizer import tokenizer_config_json
from pipelines.wordpiece.vocab_files import FIXED_TOKENS, TOKENIZER_CONFIG_FILE, VOCAB_FILE
from schemas.arrow import EXAMPLES
from schemas.finetune_configs import FeaturesConfig, TrialConfig
from schemas.manifest import FileEntry, StageInput
from schemas.model_configs import ModelConfig

SHAPE = {
    "num_hidden_layers": 2,
    "hidden_size": 32,
    "num_attention_heads": 2,
    "max_position_embeddings": 64,
}
GOOD = ("fine", "bright", "warm", "lovely")
BAD = ("dull", "grim", "cold", "weak")
NOUNS = ("film", "song", "tale", "play", "scene", "house", "river", "town")
NAMES = ("Anna", "Boris", "Clara", "Dmitri")
LETTERS = "abcdefghijklmnopqrstuvwxyz"
VOCAB = (
    *FIXED_TOKENS,
    *LETTERS,
    *(f"##{letter}" for letter in LETTERS),
    *"?.,0123456789",
    *GOOD,
    *BAD,
    *NOUNS,
    *("the", "is", "in", "lives", "who", "what", "was", "seen", "and"),
)
CASED_VOCAB = (*VOCAB, *LETTERS.upper(), *NAMES)


def draws(*what: object) -> random.Random:
    """A generator of this test's own."""
    return random.Random("/".join(map(str, what)))


def text_rows(count: int, *, split: str, score: bool = False) -> list[dict[str, Any]]:
    """Sentences that are good or bad by one of their words; of different lengths."""
    rows = []
    for number in range(count):
        rng = draws(split, number)
        is_good = number % 2 == 0
        words = [rng.choice(NOUNS) for _ in range(rng.randrange(1, 9))]
        words.insert(rng.randrange(len(words) + 1), rng.choice(GOOD if is_good else BAD))
        rows.append(
            {
                "id": f"{split}-{number}",
                "text_a": " ".join(words),
                "text_b": None,
                "label": None if score else str(int(is_good)),
                "score": float(is_good) * 4 + rng.random() if score else None,
            }
        )
    # Sorted by label, as MNLI's file is.
    return sorted(rows, key=lambda row: (row["label"] or "", row["score"] or 0.0))


def choice_rows(count: int, *, split: str) -> list[dict[str, Any]]:
    rows = []
    for number in range(count):
        rng = draws(split, number)
        label = rng.randrange(4)
        endings = [f"{rng.choice(BAD)} {rng.choice(NOUNS)}" for _ in range(4)]
        endings[label] = f"{rng.choice(GOOD)} {rng.choice(NOUNS)}"
        context = f"the {rng.choice(NOUNS)} is a"
        rows.append(
            {
                "id": f"{split}-{number}",
                "context": context,
                "continuations": endings,
                "label": label,
            }
        )
    return rows


def span_rows(count: int, *, split: str, unanswerable: bool = False) -> list[dict[str, Any]]:
    rows = []
    for number in range(count):
        rng = draws(split, number)
        answer = rng.choice(GOOD)
        context = f"the {rng.choice(NOUNS)} was {answer} and the {rng.choice(NOUNS)} was seen ."
        is_impossible = unanswerable and number % 3 == 0
        rows.append(
            {
                "id": f"{split}-{number}",
                "title": "A town",
                "question": "who was cold ?" if is_impossible else "what was seen ?",
                "context": context,
                "answers": [] if is_impossible else [answer],
                "answer_starts": [] if is_impossible else [context.index(answer)],
                "is_impossible": is_impossible,
            }
        )
    return rows


def tag_rows(count: int, *, split: str) -> list[dict[str, Any]]:
    rows = []
    for number in range(count):
        rng = draws(split, number)
        words, tags, lengths = [], [], []
        for _ in range(rng.randrange(1, 4)):
            said = [rng.choice(NAMES), "lives", "in", "the", rng.choice(NOUNS)]
            words += said
            tags += ["B-PER", "O", "O", "O", "O"]
            lengths.append(len(said))
        rows.append(
            {"id": f"{split}-{number}", "sentence_lengths": lengths, "words": words, "tags": tags}
        )
    return rows


def write_examples(
    folder: Path, task: str, *, splits: dict[str, list[dict[str, Any]]], labels: tuple[str, ...]
) -> StageInput:
    """An artifact of build-examples."""
    kind = TASKS[task].type
    schema = EXAMPLES[kind]
    files: list[FileEntry] = []
    for split, rows in splits.items():
        with ShardWriter(f"{split}.arrow", schema=schema, output=str(folder)) as writer:
            writer.write(pa.RecordBatch.from_pylist(rows, schema=schema))
        files.append(writer.entry())
    statistics = {
        "task": task,
        "kind": kind,
        "labels": list(labels),
        "splits": {split: len(rows) for split, rows in splits.items()},
    }
    return StageInput(
        name="examples",
        artifact_id="0" * 16,
        data=str(folder),
        files=tuple(files),
        statistics=statistics,
    )


def sentiment(folder: Path, *, train: int = 40, dev: int = 16, **more: Any) -> StageInput:
    """Write an SST-2 set of generated sentences."""
    splits = {"train": text_rows(train, split="train"), "dev": text_rows(dev, split="dev"), **more}
    return write_examples(folder, "sst-2", splits=splits, labels=("0", "1"))


def all_kinds(folder: Path) -> dict[str, StageInput]:
    """A tiny artifact for a task of each kind."""

    def written(task: str, labels: tuple[str, ...], **splits: list[dict[str, Any]]) -> StageInput:
        return write_examples(folder / task, task, splits=splits, labels=labels)

    return {
        "sst-2": sentiment(folder / "sst-2"),
        "sts-b": written(
            "sts-b",
            (),
            train=text_rows(24, split="train", score=True),
            dev=text_rows(8, split="dev", score=True),
        ),
        "swag": written(
            "swag", (), train=choice_rows(24, split="train"), dev=choice_rows(8, split="dev")
        ),
        "squad-1.1": written(
            "squad-1.1", (), train=span_rows(24, split="train"), dev=span_rows(8, split="dev")
        ),
        "squad-2.0": written(
            "squad-2.0",
            (),
            train=span_rows(24, split="train", unanswerable=True),
            dev=span_rows(9, split="dev", unanswerable=True),
        ),
        "conll-2003": written(
            "conll-2003",
            ("O", "B-PER", "I-PER"),
            train=tag_rows(16, split="train"),
            dev=tag_rows(6, split="dev"),
        ),
    }


def write_checkpoint(
    folder: Path, *, lowercase: bool | None = True, vocab: tuple[str, ...] = VOCAB, **shape: float
) -> str:
    """A pretrained model in Hugging Face's layout, with random weights; its folder."""
    folder.mkdir(parents=True)
    config = ModelConfig.model_validate({**SHAPE, **shape})
    model = BertForPretraining(config, vocab_size=len(vocab), seed=3)
    for name, data in save_model(model).items():
        (folder / name).write_bytes(data)
    (folder / VOCAB_FILE).write_text("".join(f"{piece}\n" for piece in vocab))
    if lowercase is not None:
        (folder / TOKENIZER_CONFIG_FILE).write_text(tokenizer_config_json(lowercase=lowercase))
    return str(folder)


def trial_config(checkpoint: str | None, **changes: Any) -> TrialConfig:
    provided: dict[str, Any] = {
        "examples": "task",
        "init_checkpoint": checkpoint,
        "max_seq_length": 32,
        "doc_stride": 8,
        "batch_size": 8,
        "learning_rate": 1e-3,
        "num_epochs": 2,
        "lstm_hidden_size": 16,
        "device": "cpu",  # equal to the bit, also on a machine with a GPU
        "num_threads": 1,
        **changes,
    }
    return TrialConfig.model_validate(provided)


def trial_job(work: Path, examples: StageInput, *, config: TrialConfig, **changes: Any) -> TrialJob:
    return TrialJob(
        name="finetune test", config=config, examples=examples, work=str(work), **changes
    )


KINDS = [
    ("classification", 1),
    ("regression", 1),
    ("choice", 4),
    ("span", 1),
    ("tagging", 1),
]


def features_of(kind: str = "classification", *, units: int = 23, per_unit: int = 1) -> Features:
    """Random sequences of 2 to 11 tokens."""
    rng = rng_for(0, "test-task-batching", kind, units)
    count = units * per_unit
    lengths = rng.integers(2, 12, count)
    offsets = np.append(0, np.cumsum(lengths))
    b_starts = np.where(rng.random(count) < 0.5, lengths, rng.integers(1, lengths + 1))
    labels: np.ndarray | None
    positions = position_offsets = None
    if kind == "tagging":
        tagged = [np.sort(rng.choice(n, rng.integers(0, n), replace=False)) for n in lengths]
        position_offsets = np.append(0, np.cumsum([len(each) for each in tagged])).astype(np.int64)
        positions = np.concatenate(tagged).astype(np.int64)
        labels = rng.integers(0, 3, len(positions))
        labels[rng.random(len(labels)) < 0.3] = IGNORED
    elif kind == "span":
        labels = np.stack([rng.integers(0, lengths), rng.integers(0, lengths)], axis=1)
    elif kind == "regression":
        labels = rng.random(units)
    else:
        labels = rng.integers(0, 3, units)
    return Features(
        kind=kind,  # type: ignore[arg-type]
        offsets=offsets,
        input_ids=rng.integers(5, 1000, int(offsets[-1])),
        b_starts=b_starts.astype(np.int64),
        rows=np.arange(units),
        per_unit=per_unit,
        labels=labels,
        position_offsets=position_offsets,
        positions=positions,
    )


def write_tuned(
    folder: Path,
    *,
    task: str,
    labels: tuple[str, ...] = ("0", "1"),
    outputs: int = 0,
    seed: int = 3,
) -> str:
    """A model as fine-tuning leaves it, with random weights; `outputs` of one without labels."""
    folder.mkdir(parents=True)
    result = TASKS[task]
    model = TaskModel(
        ModelConfig.model_validate(SHAPE),
        vocab_size=len(VOCAB),
        kind=result.type,
        outputs=len(labels) or outputs,
        dropout=0.0,
        seed=seed,
    )
    about = {
        "task": task,
        "method": "fine-tune",
        "features": FeaturesConfig(max_seq_length=32).model_dump(mode="json"),
        "lowercase": True,
        "threshold": 0.0,
    }
    for name, data in save_task_model(model, labels=labels, about=about).items():
        (folder / name).write_bytes(data)
    (folder / VOCAB_FILE).write_text("".join(f"{piece}\n" for piece in VOCAB))
    (folder / "tokenizer_config.json").write_text(tokenizer_config_json(lowercase=True))
    return str(folder)
