"""`bertloom reproduce`: the folder that it writes, and what its check says of what comes out."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.cli_runner import Cli
from support.tiny_recipe import TEXTS, write_tiny

import bertloom
from flows.bert import recipe_steps
from flows.recipes.loader import load_recipe
from flows.reproduction import checking, writing
from flows.reproduction.expected import FILE, Expected, read_expected, to_json
from flows.run.provenance import environment
from schemas.errors import ArtifactCorruptError

TARGET = "tiny/build-instances.length-32"
MORE = """\
  length-16: {max_seq_length: 16, held_out_fraction: 0.0, masking: {max_predictions_per_seq: 3}}
"""


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recipe of which more is run than is asked for, its store at a URL, and the folder of it."""
    folder = tmp_path_factory.mktemp("reproduce")
    write_tiny(folder)
    text = (folder / "tiny.yaml").read_text(encoding="utf-8")
    store = f"memory://reproduce/{folder.name}"
    text = text.replace(f"store: {folder / 'store'}", f"store: {store}") + MORE
    (folder / "tiny.yaml").write_text(text, encoding="utf-8")
    built = bertloom.run(str(folder / "tiny.yaml"))
    built["build-instances.length-32"].reproduce(folder / "again", copy_inputs=True)
    (folder / "made").write_text(store, encoding="utf-8")
    return folder


@pytest.fixture
def again(tiny: Path, tmp_path: Path) -> Path:
    """A copy of the folder, as it came to another place."""
    return Path(shutil.copytree(tiny / "again", tmp_path / "elsewhere"))


def change(folder: Path, change: Callable[[dict[str, Any]], None], *labels: str) -> Expected:
    """Expect other artifacts of some steps."""
    expected = read_expected(folder)
    steps = dict(expected.steps)
    for label in labels:
        data = steps[label].model_dump(mode="json")
        change(data)
        steps[label] = type(steps[label]).model_validate(data)
    found = expected.model_copy(update={"steps": steps})
    (folder / FILE).write_bytes(to_json(found))
    return found


def test_the_folder_holds_one_artifacts_recipe_and_no_path(tiny: Path) -> None:
    folder = tiny / "again"
    names = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert names == {
        "README.md", "recipe.yaml", FILE, "inputs.sha256", "requirements.txt", "reproduce.sh",
        "inputs/documents/own/texts.txt",
    }  # fmt: skip
    for name in names:
        assert str(tiny.parent) not in (folder / name).read_text(encoding="utf-8"), name
    recipe = yaml.safe_load((folder / "recipe.yaml").read_text(encoding="utf-8"))
    assert list(recipe["build_instances"]) == ["length-32"]
    assert list(read_expected(folder).steps) == [
        "build-documents", "build-vocabulary", "build-tokens", "build-instances.length-32",
    ]  # fmt: skip
    readme = (folder / "README.md").read_text(encoding="utf-8")
    artifact = read_expected(folder).artifact
    for text in (artifact.artifact_id, artifact.content, "texts.txt", "inputs/", "reproduce.sh"):
        assert text in readme


BOOKS = {
    "shelf/ferry.txt": "The ferryman kept a lantern in the window. Nobody knew who had lit it.",
    "shelf/sea/salt.txt": "The ship carried salt to the east. It came back with tea and a sailor.",
    "other/ferry.txt": "The ferry sank in the spring. The people crossed by the new bridge.",
}
BOOK_RECIPE = """\
name: books
store: {store}
build_documents:
  sources:
    - {{kind: books, name: own, language: en, paths: [{folder}/shelf, {folder}/other]}}
"""


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of loose books, and a store of their documents."""
    folder = tmp_path_factory.mktemp("books")
    for name, text in BOOKS.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"{text}\n", encoding="utf-8")
    recipe = BOOK_RECIPE.format(store=folder / "store", folder=folder)
    (folder / "books.yaml").write_text(recipe, encoding="utf-8")
    bertloom.run(str(folder / "books.yaml"), until="build-documents")
    return folder


@pytest.mark.parametrize("name", BOOKS)
def test_loose_book_is_found_by_lineage(cli: Cli, shelf: Path, name: str) -> None:
    said = cli("lineage", str(shelf / name), "--store", str(shelf / "store"))
    assert said.code == 0, said.err
    assert "build-documents" in said.out


def test_loose_book_is_named_by_trace(cli: Cli, shelf: Path) -> None:
    traces = []
    for row in range(len(BOOKS)):
        place = f"build-documents:part-00000-000.arrow:{row}"
        said = cli("trace", place, "--raw", "--json", "--store", str(shelf / "store"))
        traces.append(json.loads(said.out)["segments"]["document"])
    found = {trace["raw_file"]["uri"]: trace["raw"]["text"].strip() for trace in traces}
    assert found == {str(shelf / name): text for name, text in BOOKS.items()}


def test_loose_books_are_copied_and_reproduced(cli: Cli, shelf: Path, tmp_path: Path) -> None:
    again = tmp_path / "again"
    store = ("--store", str(shelf / "store"))
    said = cli("reproduce", "build-documents", str(again), "--copy-inputs", *store)
    assert said.code == 0, said.err
    copies = {path.read_text("utf-8").strip() for path in (again / "inputs").rglob("*.txt")}
    assert copies == set(BOOKS.values())
    said = cli("reproduce", str(again), "--check")
    assert said.code == 0, said.out + said.err


def test_it_comes_out_equal_and_then_what_differs_is_said(cli: Cli, again: Path) -> None:
    said = cli("reproduce", str(again), "--check")
    assert said.code == 0, said.err
    assert said.out.splitlines()[-1] == "equal: 4 of 4 steps, to the byte"
    assert "inputs: 1 as recorded" in said.out

    def edited(manifest: dict[str, Any]) -> None:
        manifest["stage_version"] = 77
        manifest["key_spec"]["environment"]["pyarrow"] = "1.0"
        manifest["content"] = "sha256:" + "0" * 64
        manifest["cache_key"] = "0" * 64
        manifest["counters"]["documents"] = 7

    change(again, edited, "build-tokens")
    said = cli("reproduce", str(again), "--check")
    assert said.code == 1
    lines = said.out.splitlines()
    assert lines[-1] == "differs: first build-tokens; 3 of 4 steps equal"
    assert any(
        line.startswith("code: not that of ") and "build-tokens (77 rec" in line for line in lines
    )
    assert any(line.startswith("versions: pyarrow 1.0 recorded, ") for line in lines)
    assert any("DIFFERS, another key" in line for line in lines)
    assert any("documents: 7 -> " in line for line in lines)
    found = json.loads(cli("reproduce", str(again), "--check", "--json").out)
    assert [step["is_equal"] for step in found["steps"]] == [True, True, False, True]


def test_another_python_is_told_of_the_steps_whose_key_has_it(
    again: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others' keys say 3.11 on every Python."""
    recorded = read_expected(again)
    newer = environment().model_copy(update={"python": "3.99.1"})
    monkeypatch.setattr(checking, "environment", lambda: newer)
    recipe = load_recipe(str(again / "recipe.yaml"))
    steps = {step.label: step for step in recipe_steps(recipe, until=recorded.target)}
    (told,) = [line for line in checking._version_lines(recorded, steps) if "in the keys" in line]
    assert told.endswith("recorded, 3.99 here: in the keys of build-documents, bytes may differ")

    def newly_made(manifest: dict[str, Any]) -> None:
        manifest["environment"]["python"] = "3.99.1"

    change(again, newly_made, "build-tokens")
    found = writing._requirements(read_expected(again))
    assert [line for line in found.splitlines() if "was made with python" in line] == [
        "# build-tokens was made with python 3.99.1"
    ]
    change(again, newly_made, *recorded.steps)
    assert "was made with python" not in writing._requirements(read_expected(again))


def test_inputs_that_are_missing_or_others_begin_nothing(
    cli: Cli, again: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = again / "inputs" / "documents" / "own" / "texts.txt"
    texts.write_text("\n\n".join(TEXTS).replace("cat", "dog"), encoding="utf-8")
    said = cli("reproduce", str(again), "--check")
    assert said.code == 1
    assert said.out.startswith("another file documents/own/texts.txt: expected ")
    assert "not begun: 1 of 1 inputs" in said.out
    monkeypatch.setenv("BERTLOOM_INPUTS", str(tmp_path / "nowhere"))
    said = cli("reproduce", str(again), "--check")
    assert said.code == 1
    assert said.out.startswith("missing documents/own/texts.txt: expected ")
    assert "It came from texts.txt" in said.out
    assert not (again / "store").exists()


def test_what_cannot_be_is_refused_whole(cli: Cli, again: Path, tiny: Path, tmp_path: Path) -> None:
    store = (tiny / "made").read_text(encoding="utf-8")
    said = cli("reproduce", TARGET, str(again), "--store", store)
    assert (said.code, "or an empty one" in said.err) == (1, True)
    said = cli("reproduce", str(again), "--check", "--store", store)
    assert (said.code, "compared with itself" in said.err) == (1, True)
    said = cli("reproduce", str(tmp_path), "--check")
    assert (said.code, "expected a folder that" in said.err) == (1, True)
    assert cli("reproduce", TARGET).code == 2
    said = cli("reproduce", "texts.txt", str(tmp_path / "new"), "--store", store)
    assert (said.code, "raw files, which nothing makes" in said.err) == (1, True)
    (tiny / "texts.txt").rename(tiny / "away.txt")
    try:
        said = cli("reproduce", TARGET, str(tmp_path / "new"), "--store", store, "--copy-inputs")
    finally:
        (tiny / "away.txt").rename(tiny / "texts.txt")
    assert said.code == 1
    assert not list(tmp_path.glob("*new*"))
    (again / FILE).write_bytes((again / FILE).read_bytes().replace(b'"tiny"', b'"tina"'))
    with pytest.raises(ArtifactCorruptError, match="not what was written"):
        read_expected(again)


TRAINED = """
name: trained
build_documents:
  sources: [{kind: text, name: own, paths: [texts.txt]}]
build_vocabulary: {vocab_size: 150, min_frequency: 1}
build_instances:
  short: {max_seq_length: 32, held_out_fraction: 0.0, masking: {max_predictions_per_seq: 6}}
pretrain:
  first:
    instances: short
    model: {num_hidden_layers: 1, hidden_size: 16, num_attention_heads: 2,
        max_position_embeddings: 64}
    budget: {max_steps: 3}
    batch: {global_batch_size: 8, per_device_max_tokens: 4096}
    num_threads: 1
build_examples:
  cola: {task: cola, data_dir: cola}
finetune:
  cola:
    examples: cola
    init_from_phase: first
    max_seq_length: 32
    batch_size: 16
    learning_rate: 1.0e-3
    num_epochs: 1
    num_threads: 1
"""


@pytest.mark.slow
def test_a_tuned_model_comes_out_equal_elsewhere(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "texts.txt").write_text("\n\n".join(TEXTS), encoding="utf-8")
    rows = "".join(f"x\t{n % 2}\t\tThe cat sat on mat {n}.\n" for n in range(16))
    (tmp_path / "cola").mkdir()
    for split in ("train", "dev"):
        (tmp_path / "cola" / f"{split}.tsv").write_text(rows, encoding="utf-8")
    (tmp_path / "trained.yaml").write_text(TRAINED, encoding="utf-8")
    store, again = str(tmp_path / "store"), tmp_path / "again"
    bertloom.run(bertloom.load_recipe(str(tmp_path / "trained.yaml"), store=store))
    given = ("--store", store, "--copy-inputs")
    said = cli("reproduce", "evaluate.cola:dev.accuracy", str(again), *given)
    assert said.code == 0, said.err
    assert "trained on 1 x cpu, fp32" in said.out
    said = cli("reproduce", str(again), "--check")
    assert said.code == 0, said.out + said.err
    lines = said.out.splitlines()
    assert lines[-1] == "equal: 8 of 8 steps, to the byte"
    assert lines[-2].endswith(", as recorded")
