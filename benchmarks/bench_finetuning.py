"""Fine-tuning speed next to transformers' Trainer: the whole training loop, on SST-2.

    python -m benchmarks.bench_finetuning [--data DIR] [--threads 2] [--repeat 5] [--steps 60]
                                          [--preset mini]

Both sides start from the same checkpoint in Hugging Face's layout (random weights from a seed) and
train on the same examples with the same settings: shuffled batches of 32, at most 128 tokens, fp32,
dropout 0.1, AdamW with decay 0.01, gradients clipped to a norm of 1, warm-up and linear decay. The
examples are a keyed sample of SST-2's training data (`--data`, BERTLOOM_DATA), or generated
sentences of the same lengths.

* ours: `model.finetuning.trial`, packed sequences;
* peer: Trainer with `DataCollatorWithPadding` and its default fused AdamW;
* peer, grouped: the same with `train_sampling_strategy="group_by_length"`.

Times cover the training loop, batching included, from the first step to the last; the Trainer's
set-up is excluded. Building features from text is timed separately. The sides take turns in each
repeat; ratios are taken within a repeat. Prints median, lowest and highest. All sides run in this
process with glibc's default memory settings; a real run tunes them in the processes that it starts.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import torch

from benchmarks.timing import add_data_option, parser_for, ratio, take_turns
from model.bert import BertForPretraining
from model.data.sampler import permute
from model.finetuning.jobs import TrialJob
from model.finetuning.setup import open_trial
from model.finetuning.trial import FineTuningTrainer
from model.hf_weights import save_model
from model.tasks import find_task
from model.tasks.examples import examples_of_file
from model.tasks.task_types import TASK_TYPES
from model.training.checkpoints import Checkpoints
from model.training.stopping import StopRequest
from pipelines.io.shards import ShardWriter
from pipelines.seeds import key_for, rng_for
from pipelines.wordpiece.tokenizer import WordPieceTokenizer, tokenizer_config_json, tokenizer_json
from pipelines.wordpiece.vocab_files import (
    FIXED_TOKENS,
    TOKENIZER_CONFIG_FILE,
    TOKENIZER_FILE,
    VOCAB_FILE,
    read_vocab,
    vocab_text,
)
from schemas.arrow import TEXT_EXAMPLES
from schemas.finetune_configs import TrialConfig
from schemas.manifest import StageInput
from schemas.model_configs import PRESETS, ModelConfig, OptimizerConfig

BATCH, LENGTH, VOCAB = 32, 128, 30_522
TASK = "sst-2"

# Word pieces of SST-2's 67,349 sentences with the vocabulary of bert-base-uncased, [CLS] and [SEP]
# counted: the 0, 5, ... 100 % quantiles.
_QUANTILES = (3, 4, 4, 5, 6, 6, 7, 8, 8, 9, 10, 11, 13, 14, 16, 18, 20, 23, 27, 33, 66)


class Pace(NamedTuple):
    """Seconds of one run of one side."""

    features: float
    steps: float


Side = Callable[[], Pace]


def real_examples(data: Path, *, count: int) -> pa.Table:
    """Return a random sample of SST-2's sentences."""
    (file,) = (data / "glue" / "SST-2").glob("train.tsv*")
    table, _ = examples_of_file(find_task(TASK), str(file), split="train")
    chosen = permute(np.arange(len(table)), len(table), key=key_for(0, "bench-finetuning"))
    return table.take(pa.array(chosen[:count]))


def random_examples(*, count: int) -> tuple[pa.Table, list[str]]:
    """Return sentences of random words, as long as SST-2's, and a vocabulary of the words."""
    rng = rng_for(0, "bench-finetuning", "sentences")
    letters = np.array(list("abcdefghijklmnopqrstuvwxyz"))
    words = {"".join(rng.choice(letters, 6)) for _ in range(VOCAB)}
    vocab = [*FIXED_TOKENS, *letters.tolist(), *(f"##{letter}" for letter in letters)]
    vocab += sorted(words)[: VOCAB - len(vocab)]
    places = rng.random(count) * (len(_QUANTILES) - 1)
    lengths = np.interp(places, np.arange(len(_QUANTILES)), _QUANTILES).round().astype(int) - 2
    known = np.array(vocab[len(FIXED_TOKENS) + 2 * len(letters) :])
    rows = [
        {
            "id": str(number),
            "text_a": " ".join(rng.choice(known, max(1, length))),
            "text_b": None,
            "label": str(number % 2),
            "score": None,
        }
        for number, length in enumerate(lengths)
    ]
    return pa.Table.from_pylist(rows, schema=TEXT_EXAMPLES), vocab


def write_checkpoint(folder: Path, *, preset: str, vocab: list[str]) -> str:
    """A model with random weights, as both sides load it."""
    config = ModelConfig.model_validate({"preset": preset})
    for name, content in save_model(BertForPretraining(config, vocab_size=len(vocab))).items():
        (folder / name).write_bytes(content)
    (folder / VOCAB_FILE).write_text(vocab_text(vocab), encoding="utf-8")
    (folder / TOKENIZER_FILE).write_text(tokenizer_json(vocab, lowercase=True), encoding="utf-8")
    (folder / TOKENIZER_CONFIG_FILE).write_text(
        tokenizer_config_json(lowercase=True), encoding="utf-8"
    )
    return str(folder)


def our_side(checkpoint: str, table: pa.Table, *, folder: Path, threads: int) -> Side:
    """Our training of one epoch."""
    with ShardWriter("train.arrow", schema=TEXT_EXAMPLES, output=str(folder / "examples")) as file:
        for batch in table.to_batches():
            file.write(batch)
    examples = StageInput(
        name="examples",
        artifact_id="0" * 16,
        data=str(folder / "examples"),
        files=(file.entry(),),
        statistics={
            "task": TASK,
            "kind": "classification",
            "labels": ["0", "1"],
            "splits": {"train": len(table)},
        },
    )
    config = TrialConfig(
        examples=TASK,
        init_checkpoint=checkpoint,
        max_seq_length=LENGTH,
        batch_size=BATCH,
        learning_rate=5e-5,
        num_epochs=1,
        num_threads=threads,
        optimizer=OptimizerConfig(name="adamw", adam_epsilon=1e-6),
    )
    runs = iter(range(1 << 30))

    def run() -> Pace:
        work = folder / f"work-{next(runs)}"
        job = TrialJob(name="bench", config=config, examples=examples, work=str(work))
        start = open_trial(job)
        tokenizer = WordPieceTokenizer(start.tokenizer.vocab, lowercase=True)  # knows no word yet
        began = time.perf_counter()
        encoding = dataclasses.replace(start, tokenizer=tokenizer)
        TASK_TYPES["classification"].build_features(table, encoding, is_training=True)
        features = time.perf_counter() - began
        checkpoints = Checkpoints(f"{work}/checkpoints", keep_last=1)
        trainer = FineTuningTrainer(start, checkpoints=checkpoints, stop=StopRequest())
        began = time.perf_counter()
        with contextlib.closing(trainer):
            trainer.run()
        return Pace(features, time.perf_counter() - began)

    return run


def peer_side(checkpoint: str, table: pa.Table, *, folder: Path, grouped: bool) -> Side:
    """The Trainer's training of one epoch."""
    import transformers as hf

    hf.utils.logging.disable_progress_bar()

    texts = table["text_a"].to_pylist()
    labels = [int(label) for label in table["label"].to_pylist()]

    class Clock(hf.TrainerCallback):
        began = ended = 0.0

        def on_train_begin(self, *_: Any, **__: Any) -> None:
            self.began = time.perf_counter()

        def on_train_end(self, *_: Any, **__: Any) -> None:
            self.ended = time.perf_counter()

    def run() -> Pace:
        tokenizer = hf.AutoTokenizer.from_pretrained(checkpoint)
        began = time.perf_counter()
        encoded = tokenizer(texts, truncation=True, max_length=LENGTH)
        rows = [
            {"labels": label, **{name: encoded[name][number] for name in encoded}}
            for number, label in enumerate(labels)
        ]
        features = time.perf_counter() - began
        arguments = hf.TrainingArguments(
            output_dir=str(folder / "trainer"),
            per_device_train_batch_size=BATCH,
            num_train_epochs=1,
            learning_rate=5e-5,
            weight_decay=0.01,
            adam_epsilon=1e-6,
            max_grad_norm=1.0,
            warmup_steps=0.1,
            lr_scheduler_type="linear",
            train_sampling_strategy="group_by_length" if grouped else "random",
            use_cpu=True,
            dataloader_pin_memory=False,
            logging_strategy="no",
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
        )
        clock = Clock()
        trainer = hf.Trainer(
            model=hf.AutoModelForSequenceClassification.from_pretrained(checkpoint, num_labels=2),
            args=arguments,
            train_dataset=rows,
            data_collator=hf.DataCollatorWithPadding(tokenizer),
            callbacks=[clock],
        )
        trainer.remove_callback(hf.PrinterCallback)
        trainer.train()
        return Pace(features, clock.ended - clock.began)

    return run


def report(found: dict[str, list[Pace]], *, examples: int) -> None:
    """Print the speed of each side, and how many times as fast the first one is."""
    ours = [pace.steps for pace in next(iter(found.values()))]
    for name, paces in found.items():
        seconds = [pace.steps for pace in paces]
        texts = examples / statistics.median(pace.features for pace in paces)
        line = (
            f"  {name:14} {examples / statistics.median(seconds):8,.0f} examples/s   features "
            f"{texts:10,.0f} examples/s"
        )
        if seconds != ours:
            line += f"   ours is {ratio(ours, seconds)}"
        print(line, flush=True)


def main() -> None:
    parser = parser_for(__doc__, repeat=5)
    add_data_option(parser)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--preset", choices=PRESETS, default="mini")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    logging.disable(logging.WARNING)
    count = options.steps * BATCH
    data: Path = options.data
    if (data / "glue" / "SST-2").is_dir():
        table, what = real_examples(data, count=count), "SST-2"
        vocab = read_vocab(str(data / "vocab" / "bert-base-uncased" / VOCAB_FILE))
    else:
        print(f"no real data at {data}: name its folder with --data to see that")
        table, vocab = random_examples(count=count)
        what = "random sentences"
    layers, hidden, heads = PRESETS[options.preset]
    print(
        f"torch {torch.__version__}, {options.threads} threads: {len(table):,} examples of {what}, "
        f"batches of {BATCH}, L={layers} H={hidden} A={heads}",
        flush=True,
    )
    with tempfile.TemporaryDirectory(prefix="bertloom-bench-") as name:
        folder = Path(name)
        (folder / "checkpoint").mkdir()
        checkpoint = write_checkpoint(folder / "checkpoint", preset=options.preset, vocab=vocab)
        sides = {
            "ours": our_side(checkpoint, table, folder=folder, threads=options.threads),
            "peer": peer_side(checkpoint, table, folder=folder, grouped=False),
            "peer, grouped": peer_side(checkpoint, table, folder=folder, grouped=True),
        }
        report(take_turns(sides, repeat=options.repeat), examples=len(table))


if __name__ == "__main__":
    main()
