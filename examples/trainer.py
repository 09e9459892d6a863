"""Train a model of transformers on the rows of an instances artifact, with its own Trainer.

    python trainer.py DATASET MODEL OUTPUT

DATASET is an exported folder or one of the store, MODEL a folder or a name on the hub.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from datasets import load_dataset
from transformers import BertForPreTraining, Trainer, TrainingArguments


def collate(rows: Sequence[Mapping[str, Any]], *, pad_token_id: int = 0) -> dict[str, torch.Tensor]:
    """Return a batch of rows, padded to the longest; labels of tokens without mask are -100."""
    shape = (len(rows), max(len(row["input_ids"]) for row in rows))
    batch = {
        "input_ids": torch.full(shape, pad_token_id),
        "token_type_ids": torch.zeros(shape, dtype=torch.int64),
        "attention_mask": torch.zeros(shape, dtype=torch.int64),
        "labels": torch.full(shape, -100),
    }
    for number, row in enumerate(rows):
        length = len(row["input_ids"])
        batch["input_ids"][number, :length] = torch.tensor(row["input_ids"])
        batch["token_type_ids"][number, row["segment_b_start"] : length] = 1
        batch["attention_mask"][number, :length] = 1
        batch["labels"][number, row["masked_lm_positions"]] = torch.tensor(row["masked_lm_ids"])
    labels = [row["next_sentence_label"] for row in rows]  # -1 without segment B
    batch["next_sentence_label"] = torch.tensor([-100 if n < 0 else n for n in labels])
    return batch


def main(dataset: str, model: str, output: str) -> None:
    """Train one epoch."""
    # The Trainer drops columns that the model does not name, unless told otherwise.
    arguments = TrainingArguments(
        output, remove_unused_columns=False, num_train_epochs=1, logging_steps=1, report_to=[]
    )
    Trainer(
        BertForPreTraining.from_pretrained(model),
        arguments,
        train_dataset=load_dataset(dataset, split="train"),
        data_collator=collate,
    ).train()


if __name__ == "__main__":
    main(*sys.argv[1:])
