"""From a folder of texts to a model: what is found, what is proposed, and that it runs."""

from __future__ import annotations

import bz2
import gzip
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from command_runs import Cli

from flows.quickstart.languages import guess_language
from flows.quickstart.proposal import Machine, propose
from flows.quickstart.survey import Survey, survey
from flows.recipes.files import load_recipe
from flows.sample import write_sample
from pipelines.sources import SOURCES

ENGLISH = (
    "The ferryman of Orrin kept a lantern in the window of his house, and nobody knew who had lit "
    "it first. When the river rose he rowed across to the harbour and counted the bells in it.\n"
)
JAPANESE = "東京は日本の首都であり、多くの人々がそこに住んでいる。川のほとりに古い家があった。\n"
ITALIAN = "La città di Orrin è sulla riva del fiume, e il traghetto che la unisce alla valle.\n"


def fill_folder(folder: Path) -> Path:
    """A file of every form, and some that are none."""
    (folder / "deep" / ".git").mkdir(parents=True)
    (folder / "deep" / ".git" / "config.txt").write_text(ENGLISH)
    for number in range(30):
        (folder / "deep" / f"{number}.txt").write_text(f"Number {number}. " + ENGLISH * 8)
    (folder / "readme.md").write_text("# Notes\n\n" + ENGLISH * 20)
    (folder / ".hidden").write_text("no")
    (folder / "scan.pdf").write_bytes(b"%PDF")
    (folder / "photo.JPG").write_bytes(b"x")
    (folder / "empty.txt").touch()
    rows = [{"id": str(number), "body": ENGLISH * 3} for number in range(40)]
    lines = "".join(f"{json.dumps(row)}\n" for row in rows)
    (folder / "rows.jsonl.gz").write_bytes(gzip.compress(lines.encode()))
    pq.write_table(pa.Table.from_pylist(rows), folder / "rows.parquet")
    return folder


def proposed(found: Survey, tmp_path: Path) -> dict[str, list[str]]:
    """The proposed recipe's paths by source; it is valid, and each source plans it."""
    text = propose(found, Machine(2, ""), minutes=1.0, name="mine").text
    (tmp_path / "recipe.yaml").write_text(text)
    documents = load_recipe(str(tmp_path / "recipe.yaml")).build_documents
    assert documents is not None
    read = {}
    for source in documents.sources:
        splits = SOURCES[source.kind].plan(source)
        read[source.name] = sorted({split.file.name for split in splits})
    return read


def test_each_form_is_found_and_read_once(tmp_path: Path) -> None:
    found = survey(fill_folder(tmp_path / "mine"))
    assert [(form.kind, form.files) for form in found.forms] == [("text", 1)] * 3 + [("text", 30)]
    assert {form.fields.get("text_column") for form in found.forms} == {None, "body"}
    ignored = dict(found.ignored)
    assert ignored["hidden files"] == 1
    assert ignored["empty files"] == 1
    assert any("convert" in why for why in ignored)
    assert found.guess.language == "en"
    assert 0.5 < found.text_bytes / (30 * 8 * len(ENGLISH) + 100 * len(ENGLISH)) < 2
    read = proposed(found, tmp_path)
    assert read["notes"] == ["readme.md"]
    assert read["json"] == ["rows.jsonl.gz"]
    assert read["parquet"] == ["rows.parquet"]
    assert len(read["texts"]) == 30
    assert survey(tmp_path / "mine") == found


def test_dumps_and_archives_are_found(tmp_path: Path) -> None:
    write_sample(str(tmp_path / "mine"), articles=20, tales=2, seed=1)
    found = survey(tmp_path / "mine")
    assert {form.kind for form in found.forms} >= {"books", "wikipedia"}
    assert found.guess.language == "en"
    (tmp_path / "one").mkdir()
    dump = next((tmp_path / "mine").glob("*.xml.bz2"))
    (tmp_path / "one" / "wiki.xml").write_bytes(bz2.decompress(dump.read_bytes()))
    assert [form.kind for form in survey(tmp_path / "one").forms] == ["wikipedia"]


@pytest.mark.parametrize(
    ("text", "language", "lowercase"),
    [
        (ENGLISH, "en", True),
        (JAPANESE, "ja", False),
        (ITALIAN, "it", False),
        ("qq 12 zz", "en", False),
    ],
)
def test_languages_are_told(text: str, language: str, lowercase: bool) -> None:
    found = guess_language(text * 5)
    assert (found.language, found.lowercase) == (language, lowercase)


def test_a_large_alphabet_has_room_in_the_vocabulary(tmp_path: Path) -> None:
    (tmp_path / "ja").mkdir()
    (tmp_path / "ja" / "a.txt").write_text(JAPANESE * 2_000)
    found = survey(tmp_path / "ja")
    (tmp_path / "r.yaml").write_text(propose(found, Machine(2, ""), minutes=1, name="ja").text)
    recipe = load_recipe(str(tmp_path / "r.yaml"))
    assert not recipe.build_vocabulary.lowercase
    assert recipe.build_vocabulary.vocab_size >= 2 * recipe.build_vocabulary.max_alphabet
    documents = recipe.build_documents
    assert documents is not None
    assert documents.sources[0].language == "ja"


def test_what_cannot_be_used_is_said(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "none").mkdir()
    (tmp_path / "few").mkdir()
    (tmp_path / "few" / "a.txt").write_text(ENGLISH)
    (tmp_path / "scans").mkdir()
    (tmp_path / "scans" / "a.pdf").write_bytes(b"%PDF")
    for folder, told in (
        ("gone", "no such folder"),
        ("few/a.txt", "is a file"),
        ("none", "it is empty"),
        ("scans", "convert them"),
        ("few", "too little for any model"),
    ):
        said = cli("quickstart", folder, "--yes")
        assert said.code == 1, folder
        assert told in said.err
    assert not list(tmp_path.glob("*.yaml"))


def test_a_recipe_that_is_there_is_not_overwritten(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    fill_folder(tmp_path / "My Texts")
    said = cli("quickstart", "My Texts", "--plan-only")
    assert said.code == 0
    assert "bertloom run my-texts.yaml" in said.out
    assert not (tmp_path / "store").exists()
    assert cli("quickstart", "My Texts", "--plan-only").code == 0
    (tmp_path / "my-texts.yaml").write_text("mine: yes\n")
    said = cli("quickstart", "My Texts", "--plan-only")
    assert said.code == 1
    assert "--recipe" in said.err
    assert (tmp_path / "my-texts.yaml").read_text() == "mine: yes\n"


@pytest.mark.slow
def test_a_folder_becomes_a_model_that_answers(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_sample(str(tmp_path / "wiki"), articles=60, tales=2, seed=1)
    said = cli("quickstart", "wiki", "--yes", "--minutes", "0.05")
    assert said.code == 0, said.err
    assert said.out.count("the text has: ") == 2
    assert 'bertloom fill "The capital of [MASK] is"' in said.out
    said = cli("fill", "The [MASK] of the town", "-k", "3")
    assert said.code == 0
    assert said.out.splitlines()[1].count(" 0.") == 3  # a comma may be among the pieces
