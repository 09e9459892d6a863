"""Pretraining heads: masked LM and next sentence prediction (paper 3.1, A.1).

Letters for shapes as in `model.data.batches`.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import nn
from torch.nn import functional

from model.data.batches import PretrainingBatch
from model.encoder.bert import BertModel, Dense, initialize_weights
from model.encoder.losses import cross_entropy_sums, tied_decoder_loss
from schemas.model_configs import ModelConfig, Objective


class PretrainingOutput(NamedTuple):
    """Contribution of a micro-batch to its global batch. All fields but `loss` are detached.

    Every field is a scalar on the model's device; reading it may synchronize. The means of the
    global batch are sums over micro-batches and processes divided by the sums of the counts.

    Attributes:
        loss: Share of the global batch's loss, to be differentiated.
        mlm_loss_sum: Sum of the negative log-likelihoods of the masked tokens, in nats.
        mlm_correct: Number of masked tokens with the largest logit, int64.
        nsp_loss_sum, nsp_correct: The same for pairs; 0 for objectives without NSP.
    """

    loss: torch.Tensor
    mlm_loss_sum: torch.Tensor
    mlm_correct: torch.Tensor
    nsp_loss_sum: torch.Tensor
    nsp_correct: torch.Tensor


class MaskedLMHead(nn.Module):
    """Dense layer, gelu and layer norm; the decoder is the word embeddings and `output_bias`.

    Reference: run_pretraining.py, lines 240-282.
    """

    def __init__(self, config: ModelConfig, *, vocab_size: int) -> None:
        super().__init__()
        self.dense = Dense(config.hidden_size, config.hidden_size)
        self.activation = nn.GELU("tanh" if config.hidden_act == "gelu_tanh" else "none")
        self.norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.output_bias = nn.Parameter(torch.zeros(vocab_size))

    def forward(self, selected: torch.Tensor) -> torch.Tensor:
        """Return the decoder's input (P, H) for vectors (P, H) of the tokens to predict."""
        transformed: torch.Tensor = self.norm(self.activation(self.dense(selected)))
        return transformed


class NextSentenceHead(Dense):
    """Next sentence head; logits are "next", "random" (reference: run_pretraining.py, 285-305)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config.hidden_size, 2)


class BertForPretraining(nn.Module):
    """Encoder with both heads and the pretraining loss.

    Models of every objective have all parameters, so that every checkpoint is complete. Unused
    parameters (pooler and NSP head without NSP) do not require gradients.

    Args:
        config: Shape of the encoder.
        vocab_size: V.
        objective: `left-to-right` makes attention causal; `masked_positions` are then the positions
            whose next token is predicted, `masked_ids` those tokens.
        seed: Seed of the initial weights, see `model.encoder.bert.initialize_weights`.
    """

    def __init__(
        self,
        config: ModelConfig,
        *,
        vocab_size: int,
        objective: Objective = "mlm+nsp",
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.config = config
        self.vocab_size = vocab_size
        self.objective: Objective = objective
        is_causal = objective == "left-to-right"
        self.bert = BertModel(config, vocab_size=vocab_size, is_causal=is_causal)
        self.mlm_head = MaskedLMHead(config, vocab_size=vocab_size)
        self.nsp_head = NextSentenceHead(config)
        initialize_weights(self, initializer_range=config.initializer_range, seed=seed)
        if objective != "mlm+nsp":
            self.bert.pooler.requires_grad_(False)
            self.nsp_head.requires_grad_(False)

    def forward(self, batch: PretrainingBatch, predictions: int, pairs: int) -> PretrainingOutput:
        """Return the loss of a micro-batch as its share of the global batch's loss.

        Loss = sum of nll of masked tokens / predictions + sum of nll of pairs / pairs. Summed over
        the micro-batches of a global batch, it is the sum of both means. A sum without terms is 0.

        Args:
            batch: Micro-batch.
            predictions: Number of masked tokens in the global batch.
            pairs: Number of pairs with a next-sentence label in the global batch; unused without
                NSP.
        """
        encoded = self.bert(batch.tokens, positions=batch.masked_positions)  # (P, H), (B, H)
        mlm = tied_decoder_loss(
            self.mlm_head(encoded.sequence),  # (P, H)
            self.bert.embeddings.word.weight,
            bias=self.mlm_head.output_bias,
            labels=batch.masked_ids,
            scale=_share(predictions),
        )
        if self.objective != "mlm+nsp":
            no_loss, none = torch.zeros_like(mlm.nll_sum), torch.zeros_like(mlm.correct)
            return PretrainingOutput(mlm.loss, mlm.nll_sum, mlm.correct, no_loss, none)
        nsp = cross_entropy_sums(
            self.nsp_logits(encoded.pooled), batch.next_sentence_labels, scale=_share(pairs)
        )
        return PretrainingOutput(
            mlm.loss + nsp.loss,
            mlm_loss_sum=mlm.nll_sum,
            mlm_correct=mlm.correct,
            nsp_loss_sum=nsp.nll_sum,
            nsp_correct=nsp.correct,
        )

    def mlm_logits(self, sequence: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """Return logits (P, V) of the tokens at `positions` (P,) of `sequence` (T, H)."""
        transformed = self.mlm_head(sequence.index_select(0, positions))  # (P, H)
        words = self.bert.embeddings.word.weight
        return functional.linear(transformed, words, self.mlm_head.output_bias)  # (P, V)

    def nsp_logits(self, pooled: torch.Tensor) -> torch.Tensor:
        """Return logits (B, 2) of "next" and "random" for `pooled` (B, H)."""
        logits: torch.Tensor = self.nsp_head(pooled)  # (B, 2)
        return logits


def _share(count: int) -> float:
    """Return the weight of one of `count` terms in their mean; 0 without terms."""
    return 1.0 / count if count else 0.0
