"""From a folder of texts to a model: what is found, what is proposed, and that it runs."""

from __future__ import annotations

import bz2
import gzip
import json
import random
import tarfile
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from support.cli_runner import Cli

from flows.quickstart.languages import guess_language
from flows.quickstart.proposal import Machine, propose, recipe_name
from flows.quickstart.survey import Survey, found_lines, survey
from flows.quickstart.vocabulary import vocabulary_size
from flows.recipes.json_schema import MODELINE, SCHEMA_FILE
from flows.recipes.loader import load_recipe
from flows.sample import write_sample
from flows.sample.dump import write_dump
from flows.sample.pages import Page
from flows.store.artifacts import ArtifactStore
from pipelines.documents.plan import raw_files
from pipelines.sources import SOURCES
from pipelines.wordpiece.vocabulary import count_words, learn_vocabulary
from schemas.configs import VocabularyConfig

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
        files = (file for split in splits for file in raw_files(split, source.kind))
        read[source.name] = sorted({file.name for file in files})
    return read


def test_each_form_is_found_and_read_once(tmp_path: Path) -> None:
    found = survey(fill_folder(tmp_path / "mine"))
    assert [(form.kind, form.files) for form in found.forms] == [("text", 1)] * 3 + [("text", 30)]
    assert {form.fields.get("text_column") for form in found.forms} == {None, "body"}
    ignored = dict(found.ignored)
    assert ignored["hidden file"] == 1
    assert ignored["empty file"] == 1
    lines = list(found_lines(found))
    assert any(line.startswith("  read      30 text files, ") for line in lines)
    assert "  ignored   1 .pdf file: convert to .txt first" in lines
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
    pages = [Page(0, f"Bells {number}", ENGLISH * 8) for number in range(10)]
    dump = Path(write_dump(str(tmp_path / "dump"), pages).pages)
    (tmp_path / "one" / "wiki.xml").write_bytes(bz2.decompress(dump.read_bytes()))
    assert [form.kind for form in survey(tmp_path / "one").forms] == ["wikipedia"]
    (tmp_path / "one" / "wiki.xml").rename(tmp_path / "wiki.xml")
    dump.rename(tmp_path / "one" / dump.name)  # whose first bzip2 stream is its header alone
    found = survey(tmp_path / "one")
    assert found.guess.is_sure
    assert len(found.sample) > 10_000
    # What a download lacks must not be known only when the vocabulary is asked for.
    assert found.forms[0].fields["on_corrupt"] == "keep-whole-pages"


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
    documents = recipe.build_documents
    assert documents is not None
    assert documents.sources[0].language == "ja"


def kanji(letters: int, words: int) -> str:
    """Lines of words of a kanji and one of some kana."""
    drawn, kana = random.Random(7), "のはがをにでとも"
    pairs = (
        chr(0x4E00 + min(drawn.randrange(letters), drawn.randrange(letters)))
        + "".join(drawn.choices(kana, k=drawn.randrange(1, 5)))
        for _ in range(words)
    )
    return "".join(pairs).replace("も", "も。\n")


@pytest.mark.parametrize(
    "text",
    [kanji(900, 5_000), kanji(3_000, 40_000), ENGLISH * 300, "나라는 강 가에 있다.\n" * 2_000],
)
def test_a_vocabulary_that_is_proposed_is_reached(text: str) -> None:
    guess = guess_language(text)
    size, alphabet = vocabulary_size(text, text_bytes=len(text.encode()), guess=guess)
    config = VocabularyConfig(vocab_size=size, limit_alphabet=alphabet, lowercase=guess.lowercase)
    words = count_words(text.split("\n"), lowercase=guess.lowercase)
    assert len(learn_vocabulary(words.filter(pc.greater_equal(words["count"], 2)), config)) == size


def test_what_a_run_makes_is_no_input_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for number in range(60):
        (tmp_path / f"{number}.txt").write_text(f"Number {number}. " + ENGLISH * 8)
    first = survey(Path(), store=tmp_path / "store")
    ArtifactStore(str(tmp_path / "store"))
    (tmp_path / "store" / "artifacts").mkdir()
    (tmp_path / "store" / "vocab.txt").write_text("a\nb\n")
    assert survey(Path(), store=tmp_path / "store").forms == first.forms
    assert survey(Path(), store=tmp_path / "elsewhere").forms[0].files == 60
    assert len(proposed(first, tmp_path / "store")["texts"]) == 60
    (tmp_path / "61.txt").write_text(ENGLISH)
    assert "61.txt" in proposed(first, tmp_path / "store")["texts"]  # which came since


def test_files_that_would_end_the_run_are_left_out(tmp_path: Path) -> None:
    for number in range(60):
        (tmp_path / f"{number}.txt").write_text(ENGLISH * 8)
    (tmp_path / "7.txt").write_text(ENGLISH, encoding="utf-16")
    (tmp_path / "gone.txt").symlink_to("nowhere")
    found = survey(tmp_path)
    assert [count for why, count in found.ignored if "iconv" in why or "opened" in why] == [1, 1]
    assert len(found.forms[0].fields["paths"]) == 59


def test_tables_are_measured_whole(tmp_path: Path) -> None:
    rows = [
        {"id": number, "story": f"{number}. {ENGLISH * (900 if number < 3 else 1)}"}
        for number in range(500)
    ]
    (tmp_path / "rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    assert survey(tmp_path).forms[0].fields["text_column"] == "story"  # its first row is long
    (tmp_path / "rows.jsonl").unlink()
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "rows.parquet", compression="zstd")
    [form] = survey(tmp_path).forms
    assert 490 < form.documents < 510
    assert form.text_bytes == pytest.approx(len(ENGLISH) * (3 * 900 + 497), rel=0.4)


def test_names_keep_their_letters() -> None:
    assert recipe_name(Path("Meine Größe 日本")) == "meine-grosse"
    assert recipe_name(Path("日本")) == "texts"


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
        ("scans", "1 .pdf file: convert to .txt"),
        ("few", "too little for any model"),
    ):
        said = cli("quickstart", folder, "--yes")
        assert said.code == 1, folder
        assert told in said.err
    (tmp_path / "cut").mkdir()
    with tarfile.open(tmp_path / "whole.tar.gz", "w:gz") as archive:
        for number in range(20):
            (tmp_path / "t.txt").write_bytes(random.Random(number).randbytes(20_000).hex().encode())
            archive.add(tmp_path / "t.txt", arcname=f"{number}.txt")
    whole = (tmp_path / "whole.tar.gz").read_bytes()
    (tmp_path / "cut" / "books.tar.gz").write_bytes(whole[: len(whole) // 2])
    said = cli("quickstart", "cut", "--yes")
    assert said.code == 1
    assert "cut off or damaged" in said.err
    assert not list(tmp_path.glob("*.yaml"))
    assert not (tmp_path / SCHEMA_FILE).exists()


def test_a_recipe_that_is_there_is_not_overwritten(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    fill_folder(tmp_path / "My Texts")
    said = cli("quickstart", "My Texts", "--plan-only")
    assert said.code == 0
    assert "bertloom run my-texts.yaml" in said.out
    assert not (tmp_path / "store").exists()
    assert (tmp_path / "my-texts.yaml").read_text().startswith(MODELINE)
    (tmp_path / SCHEMA_FILE).write_text("{}")
    said = cli("quickstart", "My Texts", "--plan-only")
    assert said.code == 0
    assert "my-texts.yaml (as it was)" in said.out
    assert "--force" in said.out
    assert (tmp_path / SCHEMA_FILE).read_text() == "{}"
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
