"""What making instances needs to know of a vocabulary, read from its vocab.txt."""

from __future__ import annotations

import numpy as np

from pipelines.instances.masking import VocabularyIds
from pipelines.io.stage_inputs import InputFile
from pipelines.wordpiece.vocab_files import CLS, CONTINUATION, MASK, SEP, read_vocab


def read_vocabulary_ids(file: str | InputFile) -> VocabularyIds:
    """The ids of special tokens, and which pieces go on with a word.

    Args:
        file: as of `pipelines.wordpiece.vocab_files.read_vocab`, which raises the same errors.
    """
    vocab = read_vocab(file)
    return VocabularyIds(
        vocab_size=len(vocab),
        cls_id=vocab.index(CLS),
        sep_id=vocab.index(SEP),
        mask_id=vocab.index(MASK),
        is_continuation=np.array([piece.startswith(CONTINUATION) for piece in vocab]),
    )
