"""WordPiece vocabularies: counting words, and learning pieces from the counts."""

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
from pipelines.wordpiece.tokenizer import Chunks, Sentences, pre_tokenizer, sentence_batches
from pipelines.wordpiece.vocab_files import CONTINUATION, FIXED_TOKENS, UNK
from schemas.arrow import WORD_COUNTS
from schemas.corpus_configs import VocabularyConfig
from schemas.errors import VocabularyError

MAX_TRAINING_CHARACTERS = 100  # longer words are no words; they are left out of learning

_ROWS = 1 << 18  # words looked at together
_REPEATS = 1000  # words in one text shown to the trainer


def count_words(sentences: Sentences, *, lowercase: bool) -> pa.Table:
    """Count the words of some sentences, as BertNormalizer and BertPreTokenizer make them.

    Args:
        sentences: an Arrow string array (or chunked array), or a list of str.
        lowercase: count lower-cased words without accents.

    Returns:
        A table of `schemas.arrow.WORD_COUNTS`, sorted by the words' UTF-8 bytes.

    Raises:
        InputError: a sentence is null.
    """
    splitter = pre_tokenizer(lowercase=lowercase)
    tables = []
    for batch in sentence_batches(sentences):
        chunks = Chunks(batch)
        chunk_counts = np.bincount(chunks.index.to_numpy(), minlength=len(chunks.distinct))
        found = list(splitter.split(chunks.distinct))
        words = list(itertools.chain.from_iterable(found))
        per_chunk = list(map(len, found))
        counts = np.repeat(chunk_counts, per_chunk).astype(np.uint64)
        tables.append(pa.table([pa.array(words, pa.string()), counts], schema=WORD_COUNTS))
    return merge_counts(tables)


def merge_counts(tables: Iterable[pa.Table]) -> pa.Table:
    """Add up tables of word counts; one row a word, sorted by its UTF-8 bytes."""
    together = pa.concat_tables([WORD_COUNTS.empty_table(), *tables])
    added = together.group_by("word").aggregate([("count", "sum")]).sort_by("word")
    return pa.table([added["word"], added["count_sum"]], schema=WORD_COUNTS)


def train_vocabulary(word_counts: pa.Table, config: VocabularyConfig) -> list[str]:
    """Learn a WordPiece vocabulary of exactly `config.vocab_size` pieces from word counts.

    The learner is Hugging Face's `WordPieceTrainer`: byte-pair encoding, so the most frequent pair
    of neighbouring pieces is merged, with `##` marks. It is not the likelihood-based WordPiece of
    Schuster and Nakajima (2012) that the paper cites: the learner of the published vocabularies was
    never released. The pieces are used by the same longest-match-first WordPiece either way.

    The result depends on the counts and the configuration alone. Left out of learning are words
    seen fewer than `min_frequency` times, words of more than 100 characters, and words with a
    character outside the alphabet. The alphabet is the `limit_alphabet` most frequent characters
    of all words (of equally frequent ones, the lower code points); each gets a piece of its own,
    and one with `##` if it ever stands inside a word.

    If what is left has more than `max_training_words` running words, the counts are scaled down to
    it: every word keeps 1, and the rest of the budget is shared in proportion to count - 1, rounded
    down. Of more distinct words than that, only the most frequent are kept.

    Returns:
        [PAD] at 0, [unused0] to [unused98] at 1 to 99, [UNK] 100, [CLS] 101, [SEP] 102, [MASK] 103,
        then the single characters by code point, plain ones first, then merges as they were learnt.

    Raises:
        VocabularyError: the corpus does not yield that many pieces, or the alphabet alone is more.
    """
    short = _short_words(word_counts)
    alphabet, inner = _alphabet(short, size=config.limit_alphabet)
    fixed = [*FIXED_TOKENS, *alphabet, *(CONTINUATION + character for character in inner)]
    if len(fixed) > config.vocab_size:
        raise VocabularyError(
            f"the {len(alphabet)} characters of the alphabet take {len(fixed)} pieces with the "
            f"special and unused ones, expected at most vocab_size, {config.vocab_size}: set "
            "build_vocabulary.vocab_size higher or build_vocabulary.limit_alphabet lower"
        )
    learnable = _learnable(short, alphabet, min_frequency=config.min_frequency)
    shown = scale_counts(learnable, budget=config.max_training_words)
    vocab = _train(shown, fixed=fixed, vocab_size=config.vocab_size)
    if len(vocab) != config.vocab_size:
        raise VocabularyError(
            f"the corpus gives {len(vocab)} pieces ({learnable.num_rows} words seen at least "
            f"{config.min_frequency} times, {len(alphabet)} characters), expected vocab_size, "
            f"{config.vocab_size}: set build_vocabulary.vocab_size to {len(vocab)} or less, set "
            "build_vocabulary.min_frequency lower, or give it more text"
        )
    return vocab


def scale_counts(word_counts: pa.Table, *, budget: int) -> pa.Table:
    """Scale counts down so that they add up to at most `budget` (at least 1) running words.

    Counts that fit are returned as they are. Otherwise each word keeps 1, and the rest of the
    budget is shared in proportion to count - 1, rounded down. Of more words than `budget`, only the
    most frequent keep their 1 (of equally frequent ones, the first by UTF-8 bytes).
    """
    if (pc.sum(word_counts["count"]).as_py() or 0) <= budget:
        return word_counts
    if word_counts.num_rows > budget:
        order = [("count", "descending"), ("word", "ascending")]
        word_counts = word_counts.sort_by(order).slice(0, budget).sort_by("word")
    counts: list[int] = word_counts["count"].to_pylist()  # Python's integers cannot overflow
    spare, wanted = budget - len(counts), sum(counts) - len(counts)
    scaled = [1 + (count - 1) * spare // max(wanted, 1) for count in counts]
    return pa.table([word_counts["word"], pa.array(scaled, pa.uint64())], schema=WORD_COUNTS)


def _short_words(word_counts: pa.Table) -> pa.Table:
    characters = pc.utf8_length(word_counts["word"])
    fits = pc.and_(pc.greater(characters, 0), pc.less_equal(characters, MAX_TRAINING_CHARACTERS))
    return word_counts.filter(fits)


def _alphabet(word_counts: pa.Table, *, size: int) -> tuple[list[str], list[str]]:
    """The `size` most frequent characters, and which of them stand inside words; by code point."""
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
    """The words frequent enough to learn from and made of the alphabet's characters alone."""
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
    """Code points of all words end to end, the words' lengths, and where each word starts."""
    code_points = np.frombuffer("".join(words.to_pylist()).encode("utf-32-le"), np.uint32)
    lengths = pc.utf8_length(words).to_numpy()
    return code_points, lengths, offsets_of(lengths)[:-1]


def _train(word_counts: pa.Table, *, fixed: list[str], vocab_size: int) -> list[str]:
    tokenizer = Tokenizer(models.WordPiece({}, unk_token=UNK))
    tokenizer.pre_tokenizer = pre_tokenizers.CharDelimiterSplit(" ")
    # The trainer numbers single characters inside words in the order of a hash map that differs
    # from process to process, and breaks ties between equally frequent pairs by those numbers.
    # Named as special tokens, they have fixed numbers before it looks at the first word.
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
    """Each word as often as it counts, up to 1,000 of them in a text."""
    for batch in word_counts.to_batches(max_chunksize=_ROWS):
        words, counts = batch["word"].to_pylist(), batch["count"].to_pylist()
        for word, count in zip(words, counts, strict=True):
            for done in range(0, count, _REPEATS):
                yield " ".join([word] * min(_REPEATS, count - done))
