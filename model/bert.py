"""BERT: the encoder, its pretraining heads and their losses.

The encoder is that of Devlin et al. 2019, section 3 (reference: modeling.py); the heads are masked
LM and next sentence prediction (3.1, A.1). Letters for shapes: B instances, T tokens, H hidden
size, N heads, D = H / N, F width inside the feed-forward layers, P predicted tokens, V vocabulary
size.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from model.attention import AttentionLayout, Dropout, SelfAttention, attention_layout, seed_dropout
from model.data.batches import IGNORE_INDEX, PretrainingBatch, TokenBatch
from pipelines.seeds import key_for
from schemas.model_configs import ModelConfig, Objective

_ALIGNMENT = {"cpu": 1}
_ALIGNMENT_ELSEWHERE = 64
"""Number of logits per row is a multiple of this, which tensor cores need: 30,528 for 30,522."""


class LossSums(NamedTuple):
    """Sums over the rows that have a label.

    Attributes:
        loss: Sum of the negative log-likelihoods times the scale, to be differentiated.
        nll_sum: Sum of the negative log-likelihoods in nats, detached, float32 (float64 for
            float64 inputs).
        correct: Number of rows whose label has the largest logit (first of equal ones), int64.
    """

    loss: Tensor
    nll_sum: Tensor
    correct: Tensor


def cross_entropy_sums(logits: Tensor, labels: Tensor, *, scale: float) -> LossSums:
    """Return the cross entropy of logits (rows, classes).

    Args:
        logits: Logits of any floating point type; the sums are computed in float32 or float64.
        labels: int64 of shape (rows,); -100 for rows to ignore.
        scale: Factor of the sum in `loss`.
    """
    exact = logits if logits.dtype == torch.float64 else logits.float()
    total = functional.cross_entropy(exact, labels, ignore_index=IGNORE_INDEX, reduction="sum")
    correct = (logits.detach().argmax(1) == labels).sum()  # never true of an ignored row
    return LossSums(total * scale, total.detach(), correct)


def tied_decoder_loss(
    hidden: Tensor, weight: Tensor, *, bias: Tensor, labels: Tensor, scale: float
) -> LossSums:
    """Return the cross entropy of `hidden @ weight.T + bias`.

    Args:
        hidden: Shape (P, H); P may be 0.
        weight: Word embeddings, shape (V, H).
        bias: Shape (V,).
        labels: int64 of shape (P,), 0 .. V-1, or -100 for rows to ignore.
        scale: Factor of the sum in `loss`.
    """
    padding = -len(weight) % _ALIGNMENT.get(hidden.device.type, _ALIGNMENT_ELSEWHERE)
    if padding:
        weight = functional.pad(weight, (0, 0, 0, padding))
        bias = functional.pad(bias, (0, padding), value=float("-inf"))  # of probability 0
    return cross_entropy_sums(functional.linear(hidden, weight, bias), labels, scale=scale)


class EncoderOutput(NamedTuple):
    """Output of the encoder for a batch.

    Attributes:
        sequence: Vector of every token after the last block, (T, H); finite and meaningless in
            padding. With `positions`, their vectors, (P, H).
        pooled: tanh of a dense layer on the [CLS] of each instance, (B, H).
        layers: Embeddings and output of every block on request: L + 1 tensors (T, H).
    """

    sequence: torch.Tensor
    pooled: torch.Tensor
    layers: tuple[torch.Tensor, ...]


class Dense(nn.Linear):
    """Dense layer initialized to zero: torch's initialization draws from the global generator."""

    def reset_parameters(self) -> None:
        """Set weight and bias to zero."""
        for parameter in self.parameters():
            nn.init.zeros_(parameter)


class Embedding(nn.Embedding):
    """Embedding initialized to zero: torch's initialization draws from the global generator."""

    def reset_parameters(self) -> None:
        """Set the weight to zero."""
        nn.init.zeros_(self.weight)


class Embeddings(nn.Module):
    """Sum of word, position and segment embeddings, layer norm and dropout (paper, Figure 2)."""

    def __init__(self, config: ModelConfig, *, vocab_size: int) -> None:
        super().__init__()
        hidden = config.hidden_size
        self.word = Embedding(vocab_size, hidden)
        self.position = Embedding(config.max_position_embeddings, hidden)
        self.segment = Embedding(config.type_vocab_size, hidden)
        self.norm = nn.LayerNorm(hidden, eps=config.layer_norm_eps)
        self.dropout = Dropout(config.hidden_dropout_prob)

    def forward(self, tokens: TokenBatch) -> torch.Tensor:
        """Return the embeddings of the tokens, (T, H)."""
        x = self.word(tokens.input_ids)  # (T, H)
        x = x + self.position(tokens.position_ids) + self.segment(tokens.segment_ids)
        embedded: torch.Tensor = self.dropout(self.norm(x))
        return embedded


class Block(nn.Module):
    """Transformer block (post-LN): attention and feed-forward layer with residuals."""

    def __init__(self, config: ModelConfig, *, is_causal: bool) -> None:
        super().__init__()
        hidden, eps = config.hidden_size, config.layer_norm_eps
        self.attention = SelfAttention(config, is_causal=is_causal, dense=Dense)
        self.attention_norm = nn.LayerNorm(hidden, eps=eps)
        self.intermediate = Dense(hidden, config.feed_forward_size)
        self.activation = nn.GELU("tanh" if config.hidden_act == "gelu_tanh" else "none")
        self.output = Dense(config.feed_forward_size, hidden)
        self.output_norm = nn.LayerNorm(hidden, eps=eps)
        self.attention_dropout = Dropout(config.hidden_dropout_prob)
        self.output_dropout = Dropout(config.hidden_dropout_prob)

    def forward(
        self, x: torch.Tensor, layout: AttentionLayout, *, rows: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Return the output (T, H) for `x` (T, H); with `rows` (R,), only theirs (R, H)."""
        num_rows = len(x)
        attended = self.attention(x, layout, rows=rows)
        if rows is not None:
            x = x.index_select(0, rows)
        x = self.attention_dropout.add(attended, x, rows=rows, num_rows=num_rows)
        x = self.attention_norm(x)
        inner = self.output(self.activation(self.intermediate(x)))
        x = self.output_dropout.add(inner, x, rows=rows, num_rows=num_rows)
        normed: torch.Tensor = self.output_norm(x)
        return normed


class BertModel(nn.Module):
    """The encoder: embeddings, blocks, pooler.

    Weights are zero (layer norms one) until `initialize_weights` or a checkpoint sets them. Dropout
    uses key 0 until `seed_dropout` is called.
    """

    def __init__(self, config: ModelConfig, *, vocab_size: int, is_causal: bool = False) -> None:
        super().__init__()
        self.config = config
        self.embeddings = Embeddings(config, vocab_size=vocab_size)
        blocks = [Block(config, is_causal=is_causal) for _ in range(config.num_hidden_layers)]
        self.layers = nn.ModuleList(blocks)
        self.pooler = Dense(config.hidden_size, config.hidden_size)
        seed_dropout(self, 0)

    def forward(
        self,
        tokens: TokenBatch,
        *,
        positions: torch.Tensor | None = None,
        all_layers: bool = False,
    ) -> EncoderOutput:
        """Encode a batch; its position ids must be below `max_position_embeddings`.

        Args:
            tokens: Batch.
            positions: Indices in T of the vectors to return in `sequence`, int64 (P,). The last
                block computes no others but [CLS]. Default: all.
            all_layers: Whether to return `layers`; not with `positions`.
        """
        x = self.embeddings(tokens)  # (T, H)
        layout = attention_layout(
            tokens.lengths,
            heads=self.config.num_attention_heads,
            device=x.device,
            flash=_has_flash(x, depth=self.config.hidden_size // self.config.num_attention_heads),
            has_dropout=self.training and self.config.attention_probs_dropout_prob > 0,
        )
        layers = [x] if all_layers else []
        *lower, last = self.layers
        for block in lower:
            x = block(x, layout)
            if all_layers:
                layers.append(x)
        if positions is None:
            x = last(x, layout)  # (T, H)
            first = x.index_select(0, tokens.starts)  # (B, H)
        else:
            x = last(x, layout, rows=torch.cat([tokens.starts, positions]))
            first, x = x.split([len(tokens.starts), len(positions)])  # (B, H), (P, H)
        if all_layers:
            layers.append(x)
        return EncoderOutput(x, torch.tanh(self.pooler(first)), tuple(layers))


def _has_flash(x: torch.Tensor, *, depth: int) -> bool:
    """Return whether CUDA's flash kernel supports `x`: half precision, D up to 256."""
    if not x.is_cuda or depth > 256 or depth % 8:
        return False
    half = torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else x.dtype
    capable = torch.cuda.get_device_capability(x.device) >= (8, 0)
    return capable and half in (torch.bfloat16, torch.float16)


def initialize_weights(module: nn.Module, *, initializer_range: float, seed: int) -> None:
    """Draw the weights of a new model (reference: modeling.py, lines 375-377).

    Parameters of two or more dimensions come from a normal distribution with standard deviation
    `initializer_range`, truncated at twice that. Biases are 0, layer norms 1 and 0. The values of a
    parameter depend only on the seed, its name in `module` and its shape. A parameter with two
    names has the values of the first.
    """
    norms = {id(child.weight) for child in module.modules() if isinstance(child, nn.LayerNorm)}
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if id(parameter) in norms:
                parameter.fill_(1.0)
            elif parameter.ndim < 2:
                parameter.zero_()
            else:
                parameter.copy_(_cut_normal(parameter.shape, initializer_range, name, seed=seed))


def _cut_normal(shape: torch.Size, deviation: float, name: str, *, seed: int) -> torch.Tensor:
    generator = torch.Generator()
    generator.manual_seed(key_for(seed, "weights", name, *shape))
    return nn.init.trunc_normal_(
        torch.empty(shape), std=deviation, a=-2 * deviation, b=2 * deviation, generator=generator
    )


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


class BertForPretraining(nn.Module):
    """Encoder with both heads and the pretraining loss.

    Models of every objective have all parameters, so that every checkpoint is complete. Unused
    parameters (pooler and NSP head without NSP) do not require gradients.

    Args:
        config: Shape of the encoder.
        vocab_size: V.
        objective: `left-to-right` makes attention causal; `masked_positions` are then the positions
            whose next token is predicted, `masked_ids` those tokens.
        seed: Seed of the initial weights, see `model.bert.initialize_weights`.
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
        # Logits of "next" and "random" (reference: run_pretraining.py, lines 285-305).
        self.nsp_head = Dense(config.hidden_size, 2)
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
