"""Files of a WordPiece vocabulary: names, reading and validation.

This module loads quickly, because `bertloom plan` uses it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

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

_SETTINGS = ("lowercase", "strip_accents", "clean_text", "handle_chinese_chars")
"""Settings of `BertNormalizer` in a tokenizer.json."""

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
        return _vocab_of(_read_tokenizer(file), where=file)
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
    described = _read_tokenizer(url)
    for name, expected in (
        ("normalizer", "BertNormalizer"),
        ("pre_tokenizer", "BertPreTokenizer"),
    ):
        found = _type_of(described.get(name))
        if found != expected:
            raise VocabularyError(
                f"{url}: {name}: expected {expected}, got {found}. Start from a checkpoint with "
                "BERT's own tokenizer."
            )
    normalizer = described["normalizer"]
    lowercase, accents, *rest = (normalizer.get(name) for name in _SETTINGS)
    if accents is None:  # BERT's rule
        accents = lowercase
    if not isinstance(lowercase, bool) or [accents, *rest] != [lowercase, True, True]:
        settings = {name: normalizer.get(name) for name in _SETTINGS}
        raise VocabularyError(
            f"{url}: normalizer: expected BERT's, which cleans text, separates Chinese characters, "
            f"and strips accents only if it lowercases, got {settings!r:.200}. Start from a "
            "checkpoint with BERT's own tokenizer."
        )
    return lowercase


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


def _read_tokenizer(url: str) -> dict[str, Any]:
    """Read a tokenizer.json.

    Raises:
        VocabularyError: The file cannot be read, or is not a JSON object.
    """
    content = _read(url, TOKENIZER_FILE)
    try:
        described = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise VocabularyError(
            f"{url}: expected JSON, got {error}. Download the file again."
        ) from error
    if not isinstance(described, dict):
        raise VocabularyError(
            f"{url}: expected a JSON object, got {type(described).__name__}. Give a tokenizer.json "
            "of Hugging Face's tokenizers library."
        )
    return described


def _vocab_of(described: Mapping[str, Any], *, where: str) -> list[str]:
    """Return the tokens of a WordPiece tokenizer by id.

    Raises:
        VocabularyError: The tokenizer is not WordPiece, or its vocabulary is damaged.
    """
    model: Any = described.get("model")
    if _type_of(model) != "WordPiece":
        raise VocabularyError(
            f"{where}: expected a WordPiece tokenizer, got {_type_of(model)}. Start from a BERT "
            "checkpoint: the tokenizers of other models give other ids."
        )
    for name, expected in (("unk_token", UNK), ("continuing_subword_prefix", CONTINUATION)):
        if model.get(name) != expected:
            raise VocabularyError(
                f"{where}: model.{name}: expected {expected!r}, got {model.get(name)!r:.60}. Start "
                "from a checkpoint with BERT's own tokenizer."
            )
    try:
        id_of = {str(piece): int(number) for piece, number in model["vocab"].items()}
        for token in described.get("added_tokens") or ():
            id_of[str(token["content"])] = int(token["id"])
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise VocabularyError(
            f"{where}: expected model.vocab and added_tokens with an id per token, got "
            f"{error!r:.100}. Download the file again."
        ) from error
    vocab = sorted(id_of, key=id_of.__getitem__)
    if [id_of[piece] for piece in vocab] != list(range(len(vocab))):
        raise VocabularyError(
            f"{where}: expected ids from 0 to {len(vocab) - 1:,}, each once, got others. Download "
            "the file again."
        )
    check_vocab(vocab, where=where)
    return vocab


def _type_of(part: Any) -> str:
    """Return the type of a part of a tokenizer.json, such as `WordPiece`."""
    if not isinstance(part, dict):
        return type(part).__name__
    # Early versions of tokenizers wrote no type; only WordPiece models have this field.
    untyped = "WordPiece" if "max_input_chars_per_word" in part else "an unknown type"
    return f"{part.get('type', untyped)!s:.60}"


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
