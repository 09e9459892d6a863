"""The commands from a recipe to its artifacts, as a person runs them."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from support.cli_runner import RECIPE, Cli
from support.paths import PYTHONPATH

from flows.cli.app import main
from flows.recipes.loader import load_recipe
from flows.store.artifacts import ArtifactStore
from schemas.manifest import Manifest

TALES = (
    "The ferryman of Orrin kept a lantern in the window. Nobody knew who had lit it first.\n"
    "When the river rose, he rowed across and counted the bells. There were seven of them.\n\n"
)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("BERTLOOM_STORE", "BERTLOOM_SAMPLE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a recipe, its texts, and the store that running it made."""
    folder = tmp_path_factory.mktemp("corpus")
    (folder / "texts").mkdir()
    words = ("stone", "harbour", "winter", "letter", "garden", "engine", "copper", "evening")
    for number, word in enumerate(words):
        text = "".join(
            TALES.replace("lantern", f"{word} {other}").replace("seven", f"{count + 2} and {word}")
            for count, other in enumerate(words[number % 3 :])
        )
        (folder / "texts" / f"{word}.txt").write_text(text)
    (folder / "recipe.yaml").write_text(f"{RECIPE}store: store\n")
    with pytest.raises(SystemExit) as left:
        main(["run", str(folder / "recipe.yaml"), "--engine", "local"])
    assert not left.value.code
    return folder


def manifest_of(corpus: Path, stage: str) -> Manifest:
    store = ArtifactStore(str(corpus / "store"), create=False)
    [pointer] = store.pointers(stage)
    return store.read_manifest(pointer.manifest)


# Commands


def test_help_and_version(cli: Cli) -> None:
    said = cli("--help")
    assert said.code == 0
    for command in ("run", "show", "head", "verify", "init", "sample"):
        assert command in said.out
    assert cli("--version").out.startswith("bertloom ")


def test_wrong_usage_is_2_and_an_error_is_1(cli: Cli, here: Path) -> None:
    assert cli("run").code == 2
    assert cli("run", "x", "--no-such-option").code == 2
    said = cli("run", "nowhere.yaml", "--engine", "local")
    assert said.code == 1
    assert said.err.startswith("error: no recipe 'nowhere.yaml'")
    assert "Traceback" not in said.err


def test_running_again_is_cached(cli: Cli, corpus: Path) -> None:
    said = cli("run", str(corpus / "recipe.yaml"), "--engine", "local")
    assert said.code == 0
    lines = said.out.splitlines()
    assert [line.split()[:2] for line in lines[:4]] == [
        ["build-documents", "cached"],
        ["build-vocabulary", "cached"],
        ["build-tokens", "cached"],
        ["build-instances.length-64", "cached"],
    ]
    assert f"store: {corpus / 'store'}" in lines
    rows = [line.split(maxsplit=2) for line in lines[lines.index("") :]]
    documents = manifest_of(corpus, "build-documents").counters["documents-kept"]
    assert ["build-documents", "cached", f"{documents} documents"] in rows


def test_a_dry_run_plans(cli: Cli, corpus: Path, here: Path) -> None:
    recipe = str(corpus / "recipe.yaml")
    said = cli("run", recipe, "--dry-run", "--set", "build_instances.length-64.seed=3")
    assert said.code == 0
    rows = [line.split(maxsplit=3) for line in said.out.splitlines()[1:5]]
    assert [row[2] for row in rows] == ["cached", "cached", "cached", "build"]
    assert rows[0][1] == manifest_of(corpus, "build-documents").cache_key[:16]
    assert rows[3][3].startswith("seed 0 -> 3")
    said = cli("run", recipe, "--dry-run", "--store", str(here / "new"))
    assert "unknown" in said.out
    assert not (here / "new").exists()


def test_a_missing_input_is_an_error_without_traceback(cli: Cli, corpus: Path) -> None:
    change = "build_documents.sources.notes.paths=[gone.txt]"
    said = cli("run", str(corpus / "recipe.yaml"), "--engine", "local", "--set", change)
    assert said.code == 1
    assert "gone.txt" in said.err
    assert "Traceback" not in said.err


def test_show_tells_of_an_artifact(cli: Cli, corpus: Path, here: Path) -> None:
    store = ("--store", str(corpus / "store"))
    manifest = manifest_of(corpus, "build-tokens")
    said = cli("show", "build-tokens", *store)
    assert said.code == 0
    for text in (
        manifest.artifact_id,
        manifest.cache_key,
        manifest.content,
        manifest.produced_by.run_id,
        "documents",
        manifest.files[0].path,
        "remove_duplicates: true",
        "pyarrow",
    ):
        assert text in said.out
    for name in (manifest.artifact_id[:6], "mine/build-tokens", manifest.cache_key):
        assert cli("show", name, *store).out == said.out
    assert cli("show", str(corpus / "store" / manifest.location)).out == said.out
    as_json = json.loads(cli("show", "build-tokens", "--json", *store).out)
    assert Manifest.model_validate(as_json) == manifest


def test_show_says_what_there_is(cli: Cli, corpus: Path, here: Path) -> None:
    said = cli("show", "build-tokns", "--store", str(corpus / "store"))
    assert said.code == 1
    assert "build-tokens" in said.err
    said = cli("show", "x", "--store", str(here / "none"))
    assert said.code == 1
    assert "FORMAT.json" in said.err


def test_head_shows_instances_with_their_masks(cli: Cli, corpus: Path) -> None:
    store = ("--store", str(corpus / "store"))
    said = cli("head", "build-instances", "-n", "4", *store)
    assert said.code == 0
    assert "[MASK→" in said.out
    assert "A: [CLS] " in said.out
    assert "document notes:" in said.out
    assert said.out.count(" row ") >= 4
    manifest = manifest_of(corpus, "build-instances")
    entry = manifest.shards[0]
    path = corpus / "store" / manifest.data / entry.object
    assert cli("head", str(path), "-n", "4").out == said.out
    assert cli("head", f"build-instances:{entry.path}", "-n", "4", *store).out == said.out
    assert cli("head", "build-instances:0", "-n", "4", *store).out == said.out
    later = cli("head", "build-instances", "-n", "1", "--start", "2", *store).out
    assert f"{entry.path} row 2" in later
    assert later.strip() in said.out


def test_head_of_damaged_text_is_an_error(cli: Cli, tmp_path: Path) -> None:
    offsets = pa.py_buffer(struct.pack("<2i", 0, 2))
    title = pa.Array.from_buffers(pa.string(), 1, [None, offsets, pa.py_buffer(b"a\xff")])
    path = tmp_path / "part-0.arrow"
    batch = pa.record_batch({"title": title})
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)
    said = cli("head", str(path))
    assert said.code == 1
    assert str(path) in said.err


def test_head_puts_the_text_back(cli: Cli, corpus: Path) -> None:
    """What is shown, with the masks undone, is the text that went in."""
    import re

    store = ("--store", str(corpus / "store"))
    said = cli("head", "build-instances", "-n", "1", *store).out
    [line] = [line for line in said.splitlines() if line.startswith("A: ")]
    undone = re.sub(r" ?\[[^\[\]→]*→([^\[\]]*)\]", r" \1", line)
    undone = undone.replace(" ##", "").replace("##", "")
    letters = re.sub(r"[^a-z]", "", undone.removeprefix("A: [CLS]").replace("[SEP]", ""))
    everything = "".join(file.read_text() for file in sorted((corpus / "texts").iterdir()))
    assert len(letters) > 20
    assert letters in re.sub(r"[^a-z]", "", everything.lower())


def test_head_shows_documents_and_tokens(cli: Cli, corpus: Path) -> None:
    store = ("--store", str(corpus / "store"))
    said = cli("head", "build-documents", *store)
    assert "source notes" in said.out
    assert "Nobody knew who had lit it first." in said.out
    said = cli("head", "build-tokens", *store)
    assert "nobody knew who had lit it first ." in said.out
    said = cli("head", "build-documents:duplicates.arrow", *store)
    assert said.code == 0
    said = cli("head", "build-vocabulary:word-counts.arrow", *store)
    assert "count:" in said.out


def test_head_says_which_parts_there_are(cli: Cli, corpus: Path) -> None:
    store = ("--store", str(corpus / "store"))
    said = cli("head", "build-tokens:part-99999.arrow", *store)
    assert said.code == 1
    assert "part-00000.arrow" in said.err
    said = cli("head", "build-vocabulary", "-n", "2", "--start", "101", *store)
    assert said.code == 0
    assert said.out.splitlines() == ["vocab.txt from line 101", "    101  [CLS]", "    102  [SEP]"]
    assert "[UNK]" in cli("head", "build-vocabulary:tokenizer.json", *store).out


def test_rows_of_an_artifact_are_those_of_all_its_shards(cli: Cli, corpus: Path) -> None:
    store = ("--store", str(corpus / "store"))
    manifest = json.loads(cli("show", "build-instances", "--json", *store).out)
    shards = [file for file in manifest["files"] if file["path"].startswith("part-")]
    assert len(shards) > 1
    first, second = shards[:2]
    row = str(first["rows"] + 1)
    by_artifact = cli("trace", f"build-instances:{row}", *store)
    by_shard = cli("trace", f"build-instances:{second['path']}:1", *store)
    assert by_artifact.code == 0
    assert by_artifact.out == by_shard.out
    shown = cli("head", "build-instances", "--start", row, "-n", "1", *store)
    assert shown.out.startswith(f"{second['path']} row 1\n")
    total = sum(shard["rows"] for shard in shards)
    assert cli("trace", f"build-instances:{total - 1}", *store).code == 0
    said = cli("trace", f"build-instances:{total}", *store)
    assert (said.code, f"below {total:,}" in said.err) == (1, True)


def test_verify_finds_a_flipped_bit_and_the_next_run_mends_it(
    cli: Cli, corpus: Path, here: Path
) -> None:
    store = ("--store", str(here / "store"))
    run = ("run", str(corpus / "recipe.yaml"), "--engine", "local", *store)
    assert cli(*run).code == 0
    said = cli("verify", *store)
    assert (said.code, said.out.count("  ok  ")) == (0, 4)
    [file] = (here / "store" / "artifacts" / "build-vocabulary").rglob("vocab-*.txt")
    data = bytearray(file.read_bytes())
    data[10] ^= 1
    file.write_bytes(data)
    assert cli("verify", "--sizes-only", *store).code == 0
    said = cli("verify", "--no-quarantine", *store)
    assert said.code == 1
    assert "CORRUPT" in said.out
    assert "vocab.txt: expected sha256" in said.out
    said = cli("verify", "--json", "build-vocabulary", *store)
    assert said.code == 1
    assert json.loads(said.out)[0]["errors"]
    again = cli(*run)
    assert again.code == 0
    states = [line.split()[1] for line in again.out.splitlines()[:4]]
    assert states == ["cached", "built", "cached", "cached"]
    assert cli("verify", "build-vocabulary", *store).code == 0


def test_init_writes_a_recipe_once(cli: Cli, here: Path) -> None:
    assert cli("init", "new.yaml").code == 0
    assert load_recipe("new.yaml").name == "my-corpus"
    said = cli("init", "new.yaml")
    assert said.code == 1
    assert "File exists" in said.err
    assert cli("init", "sample.yaml", "--sample").code == 0
    assert load_recipe("sample.yaml").name == "sample"
    assert cli("init", "no/folder/x.yaml").code == 1


def test_the_sample_is_written(cli: Cli, here: Path) -> None:
    said = cli("sample", "wiki", "--articles", "3", "--books", "1")
    assert said.code == 0
    assert (here / said.out.splitlines()[0]).is_file()
    assert [path.name for path in (here / "wiki").glob("books.*")] == ["books.tar.gz"]


HEAVY = {"apache_beam", "httpx", "matplotlib", "prefect", "scipy", "sklearn", "torch"}


@pytest.mark.parametrize(
    "command",
    [
        "show build-tokens --store store",
        "head build-tokens --store store",
        "verify --store store",
        "ls --store store",
        "plan recipe.yaml",
        "run recipe.yaml --engine local",  # all steps are cached
    ],
)
def test_command_does_not_load_heavy_libraries(command: str, corpus: Path) -> None:
    script = (
        "import sys; from flows.cli.app import main\n"
        "try: main(sys.argv[1:])\n"
        "except SystemExit as end: assert not end.code\n"
        "print('LOADED', *sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, *command.split()],
        cwd=corpus,
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": PYTHONPATH},
    )
    loaded = set(done.stdout.partition("LOADED")[2].split())
    assert "flows.cli.app" in loaded
    assert HEAVY & loaded == set()
