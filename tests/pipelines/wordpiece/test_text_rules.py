"""Text rules of tokenizer files: carried, or refused, never ignored."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer

from pipelines.io.raw_files import digest_file
from pipelines.vocabulary.raw_inputs import raw_inputs
from pipelines.wordpiece.text_rules import get_text_rules, read_stated_rules, read_text_rules
from pipelines.wordpiece.tokenizer import (
    WordPieceTokenizer,
    bert_tokenizer,
    tokenizer_config_json,
    tokenizer_json,
)
from pipelines.wordpiece.vocab_files import (
    FIXED_TOKENS,
    TOKENIZER_CONFIG_FILE,
    TOKENIZER_FILE,
    VOCAB_FILE,
    vocab_text,
)
from schemas.corpus_configs import VocabularyConfig
from schemas.errors import VocabularyError

SENTENCES = [
    "Das MÖCHTE Ärger.",
    "Été à l'Île",
    "Đặng Thùy Trâm",
    "žluťoučký kůň",
    "İstanbul ΟΔΟΣ Ёлка",
    "東京は日本の首都",
    "がぎぐ e\u0301 a\u0323\u0301",
]
LETTERS = sorted({*"".join(SENTENCES), *"".join(SENTENCES).lower(), *"abcdefghijklmnopqrstuvwxyz"})
VOCAB = [
    *FIXED_TOKENS,
    *(letter for letter in LETTERS if not letter.isspace()),
    *(f"##{letter}" for letter in LETTERS if not letter.isspace()),
]
RULES = pytest.mark.parametrize(
    "rules",
    [
        {"lowercase": True, "strip_accents": False},
        {"lowercase": False, "strip_accents": True},
        {"lowercase": True, "tokenize_chinese_chars": False},
        {"lowercase": False, "strip_accents": True, "tokenize_chinese_chars": False},
        {"lowercase": True},
        {"lowercase": False},
    ],
    ids=str,
)


def write_files(folder: Path, config: Any = None, tokenizer: dict[str, Any] | None = None) -> str:
    """Write a vocab.txt, and a tokenizer_config.json and the tokenizer.json of rules beside it."""
    vocab = folder / VOCAB_FILE
    vocab.write_text(vocab_text(VOCAB))
    if config is not None:
        (folder / TOKENIZER_CONFIG_FILE).write_text(json.dumps(config))
    if tokenizer is not None:
        (folder / TOKENIZER_FILE).write_text(tokenizer_json(VOCAB, **get_text_rules(tokenizer)))
    return str(vocab)


@RULES
def test_files_of_tokenizer_state_its_rules(tmp_path: Path, rules: dict[str, Any]) -> None:
    both, config, tokenizer = tmp_path / "both", tmp_path / "config", tmp_path / "tokenizer"
    for folder in (both, config, tokenizer):
        folder.mkdir()
        (folder / VOCAB_FILE).write_text(vocab_text(VOCAB))
    for folder in (both, config):
        (folder / TOKENIZER_CONFIG_FILE).write_text(tokenizer_config_json(**rules))
    for folder in (both, tokenizer):
        (folder / TOKENIZER_FILE).write_text(tokenizer_json(VOCAB, **rules))
        read = read_text_rules(str(folder / TOKENIZER_FILE), lowercase=rules["lowercase"])
        assert read == rules
    for folder in (both, config, tokenizer):
        assert read_text_rules(str(folder / VOCAB_FILE), lowercase=rules["lowercase"]) == rules
        with pytest.raises(VocabularyError):
            read_text_rules(str(folder / VOCAB_FILE), lowercase=not rules["lowercase"])


@RULES
def test_ids_are_those_of_transformers(tmp_path: Path, rules: dict[str, Any]) -> None:
    from transformers import AutoTokenizer

    write_files(tmp_path, tokenizer=rules)
    (tmp_path / TOKENIZER_CONFIG_FILE).write_text(tokenizer_config_json(**rules))
    theirs = AutoTokenizer.from_pretrained(str(tmp_path))
    ours = WordPieceTokenizer(VOCAB, **get_text_rules(rules))
    saved = Tokenizer.from_file(str(tmp_path / TOKENIZER_FILE))
    for sentence in SENTENCES:
        ids = theirs(sentence, add_special_tokens=False)["input_ids"]
        assert ours.encode(sentence) == ids == saved.encode(sentence, add_special_tokens=False).ids
        assert ids == bert_tokenizer(VOCAB, **get_text_rules(rules)).encode(sentence).ids


def test_vocabulary_without_tokenizer_files_states_nothing(tmp_path: Path) -> None:
    assert read_stated_rules(write_files(tmp_path)) == {}
    assert read_stated_rules(write_files(tmp_path, {"strip_accents": None})) == {}


@pytest.mark.parametrize(
    ("config", "tokenizer"),
    [
        ({"do_lower_case": False}, {"lowercase": True}),
        ({"strip_accents": True}, {"lowercase": True, "strip_accents": False}),
        ({"tokenize_chinese_chars": True}, {"lowercase": True, "tokenize_chinese_chars": False}),
    ],
)
def test_files_that_contradict_each_other_are_refused(
    tmp_path: Path, config: dict[str, Any], tokenizer: dict[str, Any]
) -> None:
    with pytest.raises(VocabularyError):
        read_stated_rules(write_files(tmp_path, config, tokenizer))


@pytest.mark.parametrize(
    "config",
    [
        {"do_basic_tokenize": False},
        {"never_split": ["e-mail"]},
        {"word_tokenizer_type": "mecab"},
        {"subword_tokenizer_type": "character"},
        {"clean_text": False},
        {"strip_accents": "false"},
        {"do_lower_case": 1},
        ["do_lower_case"],
    ],
    ids=str,
)
def test_other_rules_are_refused(tmp_path: Path, config: Any) -> None:
    vocab = write_files(tmp_path, config)
    with pytest.raises(VocabularyError):
        read_stated_rules(vocab)
    with pytest.raises(VocabularyError):
        raw_inputs(VocabularyConfig(vocab_file=vocab))


def _write_broken(path: Path) -> None:
    path.write_text('{"do_lower_case": true')


def _write_utf16(path: Path) -> None:
    path.write_bytes('{"do_lower_case": true}'.encode("utf-16"))


@pytest.mark.parametrize("name", [TOKENIZER_CONFIG_FILE, TOKENIZER_FILE])
@pytest.mark.parametrize("write", [_write_broken, _write_utf16, os.mkfifo, os.mkdir])
def test_unreadable_file_is_refused(tmp_path: Path, name: str, write: Any) -> None:
    vocab = write_files(tmp_path)
    write(tmp_path / name)
    with pytest.raises(VocabularyError, match=name):
        read_stated_rules(vocab)
    with pytest.raises(VocabularyError, match=name):
        raw_inputs(VocabularyConfig(vocab_file=vocab))


def test_rules_are_part_of_the_key(tmp_path: Path) -> None:
    def key(config: dict[str, Any] | None) -> str:
        (item,) = raw_inputs(VocabularyConfig(vocab_file=write_files(tmp_path, config)))
        return item.key_digest

    plain = key(None)
    assert key({"do_lower_case": True, "model_max_length": 64}) == plain
    keys = {plain, key({"strip_accents": False}), key({"tokenize_chinese_chars": False})}
    assert len(keys) == 3


@pytest.mark.parametrize("name", [VOCAB_FILE, TOKENIZER_FILE])
def test_record_describes_the_configured_file(tmp_path: Path, name: str) -> None:
    write_files(tmp_path, tokenizer={"lowercase": True})
    with (tmp_path / VOCAB_FILE).open("r+b") as file:
        file.truncate(len(vocab_text(VOCAB).encode()) - 1)  # no line end after the last token
    (item,) = raw_inputs(VocabularyConfig(vocab_file=str(tmp_path / name)))
    size, digests = digest_file(str(tmp_path / name))
    assert (item.size_bytes, item.sha256) == (size, digests["sha256"])
    assert size == (tmp_path / name).stat().st_size


def test_missing_vocabulary_names_tokenizer_json(tmp_path: Path) -> None:
    missing = tmp_path / VOCAB_FILE
    with pytest.raises(VocabularyError) as alone:
        raw_inputs(VocabularyConfig(vocab_file=str(missing)))
    assert TOKENIZER_FILE not in str(alone.value)
    (tmp_path / TOKENIZER_FILE).write_text(tokenizer_json(VOCAB, lowercase=True))
    with pytest.raises(VocabularyError, match=str(tmp_path / TOKENIZER_FILE)):
        raw_inputs(VocabularyConfig(vocab_file=str(missing)))
