"""`build-vocabulary`: count words with Beam, train a WordPiece vocabulary from the counts.

Training runs on the launching machine. A configured vocab.txt is used unchanged instead.
"""

from __future__ import annotations

from collections.abc import Mapping

from pipelines.counters import Counters
from pipelines.documents.exclusions import exclusion_tables
from pipelines.io.files import write_text_file
from pipelines.vocabulary.raw_inputs import raw_inputs, read_rules
from pipelines.vocabulary.training import train_vocabulary
from pipelines.vocabulary.word_counts import count_corpus
from pipelines.wordpiece.tokenizer import tokenizer_config_json, tokenizer_json
from pipelines.wordpiece.vocab_files import (
    TOKENIZER_CONFIG_FILE,
    TOKENIZER_FILE,
    VOCAB_FILE,
    read_vocab,
    vocab_text,
)
from schemas.corpus_configs import VocabularyConfig
from schemas.execution_configs import ExecutionConfig
from schemas.manifest import FileEntry, StageInput, StageOutput


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
    rules = read_rules(config)
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
