"""Training of only those word embeddings that occur in the training data.

The gradient of the others is always 0, so that Adam keeps their moments at 0 and only decays them.
The model does not contain them while it trains; they are decayed at the end.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import nn

from model.finetuning.setup import DEV, Split, TrialSetup
from pipelines.arrays import Int64s


class WordRows:
    """Rows of the word embeddings that occur in the training data of a trial."""

    def __init__(self, setup: TrialSetup) -> None:
        """Keep only these rows in the model, and number them from 0 in `splits`."""
        self._embedding = setup.model.bert.embeddings.word
        self._all = self._embedding.weight.detach()
        is_used = np.zeros(len(self._all), bool)
        for name, split in setup.splits.items():
            if name != DEV:
                is_used[split.features.input_ids] = True
        self._ids = torch.from_numpy(np.flatnonzero(is_used)).to(self._all.device)
        numbers: Int64s = np.cumsum(is_used) - 1
        self.splits = {
            name: split if name == DEV else _renumber(split, numbers)
            for name, split in setup.splits.items()
        }
        self.reduce()

    def reduce(self) -> None:
        """Keep only the rows in use."""
        rows = self._embedding.weight.detach().index_select(0, self._ids)
        self._embedding.weight = nn.Parameter(rows)

    def restore(self, *, decay: float) -> None:
        """Put the trained rows among all others, which are the initial ones times `decay`."""
        rows = self._embedding.weight.detach()
        self._embedding.weight = nn.Parameter((self._all * decay).index_copy_(0, self._ids, rows))


def has_unused_rows(setup: TrialSetup) -> bool:
    """Return whether the optimizer changes unused rows by nothing but weight decay.

    LAMB scales its update by the norm of the whole table, and a frozen encoder is not trained.
    """
    is_trained = setup.model.bert.embeddings.word.weight.requires_grad
    return is_trained and setup.job.config.optimizer.name != "lamb"


def _renumber(split: Split, numbers: Int64s) -> Split:
    features = split.features
    return split._replace(features=replace(features, input_ids=numbers[features.input_ids]))
