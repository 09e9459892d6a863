"""Count words and train a WordPiece vocabulary from the counts."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from pipelines.arrays import offsets_of
from pipelines.wordpiece.tokenizer import (
    Chunks,
    Sentences,
    sentence_batches,
    shared_pre_tokenizer,
)
from pipelines.wordpiece.vocab_files import CONTINUATION, FIXED_TOKENS, UNK
from schemas.arrow import WORD_COUNTS
from schemas.corpus_configs import VocabularyConfig
from schemas.errors import VocabularyError

MAX_TRAINING_CHARACTERS = 100  # longer strings are not words

_ROWS = 1 << 18  # words per batch
_REPEATS = 1000  # words per text for the trainer
_MAX_MEAN_COUNT = 1000  # per distinct word


def count_words(sentences: Sentences, *, lowercase: bool) -> pa.Table:
    """Count the words of sentences, split by BertNormalizer and BertPreTokenizer.

    Args:
        sentences: Arrow string array (or chunked array), or list of str.
        lowercase: Whether to lowercase words and strip accents.

    Returns:
        Table of `schemas.arrow.WORD_COUNTS`, sorted by the words' UTF-8 bytes.

    Raises:
        InputError: A sentence is null.
    """
    splitter = shared_pre_tokenizer(lowercase=lowercase)
    tables = []
    for batch in sentence_batches(sentences):
        chunks = Chunks(batch)
        chunk_counts = np.bincount(chunks.index.to_numpy(), minlength=len(chunks.distinct))
        split = list(splitter.split(chunks.distinct))
        words = list(itertools.chain.from_iterable(split))
        per_chunk = list(map(len, split))
        counts = np.repeat(chunk_counts, per_chunk).astype(np.uint64)
        tables.append(pa.table([pa.array(words, pa.string()), counts], schema=WORD_COUNTS))
    return merge_counts(tables)


def merge_counts(tables: Iterable[pa.Table]) -> pa.Table:
    """Add tables of word counts: one row per word, sorted by UTF-8 bytes."""
    together = pa.concat_tables([WORD_COUNTS.empty_table(), *tables])
    added = together.group_by("word").aggregate([("count", "sum")]).sort_by("word")
    return pa.table([added["word"], added["count_sum"]], schema=WORD_COUNTS)


def train_vocabulary(word_counts: pa.Table, config: VocabularyConfig) -> list[str]:
    """Train a WordPiece vocabulary of exactly `config.vocab_size` tokens from word counts.

    Hugging Face's `WordPieceTrainer` merges the most frequent pair of neighboring tokens (byte-pair
    encoding) with `##` marks. It is not the likelihood-based WordPiece of Schuster and Nakajima
    (2012) that the paper cites, whose trainer was never released. Both vocabularies are used by the
    same longest-match-first WordPiece.

    The result depends only on the counts and the configuration. Words are ignored if their count is
    below `min_frequency`, if they have more than 100 characters, or a character outside the
    alphabet. The alphabet is the `limit_alphabet` most frequent characters (of equally frequent
    ones, the lower code points). Each gets a token, and one with `##` if it occurs inside a word.

    The trainer counts words one by one, so its time grows with the sum of counts. Counts are scaled
    down (`scale_counts`) to at most `max_training_words`, and to 1,000 per distinct word: the mean
    count of real corpora is lower.

    Returns:
        [PAD] at 0, [unused0] to [unused98] at 1 to 99, [UNK] 100, [CLS] 101, [SEP] 102, [MASK] 103,
        then the alphabet by code point, then the alphabet with `##`, then merges in their order.

    Raises:
        VocabularyError: The corpus gives fewer tokens, or the alphabet has more.
    """
    short = _short_words(word_counts)
    alphabet, inner = _alphabet(short, size=config.limit_alphabet)
    fixed = [*FIXED_TOKENS, *alphabet, *(CONTINUATION + character for character in inner)]
    if len(fixed) > config.vocab_size:
        raise VocabularyError(
            f"build_vocabulary.vocab_size: expected at least {len(fixed)}, for the special tokens "
            f"and {len(alphabet)} characters, got {config.vocab_size}. Increase it or decrease "
            "limit_alphabet"
        )
    learnable = _learnable(short, alphabet, min_frequency=config.min_frequency)
    budget = min(config.max_training_words, _MAX_MEAN_COUNT * max(1, learnable.num_rows))
    scaled = scale_counts(learnable, budget=budget)
    vocab = _train(scaled, fixed=fixed, vocab_size=config.vocab_size)
    if len(vocab) != config.vocab_size:
        raise VocabularyError(
            f"build_vocabulary.vocab_size: expected at most {len(vocab)}, which is what the corpus "
            f"gives ({learnable.num_rows} words with a count of at least {config.min_frequency}, "
            f"{len(alphabet)} characters), got {config.vocab_size}. Decrease vocab_size or "
            "min_frequency, or add text"
        )
    return vocab


def scale_counts(word_counts: pa.Table, *, budget: int) -> pa.Table:
    """Scale counts down so that their sum is at most `budget`, at least 1.

    Counts that fit are not changed. Otherwise each word keeps 1, and the rest of the budget is
    shared in proportion to count - 1, rounded down. If there are more words than `budget`, only the
    most frequent keep their 1 (of equally frequent ones, the first by UTF-8 bytes).
    """
    if (pc.sum(word_counts["count"]).as_py() or 0) <= budget:
        return word_counts
    if word_counts.num_rows > budget:
        order = [("count", "descending"), ("word", "ascending")]
        word_counts = word_counts.sort_by(order).slice(0, budget).sort_by("word")
    counts: list[int] = word_counts["count"].to_pylist()  # Python integers do not overflow
    spare, wanted = budget - len(counts), sum(counts) - len(counts)
    scaled = [1 + (count - 1) * spare // max(wanted, 1) for count in counts]
    return pa.table([word_counts["word"], pa.array(scaled, pa.uint64())], schema=WORD_COUNTS)


def _short_words(word_counts: pa.Table) -> pa.Table:
    characters = pc.utf8_length(word_counts["word"])
    fits = pc.and_(pc.greater(characters, 0), pc.less_equal(characters, MAX_TRAINING_CHARACTERS))
    return word_counts.filter(fits)


def _alphabet(word_counts: pa.Table, *, size: int) -> tuple[list[str], list[str]]:
    """Return the `size` most frequent characters, and those of them inside words, by code point."""
    counts = np.zeros(sys.maxunicode + 1)  # float64 is exact up to 2**53 characters
    inside = np.zeros(sys.maxunicode + 1, np.bool_)
    for batch in word_counts.to_batches(max_chunksize=_ROWS):
        code_points, lengths, starts = _code_points(batch["word"])
        weights = np.repeat(batch["count"].to_numpy(), lengths)
        counts += np.bincount(code_points, weights, minlength=len(counts))
        inside[np.delete(code_points, starts)] = True
    present = np.flatnonzero(counts)
    kept = present[np.argsort(-counts[present], kind="stable")[:size]]
    alphabet = [chr(code_point) for code_point in sorted(kept.tolist())]
    return alphabet, [character for character in alphabet if inside[ord(character)]]


def _learnable(word_counts: pa.Table, alphabet: list[str], *, min_frequency: int) -> pa.Table:
    """Return the words that are frequent enough and have only characters of the alphabet."""
    frequent = word_counts.filter(pc.greater_equal(word_counts["count"], min_frequency))
    foreign = np.ones(sys.maxunicode + 1, np.bool_)
    foreign[[ord(character) for character in alphabet]] = False
    kept = []
    for batch in frequent.to_batches(max_chunksize=_ROWS):
        code_points, _, starts = _code_points(batch["word"])
        kept.append(batch.filter(pa.array(~np.logical_or.reduceat(foreign[code_points], starts))))
    return pa.Table.from_batches(kept, WORD_COUNTS)


def _code_points(
    words: pa.StringArray,
) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.int32], npt.NDArray[np.int64]]:
    """Return the code points of all words end to end, and the length and start of each word."""
    code_points = np.frombuffer("".join(words.to_pylist()).encode("utf-32-le"), np.uint32)
    lengths = pc.utf8_length(words).to_numpy()
    return code_points, lengths, offsets_of(lengths)[:-1]


def _train(word_counts: pa.Table, *, fixed: list[str], vocab_size: int) -> list[str]:
    tokenizer = Tokenizer(models.WordPiece({}, unk_token=UNK))
    tokenizer.pre_tokenizer = pre_tokenizers.CharDelimiterSplit(" ")
    # The trainer numbers characters inside words in the order of a hash map, which differs between
    # processes, and breaks ties of equally frequent pairs by these numbers. As special tokens, the
    # characters have fixed numbers.
    trainer = trainers.WordPieceTrainer(
        vocab_size=vocab_size,
        special_tokens=fixed,
        continuing_subword_prefix=CONTINUATION,
        show_progress=False,
    )
    tokenizer.train_from_iterator(_running_words(word_counts), trainer)
    id_of = tokenizer.get_vocab(with_added_tokens=False)
    return sorted(id_of, key=id_of.__getitem__)


def _running_words(word_counts: pa.Table) -> Iterator[str]:
    """Yield each word as often as its count, up to 1,000 words per text."""
    for batch in word_counts.to_batches(max_chunksize=_ROWS):
        words, counts = batch["word"].to_pylist(), batch["count"].to_pylist()
        for word, count in zip(words, counts, strict=True):
            for done in range(0, count, _REPEATS):
                yield " ".join([word] * min(_REPEATS, count - done))
