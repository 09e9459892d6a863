"""From a folder of texts to a model: the scan, the proposed recipe, and its run."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import random
import re
import tarfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from support.cli_runner import Cli
from support.lineage_builder import put
from support.log_records import own_records
from tokenizers import Tokenizer, decoders
from tokenizers.models import WordLevel

from flows.cli import quickstart
from flows.model_loading import best_checkpoint
from flows.quickstart.folder_scan import FolderScan, detect_language, scan_folder
from flows.quickstart.mask_prompts import find_prompt
from flows.quickstart.recipe_proposal import (
    choose_vocab_size,
    held_out_fraction,
    propose,
)
from flows.recipes.json_schema import MODELINE, SCHEMA_FILE
from flows.recipes.loader import load_recipe
from flows.run.graph import StepGraph
from flows.run.run import Run
from flows.run.step_execution import StepResult
from flows.sample import write_sample
from flows.sample.dump import write_dump
from flows.sample.pages import Page
from flows.store.artifacts import ArtifactStore
from model.training import throughput
from pipelines.documents.plan import raw_files
from pipelines.instances.notes import MIN_HELD_OUT_DOCUMENTS
from pipelines.io.raw_files import expand_paths
from pipelines.sources import SOURCES
from pipelines.vocabulary.training import count_words, train_vocabulary
from schemas.corpus_configs import VocabularyConfig
from schemas.recipe import Recipe

ENGLISH = (
    "The ferryman of Orrin kept a lantern in the window of his house, and nobody knew who had lit "
    "it first. When the river rose he rowed across to the harbour and counted the bells in it.\n"
)
JAPANESE = "東京は日本の首都であり、多くの人々がそこに住んでいる。川のほとりに古い家があった。\n"
GERMAN = (
    "Der Fährmann von Orrin stellte jeden Abend eine Laterne in das Fenster seines Hauses, und "
    "niemand wusste, wer sie zuerst angezündet hatte.\n"
)
CHINESE = "奥林的船夫在家里的窗户前放着一盏灯笼。没有人知道是谁先点亮的。河水上涨时。他划船过河。\n"
ARABIC = "كان مراكبي أورين يضع فانوسا في نافذة بيته ولم يعرف أحد من أضاءه أولا حين ارتفع النهر.\n"
HINDI = "ओरिन का नाविक अपने घर की खिड़की में एक लालटेन रखता था, और कोई नहीं जानता था कि इसे किसने जलाया।\n"
ITALIAN = "La città di Orrin è sulla riva del fiume, e il traghetto che la unisce alla valle.\n"


def fill_folder(folder: Path) -> Path:
    """Write files of every format, and some that cannot be read."""
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


def fill_with_texts(folder: Path, count: int = 60) -> None:
    for number in range(count):
        (folder / f"{number}.txt").write_text(f"Number {number}. " + ENGLISH * 8)


@pytest.fixture(autouse=True)
def steps(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Let a step of a sequence take a second per 64 tokens, without measuring it."""
    if "slow" not in request.keywords:
        fake = lambda *_, seq_length, **__: seq_length / 64  # noqa: E731
        monkeypatch.setattr(throughput, "measure_step_seconds", fake)


def propose_recipe(scan: FolderScan, file: Path, **options: Any) -> Recipe:
    """Write the proposed recipe to a file, and load it."""
    defaults: dict[str, Any] = {"gpu": "", "minutes": 1.0, "name": "mine"}
    file.write_text(propose(scan, **{**defaults, **options}).text)
    return load_recipe(str(file))


def proposed_files(scan: FolderScan, tmp_path: Path) -> dict[str, list[str]]:
    """Return the files that each source of the proposed recipe reads."""
    documents = propose_recipe(scan, tmp_path / "recipe.yaml").build_documents
    assert documents is not None
    files: dict[str, set[str]] = {}
    for source in documents.sources:
        splits = SOURCES[source.kind].plan(source)
        names = (file.name for split in splits for file in raw_files(split, source.kind))
        files[source.name] = set(names)
    return {name: sorted(names) for name, names in files.items()}


def test_each_format_is_read_once(tmp_path: Path) -> None:
    folder = fill_folder(tmp_path / "mine")
    scan = scan_folder(folder)
    assert {group.kind: group.files for group in scan.groups} == {
        "json": 1, "markdown": 1, "parquet": 1, "text": 30,
    }  # fmt: skip
    assert {group.source.get("text_column") for group in scan.groups} == {None, "body"}
    assert dict(scan.ignored) == {"hidden file": 1, "empty file": 1, ".pdf file": 1, ".jpg file": 1}
    assert 0.5 < scan.text_bytes / (30 * 8 * len(ENGLISH) + 100 * len(ENGLISH)) < 2
    files = proposed_files(scan, tmp_path)
    assert len(files.pop("text")) == 30
    assert files == {
        "markdown": ["readme.md"], "json": ["rows.jsonl.gz"], "parquet": ["rows.parquet"],
    }  # fmt: skip
    assert scan_folder(folder) == scan


def test_dumps_and_archives_are_read(tmp_path: Path) -> None:
    write_sample(str(tmp_path / "mine"), articles=20, tales=2, seed=1)
    scan = scan_folder(tmp_path / "mine")
    assert {group.kind for group in scan.groups} >= {"archive", "dump"}
    assert detect_language(scan.sample) == "en"
    (tmp_path / "one").mkdir()
    pages = [Page(0, f"Bells {number}", ENGLISH * 8) for number in range(10)]
    dump = Path(write_dump(str(tmp_path / "dump"), pages).pages)
    (tmp_path / "one" / "wiki.xml").write_bytes(bz2.decompress(dump.read_bytes()))
    assert [group.kind for group in scan_folder(tmp_path / "one").groups] == ["dump"]
    (tmp_path / "one" / "wiki.xml").unlink()
    dump.rename(tmp_path / "one" / dump.name)  # its first bzip2 stream has no page
    scan = scan_folder(tmp_path / "one")
    assert len(scan.sample) > 10_000
    assert scan.groups[0].source["on_corrupt"] == "keep-whole-pages"


def test_documents_of_archive_are_books(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "books.tar", "w") as archive:
        for number in range(20):
            member = tarfile.TarInfo(f"{number}.txt")
            member.size = 500_000
            archive.addfile(member, io.BytesIO(ENGLISH.encode() * 3_000))
    scan = scan_folder(tmp_path)
    assert scan.documents == pytest.approx(20, abs=1)
    assert held_out_fraction(scan) == 0.3


@pytest.mark.parametrize(
    ("text", "language"),
    [
        (ENGLISH, "en"),
        (GERMAN, "de"),
        (ITALIAN, "it"),
        (JAPANESE, "ja"),
        (CHINESE, "zh"),
        (ARABIC, "ar"),
        (HINDI, "hi"),
        ("qq 12 zz", ""),
        ("7 8 9 | 10\n", ""),
    ],
)
def test_language_is_detected(text: str, language: str) -> None:
    assert detect_language(text * 5) == language


@pytest.mark.parametrize(("text", "language"), [(GERMAN, "de"), (CHINESE, "zh"), (ARABIC, "ar")])
def test_recipe_fits_language_of_folder(text: str, language: str, cli: Cli, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()
    for number in range(4):
        (tmp_path / "mine" / f"{number}.txt").write_text(text * 200, encoding="utf-8")
    assert cli("quickstart", "mine", "--dry-run").code == 0
    recipe = load_recipe("mine.yaml")
    assert recipe.build_documents is not None
    assert recipe.build_vocabulary is not None
    assert [source.language for source in recipe.build_documents.sources] == [language]
    assert not recipe.build_vocabulary.lowercase
    vocab = train_vocabulary(
        count_words((text * 800).split("\n"), lowercase=False), recipe.build_vocabulary
    )
    letters = {letter for letter in text if letter.isalpha()}
    assert letters <= set(vocab) | {piece[-1] for piece in vocab}


def test_language_option_replaces_detection(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.txt").write_text(ENGLISH * 300)
    assert cli("quickstart", "a.txt", "--dry-run", "--language", "de", "--name", "a").code == 0
    recipe = load_recipe("a.yaml")
    assert recipe.build_documents is not None
    assert recipe.build_vocabulary is not None
    assert recipe.build_documents.sources[0].language == "de"
    assert not recipe.build_vocabulary.lowercase


def random_kanji(letters: int, words: int) -> str:
    """Return lines of words of one kanji and some kana."""
    rng, kana = random.Random(7), "のはがをにでとも"
    pairs = (
        chr(0x4E00 + min(rng.randrange(letters), rng.randrange(letters)))
        + "".join(rng.choices(kana, k=rng.randrange(1, 5)))
        for _ in range(words)
    )
    return "".join(pairs).replace("も", "も。\n")


@pytest.mark.parametrize(
    "text",
    [random_kanji(3_000, 40_000), ENGLISH * 300, "나라는 강 가에 있다.\n" * 2_000],
    ids=["kanji", "english", "hangul"],
)
@pytest.mark.parametrize("lowercase", [True, False])
def test_proposed_vocabulary_size_is_reached(text: str, lowercase: bool, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(text, encoding="utf-8")
    size, alphabet = choose_vocab_size(scan_folder(tmp_path), lowercase=lowercase)
    config = VocabularyConfig(vocab_size=size, limit_alphabet=alphabet, lowercase=lowercase)
    words = count_words(text.split("\n"), lowercase=lowercase)
    assert len(train_vocabulary(words.filter(pc.greater_equal(words["count"], 2)), config)) == size


def test_store_in_folder_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    fill_with_texts(tmp_path)
    first = scan_folder(Path(), store=tmp_path / "store")
    ArtifactStore(str(tmp_path / "store"))
    (tmp_path / "store" / "artifacts").mkdir(exist_ok=True)
    (tmp_path / "store" / "vocab.txt").write_text("a\nb\n")
    assert scan_folder(Path(), store=tmp_path / "store").groups == first.groups
    assert scan_folder(Path(), store=tmp_path / "elsewhere").groups[0].files == 60
    assert len(proposed_files(first, tmp_path / "store")["text"]) == 60
    (tmp_path / "61.txt").write_text(ENGLISH)  # patterns include later files
    assert "61.txt" in proposed_files(first, tmp_path / "store")["text"]


def test_tables_are_measured(tmp_path: Path) -> None:
    rows = [
        {"id": number, "story": f"{number}. {ENGLISH * (900 if number < 3 else 1)}"}
        for number in range(500)
    ]
    (tmp_path / "rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    assert scan_folder(tmp_path).groups[0].source["text_column"] == "story"
    (tmp_path / "rows.jsonl").unlink()
    pq.write_table(pa.Table.from_pylist(rows[3:] + rows[3:6]), tmp_path / "rows.parquet")
    [group] = scan_folder(tmp_path).groups
    assert group.documents == pytest.approx(500, rel=0.1)
    assert group.text_bytes == pytest.approx(len(ENGLISH) * 500, rel=0.1)


def test_tables_of_other_columns_are_own_sources_and_unreadable_files_are_ignored(
    tmp_path: Path,
) -> None:
    for name, column in (("a", "text"), ("b", "text"), ("c", "review")):
        rows = [{column: f"{number}. {ENGLISH}"} for number in range(200)]
        (tmp_path / f"{name}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    (tmp_path / "gone.txt").symlink_to("nowhere")
    (tmp_path / "numbers.jsonl").write_text('{"text": 1}\n' * 9)
    scan = scan_folder(tmp_path)
    assert [count for _, count in scan.ignored] == [1, 1]
    assert proposed_files(scan, tmp_path) == {
        "json-0": ["c.jsonl"],
        "json-1": ["a.jsonl", "b.jsonl"],
    }


def test_names_in_any_case_and_other_encodings_are_read(tmp_path: Path) -> None:
    (tmp_path / "utf-16.TXT").write_text(ENGLISH * 9, encoding="utf-16")
    (tmp_path / "Plain.Txt").write_text(ENGLISH * 300)
    (tmp_path / "Packed.txt.GZ").write_bytes(gzip.compress(ENGLISH.encode() * 9))
    rows = "".join(f"{json.dumps({'text': f'{number}. {ENGLISH}'})}\n" for number in range(50))
    (tmp_path / "Rows.JSONL").write_text(rows)
    scan = scan_folder(tmp_path)
    assert scan.ignored == ()
    assert ENGLISH in scan.sample
    files = proposed_files(scan, tmp_path)
    assert files == {
        "json": ["Rows.JSONL"], "text": ["Packed.txt.GZ", "Plain.Txt", "utf-16.TXT"],
    }  # fmt: skip


def test_scan_and_run_pass_over_the_same_links(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder, outside = tmp_path / "mine", tmp_path / "outside"
    (folder / "deep").mkdir(parents=True)
    outside.mkdir()
    fill_with_texts(folder, 30)
    for path in (outside / "secret.txt", folder / "deep" / "a.txt"):
        path.write_text(ENGLISH * 9)
    for link, target in (
        ("loop", ".."), ("deep/up", ".."), ("far", outside), ("out.txt", outside / "secret.txt"),
        ("gone.txt", "nowhere"), ("self.txt", "self.txt"), ("deep/0.txt", "../0.txt"),
    ):  # fmt: skip
        (folder / link).symlink_to(target)
    scan = scan_folder(folder)
    assert sum(count for _, count in scan.ignored) == 6
    expected = sorted([*(f"{number}.txt" for number in range(30)), "0.txt", "a.txt"])
    files = proposed_files(scan, tmp_path)
    assert files == {"text": sorted({*expected, *(f for f in files["text"] if "/0.txt" in f)})}
    read = [name for _, name in expand_paths([str(folder)], suffixes=[".txt"])]
    assert sorted(name.rpartition("/")[2] for name in read) == expected
    assert [record.args[1] for record in own_records(caplog) if record.args][-1] == 6


def test_unusable_folders_leave_no_recipe(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("none", "few", "scans", "cut"):
        (tmp_path / name).mkdir()
    (tmp_path / "few" / "a.txt").write_text(ENGLISH)
    (tmp_path / "scans" / "a.pdf").write_bytes(b"%PDF")
    with tarfile.open(tmp_path / "whole.tar.gz", "w:gz") as archive:
        for number in range(20):
            (tmp_path / "t.txt").write_bytes(random.Random(number).randbytes(20_000).hex().encode())
            archive.add(tmp_path / "t.txt", arcname=f"{number}.txt")
    whole = (tmp_path / "whole.tar.gz").read_bytes()
    (tmp_path / "cut" / "books.tar.gz").write_bytes(whole[: len(whole) // 2])
    for folder in ("missing", "few/a.txt", "none", "scans", "few", "cut"):
        result = cli("quickstart", folder, "--yes")
        assert (result.code, folder in result.err) == (1, True), folder
    assert not list(tmp_path.glob("*.yaml"))
    assert not (tmp_path / SCHEMA_FILE).exists()


NOVEL = (
    "It was late when the ferryman of Orrin came home, and the lantern in the window of his\n"
    "house was out. Nobody had seen him on the river; nobody had heard the bells that he\n"
    "counted every night before he slept.\n\n"
)


@pytest.mark.parametrize("files", [1, 5, 600])
def test_long_texts_are_cut_so_that_enough_documents_are_held_out(
    tmp_path: Path, files: int
) -> None:
    for number in range(files):
        (tmp_path / f"{number}.txt").write_text(NOVEL * (6_000 // files))
    scan = scan_folder(tmp_path)
    source = scan.groups[0].source
    sizes = [file.stat().st_size for file in tmp_path.iterdir()]
    documents = sum(-(-size // source["max_document_bytes"]) for size in sizes)
    assert source["document_delimiter"] == "file"
    assert documents >= 400
    assert held_out_fraction(scan) * documents >= 1.5 * MIN_HELD_OUT_DOCUMENTS
    assert held_out_fraction(scan) <= 0.3


def test_empty_file_does_not_replace_pattern_by_all_names(tmp_path: Path) -> None:
    fill_with_texts(tmp_path)
    (tmp_path / "empty.txt").touch()
    assert scan_folder(tmp_path).groups[0].source["paths"] == [f"{tmp_path}/*.txt"]


GUTENBERG = "*** START OF THE PROJECT GUTENBERG EBOOK X ***\n\n" + ENGLISH * 300


def test_books_are_files_with_marks_of_gutenberg(tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / f"{number}.txt").write_text(GUTENBERG)
    rows = [{"text": GUTENBERG, "title": "X"}]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "rows.parquet")
    (tmp_path / "NOTES.MD").write_text(ENGLISH * 30)
    scan = scan_folder(tmp_path)
    kinds = {group.kind: group.source["kind"] for group in scan.groups}
    assert kinds == {"markdown": "text", "parquet": "text", "text": "books"}
    assert proposed_files(scan, tmp_path)["markdown"] == ["NOTES.MD"]


def test_single_file_is_read_without_its_neighbors(tmp_path: Path) -> None:
    for name in ("novel.txt", "other.txt"):
        (tmp_path / name).write_text(NOVEL * 400)
    scan = scan_folder(tmp_path / "novel.txt")
    assert proposed_files(scan, tmp_path) == {"text": ["novel.txt"]}


def test_quickstart_without_terminal_requires_yes(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    fill_folder(tmp_path / "mine")
    assert cli("quickstart", "mine").code == 2
    assert not list(tmp_path.glob("*.yaml"))


def test_recipe_has_steps_that_fit_into_the_time(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(NOVEL * 400)
    phases = propose_recipe(scan_folder(tmp_path), tmp_path / "mine.yaml", minutes=10).pretrain
    assert [phase.budget.max_steps for phase in phases.values()] == [960, 120]
    assert phases["short"].schedule.total_budget == 1080


@pytest.mark.slow
def test_step_is_timed(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(NOVEL * 400)
    phases = propose_recipe(scan_folder(tmp_path), tmp_path / "mine.yaml").pretrain
    assert all((phase.budget.max_steps or 0) > 1 for phase in phases.values())


def test_existing_recipe_is_not_overwritten(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    fill_folder(tmp_path / "My Texts")
    recipe = tmp_path / "my-texts.yaml"
    result = cli("quickstart", "My Texts", "--dry-run")
    assert result.code == 0
    assert "bertloom run my-texts.yaml" in result.out
    assert not (tmp_path / "store").exists()
    text = recipe.read_text()
    assert text.startswith(MODELINE)
    result = cli("quickstart", "My Texts", "--dry-run")
    assert (result.code, "bertloom run my-texts.yaml" in result.err) == (1, True)
    assert recipe.read_text() == text
    (tmp_path / SCHEMA_FILE).write_text("{}")
    assert cli("quickstart", "My Texts", "--dry-run", "--recipe", "other.yaml").code == 0
    assert (tmp_path / SCHEMA_FILE).read_text() == "{}"


@pytest.mark.parametrize(
    ("perplexities", "best"), [((82.8, 139.8), 0), ((82.8, 60.0), 1), ((None, None), 1)]
)
def test_fill_uses_phase_with_lowest_perplexity(
    store: ArtifactStore, perplexities: tuple[float | None, ...], best: int
) -> None:
    phases = [
        put(
            store, "pretrain", key=f"phase-{number}",
            statistics={"held_out": {"perplexity": value}} if value else {},
        )
        for number, value in enumerate(perplexities)
    ]  # fmt: skip
    assert best_checkpoint(phases) == phases[best]


@pytest.mark.parametrize(
    ("segments", "prompt", "word"),
    [
        (
            ("of rain . the old ship sank near a coast . it", "men sang"),
            "the old ship [MASK] near a coast.",
            "sank",
        ),
        (("no . he ran . she saw him go . it", "x"), "he ran. she [MASK] him go.", "saw"),
        (
            ("rain and snow", "on the hills . and sea"),
            "rain and snow on [MASK] hills. and sea",
            "the",
        ),
        (("雨 。 船 海 山 川 村 森 町 。 人", "x"), "船海山川[MASK]森町。", "村"),
    ],
)
def test_prompt_has_whole_sentences(segments: tuple[str, str], prompt: str, word: str) -> None:
    first, second = (segment.split() for segment in segments)
    pieces = ["[CLS]", *first, "[SEP]", *second, "[SEP]"]
    ids = {piece: number for number, piece in enumerate(dict.fromkeys([*pieces, "[PAD]"]))}
    tokenizer = Tokenizer(WordLevel(ids, unk_token="[PAD]"))
    tokenizer.decoder = decoders.WordPiece()
    result = find_prompt([ids[piece] for piece in pieces], tokenizer)
    assert result == (prompt, word)


@pytest.mark.parametrize("minutes", [5.0, 0.5])
def test_recipe_states_passes_of_its_steps(tmp_path: Path, minutes: float) -> None:
    fill_with_texts(tmp_path)
    scan = scan_folder(tmp_path)
    text = propose(scan, gpu="", minutes=minutes, name="x").text
    passes = float(re.findall(r"About ([\d.,]+) passes", text)[0].replace(",", ""))
    steps = minutes * 60 * (0.8 * 2 + 0.2)
    assert passes == pytest.approx(steps * 2048 / (scan.text_bytes / 4), rel=0.25)


def test_quickstart_ends_with_steps_wall_time_and_warnings_of_cached_steps(
    store: ArtifactStore, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    warning = {"kind": "single-answer", "text": "only repeats"}
    phases = [
        put(store, "pretrain", key=f"phase-{number}", statistics={"warnings": [warning]})
        for number in range(2)
    ]
    results = [
        StepResult(f"pretrain.{number}", phase, was_cached=number == 0, seconds=1.0)
        for number, phase in enumerate(phases)
    ]
    monkeypatch.setattr(quickstart, "held_out_prompts", lambda *_, **__: [])
    monkeypatch.setattr(quickstart, "open_filler", lambda *_, **__: None)
    recipe = Recipe.model_construct(name="mine", store=store.root)
    run = Run(recipe, StepGraph(), store=store)
    monkeypatch.setattr(run, "results", lambda: results)
    quickstart._print_results(run, seconds=90.0)
    lines = capsys.readouterr().out.splitlines()
    assert len([line for line in lines if "only repeats" in line]) == 1
    assert "mine: 2 steps, 1 built, 1 cached, in 1 min 30 s" in lines
