"""The existing vocabulary file that a configuration names, and its text rules.

This module loads quickly, because `bertloom plan` uses it.
"""

from __future__ import annotations

import hashlib
import json

from pipelines.io.file_systems import file_system
from pipelines.io.raw_files import digest_file
from pipelines.wordpiece.text_rules import TextRules, read_text_rules
from pipelines.wordpiece.vocab_files import (
    TOKENIZER_FILE,
    VOCAB_FILE,
    is_tokenizer_json,
    read_vocab,
    vocab_text,
)
from schemas.corpus_configs import VocabularyConfig
from schemas.manifest import RawInput


def read_rules(config: VocabularyConfig) -> TextRules:
    """Return the rules of a configuration, and of its vocabulary file if it has one.

    Raises:
        VocabularyError: See `read_text_rules`.
    """
    if config.vocab_file is None:
        return TextRules(lowercase=config.lowercase)
    return read_text_rules(config.vocab_file, lowercase=config.lowercase)


def raw_inputs(config: VocabularyConfig) -> tuple[RawInput, ...]:
    """Return the vocabulary file of a configuration; its key has the tokens and the text rules.

    Raises:
        VocabularyError: The file is not a BERT vocabulary, or its case is not that of the recipe.
    """
    if config.vocab_file is None:
        return ()
    text = vocab_text(read_vocab(config.vocab_file))
    rules = read_rules(config)
    is_default = rules == TextRules(lowercase=config.lowercase)
    key = text if is_default else text + json.dumps(rules, sort_keys=True)
    fs, path = file_system(config.vocab_file)
    size, digests = digest_file(config.vocab_file)
    return (
        RawInput(
            name=TOKENIZER_FILE if is_tokenizer_json(config.vocab_file) else VOCAB_FILE,
            uri=fs.unstrip_protocol(path),
            size_bytes=size,
            sha256=digests["sha256"],
            key_digest=hashlib.sha256(key.encode()).hexdigest(),
        ),
    )
