"""What `build-vocabulary` reads besides documents: the vocab.txt that a recipe may give."""

from __future__ import annotations

import hashlib

from pipelines.io.file_systems import file_system
from pipelines.wordpiece.vocab_files import VOCAB_FILE, read_vocab, vocab_text
from schemas.configs import VocabularyConfig
from schemas.manifest import RawInput


def raw_inputs(config: VocabularyConfig) -> tuple[RawInput, ...]:
    """The given vocab.txt with its digest, if one is given."""
    if config.vocab_file is None:
        return ()
    fs, path = file_system(config.vocab_file)
    text = vocab_text(read_vocab(config.vocab_file)).encode()
    digest = hashlib.sha256(text).hexdigest()
    return (
        RawInput(
            name=VOCAB_FILE,
            uri=fs.unstrip_protocol(path),
            size=len(text),
            sha256=digest,
            checksum="",
            identity=digest,
        ),
    )
