"""`build-vocabulary`: count words with Beam, train a WordPiece vocabulary from the counts.

Training runs on the launching machine. A configured vocab.txt is used unchanged instead.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import gc
import hashlib
import json
import sys
from collections.abc import Mapping

from pipelines.counters import Counters
from pipelines.io.file_systems import file_system
from pipelines.io.files import write_text_file
from pipelines.io.raw_files import digest_file
from pipelines.io.stage_inputs import EXCLUSION_INPUTS
from pipelines.wordpiece.text_rules import TextRules, read_text_rules
from pipelines.wordpiece.vocab_files import (
    TOKENIZER_CONFIG_FILE,
    TOKENIZER_FILE,
    VOCAB_FILE,
    is_tokenizer_json,
    read_vocab,
    vocab_text,
)
from schemas.corpus_configs import VocabularyConfig
from schemas.execution_configs import ExecutionConfig
from schemas.manifest import FileEntry, RawInput, StageInput, StageOutput
from schemas.stage import Stage


def _read_rules(config: VocabularyConfig) -> TextRules:
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
    rules = _read_rules(config)
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


def build_vocabulary(
    config: VocabularyConfig,
    *,
    inputs: Mapping[str, StageInput],
    output: str,
    execution: ExecutionConfig,
    pieces: str = "",
) -> StageOutput:
    """Count the words of `documents` and train a vocabulary, or read the configured one.

    Raises:
        VocabularyError: The corpus is too small for the vocabulary size, or the configured file is
            not a BERT vocabulary.
    """
    from pipelines.documents.exclusions import exclusion_tables
    from pipelines.documents.word_counts import count_corpus
    from pipelines.wordpiece.tokenizer import tokenizer_config_json, tokenizer_json
    from pipelines.wordpiece.vocab_training import train_vocabulary

    rules = _read_rules(config)
    files: list[FileEntry] = []
    counters = Counters()
    reuse = None
    if config.vocab_file is not None:
        vocab = read_vocab(config.vocab_file)
    else:
        counted = count_corpus(
            config,
            inputs["documents"],
            exclusions=exclusion_tables(inputs),
            output=output,
            execution=execution,
            pieces=pieces,
        )
        counters.update(counted.counters)
        files += counted.files
        reuse = counted.reuse
        vocab = train_vocabulary(counted.words, config)
        del counted
        _release_freed_memory()
    counters["vocabulary-size"] = len(vocab)
    files += [
        write_text_file(VOCAB_FILE, vocab_text(vocab), output=output),
        write_text_file(TOKENIZER_FILE, tokenizer_json(vocab, **rules), output=output),
        write_text_file(TOKENIZER_CONFIG_FILE, tokenizer_config_json(**rules), output=output),
    ]
    return StageOutput(
        files=tuple(files),
        counters=dict(sorted(counters.items())),
        statistics={**rules, "vocab_size": len(vocab)},
        table_name="vocabulary",
        raw_inputs=raw_inputs(config),
        reuse=reuse,
    )


def _release_freed_memory() -> None:
    """Return freed memory to the system: later steps run in this process, too."""
    import pyarrow as pa  # lazy: `plan` does not need it

    gc.collect()
    pa.default_memory_pool().release_unused()
    if sys.platform == "linux" and (name := ctypes.util.find_library("c")):
        trim = getattr(ctypes.CDLL(name), "malloc_trim", None)  # musl has none
        if trim is not None:
            trim(0)


STAGE = Stage(
    name="build-vocabulary",
    module=__name__,
    version=4,
    run=build_vocabulary,
    config=VocabularyConfig,
    output_type="vocabulary",
    libraries=("pyarrow", "tokenizers"),
    python_independent=True,
    inputs=("documents",),
    optional_inputs=EXCLUSION_INPUTS,
    raw_inputs=raw_inputs,
    supports_reuse=True,
    summarize=lambda manifest: f"{manifest.statistics['vocab_size']:,} word pieces",
)
