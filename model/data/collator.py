"""Collator of instances for Hugging Face's models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from schemas.errors import InstanceDataError

IGNORED = -100
"""Label that `torch.nn.CrossEntropyLoss`, and so transformers, ignores."""

_READ = ("input_ids", "segment_b_start", "masked_lm_positions", "masked_lm_ids")


class PretrainingCollator:
    """Collator of rows of an instances table into padded batches, for transformers' Trainer.

    >>> collator = PretrainingCollator()
    >>> row = {"input_ids": [101, 103, 102, 7, 102], "segment_b_start": 3,
    ...        "masked_lm_positions": [1], "masked_lm_ids": [9], "next_sentence_label": 1}
    >>> batch = collator([row])
    >>> batch["token_type_ids"].tolist(), batch["labels"].tolist()
    ([[0, 0, 0, 1, 1]], [[-100, 9, -100, -100, -100]])

    Args:
        next_sentence: Add `next_sentence_label` for `BertForPreTraining`. False for
            `BertForMaskedLM`, and for instances of one segment.
        pad_token_id: Id of [PAD].
        pad_to: Length of every row, so that all batches have one shape. Default: longest row of the
            batch.
    """

    def __init__(
        self, *, next_sentence: bool = True, pad_token_id: int = 0, pad_to: int | None = None
    ) -> None:
        self.next_sentence, self.pad_token_id, self.pad_to = next_sentence, pad_token_id, pad_to

    def __call__(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, torch.Tensor]:
        """Collate B rows, padded to S tokens.

        Returns:
            `input_ids`, `token_type_ids` (0 in `[CLS] A [SEP]`, 1 in `B [SEP]`), `attention_mask`
            and `labels` (-100 at unmasked positions), int64 of shape (B, S); and
            `next_sentence_label`, int64 of shape (B,): 0 B follows A, 1 B is random, -100 no B.

        Raises:
            InstanceDataError: The rows lack columns of an instances table, or exceed `pad_to`.
        """
        self._check(rows)
        longest = max(len(row["input_ids"]) for row in rows)
        if self.pad_to is not None and longest > self.pad_to:
            raise InstanceDataError(
                f"a row has {longest} tokens, and pad_to is {self.pad_to}: raise it to the "
                "max_seq_length of the instances"
            )
        shape = (len(rows), self.pad_to or longest)
        ids = np.full(shape, self.pad_token_id, np.int64)
        segments, mask = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        labels = np.full(shape, IGNORED, np.int64)
        for number, row in enumerate(rows):
            length = len(row["input_ids"])
            ids[number, :length] = np.asarray(row["input_ids"])
            segments[number, int(row["segment_b_start"]) : length] = 1
            mask[number, :length] = 1
            places = np.asarray(row["masked_lm_positions"], np.int64)
            labels[number, places] = np.asarray(row["masked_lm_ids"], np.int64)
        batch = {
            "input_ids": ids, "token_type_ids": segments, "attention_mask": mask, "labels": labels
        }  # fmt: skip
        if self.next_sentence:
            batch["next_sentence_label"] = _next_sentence(rows)
        return {name: torch.from_numpy(values) for name, values in batch.items()}

    def _check(self, rows: Sequence[Mapping[str, Any]]) -> None:
        needed = (*_READ, "next_sentence_label") if self.next_sentence else _READ
        missing = [name for name in needed if name not in rows[0]]
        if missing:
            raise InstanceDataError(
                f"expected rows of an instances table, found the columns {', '.join(rows[0])} "
                f"without {', '.join(missing)}: transformers' Trainer drops them unless "
                "TrainingArguments has remove_unused_columns=False"
            )


def _next_sentence(rows: Sequence[Mapping[str, Any]]) -> np.ndarray[Any, np.dtype[np.int64]]:
    found = np.asarray([int(row["next_sentence_label"]) for row in rows], np.int64)
    if (found < 0).all():
        raise InstanceDataError(
            "no row of the batch has a segment B, so that there is no next sentence to tell: use "
            "PretrainingCollator(next_sentence=False) with BertForMaskedLM"
        )
    return np.where(found < 0, IGNORED, found)
