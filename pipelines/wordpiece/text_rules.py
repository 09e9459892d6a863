"""Rules of BERT's normalizer, and the files of a tokenizer that state them.

This module loads quickly, because `bertloom plan` uses it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, Literal, NotRequired, TypedDict

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from pipelines.wordpiece.vocab_files import (
    TOKENIZER_CONFIG_FILE,
    TOKENIZER_FILE,
    has_upper_case,
    is_tokenizer_json,
    neighbor_url,
    parse_tokenizer,
    read_if_exists,
)
from schemas.errors import VocabularyError


class TextRules(TypedDict):
    """Rules that differ between BERT models. Rules that have their default are absent."""

    lowercase: bool
    """True to lowercase the text."""

    strip_accents: NotRequired[bool]
    """True to strip accents. Default: `lowercase`."""

    tokenize_chinese_chars: NotRequired[bool]
    """True if each Chinese character is a word. Default: True."""


def get_text_rules(values: Mapping[str, Any]) -> TextRules:
    """Return the rules among other values, such as the statistics of a vocabulary.

    Rules that have their default are absent, so that equal rules are equal.
    """
    rules = TextRules(lowercase=values["lowercase"])
    if values.get("strip_accents") not in (None, rules["lowercase"]):
        rules["strip_accents"] = values["strip_accents"]
    if not values.get("tokenize_chinese_chars", True):
        rules["tokenize_chinese_chars"] = False
    return rules


def complete_rules(stated: Mapping[str, bool], vocab: Iterable[str]) -> TextRules:
    """Return the rules of a tokenizer; if its files do not state the case, that of its tokens."""
    return get_text_rules({"lowercase": not has_upper_case(vocab), **stated})


def read_text_rules(vocabulary: str, *, lowercase: bool) -> TextRules:
    """Return the rules of a vocabulary whose case is configured.

    Args:
        vocabulary: Path or any fsspec URL of a vocab.txt or tokenizer.json.
        lowercase: Configured case.

    Raises:
        VocabularyError: The tokenizer files state another case. See also `read_stated_rules`.
    """
    stated = {"lowercase": lowercase, **read_stated_rules(vocabulary)}
    if stated["lowercase"] != lowercase:
        raise VocabularyError(
            f"lowercase: expected {stated['lowercase']}, as {TOKENIZER_FILE} or "
            f"{TOKENIZER_CONFIG_FILE} of {vocabulary} states, got {lowercase}. Change "
            "build_vocabulary.lowercase, or use another vocabulary."
        )
    return get_text_rules(stated)


def read_stated_rules(vocabulary: str) -> dict[str, bool]:
    """Return the rules that the tokenizer files of a vocabulary state, with defaults if stated.

    These are a tokenizer.json, which may be the vocabulary itself, and a tokenizer_config.json in
    the folder of the vocabulary.

    Raises:
        VocabularyError: A file cannot be read, changes text in another way than BERT's normalizer,
            or contradicts the other.
    """
    stated: dict[str, bool] = {}
    earlier = ""
    for url, rules in _stated_rules_by_file(vocabulary):
        for name, value in rules.items():
            if stated.setdefault(name, value) != value:
                raise VocabularyError(
                    f"{url}: {name}: expected {stated[name]}, as in {earlier}, got {value}. "
                    "Correct or delete the file that does not belong to the model."
                )
        earlier = url
    return stated


def _stated_rules_by_file(vocabulary: str) -> Iterator[tuple[str, dict[str, bool]]]:
    """Yield the URL of each tokenizer file that exists, and the rules that it states."""
    is_json = is_tokenizer_json(vocabulary)
    for name, read in ((TOKENIZER_FILE, _tokenizer_rules), (TOKENIZER_CONFIG_FILE, _config_rules)):
        is_vocabulary = is_json and name == TOKENIZER_FILE
        url = vocabulary if is_vocabulary else neighbor_url(vocabulary, name)
        content = read_if_exists(url, kind=name) if url else None
        if content is not None:
            yield url, read(content, url)


def _tokenizer_rules(content: bytes, url: str) -> dict[str, bool]:
    """Return the rules that a tokenizer.json states."""
    normalizer = parse_tokenizer(content, url=url).normalizer
    return _stated(
        lowercase=normalizer.lowercase,
        strip_accents=normalizer.strip_accents,
        tokenize_chinese_chars=normalizer.handle_chinese_chars,
    )


def _config_rules(content: bytes, url: str) -> dict[str, bool]:
    """Return the rules that a tokenizer_config.json states."""
    try:
        config = _TokenizerConfig.model_validate_json(content)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"])) or "JSON"
        raise VocabularyError(
            f"{url}: {where}: {first['msg']}, got {first['input']!r:.60}. Start from a checkpoint "
            "with BERT's own tokenizer, or download the file again."
        ) from error
    return _stated(
        lowercase=config.do_lower_case,
        strip_accents=config.strip_accents,
        tokenize_chinese_chars=config.tokenize_chinese_chars,
    )


class _TokenizerConfig(BaseModel):
    """Parts of a tokenizer_config.json that decide the words of a text; None: not stated."""

    model_config = ConfigDict(strict=True)

    do_lower_case: bool | None = None
    strip_accents: bool | None = None
    tokenize_chinese_chars: bool | None = None

    # Rules that are refused unless they have their default.
    clean_text: Literal[True] | None = None
    do_basic_tokenize: Literal[True] | None = None
    never_split: Annotated[tuple[str, ...], Field(max_length=0)] | None = None
    word_tokenizer_type: Literal["basic"] | None = None
    subword_tokenizer_type: Literal["wordpiece"] | None = None


def _stated(**rules: bool | None) -> dict[str, bool]:
    return {name: value for name, value in rules.items() if value is not None}
