"""Evaluation on held-out documents: masked LM loss, perplexity and accuracy, NSP loss and accuracy.

Evaluation always uses the masks stored with the instances, also if training draws dynamic masks, so
that all models predict the same tokens (reference: run_pretraining.py, metric_fn). Perplexities are
comparable (Table 6) if artifact, vocabulary and `evaluation.max_eval_samples` are equal.

A left-to-right model predicts every token but the first from the tokens before it. Its perplexity
is not comparable with that of masked tokens. Perplexities of instances with different masking mixes
(Table 8) are not comparable either.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Self

import numpy as np
import numpy.typing as npt
import torch

from model.bert import BertForPretraining
from model.data.batches import PretrainingBatch, to_device
from model.data.dataset import InstanceDataset
from model.data.loader import eval_batches
from model.data.masks import next_tokens, restore_tokens
from model.pretraining.setup import PretrainingSetup
from pipelines.instances import HELD_OUT, HELD_OUT_PREFIX
from pipelines.instances.masking import VocabularyIds
from pipelines.instances.notes import describe_sample, is_too_small
from schemas.model_configs import Objective


class HeldOutEvaluator:
    """Evaluates a phase on held-out instances; each process takes its share of them."""

    def __init__(self, setup: PretrainingSetup) -> None:
        config, group = setup.config, setup.group
        self._group, self._collator = group, setup.collator()
        self._has_nsp = config.objective == "mlm+nsp"
        self._instances = InstanceDataset.open(
            setup.job.instances,
            vocab_size=setup.model.vocab_size,
            max_seq_length=setup.model.config.max_position_embeddings,
            part="held-out",
            ranks=group,
        )
        # Rows are sorted by source, so the sample is spread evenly over all of them.
        count = min(len(self._instances), config.evaluation.max_eval_samples)
        sample = np.arange(count) * len(self._instances) // count
        self._rows = sample[group.rank :: group.world_size]
        self._unigram_costs = unigram_costs(
            setup.instances, vocabulary=setup.vocabulary, objective=config.objective
        )

    @classmethod
    def open(cls, setup: PretrainingSetup) -> Self | None:
        """Open the held-out instances of a phase; None if it has none."""
        held_out = (e for e in setup.job.instances.files if e.path.startswith(HELD_OUT_PREFIX))
        return cls(setup) if any(entry.rows for entry in held_out) else None

    def _batches(self) -> Iterator[PretrainingBatch]:
        return eval_batches(self._instances, rows=self._rows, collator=self._collator)

    def evaluate(self, model: BertForPretraining, *, is_bf16: bool) -> dict[str, float]:
        """Return means over all instances: `loss, mlm_loss, perplexity, mlm_accuracy,
        unigram_loss`, and with NSP `nsp_loss, nsp_accuracy`. Losses in nats; perplexity is
        exp(mlm_loss). The unigram loss is that of the training instances' token frequencies."""
        was_training = model.training
        model.eval()
        try:
            sums = self._group.all_reduce_tensor(self._sums(model, is_bf16=is_bf16)).tolist()
        finally:
            model.train(was_training)
        mlm_loss_sum, mlm_correct, nsp_loss_sum, nsp_correct, predictions, pairs, unigram = sums
        predictions = max(1.0, predictions)
        mlm_loss = mlm_loss_sum / predictions
        metrics = {
            "loss": mlm_loss,
            "mlm_loss": mlm_loss,
            "perplexity": math.exp(min(mlm_loss, 700.0)),  # exp(710) is more than a float holds
            "mlm_accuracy": mlm_correct / predictions,
            "unigram_loss": unigram / predictions,
        }
        if pairs:
            metrics["nsp_loss"] = nsp_loss_sum / pairs
            metrics["nsp_accuracy"] = nsp_correct / pairs
            metrics["loss"] += metrics["nsp_loss"]
        return metrics

    def _sums(self, model: BertForPretraining, *, is_bf16: bool) -> torch.Tensor:
        """Return the sums over this process's instances, float64 (7,) on its device.

        They are losses and hits of masked tokens, then of pairs, the numbers of predictions and of
        pairs, and the unigram loss.
        """
        device = self._group.device
        sums = torch.zeros(7, dtype=torch.float64, device=device)
        with torch.inference_mode():
            for batch in self._batches():
                pairs = int((batch.next_sentence_labels >= 0).sum())
                with torch.autocast(device.type, torch.bfloat16, enabled=is_bf16):
                    output = model(batch.to(device), len(batch.masked_ids), pairs)
                unigram = self._unigram_costs[batch.masked_ids.numpy()].sum()
                counts = [len(batch.masked_ids), pairs if self._has_nsp else 0, unigram]
                losses = torch.stack([value.to(torch.float64) for value in output[1:]])
                host = torch.tensor(counts, dtype=torch.float64)
                sums = sums + torch.cat([losses, to_device(host, device)])
        return sums.clone()  # a tensor of the inference mode cannot be reduced in place


def held_out_caution(counters: Mapping[str, int]) -> str:
    """Return the size of a held-out set that is too small, for wherever its metrics are shown.

    Args:
        counters: Counters of the instances.

    Returns:
        Text such as `only 3 instances of 1 document`; "" for a set that is large enough.
    """
    size = (
        counters.get(f"{HELD_OUT}-instances", 0),
        counters.get(f"{HELD_OUT}-documents-kept", 0),
    )
    return f"only {describe_sample(*size)}" if is_too_small(*size) else ""


_INSTANCES = 2_000
_PSEUDO_COUNT = 0.1
"""Count of a token that the sample lacks. A whole count would give rare tokens of a large
vocabulary too much weight and make the baseline worse than the true frequencies."""


def unigram_costs(
    instances: InstanceDataset, *, vocabulary: VocabularyIds, objective: Objective
) -> npt.NDArray[np.float64]:
    """Return the loss of each token for a model that knows only how frequent tokens are.

    Frequencies are those of the tokens that training may ask for, in a sample that is spread evenly
    over the training instances. Masks fall on any token but [CLS] and [SEP], so every other token
    counts, also one that is not masked.

    Returns:
        -log(frequency) in nats, float64 of shape (vocab_size,).
    """
    size = min(len(instances), _INSTANCES)
    sample = instances.gather(np.arange(size) * len(instances) // size)
    if objective == "left-to-right":
        counts = np.bincount(next_tokens(sample).masked_ids, minlength=vocabulary.vocab_size)
    else:
        counts = np.bincount(restore_tokens(sample).input_ids, minlength=vocabulary.vocab_size)
        counts[[vocabulary.cls_id, vocabulary.sep_id]] = 0
    smoothed = counts + _PSEUDO_COUNT
    costs: npt.NDArray[np.float64] = -np.log(smoothed / smoothed.sum())
    return costs
