"""The vocabulary file that a recipe may give to `build-vocabulary`."""

from __future__ import annotations

import hashlib

from pipelines.io.file_systems import file_system
from pipelines.wordpiece.vocab_files import (
    TOKENIZER_FILE,
    VOCAB_FILE,
    is_tokenizer_json,
    read_lowercase,
    read_vocab,
    vocab_text,
)
from schemas.corpus_configs import VocabularyConfig
from schemas.errors import VocabularyError
from schemas.manifest import RawInput


def raw_inputs(config: VocabularyConfig) -> tuple[RawInput, ...]:
    """Return the given vocabulary file with the digest of its pieces, if one is given.

    Raises:
        VocabularyError: The file is not a BERT vocabulary, or its case is not that of the recipe.
    """
    if config.vocab_file is None:
        return ()
    text = vocab_text(read_vocab(config.vocab_file)).encode()
    fs, path = file_system(config.vocab_file)
    is_json = is_tokenizer_json(config.vocab_file)
    if is_json and (lowercase := read_lowercase(config.vocab_file)) != config.lowercase:
        raise VocabularyError(
            f"build_vocabulary.lowercase: expected {lowercase}, as in {config.vocab_file}, got "
            f"{config.lowercase}. Change it, or give another vocab_file."
        )
    digest = hashlib.sha256(text).hexdigest()
    return (
        RawInput(
            name=TOKENIZER_FILE if is_json else VOCAB_FILE,
            uri=fs.unstrip_protocol(path),
            size_bytes=len(text),
            sha256=digest,
            checksum="",
            key_digest=digest,
        ),
    )
