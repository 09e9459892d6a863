"""BERT pre-tokenizer and WordPiece ids, equal to those of the `tokenizers` library.

The normalization of a character does not depend on its neighbors, except for accents that Unicode
may reorder, which the library normalizes. So text is split at U+0020 first, and each distinct chunk
of a batch is normalized, split and looked up once. `WordPieceTokenizer` caches the ids of chunks
and gathers the ids of a batch with NumPy.

Special tokens written in the text are ordinary text: "[MASK]" gives the tokens of "[", "mask" and
"]", never the id of [MASK], as in the paper's own tokenizer, so that a dump cannot contain special
tokens. A `tokenizers` or `transformers` tokenizer with added special tokens, such as the one of
`tokenizer_json`, differs in this respect.
"""

from __future__ import annotations

import functools
import itertools
import json
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Self, TypeAlias, Unpack

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from pipelines.arrays import TokenIds, flat_lists, with_room
from pipelines.io.stage_inputs import InputFile
from pipelines.wordpiece.text_rules import TextRules, get_text_rules
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
"""UTF-8 bytes per batch. A batch takes about 12 bytes of memory for each byte of text."""

_CONTEXT_DEPENDENT = "\0"  # unused otherwise: the normalizer drops U+0000


def bert_normalizer(**rules: Unpack[TextRules]) -> normalizers.Normalizer:
    """Return BERT's normalizer: cleaning, spaces around CJK characters, optional lower case."""
    return normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=rules.get("tokenize_chinese_chars", True),
        strip_accents=rules.get("strip_accents"),
        lowercase=rules["lowercase"],
    )


def bert_pre_tokenizer() -> pre_tokenizers.PreTokenizer:
    """Return BERT's pre-tokenizer: white space separates words, a punctuation character is one."""
    return pre_tokenizers.BertPreTokenizer()


class FastPreTokenizer:
    """Splits text into the same words as `BertNormalizer` and `BertPreTokenizer`.

    Args:
        rules: Rules of the normalizer. `lowercase` alone: True: lowercase and strip accents
            (uncased). False: neither (cased).
    """

    def __init__(self, **rules: Unpack[TextRules]) -> None:
        self._table = _CharacterTable(**rules)
        self._ascii_lines = {code: self._table[code] for code in range(128)} | {10: "\n"}

    def words(self, text: str) -> list[str]:
        """Return the normalized words of a text in order.

        >>> FastPreTokenizer(lowercase=True).words("Café, isn't it?")
        ['cafe', ',', 'isn', "'", 't', 'it', '?']
        """
        translated = text.translate(self._table)
        if _CONTEXT_DEPENDENT in translated:
            return self._table.words_by_library(text)
        return translated.split()

    def split(self, texts: Sequence[str]) -> Iterator[list[str]]:
        """Yield the words of each text. Larger lists are faster."""
        plain = [text.isascii() and "\n" not in text for text in texts]
        # One translation of all ASCII texts is faster than one per text.
        lines = "\n".join(itertools.compress(texts, plain)).translate(self._ascii_lines)
        translated = iter(lines.split("\n"))
        for text, is_plain in zip(texts, plain, strict=True):
            yield next(translated).split() if is_plain else self.words(text)


@functools.cache
def shared_pre_tokenizer(**rules: Unpack[TextRules]) -> FastPreTokenizer:
    """Return a shared pre-tokenizer, whose table of characters grows with use."""
    return FastPreTokenizer(**rules)


class _CharacterTable(dict[int, str]):
    """Table for `str.translate`, filled on demand, with spaces around punctuation."""

    def __init__(self, **rules: Unpack[TextRules]) -> None:
        super().__init__()
        self._strips_accents = rules.get("strip_accents", rules["lowercase"])
        self._normalizer = bert_normalizer(**rules)
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
        if self._strips_accents and _can_be_reordered(character, normalized):
            return _CONTEXT_DEPENDENT
        return "".join(self._spaced(part) for part in normalized)

    def _spaced(self, character: str) -> str:
        between = [word for word, _ in self._pre_tokenizer.pre_tokenize_str(f"a{character}a")]
        if between == ["a", "a"]:
            return " "
        return f" {character} " if len(between) == 3 else character


def _can_be_reordered(character: str, normalized: str) -> bool:
    """Return whether canonical ordering may move this character relative to its neighbors.

    Only characters of a combining class above 0 are moved. Accents that are dropped do not matter,
    because dropping them keeps the order of the others. Classes of assigned characters never change
    (Unicode stability policy); those of unassigned characters are unknown.
    """
    return unicodedata.category(character) == "Cn" or any(map(unicodedata.combining, normalized))


def sentence_batches(sentences: Sentences, *, max_bytes: int = BATCH_BYTES) -> Iterator[pa.Array]:
    """Yield batches of about `max_bytes` UTF-8 bytes; a longer sentence is one batch.

    Raises:
        InputError: A sentence is null.
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
                f"sentence {row}: expected text, got null. Drop it, or use an empty string"
            )
        ends = np.cumsum(pc.binary_length(array).to_numpy(zero_copy_only=False), dtype=np.int64)
        yield from _slices(array, ends, max_bytes=max_bytes)


def _slices(array: pa.Array, ends: npt.NDArray[np.int64], *, max_bytes: int) -> Iterator[pa.Array]:
    start = 0
    while start < len(array):
        before = int(ends[start - 1]) if start else 0
        stop = int(np.searchsorted(ends, before + max_bytes, side="right"))
        stop = max(stop, start + 1)
        yield array.slice(start, stop - start)
        start = stop


class Chunks:
    """Chunks between U+0020 of one batch of sentences.

    Attributes:
        distinct: Distinct chunks.
        index: Index in `distinct` of each chunk of the batch, in order.
        offsets: Sentence i has the chunks `offsets[i]` to `offsets[i + 1]`.
    """

    def __init__(self, batch: pa.Array) -> None:
        lists = pc.split_pattern(batch, " ")
        values, self.offsets = flat_lists(lists)
        encoded = values.dictionary_encode()
        self.distinct: list[str] = encoded.dictionary.to_pylist()
        self.index: pa.Int32Array = encoded.indices


MAX_CACHED_CHARACTERS = 64
"""Maximum length of a cached chunk. URLs and sentences without spaces are longer."""

_SMALL = 1 << 12  # items of a buffer that is never made smaller


class ChunkCache:
    """Numbers of chunks, cached for short chunks. A cache without room for a batch is emptied.

    Args:
        encode: Function that returns the numbers of chunks end to end, and their offsets.
        number_type: NumPy type of the numbers.
        max_chunks: Maximum number of cached chunks.
    """

    def __init__(
        self,
        encode: Callable[[list[str]], tuple[npt.ArrayLike, npt.ArrayLike]],
        number_type: npt.DTypeLike,
        *,
        max_chunks: int,
    ) -> None:
        self._encode, self._max_chunks = encode, max_chunks
        self._row_of: dict[str, int] = {}
        # Rows end to end, those of cached chunks first.
        self._numbers = np.empty(_SMALL, number_type)
        self._offsets = np.zeros(_SMALL, np.int32)  # int32 as in an Arrow list

    def rows(self, distinct: list[str]) -> pa.ListArray:
        """Return the numbers of each chunk, and cache those of new chunks."""
        known = map(self._row_of.get, distinct, itertools.repeat(-1))
        rows = np.fromiter(known, np.int64, len(distinct))
        if np.count_nonzero(rows < 0) > self._max_chunks - len(self._row_of):
            self._row_of.clear()
            rows[:] = -1
        cached = len(self._row_of)
        new = np.flatnonzero(rows < 0).tolist()
        new.sort(key=lambda index: len(distinct[index]) > MAX_CACHED_CHARACTERS)
        chunks = [distinct[index] for index in new]
        rows[new] = np.arange(cached, cached + len(new))
        lists = self._with_new(chunks).take(pa.array(rows))
        short = sum(len(chunk) <= MAX_CACHED_CHARACTERS for chunk in chunks)
        kept = min(short, self._max_chunks - cached)
        self._row_of.update(zip(chunks[:kept], range(cached, cached + kept), strict=True))
        used = int(self._offsets[len(self._row_of)])
        if len(self._numbers) > max(4 * used, _SMALL):
            self._numbers = self._numbers[: 2 * used].copy()
        return lists

    def _with_new(self, chunks: list[str]) -> pa.ListArray:
        """Return a view of the cached rows and of those of new chunks, which overwrite others."""
        numbers, offsets = map(np.asarray, self._encode(chunks))
        first = len(self._row_of)
        rows, start = first + len(chunks), int(self._offsets[first])
        self._numbers = with_room(self._numbers, start + len(numbers))
        self._numbers[start : start + len(numbers)] = numbers
        self._offsets = with_room(self._offsets, rows + 1)
        self._offsets[first : rows + 1] = offsets + start
        return pa.ListArray.from_arrays(
            pa.array(self._offsets[: rows + 1]), pa.array(self._numbers[: start + len(numbers)])
        )


MAX_WORD_CHARACTERS = 200  # a longer word is [UNK] (google-research/bert tokenization.py, line 303)


class WordPieceTokenizer:
    """Encodes text as BertNormalizer + BertPreTokenizer + WordPiece do, without special tokens.

    It uses one thread. Threads must not share a tokenizer.

    Args:
        vocab: Tokens by id.
        word_cache_size: Maximum number of cached chunks, about 200 bytes each. The cache is emptied
            if the next batch does not fit. Ids do not depend on it.
        rules: Rules of the normalizer: `lowercase`, whether the vocabulary is uncased (lowercase
            without accents), and `strip_accents` and `tokenize_chinese_chars`, see `TextRules`.

    Attributes:
        vocab, vocab_size: Tokens and their number.
        rules, lowercase: Rules of the normalizer without defaults, and one of them.
        pad_id, unk_id, cls_id, sep_id, mask_id: Ids of [PAD], [UNK], [CLS], [SEP] and [MASK].
        is_continuation: bool of shape (vocab_size,), true for tokens inside a word (##).
        id_type: NumPy type of ids: uint16 up to 65,536 tokens, uint32 above.

    Raises:
        VocabularyError: A special token is missing, or a token is repeated, empty or malformed.
    """

    def __init__(
        self,
        vocab: Sequence[str],
        *,
        word_cache_size: int = 1 << 20,
        **rules: Unpack[TextRules],
    ) -> None:
        self.vocab = tuple(vocab)
        check_vocab(self.vocab)
        self.vocab_size = len(self.vocab)
        self.rules = get_text_rules(rules)
        self.lowercase = rules["lowercase"]
        self.word_cache_size = word_cache_size
        self.id_type: np.dtype[Any] = np.dtype(str(token_type(self.vocab_size)))
        self.is_continuation = np.array([piece.startswith(CONTINUATION) for piece in self.vocab])
        self._id_of = {piece: index for index, piece in enumerate(self.vocab)}
        self.pad_id, self.unk_id, self.cls_id, self.sep_id, self.mask_id = (
            self._id_of[token] for token in SPECIAL_TOKENS
        )
        self._splitter = shared_pre_tokenizer(**self.rules)
        self._word_ids = _WordIds(_model(self.vocab))
        self._chunks = ChunkCache(self._encode, self.id_type, max_chunks=word_cache_size)

    @classmethod
    def from_vocab_file(
        cls,
        file: str | InputFile,
        *,
        word_cache_size: int = 1 << 20,
        **rules: Unpack[TextRules],
    ) -> Self:
        """Create a tokenizer from a vocab.txt, see `read_vocab`.

        Raises:
            VocabularyError: The file is missing or is not a vocabulary. The message names the line.
            ArtifactCorruptError: The file does not match the manifest.
        """
        return cls(read_vocab(file), word_cache_size=word_cache_size, **rules)

    def encode_sentences(self, sentences: Sentences) -> tuple[TokenIds, npt.NDArray[np.uint32]]:
        """Encode sentences. Batches of some megabytes are fastest.

        Args:
            sentences: Arrow string array (or chunked array), or list of str.

        Returns:
            ids: Ids of all sentences end to end, of `id_type`.
            lengths: Number of ids of each sentence, uint32 of shape (sentences,).

        Raises:
            InputError: A sentence is null.
        """
        ids: list[npt.NDArray[Any]] = [np.empty(0, self.id_type)]
        lengths = [np.empty(0, np.uint32)]
        for batch in sentence_batches(sentences):
            chunks = Chunks(batch)
            rows = self._chunks.rows(chunks.distinct).take(chunks.index)
            ends = rows.offsets.to_numpy()
            ids.append(rows.values.to_numpy())
            lengths.append(np.diff(ends[chunks.offsets]).astype(np.uint32))
        return np.concatenate(ids), np.concatenate(lengths)

    def encode(self, sentence: str) -> list[int]:
        """Return the ids of one sentence. `encode_sentences` is faster for many."""
        return [int(index) for index in self.encode_sentences([sentence])[0]]

    def convert_ids_to_tokens(self, ids: Iterable[int]) -> list[str]:
        """Return the tokens of ids."""
        return [self.vocab[index] for index in ids]

    def _encode(self, chunks: list[str]) -> tuple[list[int], list[int]]:
        """Return the ids of new chunks end to end, and their offsets."""
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
    """Cache of the ids of words, filled by the library's WordPiece."""

    def __init__(self, model: models.WordPiece) -> None:
        super().__init__()
        self._model = model

    def __missing__(self, word: str) -> tuple[int, ...]:
        ids = tuple(token.id for token in self._model.tokenize(word))
        if len(word) <= MAX_CACHED_CHARACTERS:
            self[word] = ids
        return ids


def _model(vocab: Sequence[str]) -> models.WordPiece:
    return models.WordPiece(
        {piece: index for index, piece in enumerate(vocab)},
        unk_token=UNK,
        max_input_chars_per_word=MAX_WORD_CHARACTERS,
        continuing_subword_prefix=CONTINUATION,
    )


def bert_tokenizer(vocab: Sequence[str], **rules: Unpack[TextRules]) -> Tokenizer:
    """Return the `tokenizers` tokenizer with the ids of `WordPieceTokenizer`."""
    tokenizer = Tokenizer(_model(vocab))
    tokenizer.normalizer = bert_normalizer(**rules)
    tokenizer.pre_tokenizer = bert_pre_tokenizer()
    tokenizer.decoder = decoders.WordPiece(prefix=CONTINUATION)
    return tokenizer


def tokenizer_json(vocab: Sequence[str], **rules: Unpack[TextRules]) -> str:
    """Return a tokenizer.json for `tokenizers` and `transformers`.

    It has the five special tokens and encodes pairs as `[CLS] A [SEP] B [SEP]`, as fine-tuning code
    expects. "[MASK]" in a text is the special token.

    Raises:
        VocabularyError: See `WordPieceTokenizer`.
    """
    check_vocab(vocab)
    tokenizer = bert_tokenizer(vocab, **rules)
    tokenizer.add_special_tokens(list(SPECIAL_TOKENS))
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{CLS}:0 $A:0 {SEP}:0",
        pair=f"{CLS}:0 $A:0 {SEP}:0 $B:1 {SEP}:1",
        special_tokens=[(token, vocab.index(token)) for token in (CLS, SEP)],
    )
    return str(tokenizer.to_str(pretty=False))


def tokenizer_config_json(**rules: Unpack[TextRules]) -> str:
    """Return the tokenizer_config.json that `transformers.AutoTokenizer` needs.

    Its class uses the tokenizer.json unchanged. `BertTokenizerFast` of transformers 5 encodes words
    of more than 100 characters, instead of 200, as [UNK].
    """
    named = zip(("pad", "unk", "cls", "sep", "mask"), SPECIAL_TOKENS, strict=True)
    lowercase, others = rules["lowercase"], {k: v for k, v in rules.items() if k != "lowercase"}
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "do_lower_case": lowercase,
        **others,
        "model_input_names": ["input_ids", "token_type_ids", "attention_mask"],
        "model_max_length": 512,  # paper A.2
        **{f"{name}_token": token for name, token in named},
    }
    return json.dumps(config, indent=2, sort_keys=True) + "\n"
