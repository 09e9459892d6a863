"""Files of a WordPiece vocabulary: names, reading and validation.

This module loads quickly, because `bertloom plan` uses it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from pipelines.io.raw_files import read_small_file
from pipelines.io.stage_inputs import InputFile
from schemas.errors import VocabularyError
from schemas.redaction import public_address

if TYPE_CHECKING:
    from tokenizers import Tokenizer

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
    content = file.read() if isinstance(file, InputFile) else read_bytes(uri, kind=VOCAB_FILE)
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


def neighbor_url(url: str, name: str) -> str:
    """Return the URL of another file in the folder of a file. "": a signed URL has no neighbors."""
    inner, chained, outer = url.partition("::")
    folder, slash, _ = inner.rpartition("/")
    return "" if "://" in url and "?" in url else f"{folder}{slash}{name}{chained}{outer}"


def read_bytes(url: str, *, kind: str) -> bytes:
    """Return the bytes of a file of a tokenizer.

    Raises:
        VocabularyError: The file is missing, or cannot be read.
        InputError: The server cannot be reached, or the protocol is not known.
    """
    content = read_if_exists(url, kind=kind)
    if content is None:
        raise VocabularyError(
            f"{url}: expected a {kind}, found no file there.{_name_tokenizer_json(url)} Check the "
            "path."
        )
    return content


def read_if_exists(url: str, *, kind: str) -> bytes | None:
    """Return the bytes of a file of a tokenizer. None: there is no such file.

    Raises:
        VocabularyError: The file cannot be read.
        InputError: The server cannot be reached, or the protocol is not known.
    """
    try:
        return read_small_file(url)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise VocabularyError(
            f"{url}: expected a {kind} that can be read, got {error}. Check your rights."
        ) from error


def _name_tokenizer_json(url: str) -> str:
    """Return a hint to the tokenizer.json next to a missing vocab.txt, or ""."""
    other = "" if is_tokenizer_json(url) else neighbor_url(url, TOKENIZER_FILE)
    if not other or read_if_exists(other, kind=TOKENIZER_FILE) is None:
        return ""
    return f" The folder has a {TOKENIZER_FILE} instead: use {other}."


def parse_tokenizer(content: bytes, *, url: str) -> Tokenizer:
    """Parse a tokenizer.json.

    Raises:
        VocabularyError: It is no tokenizer, or not that of BERT.
    """
    from tokenizers import (
        Tokenizer,
        models,
        normalizers,
        pre_tokenizers,
    )  # lazy: others read vocab.txt

    try:
        tokenizer = Tokenizer.from_buffer(content)
    except Exception as error:  # the library raises nothing narrower
        raise VocabularyError(
            f"{url}: expected a {TOKENIZER_FILE}, got {error}. Download the file again."
        ) from error
    model, normalizer = tokenizer.model, tokenizer.normalizer
    is_bert = {
        "model": isinstance(model, models.WordPiece)
        and (model.unk_token, model.continuing_subword_prefix) == (UNK, CONTINUATION),
        "normalizer": isinstance(normalizer, normalizers.BertNormalizer) and normalizer.clean_text,
        "pre_tokenizer": isinstance(tokenizer.pre_tokenizer, pre_tokenizers.BertPreTokenizer),
    }
    for part, is_valid in is_bert.items():
        if not is_valid:
            raise VocabularyError(
                f"{url}: {part}: expected BERT's, got {getattr(tokenizer, part)!r:.60}. Start from "
                "a checkpoint with BERT's own tokenizer."
            )
    return tokenizer


def _read_tokenizer_vocab(url: str) -> list[str]:
    """Return the tokens of a tokenizer.json by id."""
    id_of = parse_tokenizer(read_bytes(url, kind=TOKENIZER_FILE), url=url).get_vocab()
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
        if not token or any(character.isspace() for character in token):
            raise VocabularyError(
                f"{where}, line {line}: expected one token without white space, got {token!r}. "
                "Remove the line or the white space, such as carriage returns at line ends"
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


def has_upper_case(vocab: Iterable[str]) -> bool:
    """Return whether a word piece has an upper-case letter, ignoring special tokens."""
    return any(
        piece.removeprefix(CONTINUATION) != piece.removeprefix(CONTINUATION).lower()
        for piece in vocab
        if piece not in SPECIAL_TOKENS and not (piece.startswith("[") and piece.endswith("]"))
    )
