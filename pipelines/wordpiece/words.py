"""Words as BERT sees them before WordPiece: BertNormalizer + BertPreTokenizer, many times faster.

Two facts make it fast without changing one word (`tests/pipelines/wordpiece/test_tokenizer.py`):

* U+0020 always ends a word, and nothing on one side of it changes what happens on the other. So a
  text can be cut at U+0020 first, and each distinct *chunk* of a batch be looked at once.
* What becomes of a character does not depend on its neighbours, except where canonical ordering
  (NFD, lower-cased text only) could move marks that are then kept. So what the `tokenizers` library
  does to a character is asked of it once and remembered in a table; a chunk that holds one of the
  exceptions is given to the library whole.

Cleaning, CJK, lower case, accents and punctuation are therefore always the library's own verdicts,
of the version installed; none of its Unicode tables is repeated here.
"""

from __future__ import annotations

import functools
import itertools
import unicodedata
from collections.abc import Iterator, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from tokenizers import normalizers, pre_tokenizers

from pipelines.arrays import flat_lists
from schemas.errors import InputError

Sentences: TypeAlias = pa.StringArray | pa.LargeStringArray | pa.ChunkedArray | Sequence[str]

BATCH_BYTES = 4 << 20
"""UTF-8 bytes looked at together. Larger batches repeat more chunks but take more memory, about 12
bytes of working memory for each byte of text."""

_CONTEXT_DEPENDENT = "\0"  # never comes out of the normaliser: cleaning drops U+0000


def bert_normalizer(*, lowercase: bool) -> normalizers.Normalizer:
    """Cleaning, spaces around CJK characters and, if `lowercase`, lower case without accents."""
    return normalizers.BertNormalizer(
        clean_text=True, handle_chinese_chars=True, strip_accents=None, lowercase=lowercase
    )


def bert_pre_tokenizer() -> pre_tokenizers.PreTokenizer:
    """Splits at white space, and makes each punctuation character a word."""
    return pre_tokenizers.BertPreTokenizer()


class WordSplitter:
    """Splits text into exactly the words that `BertNormalizer` and `BertPreTokenizer` make of it.

    Args:
        lowercase: lower-case and strip accents (uncased), or neither (cased).
    """

    def __init__(self, *, lowercase: bool) -> None:
        self.lowercase = lowercase
        self._table = _CharacterTable(lowercase=lowercase)
        self._ascii_lines = {code: self._table[code] for code in range(128)} | {10: "\n"}

    def words(self, text: str) -> list[str]:
        """The words of a text, normalised, in order; none if it holds only space and controls.

        >>> WordSplitter(lowercase=True).words("Café, isn't it?")
        ['cafe', ',', 'isn', "'", 't', 'it', '?']
        """
        translated = text.translate(self._table)
        if _CONTEXT_DEPENDENT in translated:
            return self._table.words_by_library(text)
        return translated.split()

    def split(self, texts: Sequence[str]) -> Iterator[list[str]]:
        """The words of each text; the more texts at once, the faster."""
        plain = [text.isascii() and "\n" not in text for text in texts]
        # One translation for all ASCII texts together takes half the time of one for each.
        lines = "\n".join(itertools.compress(texts, plain)).translate(self._ascii_lines)
        translated = iter(lines.split("\n"))
        for text, is_plain in zip(texts, plain, strict=True):
            yield next(translated).split() if is_plain else self.words(text)


@functools.cache
def word_splitter(*, lowercase: bool) -> WordSplitter:
    """A splitter to share: its table of characters is the same for everyone, and grows with use."""
    return WordSplitter(lowercase=lowercase)


class _CharacterTable(dict[int, str]):
    """For `str.translate`: what a character becomes, with a space around what is a word by itself.

    Filled as characters are met; bounded by the number of Unicode characters.
    """

    def __init__(self, *, lowercase: bool) -> None:
        super().__init__()
        self._lowercase = lowercase
        self._normalizer = bert_normalizer(lowercase=lowercase)
        self._pre_tokenizer = bert_pre_tokenizer()

    def __missing__(self, code_point: int) -> str:
        replacement = self._replacement(chr(code_point))
        self[code_point] = replacement
        return replacement

    def words_by_library(self, text: str) -> list[str]:
        normalized = self._normalizer.normalize_str(text)
        return [word for word, _ in self._pre_tokenizer.pre_tokenize_str(normalized)]

    def _replacement(self, character: str) -> str:
        normalized = self._normalizer.normalize_str(character)
        if self._lowercase and _can_be_reordered(character, normalized):
            return _CONTEXT_DEPENDENT
        return "".join(self._spaced(part) for part in normalized)

    def _spaced(self, character: str) -> str:
        between = [word for word, _ in self._pre_tokenizer.pre_tokenize_str(f"a{character}a")]
        if between == ["a", "a"]:
            return " "
        return f" {character} " if len(between) == 3 else character


def _can_be_reordered(character: str, normalized: str) -> bool:
    """Whether canonical ordering may tell this character's place from its neighbours.

    Only characters of a combining class above 0 are ever moved, and those that are dropped as
    accents do no harm: dropping them leaves the others in the same order. Classes of assigned
    characters never change (Unicode stability policy), those of unassigned ones are not known.
    """
    return unicodedata.category(character) == "Cn" or any(map(unicodedata.combining, normalized))


def sentence_batches(sentences: Sentences, *, max_bytes: int = BATCH_BYTES) -> Iterator[pa.Array]:
    """Cut sentences into runs of about `max_bytes` UTF-8 bytes (a longer sentence is one run).

    Raises:
        InputError: a sentence is null.
    """
    if isinstance(sentences, pa.ChunkedArray):
        arrays = sentences.chunks
    elif isinstance(sentences, pa.Array):
        arrays = [sentences]
    else:
        arrays = [pa.array(sentences, pa.large_string())]
    for array in arrays:
        if array.null_count:
            row = pc.index(array.is_null(), True).as_py()
            raise InputError(
                f"sentence {row} is null, expected text: drop it, or write an empty string"
            )
        ends = np.cumsum(pc.binary_length(array).to_numpy(zero_copy_only=False), dtype=np.int64)
        yield from _cut(array, ends, max_bytes=max_bytes)


def _cut(array: pa.Array, ends: npt.NDArray[np.int64], *, max_bytes: int) -> Iterator[pa.Array]:
    start = 0
    while start < len(array):
        before = int(ends[start - 1]) if start else 0
        stop = int(np.searchsorted(ends, before + max_bytes, side="right"))
        stop = max(stop, start + 1)
        yield array.slice(start, stop - start)
        start = stop


class Chunks:
    """The chunks between U+0020 of one batch of sentences.

    Attributes:
        distinct: each different chunk once.
        index: for each chunk of the batch, in order, which of `distinct` it is.
        offsets: sentence i has the chunks `offsets[i]` to `offsets[i + 1]`.
    """

    def __init__(self, batch: pa.Array) -> None:
        lists = pc.split_pattern(batch, " ")
        values, self.offsets = flat_lists(lists)
        encoded = values.dictionary_encode()
        self.distinct: list[str] = encoded.dictionary.to_pylist()
        self.index: pa.Int32Array = encoded.indices
