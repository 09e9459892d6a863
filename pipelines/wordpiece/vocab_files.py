"""The files of a WordPiece vocabulary: what they are called, and reading and checking a vocab.txt.

Apart from `pipelines.wordpiece.vocabulary`, because a plan reads them too and cannot wait for the
learner.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pipelines.io.file_systems import read_file
from pipelines.io.local_files import SpecialFileError
from pipelines.io.stage_inputs import InputFile
from schemas.errors import VocabularyError

PAD, UNK, CLS, SEP, MASK = SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
UNUSED = tuple(f"[unused{number}]" for number in range(99))
FIXED_PIECES = (PAD, *UNUSED, UNK, CLS, SEP, MASK)
"""Ids 0 to 103, as in the vocabularies published with the paper."""

VOCAB_FILE = "vocab.txt"
TOKENIZER_FILE = "tokenizer.json"
TOKENIZER_CONFIG_FILE = "tokenizer_config.json"

CONTINUATION = "##"  # marks a piece that goes on with a word


def read_vocab(file: str | InputFile) -> list[str]:
    """Read a vocab.txt, one piece a line, and check it.

    Args:
        file: a path or any fsspec URL; or a file of an artifact, whose bytes are compared with the
            manifest.

    Raises:
        VocabularyError: the file is missing, or is no vocabulary; the message names the line.
        ArtifactCorruptError: it is not the artifact's.
    """
    uri = file.url if isinstance(file, InputFile) else file
    try:
        text = (file.read() if isinstance(file, InputFile) else read_file(uri)).decode()
    except (FileNotFoundError, IsADirectoryError) as error:
        raise VocabularyError(
            f"{uri}: no file there; expected a vocab.txt with one piece a line"
        ) from error
    except SpecialFileError as error:
        raise VocabularyError(
            f"{uri}: cannot be read: {error}. Expected a vocab.txt with one piece per line"
        ) from error
    except UnicodeDecodeError as error:
        raise VocabularyError(
            f"{uri}: not UTF-8 at byte {error.start}; expected a vocab.txt with one piece a line"
        ) from error
    if text.startswith("\ufeff"):
        raise VocabularyError(
            f"{uri}, line 1: starts with a byte-order mark, expected plain UTF-8: remove the mark"
        )
    lines = text.split("\n")  # not splitlines: pieces may be other line separators
    if lines[-1] == "":
        del lines[-1]
    check_vocab(lines, where=uri)
    return lines


def check_vocab(vocab: Sequence[str], *, where: str = "vocabulary") -> None:
    """Refuse what cannot be a WordPiece vocabulary.

    Raises:
        VocabularyError: a piece is empty, repeated or holds white space, or one of the five special
            tokens is missing. Lines are counted from 1.
    """
    line_of: dict[str, int] = {}
    for line, piece in enumerate(vocab, start=1):
        if not piece:
            raise VocabularyError(f"{where}, line {line}: empty, expected a piece: remove the line")
        if piece.endswith("\r"):
            raise VocabularyError(
                f"{where}, line {line}: {piece!r} ends in a carriage return, expected lines that "
                "end in a line feed alone: convert the file's line ends"
            )
        if any(character.isspace() for character in piece):
            raise VocabularyError(
                f"{where}, line {line}: {piece!r} holds white space, which no token can: expected "
                "one piece a line and nothing else"
            )
        if piece in line_of:
            raise VocabularyError(
                f"{where}, line {line}: {piece!r} stands in line {line_of[piece]} already, "
                "expected each piece once: remove one, and mind that ids are line numbers"
            )
        line_of[piece] = line
    missing = [token for token in SPECIAL_TOKENS if token not in line_of]
    if missing:
        raise VocabularyError(
            f"{where}: {', '.join(missing)} not among its {len(line_of)} pieces, expected "
            f"{', '.join(SPECIAL_TOKENS)}: add a line for each"
        )


def vocab_text(vocab: Iterable[str]) -> str:
    """The content of a vocab.txt: a line for each piece, in the order of the ids."""
    return "".join(f"{piece}\n" for piece in vocab)
