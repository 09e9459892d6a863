"""Loading of recipes: values, paths, variables, overrides, and the facts of errors."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from support.cli_runner import RECIPE

from flows.bert import recipe_steps
from flows.recipes.errors import RecipeError
from flows.recipes.loader import load_recipe
from flows.recipes.packaged import describe_recipe, packaged_recipes
from schemas.recipe import Recipe

VARIABLES = sorted(
    {name for each in map(describe_recipe, packaged_recipes()) for name in each.variables}
)
"""Environment variables of packaged recipes."""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("BERTLOOM_STORE", "BERTLOOM_SAMPLE", *VARIABLES):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", packaged_recipes())
def test_packaged_recipe_is_loaded(name: str, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in VARIABLES:
        monkeypatch.setenv(variable, f"/data/{variable}")
    recipe = load_recipe(name)
    assert recipe.name == name
    assert recipe.store == str(here / "store")
    for source in recipe.build_documents.sources if recipe.build_documents else ():
        assert all(Path(path).is_absolute() for path in source.paths)
    for examples in recipe.build_examples.values():
        assert Path(str(examples.data_dir)).is_absolute()
    assert recipe_steps(recipe)
    described = describe_recipe(name)
    assert 10 < len(described.about) < 160
    for variable in described.variables:
        monkeypatch.delenv(variable)
        with pytest.raises(RecipeError):
            load_recipe(name)
        monkeypatch.setenv(variable, "/data/other")


def written(here: Path, text: str = RECIPE) -> str:
    (here / "recipes").mkdir(exist_ok=True)
    (here / "recipes" / "mine.yaml").write_text(text)
    return "recipes/mine.yaml"


def paths_of(recipe: Recipe) -> list[str]:
    return [path for source in recipe.build_documents.sources for path in source.paths]


def test_paths_are_relative_to_the_recipe_or_the_working_directory(here: Path) -> None:
    recipe = load_recipe(written(here, f"{RECIPE}store: ../kept\n"))
    assert paths_of(recipe) == [str(here / "recipes" / "texts" / "*.txt")]
    assert recipe.store == str(here / "kept")
    changes = ["build_documents.sources.notes.paths=[a.txt, s3://b/c.txt]"]
    recipe = load_recipe(written(here), overrides=changes, store="st")
    assert paths_of(recipe) == [str(here / "a.txt"), "s3://b/c.txt"]
    assert recipe.store == str(here / "st")


def test_default_store_is_from_environment(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert load_recipe(written(here)).store == str(here / "store")
    monkeypatch.setenv("BERTLOOM_STORE", "gs://bucket/store")
    assert load_recipe(written(here)).store == "gs://bucket/store"


def test_override_sets_nested_values(here: Path) -> None:
    text = RECIPE.replace("length-64:", "v1.5:")
    recipe = load_recipe(
        written(here, text),
        overrides=[
            "build_instances.v1.5.masking.strategy=span",
            "build_tokens.remove_duplicates=false",
            "build_documents.sources.0.language=de",
            "build_documents.sources.notes.text_column=body",
            "build_vocabulary.vocab_file=null",
        ],
        workers=3,
        runner="spark",
    )
    assert recipe.build_instances["v1.5"].masking.strategy == "span"
    assert not recipe.build_tokens.remove_duplicates
    assert recipe.build_documents.sources[0].language == "de"
    assert (recipe.execution.runner, recipe.execution.workers) == ("spark", 3)


def test_variables_are_read_from_environment(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = RECIPE.replace("texts/*.txt", "'${TEXTS}/${KIND:-plain}/$$1'")
    with pytest.raises(RecipeError) as error:
        load_recipe(written(here, text))
    assert error.value.field == "build_documents.sources.0.paths.0"
    assert "TEXTS" in str(error.value)
    changes = ["build_documents.sources.notes.paths=[x]"]
    assert paths_of(load_recipe(written(here, text), overrides=changes)) == [str(here / "x")]
    monkeypatch.setenv("TEXTS", "/data")
    assert paths_of(load_recipe(written(here, text))) == ["/data/plain/$1"]


@pytest.mark.parametrize(
    ("change", "value", "suggestion"),
    [
        ("build_instances.length-64.max_seq_len=8", "", "max_seq_length"),
        ("build_documents.sources.notes.split_byte=9", "", "target_split_bytes"),
        ("nme=x", "", "name"),
        ("build_vocabulary.zzz=1", "", ""),
        ("build_documents.sources.0.kind=txt", "'txt'", "text"),
        ("build_instances.length-64.masking.strategy=whole_word", "'whole_word'", "whole-word"),
        ("build_instances.lenght-64.seed=1", "", "length-64"),
        ("build_instances.length-64.max_seq_length=4", "4", ""),
        ("build_instances.length-64.seed=true", "True", ""),
        ("build_documents.sources.0.name=5", "5", ""),
        (f"build_vocabulary.vocab_size={'x' * 9_000}", f"'{'x' * 79}", ""),
        ("build_documents.sources=[]", "an empty list", ""),
        ("build_documents=5", "5", ""),
        ("sweep=false", "False", ""),
        ("store=gs://", "'gs://'", ""),
        ("store=~nosuchuser/x", "", ""),
        ("build_documents.sources.other.language=de", "", ""),
        ("name.x=1", "", ""),
        (f"{'.'.join('a' * 3000)}=1", "", ""),
    ],
    ids=lambda text: text[:40],
)
def test_wrong_override_is_named(here: Path, change: str, value: str, suggestion: str) -> None:
    with pytest.raises(RecipeError) as error:
        load_recipe(written(here), overrides=[change])
    field = change.partition("=")[0][:80].rpartition(".")[2]
    assert error.value.field.rpartition(".")[2] == field
    assert (error.value.value, error.value.suggestion) == (value, suggestion)
    assert suggestion in str(error.value)
    assert error.value.path == f"--set {change}"[:80]
    assert len(str(error.value)) < 400


def test_error_has_no_secrets(here: Path) -> None:
    with pytest.raises(RecipeError) as error:
        load_recipe(written(here), overrides=["build_tokens.x=s3://me:geheim@host/x"])
    assert "geheim" not in f"{error.value} {error.value.path} {error.value.problems}"


WRONG = """\
nme: x
extends: base.yaml
build_documents:
  sources:
    - {kind: txt, name: a, paths: a}
    - kind: text
      name: b
      lines_per_document: 3
      target_split_bytes: many
build_tokens: {word_cache_size: 0}
build_instances:
  length-64:
    masking: {strategy: whole_word}
  length-32: {max_seq_length: "${NOT_SET:-four}"}
pretrain:
  one: {instances: length-64, model: {preset: lage}, budget: {max_steps: 1}}
"""
PROBLEMS = {
    ("--set publish.nam=x", 0, "publish.nam"),
    ("base.yaml", 3, "build_vocabulary.lowercase"),
    ("mine.yaml", 0, "name"),
    ("mine.yaml", 1, "nme"),
    ("mine.yaml", 5, "build_documents.sources.0.kind"),
    ("mine.yaml", 6, "build_documents.sources.1.paths"),
    ("mine.yaml", 8, "build_documents.sources.1.lines_per_document"),
    ("mine.yaml", 9, "build_documents.sources.1.target_split_bytes"),
    ("mine.yaml", 10, "build_tokens.word_cache_size"),
    ("mine.yaml", 13, "build_instances.length-64.masking.strategy"),
    ("mine.yaml", 14, "build_instances.length-32.max_seq_length"),
    ("mine.yaml", 16, "pretrain.one.model.preset"),
}


def test_all_problems_are_reported_at_once_by_file_and_line(here: Path) -> None:
    (here / "mine.yaml").write_text(WRONG)
    (here / "base.yaml").write_text("name: base\nbuild_vocabulary:\n  lowercase: perhaps\n")
    with pytest.raises(RecipeError) as error:
        load_recipe("mine.yaml", overrides=["publish.name=x", "publish.nam=x"])
    problems = error.value.problems
    assert {(one.path.rpartition("/")[2], one.line, one.field) for one in problems} == PROBLEMS
    assert len(str(error.value).splitlines()) == 1 + len(PROBLEMS)
    copy = pickle.loads(pickle.dumps(error.value))
    assert (str(copy), copy.problems, copy.field) == (str(error.value), problems, problems[0].field)


NAMED = """\
name: mine
build_documents: &all
  sources: [{kind: text, name: a, paths: a}]
build_instances: {length-64: {max_seq_length: 64}}
build_examples:
  sst: {task: sst-2, data_dir: x}
pretrain:
  one: {instances: length-46, model: {preset: tiny}, budget: {max_steps: 1}}
  two: {instances: length-64, init_from_phase: onee, budget: {max_steps: 1}}
finetune:
  sst:
    examples: st
    init_from_phase: tow
ensembles: {both: {members: [sts]}}
"""


def test_unknown_names_of_entries_are_reported_by_line(here: Path) -> None:
    (here / "mine.yaml").write_text(NAMED)
    with pytest.raises(RecipeError) as error:
        load_recipe("mine.yaml")
    assert [(one.line, one.field) for one in error.value.problems] == [
        (8, "pretrain.one.instances"),
        (9, "pretrain.two.init_from_phase"),
        (12, "finetune.sst.examples"),
        (13, "finetune.sst.init_from_phase"),
        (14, "ensembles.both.members"),
    ]
    for one, meant in zip(
        error.value.problems, ["length-64", "one", "sst", "two", "sst"], strict=True
    ):
        assert one.message.endswith(f"{meant!r}?")


def test_unknown_recipe_suggests_closest_name(here: Path) -> None:
    (here / "sample").mkdir()
    assert load_recipe("sample").name == "sample"
    with pytest.raises(RecipeError) as error:
        load_recipe("englsh")
    assert error.value.suggestion == "english"
    with pytest.raises(RecipeError):
        load_recipe(str(here))
