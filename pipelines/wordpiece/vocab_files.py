"""Files of a WordPiece vocabulary: names, reading and validation.

This module loads quickly, because `bertloom plan` uses it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Literal, TypeVar

from pydantic import BaseModel, ValidationError

from pipelines.io.file_systems import file_system
from pipelines.io.raw_files import read_small_file
from pipelines.io.stage_inputs import InputFile
from schemas.corpus_configs import VocabularyConfig
from schemas.errors import VocabularyError
from schemas.manifest import RawInput
from schemas.redaction import public_address

PAD, UNK, CLS, SEP, MASK = SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
UNUSED = tuple(f"[unused{number}]" for number in range(99))
FIXED_TOKENS = (PAD, *UNUSED, UNK, CLS, SEP, MASK)
"""Ids 0 to 103, as in the vocabularies published with the paper."""

VOCAB_FILE = "vocab.txt"
TOKENIZER_FILE = "tokenizer.json"
TOKENIZER_CONFIG_FILE = "tokenizer_config.json"

CONTINUATION = "##"  # prefix of tokens inside a word


def read_vocab(file: str | InputFile) -> list[str]:
    """Read and check a vocab.txt with one token per line, or the vocabulary of a tokenizer.json.

    Args:
        file: A path or any fsspec URL of either file; or a vocab.txt of an artifact, whose bytes
            are compared with the manifest.

    Raises:
        VocabularyError: The file is missing, or is not a WordPiece vocabulary.
        ArtifactCorruptError: The file does not match the manifest.
        InputError: The server of a URL cannot be reached, or its protocol is not known.
    """
    if isinstance(file, str) and is_tokenizer_json(file):
        return _read_tokenizer_vocab(file)
    uri = file.url if isinstance(file, InputFile) else file
    content = file.read() if isinstance(file, InputFile) else _read(uri, VOCAB_FILE)
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        raise VocabularyError(
            f"{uri}: not UTF-8 at byte {error.start}; expected a vocab.txt with one token per line"
        ) from error
    if text.startswith("\ufeff"):
        raise VocabularyError(
            f"{uri}, line 1: starts with a byte-order mark, expected plain UTF-8: remove the mark"
        )
    lines = text.split("\n")  # not splitlines: tokens may be other line separators
    if lines[-1] == "":
        del lines[-1]
    check_vocab(lines, where=uri)
    return lines


def is_tokenizer_json(url: str) -> bool:
    """Return whether a path or URL is that of a tokenizer.json, and not of a vocab.txt."""
    return public_address(url).endswith(".json")


def read_lowercase(url: str) -> bool:
    """Return whether the vocabulary of a tokenizer.json is uncased.

    Raises:
        VocabularyError: The tokenizer changes text in another way than BERT's.
    """
    normalizer = _read_tokenizer(url, _TextRules).normalizer
    if normalizer.strip_accents not in (None, normalizer.lowercase):
        raise VocabularyError(
            f"{url}: normalizer.strip_accents: expected {normalizer.lowercase}, as lowercase, got "
            f"{normalizer.strip_accents}. Start from a checkpoint with BERT's own tokenizer."
        )
    return normalizer.lowercase


def _read(url: str, kind: str) -> bytes:
    """Return the bytes of a file.

    Raises:
        VocabularyError: The file is missing, or cannot be read.
        InputError: The server cannot be reached, or the protocol is not known.
    """
    try:
        return read_small_file(url)
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError) as error:
        raise VocabularyError(
            f"{url}: expected a {kind}, found no file there. Check the path."
        ) from error
    except OSError as error:
        raise VocabularyError(
            f"{url}: expected a {kind} that can be read, got {error}. Check your rights."
        ) from error


class _Model(BaseModel):
    # Early versions of `tokenizers` wrote no type.
    type: Literal["WordPiece"] = "WordPiece"
    unk_token: Literal["[UNK]"]
    continuing_subword_prefix: Literal["##"]
    vocab: dict[str, int]


class _AddedToken(BaseModel):
    id: int
    content: str


class _Vocabulary(BaseModel):
    """Parts of a tokenizer.json that decide the ids of tokens."""

    model: _Model
    added_tokens: tuple[_AddedToken, ...] | None = ()


class _Normalizer(BaseModel):
    type: Literal["BertNormalizer"]
    lowercase: bool
    strip_accents: bool | None = None
    clean_text: Literal[True]
    handle_chinese_chars: Literal[True]


class _PreTokenizer(BaseModel):
    type: Literal["BertPreTokenizer"]


class _TextRules(BaseModel):
    """Parts of a tokenizer.json that decide the words of a text."""

    normalizer: _Normalizer
    pre_tokenizer: _PreTokenizer


_Parts = TypeVar("_Parts", bound=BaseModel)


def _read_tokenizer(url: str, parts: type[_Parts]) -> _Parts:
    """Read parts of a tokenizer.json.

    Raises:
        VocabularyError: The file cannot be read, or a part is not that of BERT's tokenizer.
    """
    try:
        return parts.model_validate_json(_read(url, TOKENIZER_FILE))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"])) or "JSON"
        raise VocabularyError(
            f"{url}: {where}: {first['msg']}, got {first['input']!r:.60}. Start from a checkpoint "
            "with BERT's own tokenizer, or download the file again."
        ) from error


def _read_tokenizer_vocab(url: str) -> list[str]:
    """Return the tokens of a tokenizer.json by id."""
    tokenizer = _read_tokenizer(url, _Vocabulary)
    id_of = tokenizer.model.vocab | {one.content: one.id for one in tokenizer.added_tokens or ()}
    vocab = sorted(id_of, key=id_of.__getitem__)
    if [id_of[token] for token in vocab] != list(range(len(vocab))):
        raise VocabularyError(
            f"{url}: expected ids from 0 to {len(vocab) - 1:,}, each once, got others. Download "
            "the file again."
        )
    check_vocab(vocab, where=url)
    return vocab


def check_vocab(vocab: Sequence[str], *, where: str = "vocabulary") -> None:
    """Validate a WordPiece vocabulary.

    Raises:
        VocabularyError: A token is empty, repeated or has white space, or one of the five special
            tokens is missing. Line numbers start at 1.
    """
    line_of: dict[str, int] = {}
    for line, token in enumerate(vocab, start=1):
        if not token:
            raise VocabularyError(
                f'{where}, line {line}: expected a token, got "". Remove the line'
            )
        if token.endswith("\r"):
            raise VocabularyError(
                f"{where}, line {line}: expected line feeds only, got a carriage return after "
                f"{token[:-1]!r}. Convert the line ends"
            )
        if any(character.isspace() for character in token):
            raise VocabularyError(
                f"{where}, line {line}: expected one token per line, got white space in {token!r}"
            )
        if token in line_of:
            raise VocabularyError(
                f"{where}, line {line}: expected each token once, got {token!r} as in line "
                f"{line_of[token]}. Remove one. Ids are line numbers"
            )
        line_of[token] = line
    missing = [token for token in SPECIAL_TOKENS if token not in line_of]
    if missing:
        raise VocabularyError(
            f"{where}: expected {', '.join(SPECIAL_TOKENS)}, got {len(line_of)} tokens without "
            f"{', '.join(missing)}. Add a line for each"
        )


def vocab_text(vocab: Iterable[str]) -> str:
    """Return the content of a vocab.txt: one token per line, by id."""
    return "".join(f"{token}\n" for token in vocab)


def raw_inputs(config: VocabularyConfig) -> tuple[RawInput, ...]:
    """Return the vocabulary file of a configuration with the digest of its tokens.

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
