"""`bertloom reproduce`: bundles, and the comparison of what they build."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.cli_runner import Cli
from support.full_recipe import write_whole_flow
from support.tiny_recipe import write_tiny

import bertloom
from flows.bert import recipe_steps
from flows.recipes.loader import load_recipe
from flows.recipes.packaged import describe_recipe
from flows.reproduction.check_bundle import run_bundle
from flows.reproduction.inputs import ROOT, resolve_inputs
from flows.reproduction.write_bundle import EXPECTED_FILE, read_expected, reduce_recipe
from model.build_examples import raw_inputs
from model.tasks.official_files import find_data_label
from schemas.errors import ConfigError, InputError
from schemas.finetune_configs import ExamplesConfig
from schemas.json_files import dump_json
from schemas.manifest import RawInput

TARGET = "tiny/build-instances.length-32"
LABELS = ["build-documents", "build-vocabulary", "build-tokens", "build-instances.length-32"]
INPUT = "documents/own/texts.txt"
MORE = """\
  length-16: {max_seq_length: 16, held_out_fraction: 0.0, masking: {max_predictions_per_seq: 3}}
"""


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with a recipe, its bundle (`again`), and the URL of its store (`made`)."""
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
    """A copy of the bundle in another folder."""
    return Path(shutil.copytree(tiny / "again", tmp_path / "elsewhere"))


def test_bundle_has_the_recipe_of_one_artifact_and_no_path_of_this_machine(tiny: Path) -> None:
    folder = tiny / "again"
    names = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert names == {
        *("README.md", "recipe.yaml", EXPECTED_FILE, "inputs.sha256", "requirements.txt"),
        f"inputs/{INPUT}",
    }
    for name in names:
        assert str(tiny.parent) not in (folder / name).read_text(encoding="utf-8"), name
    recipe = yaml.safe_load((folder / "recipe.yaml").read_text(encoding="utf-8"))
    assert list(recipe["build_instances"]) == ["length-32"]
    assert list(read_expected(folder).steps) == LABELS


def test_task_files_keep_their_order_and_neighbors() -> None:
    raw = [
        RawInput(
            name=name, uri=uri, size_bytes=1, sha256="0" * 64, key_digest=f"{identity} sha256:0"
        )
        for name, uri, identity in (
            ("train/a.parquet", "/one/a.parquet", "train 0"),
            ("train/labels.txt", "/one/labels.txt", "train beside"),
            ("train/a.parquet", "/two/a.parquet", "train 1"),
            ("train/labels.txt", "/two/labels.txt", "train beside"),
            ("dev/web.json", "/qa/web.json", "dev 0"),
            ("dev/web.json/evidence/web", "/evidence/web", "dev 0 evidence web"),
        )
    ]
    config: dict[str, Any] = {"data_dir": "/one", "data_files": {}}
    paths = [file.path for file in resolve_inputs("build-examples", config, raw, name="x")]
    first, second, dev = (f"examples/x/{name}" for name in ("train", "train~001", "dev"))
    assert paths == [
        *(f"{folder}/{name}" for folder in (first, second) for name in ("a.parquet", "labels.txt")),
        f"{dev}/web.json",
        "examples/x/evidence/web",
    ]
    train = [f"{ROOT}/{folder}/a.parquet" for folder in (first, second)]
    assert config["data_files"] == {"train": train, "dev": [f"{ROOT}/{dev}/web.json"]}
    assert train == sorted(train)  # a step reads them in this order


LABEL = {"data-label.txt": "generated, as a trial"}


@pytest.mark.parametrize(
    ("fields", "files"),
    [
        ({"task": "cola"}, {"train.tsv": "a", "dev.tsv": "b", "test.tsv": "c", **LABEL}),
        ({"task": "cola", "data_label": "mine"}, {"train.tsv": "a", "dev.tsv": "b", **LABEL}),
        ({"task": "sst-2"}, {"train.tsv": "a", "dev.tsv": "b"}),
        ({"task": "tagging", "dev_fraction": 0.5}, {"train.txt": "a O", **LABEL}),
        ({"task": "single-sentence", "dev_fraction": 0.5}, {"train.csv": "a,b"}),
    ],
)
def test_bundled_task_files_have_the_same_cache_key_and_label(
    fields: dict[str, Any], files: dict[str, str], tmp_path: Path
) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    config = ExamplesConfig(data_dir=str(tmp_path), **fields)
    raw, changed = raw_inputs(config), config.model_dump(mode="json")
    for file in resolve_inputs("build-examples", changed, raw, name="x"):
        copy = tmp_path / "inputs" / file.path
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file.uri, copy)
    text = json.dumps(changed).replace(ROOT, str(tmp_path / "inputs"))
    bundled = ExamplesConfig.model_validate_json(text)
    assert [item.key_digest for item in raw_inputs(bundled)] == [item.key_digest for item in raw]
    assert find_data_label(bundled) == find_data_label(config)
    kept = {"task", "data_label", "dev_fraction"}
    assert bundled.model_dump(include=kept) == config.model_dump(include=kept)


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


def test_loose_books_are_traced_copied_and_reproduced(cli: Cli, tmp_path: Path) -> None:
    for name, text in BOOKS.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"{text}\n", encoding="utf-8")
    recipe = BOOK_RECIPE.format(store=tmp_path / "store", folder=tmp_path)
    (tmp_path / "books.yaml").write_text(recipe, encoding="utf-8")
    bertloom.run(str(tmp_path / "books.yaml"), until="build-documents")
    again, store = tmp_path / "again", ("--store", str(tmp_path / "store"))
    texts = {}
    for row in range(len(BOOKS)):
        result = cli("trace", f"build-documents:{row}", "--raw", "--json", *store)
        document = json.loads(result.out)["segments"]["document"]
        texts[document["raw_file"]["uri"]] = document["raw"]["text"].strip()
    assert texts == {str(tmp_path / name): text for name, text in BOOKS.items()}
    for path in texts:
        assert "build-documents" in cli("lineage", path, *store).out
    result = cli("reproduce", "build-documents", str(again), "--copy-inputs", *store)
    assert result.code == 0, result.err
    copies = {path.read_text("utf-8").strip() for path in (again / "inputs").rglob("*.txt")}
    assert copies == set(BOOKS.values())
    result = cli("reproduce", str(again), "--run")
    assert result.code == 0, result.out + result.err


def test_bundle_builds_equal_artifacts(cli: Cli, again: Path) -> None:
    result = cli("reproduce", str(again), "--run", "--json")
    assert result.code == 0, result.err
    comparison = json.loads(result.out)
    assert comparison["is_equal"]
    assert [step["label"] for step in comparison["steps"]] == LABELS
    assert (again / "store" / "FORMAT.json").is_file()


def test_difference_names_step_and_changed_versions(cli: Cli, again: Path) -> None:
    expected = read_expected(again)
    tokens = expected.steps["build-tokens"]
    environment = {**tokens.cache_key_inputs["environment"], "pyarrow": "1.0"}
    changed = tokens.model_copy(
        update={
            "content_digest": "sha256:" + "0" * 64,
            "cache_key_inputs": {**tokens.cache_key_inputs, "environment": environment},
        }
    )
    steps = {**expected.steps, "build-tokens": changed}
    other = expected.model_copy(update={"steps": steps})
    (again / EXPECTED_FILE).write_bytes(dump_json(other.model_dump(mode="json")))
    result = cli("reproduce", str(again), "--run", "--json")
    assert result.code == 1
    differing = [s for s in json.loads(result.out)["steps"] if not s["is_equal"]]
    assert [step["label"] for step in differing] == ["build-tokens"]
    assert any("pyarrow" in change for change in differing[0]["changes"])


def test_missing_or_changed_input_starts_nothing(
    again: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (again / "inputs" / INPUT).write_text("other text", encoding="utf-8")
    with pytest.raises(InputError, match=INPUT):
        run_bundle(again)
    monkeypatch.setenv("BERTLOOM_INPUTS", str(tmp_path / "nowhere"))
    with pytest.raises(InputError, match=INPUT):
        run_bundle(again)
    assert not (again / "store").exists()


def test_original_store_and_changed_bundle_are_refused(again: Path, tiny: Path) -> None:
    with pytest.raises(ConfigError, match="memory://"):
        run_bundle(again, store=(tiny / "made").read_text(encoding="utf-8"))
    expected = again / EXPECTED_FILE
    expected.write_bytes(expected.read_bytes()[:-20])
    with pytest.raises(ConfigError, match=EXPECTED_FILE):
        read_expected(again)


def test_incomplete_bundle_is_not_written(
    cli: Cli, again: Path, tiny: Path, tmp_path: Path
) -> None:
    store = ("--store", (tiny / "made").read_text(encoding="utf-8"))
    assert cli("reproduce", TARGET, str(again), *store).code == 2  # the folder is not empty
    assert cli("reproduce", TARGET).code == 2
    assert cli("reproduce", "texts.txt", str(tmp_path / "new"), *store).code == 1
    (tiny / "texts.txt").rename(tiny / "away.txt")
    try:
        result = cli("reproduce", TARGET, str(tmp_path / "new"), *store, "--copy-inputs")
    finally:
        (tiny / "away.txt").rename(tiny / "texts.txt")
    assert result.code == 1
    assert not list(tmp_path.glob("*new*"))


@pytest.mark.parametrize("name", ["ablation-masking-sample", "squad-ensemble"])
def test_reduced_recipe_has_the_same_steps(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in describe_recipe(name).variables:
        monkeypatch.setenv(variable, f"/data/{variable.lower()}")
    recipe = load_recipe(name)
    for label in ("tabulate", next(s.label for s in recipe_steps(recipe) if s.stage.has_metrics)):
        steps = {step.label: step for step in recipe_steps(recipe, until=label)}
        data, _ = reduce_recipe(recipe, dict.fromkeys(steps, ()))
        (tmp_path / "reduced.yaml").write_text(
            yaml.safe_dump(data, sort_keys=False), encoding="utf-8"
        )
        reduced = recipe_steps(load_recipe(str(tmp_path / "reduced.yaml")), until=label)
        assert {step.label for step in reduced} == steps.keys()
        for step in reduced:
            assert step.config.cache_key_fields() == steps[step.label].config.cache_key_fields()
            assert step.inputs == steps[step.label].inputs


@pytest.mark.slow
def test_tuned_model_is_reproduced_in_another_store(cli: Cli, tmp_path: Path) -> None:
    recipe, store, again = write_whole_flow(tmp_path), str(tmp_path / "store"), tmp_path / "again"
    bertloom.run(bertloom.load_recipe(str(recipe), store=store), until="evaluate.cola")
    options = ("--store", store, "--copy-inputs")
    result = cli("reproduce", "evaluate.cola:dev.accuracy", str(again), *options)
    assert result.code == 0, result.err
    result = cli("reproduce", str(again), "--run", "--json")
    assert result.code == 0, result.out + result.err
    assert {"pretrain.second", "evaluate.cola"} <= {
        s["label"] for s in json.loads(result.out)["steps"]
    }
