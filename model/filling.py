"""Mask filling: the most probable word pieces for each [MASK] of a text. Loads torch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from tokenizers import Tokenizer

from model.bert import BertForPretraining
from model.data.collator import token_batches
from model.hf_config import check_layout, vocabulary_url
from model.hf_weights import load_pretrained
from model.training.distributed import choose_device
from pipelines.wordpiece.text_rules import complete_rules, read_stated_rules
from pipelines.wordpiece.tokenizer import tokenizer_json
from pipelines.wordpiece.vocab_files import CONTINUATION, MASK, read_vocab
from schemas.errors import CheckpointError, PredictionsError


class Candidate(NamedTuple):
    """Candidate word piece for a mask."""

    token: str
    """Form in vocab.txt: pieces inside words start with `##`."""

    token_id: int
    probability: float


class FilledText(NamedTuple):
    """Result for one text."""

    text: str
    """Input text."""

    masks: tuple[tuple[Candidate, ...], ...]
    """Candidates of each [MASK] in order, most probable first."""

    filled: str
    """Text with the most probable piece at each mask."""

    def as_json(self) -> dict[str, Any]:
        """Return JSON values."""
        masks = [[candidate._asdict() for candidate in mask] for mask in self.masks]
        return {"text": self.text, "filled": self.filled, "masks": masks}


@dataclass(frozen=True)
class MaskFiller:
    """Pretrained model that fills the masks of texts."""

    model: BertForPretraining
    """Model with masked LM head, in evaluation mode."""

    tokenizer: Tokenizer
    """Tokenizer that adds `[CLS]` and `[SEP]` and maps "[MASK]" to the special token."""

    @classmethod
    def open(cls, folder: str, *, device: str = "auto") -> Self:
        """Load a checkpoint in Hugging Face's layout with its vocabulary, local or any fsspec URL.

        Raises:
            CheckpointError: It has no masked LM head, cannot be read, or is a left-to-right model.
            MissingInputError: The folder is not such a checkpoint.
            VocabularyError: Its vocab.txt or tokenizer.json cannot be used.
        """
        described = check_layout(folder, needs_vocabulary=True)
        if described.is_decoder or described.bertloom:
            raise _no_head(folder, "a left-to-right or a fine-tuned model")
        loaded = load_pretrained(folder, objective="mlm", seed=0)
        if any(name.startswith("mlm_head.") for name in loaded.initialized):
            raise _no_head(folder, "an encoder alone")
        vocabulary = vocabulary_url(folder)
        vocab = read_vocab(vocabulary)
        if len(vocab) > loaded.model.vocab_size:
            raise CheckpointError(
                f"{vocabulary}: expected at most {loaded.model.vocab_size:,} pieces, one per "
                f"embedding of the model, got {len(vocab):,}. Use the model's own vocabulary"
            )
        rules = complete_rules(read_stated_rules(vocabulary), vocab)
        tokenizer = Tokenizer.from_str(tokenizer_json(vocab, **rules))
        return cls(loaded.model.to(choose_device(device)).eval(), tokenizer)

    def fill(self, texts: Sequence[str], *, k: int = 5) -> Iterator[FilledText]:
        """Fill the masks of texts, in order.

        Args:
            texts: Texts with at least one [MASK]; several masks are filled independently.
            k: Number of candidates per mask.

        Raises:
            PredictionsError: A text has no [MASK] or exceeds the model's positions, or the model's
                outputs are not finite.
        """
        for text in texts:
            probabilities = self._mask_probabilities(text)
            best = torch.topk(probabilities, min(k, probabilities.shape[1]))
            masks = tuple(
                tuple(
                    Candidate(self.tokenizer.id_to_token(token) or str(token), token, share)
                    for token, share in zip(tokens, shares, strict=True)
                )
                for tokens, shares in zip(best.indices.tolist(), best.values.tolist(), strict=True)
            )
            yield FilledText(text, masks, _fill_in(text, [first.token for first, *_ in masks]))

    def _mask_probabilities(self, text: str) -> torch.Tensor:
        """Return the probability of every piece at each [MASK]: (masks, V), on the CPU."""
        ids, mask_id = self.tokenizer.encode(text).ids, self.tokenizer.token_to_id(MASK)
        max_tokens = self.model.config.max_position_embeddings
        if mask_id not in ids:
            raise PredictionsError(
                f"{text[:80]!r}: expected at least one {MASK}, got none. Write {MASK} in place of "
                "a word"
            )
        if len(ids) > max_tokens:
            raise PredictionsError(
                f"{text[:80]!r}: expected at most {max_tokens:,} tokens, got {len(ids):,}. Shorten "
                "the text"
            )
        size = np.array([len(ids)])
        (tokens,), _ = token_batches(
            np.array(ids), lengths=size, b_starts=size, bounds=np.array([0, 1])
        )
        device = next(self.model.parameters()).device
        with torch.inference_mode():
            encoded = self.model.bert(tokens.to(device))
            masks = (tokens.input_ids == mask_id).nonzero()[:, 0].to(device)
            logits = self.model.mlm_logits(encoded.sequence, masks).float().cpu()
        if not logits.isfinite().all():
            raise PredictionsError(
                f"{text[:80]!r}: expected finite outputs, got NaN or infinite ones: the training "
                "diverged. Use another checkpoint"
            )
        return logits.softmax(dim=-1)


def _no_head(folder: str, model: str) -> CheckpointError:
    return CheckpointError(
        f"{folder}: expected a pretrained model with masked LM head, got {model}. Use the "
        "pretrained model, or `bertloom predict` with a fine-tuned one"
    )


def _fill_in(text: str, tokens: Sequence[str]) -> str:
    filled, *parts = text.split(MASK)
    for token, part in zip(tokens, parts, strict=False):
        # Join pieces inside words to their word.
        joined = filled.rstrip() if token.startswith(CONTINUATION) else filled
        filled = f"{joined}{token.removeprefix(CONTINUATION)}{part}"
    return filled
