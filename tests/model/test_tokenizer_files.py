"""Checkpoints whose vocabulary is in a tokenizer.json, without a vocab.txt."""

from __future__ import annotations

import json
from collections.abc import Callable
from http.server import SimpleHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from support.cli_runner import Cli
from support.finetuning_builder import (
    VOCAB,
    sentiment,
    trial_config,
    trial_job,
    write_checkpoint,
)
from support.training_builder import SmallCorpus
from tokenizers import Tokenizer, models, pre_tokenizers

import bertloom
from benchmarks.local_server import LocalServer
from model.finetune import raw_inputs
from model.finetuning.prediction import Predictor
from model.finetuning.setup import open_trial
from model.finetuning.trial import train_trial
from model.hf_config import check_layout
from model.pretraining.setup import open_model
from model.training.stopping import StopRequest
from pipelines.io.stage_inputs import input_file
from pipelines.vocabulary.job import build_vocabulary
from pipelines.vocabulary.raw_inputs import raw_inputs as vocabulary_inputs
from pipelines.wordpiece.text_rules import get_text_rules, read_stated_rules
from pipelines.wordpiece.tokenizer import tokenizer_json
from pipelines.wordpiece.vocab_files import (
    TOKENIZER_CONFIG_FILE,
    TOKENIZER_FILE,
    VOCAB_FILE,
    read_vocab,
    vocab_text,
)
from schemas.corpus_configs import VocabularyConfig
from schemas.errors import (
    CheckpointError,
    InstanceDataError,
    MissingInputError,
    VocabularyError,
)
from schemas.execution_configs import ExecutionConfig


def keep_only_tokenizer(folder: str, *, lowercase: bool = True) -> str:
    """Replace the vocab.txt of a checkpoint by a tokenizer.json."""
    vocab = Path(folder, VOCAB_FILE)
    text = tokenizer_json(vocab.read_text().splitlines(), lowercase=lowercase)
    Path(folder, TOKENIZER_FILE).write_text(text)
    vocab.unlink()
    return folder


def write_json(path: Path, change: Callable[[dict[str, Any]], object]) -> str:
    """Write a tokenizer.json with a change to it."""
    described = json.loads(tokenizer_json(VOCAB, lowercase=True))
    change(described)
    path.write_text(json.dumps(described))
    return str(path)


@pytest.mark.parametrize("lowercase", [True, False])
def test_tokenizer_of_transformers_is_read(tmp_path: Path, lowercase: bool) -> None:
    from transformers import BertTokenizerFast

    (tmp_path / VOCAB_FILE).write_text(vocab_text(VOCAB))
    theirs = BertTokenizerFast.from_pretrained(str(tmp_path), do_lower_case=lowercase)
    theirs.save_pretrained(str(tmp_path / "saved"))
    url = str(tmp_path / "saved" / TOKENIZER_FILE)
    assert read_vocab(url) == list(VOCAB)
    assert read_stated_rules(url)["lowercase"] == lowercase


def test_added_tokens_are_part_of_the_vocabulary(tmp_path: Path) -> None:
    def change(described: dict[str, Any]) -> None:
        del described["model"]["type"]  # early versions wrote none for a WordPiece model
        token = {**described["added_tokens"][0], "id": len(VOCAB), "content": "[NAME]"}
        described["added_tokens"].append(token)

    assert read_vocab(write_json(tmp_path / TOKENIZER_FILE, change)) == [*VOCAB, "[NAME]"]


@pytest.mark.parametrize(("model", "kind"), [(models.BPE(), "BPE"), (models.Unigram(), "Unigram")])
def test_other_tokenizer_is_named(tmp_path: Path, model: models.Model, kind: str, cli: Cli) -> None:
    folder = write_checkpoint(tmp_path / "bert")
    Path(folder, VOCAB_FILE).unlink()
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel()
    tokenizer.save(str(Path(folder, TOKENIZER_FILE)))
    with pytest.raises(VocabularyError, match=kind):
        raw_inputs(trial_config(folder))
    answer = cli("fill", "[MASK]", "--model", folder)
    assert answer.code == 1
    assert kind in answer.err


@pytest.mark.parametrize(
    "change",
    [
        lambda described: described.pop("model"),
        lambda described: described.update(model=[]),
        lambda described: described["model"].update(vocab=["[PAD]"]),
        lambda described: described["model"].update(vocab={"[PAD]": None}),
        lambda described: described["model"]["vocab"].pop("film"),
        lambda described: described["model"]["vocab"].update(film=0),
        lambda described: described["model"].update(continuing_subword_prefix="@@"),
        lambda described: described["model"].update(unk_token="<unk>"),
        lambda described: described.update(added_tokens=[{"id": 0}]),
        lambda described: described.update(added_tokens=3),
    ],
)
def test_damaged_file_is_refused(
    tmp_path: Path, change: Callable[[dict[str, Any]], object]
) -> None:
    path = tmp_path / TOKENIZER_FILE
    with pytest.raises(VocabularyError):
        read_vocab(write_json(path, change))
    for content in (b"", b"[]", b"\xff", b"[" * 200_000):
        path.write_bytes(content)
        with pytest.raises(VocabularyError):
            read_vocab(str(path))


@pytest.mark.parametrize(
    "change",
    [
        lambda described: described["normalizer"].update(strip_accents="false"),
        lambda described: described["normalizer"].update(lowercase=None),
        lambda described: described["normalizer"].update(clean_text=False),
        lambda described: described["normalizer"].update(type="Lowercase"),
        lambda described: described.update(normalizer=None),
        lambda described: described.update(pre_tokenizer={"type": "Whitespace"}),
    ],
)
def test_tokenizer_with_other_rules_than_berts_is_refused(
    tmp_path: Path, change: Callable[[dict[str, Any]], object]
) -> None:
    with pytest.raises(VocabularyError):
        read_stated_rules(write_json(tmp_path / TOKENIZER_FILE, change))


def test_finetuning_starts_from_checkpoint_without_vocab_txt(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "bert", lowercase=None)
    keep_only_tokenizer(folder, lowercase=False)
    examples = sentiment(tmp_path / "sst", train=4, dev=2)
    config = trial_config(folder, max_seq_length=16)
    opened = open_trial(trial_job(tmp_path / "work", examples, config=config))
    assert opened.tokenizer.vocab == VOCAB
    assert not opened.tokenizer.lowercase
    before = {item.name: item.sha256 for item in raw_inputs(config)}
    Path(folder, TOKENIZER_FILE).write_text(tokenizer_json(VOCAB, lowercase=True))
    after = {item.name: item.sha256 for item in raw_inputs(config)}
    assert {name for name in before if before[name] != after[name]} == {TOKENIZER_FILE}


def test_pretraining_compares_vocabulary(small_corpus: SmallCorpus, tmp_path: Path) -> None:
    vocab = input_file(small_corpus.vocabulary, VOCAB_FILE)
    tokens = read_vocab(vocab)
    folder = keep_only_tokenizer(write_checkpoint(tmp_path / "bert", vocab=tuple(tokens)))
    job = small_corpus.job(tmp_path / "work", init_checkpoint=folder)
    assert open_model(job).vocab_size == len(tokens)
    tokens[-2:] = reversed(tokens[-2:])
    Path(folder, TOKENIZER_FILE).write_text(tokenizer_json(tokens, lowercase=True))
    with pytest.raises(InstanceDataError):
        open_model(job)


@pytest.mark.parametrize("added", [-1, 1])
def test_pretraining_refuses_checkpoint_without_one_token_per_embedding(
    small_corpus: SmallCorpus, tmp_path: Path, added: int
) -> None:
    vocab = input_file(small_corpus.vocabulary, VOCAB_FILE)
    tokens = read_vocab(vocab)
    folder = write_checkpoint(tmp_path / "bert", vocab=tuple(tokens))
    Path(folder, VOCAB_FILE).write_text(vocab_text([*tokens, "[NAME]"][: len(tokens) + added]))
    job = small_corpus.job(tmp_path / "work", init_checkpoint=folder)
    with pytest.raises(CheckpointError):
        open_model(job)


def test_recipe_takes_vocabulary_from_tokenizer_json(tmp_path: Path) -> None:
    (tmp_path / VOCAB_FILE).write_text(vocab_text(VOCAB))
    (tmp_path / TOKENIZER_FILE).write_text(tokenizer_json(VOCAB, lowercase=True))
    text, described = (
        vocabulary_inputs(VocabularyConfig(vocab_file=str(tmp_path / name)))
        for name in (VOCAB_FILE, TOKENIZER_FILE)
    )
    assert [item.key_digest for item in text] == [item.key_digest for item in described]
    cased = VocabularyConfig(vocab_file=str(tmp_path / TOKENIZER_FILE), lowercase=False)
    with pytest.raises(VocabularyError):
        vocabulary_inputs(cased)


# Rules that are carried into every model


ACCENTS = (*VOCAB, "möchte", "mochte", "été", "ete", "東", "京", "東京")
KEPT = {"do_lower_case": True, "strip_accents": False, "tokenize_chinese_chars": False}


def keep_accents(folder: Path) -> str:
    """Write a checkpoint whose tokenizer keeps accents and Chinese words."""
    checkpoint = write_checkpoint(folder, vocab=ACCENTS, initializer_range=0.5)
    (folder / TOKENIZER_CONFIG_FILE).write_text(json.dumps(KEPT))
    return checkpoint


def test_tuned_model_keeps_rules_of_its_checkpoint(tmp_path: Path) -> None:
    examples = sentiment(tmp_path / "sst", train=4, dev=2)
    config = trial_config(keep_accents(tmp_path / "bert"), max_seq_length=16, num_epochs=1)
    train_trial(trial_job(tmp_path / "work", examples, config=config), stop=StopRequest())
    tuned = trial_job(tmp_path / "work", examples, config=config).results()
    expected = [ACCENTS.index(token) for token in ("möchte", "été", "東京")]
    assert Predictor.open(str(tuned), device="cpu").tokenizer.encode("Möchte ÉTÉ 東京") == expected
    saved = Tokenizer.from_file(str(tuned / TOKENIZER_FILE))
    assert saved.encode("Möchte ÉTÉ 東京", add_special_tokens=False).ids == expected
    assert read_stated_rules(str(tuned / VOCAB_FILE)) == {
        "lowercase": True,
        "strip_accents": False,
        "tokenize_chinese_chars": False,
    }


def test_fill_keeps_rules_of_its_checkpoint(tmp_path: Path) -> None:
    folder = keep_accents(tmp_path / "bert")
    texts = ["möchte [MASK]", "mochte [MASK]"]
    filled = bertloom.fill(texts, model=folder)
    assert filled[0].masks != filled[1].masks
    Path(folder, TOKENIZER_CONFIG_FILE).write_text('{"do_lower_case": true}')
    stripped = bertloom.fill(texts, model=folder)
    assert stripped[0].masks == stripped[1].masks == filled[1].masks


def test_vocabulary_of_recipe_keeps_rules_of_its_file(tmp_path: Path) -> None:
    folder = keep_accents(tmp_path / "bert")
    config = VocabularyConfig(vocab_file=f"{folder}/{VOCAB_FILE}")
    output = build_vocabulary(
        config, inputs={}, output=str(tmp_path / "out"), execution=ExecutionConfig()
    )
    assert get_text_rules(output.statistics) == {
        "lowercase": True,
        "strip_accents": False,
        "tokenize_chinese_chars": False,
    }
    stored = {entry.path: tmp_path / "out" / entry.stored_name for entry in output.files}
    saved = Tokenizer.from_file(str(stored[TOKENIZER_FILE]))
    assert saved.encode("Möchte", add_special_tokens=False).tokens == ["möchte"]
    assert json.loads(stored[TOKENIZER_CONFIG_FILE].read_text())["strip_accents"] is False


@pytest.mark.parametrize("stated", [{"strip_accents": False}, {"do_lower_case": False}], ids=str)
def test_pretraining_refuses_checkpoint_with_other_rules(
    small_corpus: SmallCorpus, tmp_path: Path, stated: dict[str, bool]
) -> None:
    vocab = input_file(small_corpus.vocabulary, VOCAB_FILE)
    folder = write_checkpoint(tmp_path / "bert", vocab=tuple(read_vocab(vocab)))
    job = small_corpus.job(tmp_path / "work", init_checkpoint=folder)
    open_model(job)
    Path(folder, TOKENIZER_CONFIG_FILE).write_text(json.dumps(stated))
    with pytest.raises(InstanceDataError):
        open_model(job)


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("bert-base-uncased", "google-bert/bert-base-uncased"),
        ("bert-large-cased", "google-bert/bert-large-cased"),
        ("google-bert/bert-base-uncased", "google-bert/bert-base-uncased"),
        ("dbmdz/bert-base-german-cased", "dbmdz/bert-base-german-cased"),
    ],
)
def test_missing_checkpoint_with_name_of_hub_names_the_download(
    cli: Cli, tmp_path: Path, name: str, model: str
) -> None:
    answer = cli("fill", "[MASK]", "--model", name, "--store", str(tmp_path / "store"))
    assert answer.code == 1
    assert f"hf download {model}" in answer.err
    if "/" not in name:
        with pytest.raises(MissingInputError, match=f"hf download {model}"):
            check_layout(str(tmp_path / name))
    with pytest.raises(MissingInputError) as error:
        check_layout(str(tmp_path / "distilbert-base-uncased"))
    assert "hf download" not in str(error.value)


@pytest.mark.network
def test_recipe_takes_url_with_query(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / TOKENIZER_FILE).write_text(tokenizer_json(VOCAB, lowercase=True))
    monkeypatch.chdir(tmp_path)  # the handler serves the working directory
    with LocalServer(SimpleHTTPRequestHandler) as server:
        url = f"{server.url}/{TOKENIZER_FILE}?signature=a"
        assert read_vocab(url) == list(VOCAB)
        (item,) = vocabulary_inputs(VocabularyConfig(vocab_file=url))
    assert item.name == TOKENIZER_FILE
