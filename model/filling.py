"""Mask filling: the most probable word pieces for each [MASK] of a text. Loads torch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from tokenizers import Tokenizer

from model.data.batches import TokenBatch
from model.encoder.heads import BertForPretraining
from model.encoder.hf_config import (
    check_layout,
    read_config,
    vocabulary_url,
)
from model.encoder.hf_weights import load_pretrained
from model.launch.distributed import choose_device
from model.task_types.by_name import TASK_TYPES
from pipelines.wordpiece.text_rules import complete_rules, read_stated_rules
from pipelines.wordpiece.tokenizer import tokenizer_json
from pipelines.wordpiece.vocab_files import CONTINUATION, MASK, read_vocab
from schemas.errors import CheckpointError, PredictionsError

_FINE_TUNED = tuple(found.architecture for found in TASK_TYPES.values())


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
        masks = [[found._asdict() for found in candidates] for candidates in self.masks]
        return {"text": self.text, "filled": self.filled, "masks": masks}


class MaskFiller:
    """Pretrained model that fills the masks of texts.

    Args:
        model: Model with masked LM head, in evaluation mode.
        tokenizer: Tokenizer that adds `[CLS]` and `[SEP]` and maps "[MASK]" to the special token.
        mask_id: Id of [MASK].
    """

    def __init__(self, model: BertForPretraining, tokenizer: Tokenizer, *, mask_id: int) -> None:
        self._model, self._tokenizer, self._mask_id = model, tokenizer, mask_id
        self._device = next(model.parameters()).device

    @classmethod
    def open(cls, folder: str, *, device: str = "auto") -> Self:
        """Load a checkpoint in Hugging Face's layout with its vocabulary, local or any fsspec URL.

        Raises:
            CheckpointError: It has no masked LM head, cannot be read, or is a left-to-right model.
            MissingInputError: The folder is not such a checkpoint.
            VocabularyError: Its vocab.txt or tokenizer.json cannot be used.
        """
        check_layout(folder, needs_vocabulary=True)
        described = read_config(folder)
        named = described.architectures
        if any(name in _FINE_TUNED for name in named):
            raise CheckpointError(
                f"{folder}: was fine-tuned ({', '.join(named)}) and has no masked LM "
                "head: use the pretrained model here, and `bertloom predict` with this one"
            )
        if described.is_decoder:
            raise CheckpointError(
                f"{folder}: was trained left to right and does not read the text after a "
                "mask: expected a model of objective mlm or mlm+nsp"
            )
        loaded = load_pretrained(folder, objective="mlm", seed=0)
        if any(name.startswith("mlm_head.") for name in loaded.initialized):
            raise CheckpointError(
                f"{folder}: has no masked LM head (cls.predictions), only an encoder: expected a "
                "pretrained model as `bertloom run` or BertForMaskedLM saves it"
            )
        vocabulary = vocabulary_url(folder)
        vocab = read_vocab(vocabulary)
        if len(vocab) > loaded.model.vocab_size:
            raise CheckpointError(
                f"{vocabulary}: has {len(vocab):,} pieces, the model "
                f"{loaded.model.vocab_size:,}: the files are not of one model"
            )
        model = loaded.model.to(choose_device(device)).eval()
        rules = complete_rules(read_stated_rules(vocabulary), vocab)
        tokenizer = Tokenizer.from_str(tokenizer_json(vocab, **rules))
        return cls(model, tokenizer, mask_id=vocab.index(MASK))

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
            yield self._fill(text, k=k)

    def _fill(self, text: str, *, k: int) -> FilledText:
        encoded = self._tokenizer.encode(text)
        positions = [at for at, token in enumerate(encoded.ids) if token == self._mask_id]
        if not positions:
            raise PredictionsError(
                f"{text[:80]!r}: no {MASK} in it: write {MASK} in the place of a word, such "
                f'as "The house has a {MASK} roof."'
            )
        longest = self._model.config.max_position_embeddings
        if len(encoded.ids) > longest:
            raise PredictionsError(
                f"{text[:80]!r}...: {len(encoded.ids):,} tokens with [CLS] and [SEP], and the "
                f"model has positions for {longest:,}: give less text around the {MASK}"
            )
        probabilities = self._probabilities(encoded.ids, positions)
        if not probabilities.isfinite().all():
            raise PredictionsError(
                f"{text[:80]!r}: expected finite outputs, got NaN: the weights are too large, "
                "because the training diverged or the files are damaged. Use another checkpoint"
            )
        best = torch.topk(probabilities, min(k, probabilities.shape[1]))
        pairs = zip(best.indices.tolist(), best.values.tolist(), strict=True)
        masks = tuple(
            tuple(
                Candidate(self._tokenizer.id_to_token(token) or str(token), token, share)
                for token, share in zip(*found, strict=True)
            )
            for found in pairs
        )
        return FilledText(text, masks, _filled(text, [found[0].token for found in masks]))

    def _probabilities(self, ids: Sequence[int], positions: Sequence[int]) -> torch.Tensor:
        """Return the probability of every piece at each position: (P, V), on the CPU."""
        row = torch.tensor(ids, dtype=torch.int64)
        tokens = TokenBatch(
            input_ids=row,
            segment_ids=torch.zeros_like(row),
            position_ids=torch.arange(len(row)),
            starts=torch.zeros(1, dtype=torch.int64),
            lengths=np.array([len(row)], np.int64),
            padded_length=None,
        )
        with torch.inference_mode():
            encoded = self._model.bert(tokens.to(self._device))
            at = torch.tensor(positions, dtype=torch.int64, device=self._device)
            logits = self._model.mlm_logits(encoded.sequence, at)  # (P, V)
            return torch.softmax(logits.float(), dim=-1).cpu()


def _filled(text: str, tokens: Sequence[str]) -> str:
    parts = text.split(MASK)
    filled = parts[0]
    for token, part in zip(tokens, parts[1:], strict=False):
        # Join pieces inside words to their word.
        joined = filled.rstrip() if token.startswith(CONTINUATION) else filled
        filled = f"{joined}{token.removeprefix(CONTINUATION)}{part}"
    return filled
