"""DOC"""

from __future__ import annotations

import functools
import itertools
import json
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Self, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from pipelines.arrays import TokenIds, flat_lists
from pipelines.io.stage_inputs import InputFile
from pipelines.wordpiece.vocab_files import (
    CLS,
    CONTINUATION,
    SEP,
    SPECIAL_TOKENS,
    UNK,
    check_vocab,
    read_vocab,
)
from schemas.arrow import token_type
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


class FastPreTokenizer:
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

        >>> FastPreTokenizer(lowercase=True).words("Café, isn't it?")
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
def pre_tokenizer(*, lowercase: bool) -> FastPreTokenizer:
    """A splitter to share: its table of characters is the same for everyone, and grows with use."""
    return FastPreTokenizer(lowercase=lowercase)


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


MAX_WORD_CHARACTERS = 200  # a longer word is [UNK] (google-research/bert tokenization.py, line 303)
MAX_REMEMBERED_CHARACTERS = 64
"""Longer chunks (URLs; whole sentences of languages without spaces) are not worth remembering."""


class WordPieceTokenizer:
    """Gives the ids of BertNormalizer + BertPreTokenizer + WordPiece, without special tokens.

    It runs in the caller's thread alone. Two threads must not share one.

    Args:
        vocab: the pieces, in the order of their ids.
        lowercase: whether the vocabulary is uncased (lower-cased, accents stripped) or cased.
        word_cache_size: distinct chunks whose ids are remembered, about 200 bytes each; the memory
            is emptied when the next batch would not fit. No id depends on it.

    Attributes:
        vocab, vocab_size: the pieces and their number.
        pad_id, unk_id, cls_id, sep_id, mask_id: ids of [PAD], [UNK], [CLS], [SEP] and [MASK].
        is_continuation: bool of shape (vocab_size,), true for pieces that go on with a word (##).
        id_type: the NumPy type of ids, uint16 up to 65,536 pieces and uint32 above.

    Raises:
        VocabularyError: a special token is missing, or a piece is repeated, empty or malformed.
    """

    def __init__(
        self, vocab: Sequence[str], *, lowercase: bool, word_cache_size: int = 1 << 20
    ) -> None:
        self.vocab = tuple(vocab)
        check_vocab(self.vocab)
        self.vocab_size = len(self.vocab)
        self.lowercase = lowercase
        self.word_cache_size = word_cache_size
        self.id_type: np.dtype[Any] = np.dtype(str(token_type(self.vocab_size)))
        self.is_continuation = np.array([piece.startswith(CONTINUATION) for piece in self.vocab])
        self._id_of = {piece: index for index, piece in enumerate(self.vocab)}
        self.pad_id, self.unk_id, self.cls_id, self.sep_id, self.mask_id = (
            self._id_of[token] for token in SPECIAL_TOKENS
        )
        self._splitter = pre_tokenizer(lowercase=lowercase)
        self._word_ids = _WordIds(_model(self.vocab))
        self._row_of: dict[str, int] = {}
        self._remembered = _RaggedIds(self.id_type)

    @classmethod
    def from_vocab_file(
        cls, file: str | InputFile, *, lowercase: bool, word_cache_size: int = 1 << 20
    ) -> Self:
        """Read a vocab.txt, as `read_vocab` does.

        Raises:
            VocabularyError: the file is missing, or is no vocabulary; the message names the line.
            ArtifactCorruptError: it is not the artifact's.
        """
        return cls(read_vocab(file), lowercase=lowercase, word_cache_size=word_cache_size)

    def encode_sentences(self, sentences: Sentences) -> tuple[TokenIds, npt.NDArray[np.uint32]]:
        """Encode sentences; the more at once (some megabytes), the faster.

        Args:
            sentences: an Arrow string array (or chunked array), or a list of str.

        Returns:
            ids: the ids of all sentences end to end, of `id_type`.
            lengths: how many of them each sentence has, uint32 of shape (sentences,).

        Raises:
            InputError: a sentence is null.
        """
        ids: list[npt.NDArray[Any]] = [np.empty(0, self.id_type)]
        lengths = [np.empty(0, np.uint32)]
        for batch in sentence_batches(sentences):
            chunks = Chunks(batch)
            rows = self._rows(chunks.distinct).take(chunks.index)
            ends = rows.offsets.to_numpy()
            ids.append(rows.values.to_numpy())
            lengths.append(np.diff(ends[chunks.offsets]).astype(np.uint32))
        return np.concatenate(ids), np.concatenate(lengths)

    def encode(self, sentence: str) -> list[int]:
        """The ids of one sentence, for looking at; `encode_sentences` is the fast way."""
        return [int(index) for index in self.encode_sentences([sentence])[0]]

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """The pieces that ids stand for."""
        return [self.vocab[index] for index in ids]

    def _rows(self, distinct: list[str]) -> pa.ListArray:
        """The ids of each of these chunks, a list each; the new ones are remembered."""
        rows = self._look_up(distinct)
        if int((rows < 0).sum()) > self.word_cache_size - len(self._row_of):
            self._row_of.clear()
            self._remembered.truncate(0)
            rows[:] = -1
        remembered = len(self._row_of)
        room = self.word_cache_size - remembered
        keep: list[int] = []
        rest: list[int] = []
        for i in np.flatnonzero(rows < 0).tolist():
            (keep if len(distinct[i]) <= MAX_REMEMBERED_CHARACTERS else rest).append(i)
        ordered = keep + rest  # the rows that stay come first, so that the rest can be cut off
        kept = min(len(keep), room)
        chunks = [distinct[i] for i in ordered]
        rows[ordered] = np.arange(remembered, remembered + len(ordered))
        self._remembered.append(*self._encode(chunks))
        lists = self._remembered.lists().take(pa.array(rows))
        self._row_of.update(zip(chunks[:kept], range(remembered, remembered + kept), strict=True))
        self._remembered.truncate(len(self._row_of))
        return lists

    def _look_up(self, distinct: list[str]) -> npt.NDArray[np.int64]:
        found = map(self._row_of.get, distinct, itertools.repeat(-1))
        return np.fromiter(found, np.int64, len(distinct))

    def _encode(self, chunks: list[str]) -> tuple[list[int], list[int]]:
        """The ids of new chunks end to end, and how many each has."""
        if len(self._word_ids) > self.word_cache_size:
            self._word_ids.clear()
        ids: list[int] = []
        ends: list[int] = [0]
        word_ids = self._word_ids
        for words in self._splitter.split(chunks):
            for word in words:
                ids += word_ids[word]
            ends.append(len(ids))
        return ids, ends


class _WordIds(dict[str, tuple[int, ...]]):
    """The ids of words met before; the library's own WordPiece gives those of new ones."""

    def __init__(self, model: models.WordPiece) -> None:
        super().__init__()
        self._model = model

    def __missing__(self, word: str) -> tuple[int, ...]:
        ids = tuple(token.id for token in self._model.tokenize(word))
        if len(word) <= MAX_REMEMBERED_CHARACTERS:
            self[word] = ids
        return ids


class _RaggedIds:
    """Rows of ids end to end, in buffers that grow by doubling."""

    def __init__(self, id_type: np.dtype[Any]) -> None:
        self._ids = np.empty(1 << 12, id_type)
        self._offsets = np.zeros(1 << 12, np.int32)  # int32 as in an Arrow list
        self._rows = 0

    def append(self, ids: list[int], ends: list[int]) -> None:
        """Append rows: row i has the ids from `ends[i]` to `ends[i + 1]`."""
        first, start = self._rows, int(self._offsets[self._rows])
        self._rows += len(ends) - 1
        self._ids = _with_room(self._ids, start + len(ids))
        self._offsets = _with_room(self._offsets, self._rows + 1)
        self._ids[start : start + len(ids)] = ids
        self._offsets[first : self._rows + 1] = ends
        self._offsets[first : self._rows + 1] += start

    def truncate(self, rows: int) -> None:
        self._rows = rows

    def lists(self) -> pa.ListArray:
        """A view, good until the next `append`."""
        offsets = self._offsets[: self._rows + 1]
        return pa.ListArray.from_arrays(pa.array(offsets), pa.array(self._ids[: offsets[-1]]))


def _with_room(buffer: npt.NDArray[Any], size: int) -> npt.NDArray[Any]:
    if size <= len(buffer):
        return buffer
    grown = np.zeros(max(size, 2 * len(buffer)), buffer.dtype)
    grown[: len(buffer)] = buffer
    return grown


def _model(vocab: Sequence[str]) -> models.WordPiece:
    return models.WordPiece(
        {piece: index for index, piece in enumerate(vocab)},
        unk_token=UNK,
        max_input_chars_per_word=MAX_WORD_CHARACTERS,
        continuing_subword_prefix=CONTINUATION,
    )


def bert_tokenizer(vocab: Sequence[str], *, lowercase: bool) -> Tokenizer:
    """The `tokenizers` tokenizer whose ids `WordPieceTokenizer` gives: no special tokens added."""
    tokenizer = Tokenizer(_model(vocab))
    tokenizer.normalizer = bert_normalizer(lowercase=lowercase)
    tokenizer.pre_tokenizer = bert_pre_tokenizer()
    tokenizer.decoder = decoders.WordPiece(prefix=CONTINUATION)
    return tokenizer


def tokenizer_json(vocab: Sequence[str], *, lowercase: bool) -> str:
    """A tokenizer.json for `tokenizers` and `transformers`, for use downstream.

    It adds the five special tokens and puts `[CLS] A [SEP] B [SEP]` around what it encodes, as
    fine-tuning code expects. "[MASK]" written in a text is then the special token.

    Raises:
        VocabularyError: as for `WordPieceTokenizer`.
    """
    check_vocab(vocab)
    tokenizer = bert_tokenizer(vocab, lowercase=lowercase)
    tokenizer.add_special_tokens(list(SPECIAL_TOKENS))
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{CLS}:0 $A:0 {SEP}:0",
        pair=f"{CLS}:0 $A:0 {SEP}:0 $B:1 {SEP}:1",
        special_tokens=[(token, vocab.index(token)) for token in (CLS, SEP)],
    )
    return str(tokenizer.to_str(pretty=False))


def tokenizer_config_json(*, lowercase: bool) -> str:
    """The tokenizer_config.json that `transformers.AutoTokenizer` needs beside a tokenizer.json.

    It names the class that takes a tokenizer.json as it is: `BertTokenizerFast` loads the folder as
    well, but of transformers 5 it makes [UNK] of words of more than 100 characters, not 200.
    """
    named = zip(("pad", "unk", "cls", "sep", "mask"), SPECIAL_TOKENS, strict=True)
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "do_lower_case": lowercase,
        "model_input_names": ["input_ids", "token_type_ids", "attention_mask"],
        "model_max_length": 512,  # paper A.2
        **{f"{name}_token": token for name, token in named},
    }
    return json.dumps(config, indent=2, sort_keys=True) + "\n"
