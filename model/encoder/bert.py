"""The encoder (Devlin et al. 2019, section 3; reference: modeling.py).

Letters for shapes: B instances, T token positions, H hidden size, N heads, D = H / N, F width
inside the feed-forward layers.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import nn

from model.data.batches import TokenBatch
from model.encoder.attention import SelfAttention
from model.encoder.attention_layout import AttentionLayout, attention_layout
from model.encoder.dropout import Dropout, seed_dropout
from pipelines.seeds import key_for
from schemas.model_configs import ModelConfig


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
