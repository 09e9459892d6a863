"""Loading of recipes: values, paths, variables, overrides, and the facts of errors."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from support.cli_runner import RECIPE

from flows.bert import recipe_steps
from flows.recipes.errors import RecipeError
from flows.recipes.loader import load_recipe, recipe_from
from flows.recipes.packaged import describe_recipe, packaged_recipes, packaged_text
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


def test_template_is_a_recipe_with_true_defaults(here: Path) -> None:
    (here / "recipe.yaml").write_text(packaged_text("_template"))
    recipe = load_recipe("recipe.yaml")
    uncommented = packaged_text("_template").replace("  # min_words: 5 ", "  min_words: 5 ")
    for line in ("vocab_file: vocab.txt", "  # remove_duplicates: true"):
        assert line in uncommented
    for comment, value in [
        ("# dupe_factor: 1 ", recipe.build_instances["length-128"].dupe_factor == 1),
        ("# pairing: nsp ", recipe.build_instances["length-128"].pairing == "nsp"),
        ("# seed: 0", recipe.build_instances["length-128"].seed == 0),
        ("# min_words: 5 ", recipe.build_documents.min_words == 5),
        ("# execution: {runner: local, workers: 1}", recipe.execution.workers == 1),
    ]:
        assert comment in packaged_text("_template")
        assert value, comment


def written(here: Path, text: str = RECIPE) -> str:
    (here / "recipes").mkdir(exist_ok=True)
    (here / "recipes" / "mine.yaml").write_text(text)
    return "recipes/mine.yaml"


def paths_of(recipe: Recipe) -> list[str]:
    return [path for source in recipe.build_documents.sources for path in source.paths]


def test_paths_are_relative_to_the_recipe(here: Path) -> None:
    file = written(here, f"{RECIPE}store: ../kept\n")
    recipe = load_recipe(file)
    assert paths_of(recipe) == [str(here / "recipes" / "texts" / "*.txt")]
    assert recipe.store == str(here / "kept")


def test_paths_of_overrides_are_relative_to_working_directory(here: Path) -> None:
    changes = ["build_documents.sources.notes.paths=[a.txt, s3://b/c.txt]"]
    recipe = load_recipe(written(here), overrides=changes, store="st")
    assert paths_of(recipe) == [str(here / "a.txt"), "s3://b/c.txt"]
    assert recipe.store == str(here / "st")


def test_default_store_is_from_environment(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = written(here)
    assert load_recipe(file).store == str(here / "store")
    monkeypatch.setenv("BERTLOOM_STORE", "gs://bucket/store")
    assert load_recipe(file).store == "gs://bucket/store"
    assert load_recipe(file, store="memory://x").store == "memory://x"


def test_override_sets_nested_values(here: Path) -> None:
    recipe = load_recipe(
        written(here),
        overrides=[
            "build_instances.length-64.masking.strategy=span",
            "build_tokens.remove_duplicates=false",
            "build_documents.sources.0.language=de",
            "build_documents.sources.notes.text_column=body",
            "build_vocabulary.vocab_file=null",
        ],
        workers=3,
        runner="threads",
    )
    assert recipe.build_instances["length-64"].masking.strategy == "span"
    assert not recipe.build_tokens.remove_duplicates
    assert recipe.build_documents.sources[0].language == "de"
    assert (recipe.execution.runner, recipe.execution.workers) == ("threads", 3)


def test_override_finds_names_with_dots(here: Path) -> None:
    file = written(here, RECIPE.replace("length-64:", "v1.5:"))
    recipe = load_recipe(file, overrides=["build_instances.v1.5.seed=7"])
    assert {name: item.seed for name, item in recipe.build_instances.items()} == {"v1.5": 7}


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
    ("change", "field", "suggestion"),
    [
        ("build_instances.length-64.max_seq_len=8", "max_seq_len", "max_seq_length"),
        ("build_documents.sources.notes.split_byte=9", "split_byte", "target_split_bytes"),
        ("build_documents.min_word=9", "min_word", "min_words"),
        (
            "build_instances.length-64.masking.mask_token_probb=9",
            "mask_token_probb",
            "mask_token_prob",
        ),
        ("publish={name: x, nam: x}", "nam", "name"),
        ("nme=x", "nme", "name"),
        ("build_documents.sources.notes.zzz=9", "zzz", ""),
        ("build_vocabulary.zzz=1", "zzz", ""),
        ("build_documents.sources.0.kind=txt", "kind", "text"),
        ("build_instances.length-64.masking.strategy=whole_word", "strategy", "whole-word"),
        ("build_instances.lenght-64.seed=1", "seed", "length-64"),
    ],
)
def test_closest_name_is_suggested(here: Path, change: str, field: str, suggestion: str) -> None:
    with pytest.raises(RecipeError) as error:
        load_recipe(written(here), overrides=[change])
    assert error.value.field.rpartition(".")[2] == field
    assert error.value.suggestion == suggestion
    assert suggestion in str(error.value)
    assert error.value.path == f"--set {change}"


@pytest.mark.parametrize(
    ("change", "field", "value"),
    [
        ("build_instances.length-64.max_seq_length=4", "", "4"),
        ("build_instances.length-64.max_seq_length=four", "", "'four'"),
        ("build_instances.length-64.seed=yes", "", "'yes'"),
        ("build_instances.length-64.seed=true", "", "True"),
        ("build_vocabulary.vocab_size=5:00", "", "'5:00'"),
        ("build_documents.sources.0.target_split_bytes=1", "", "1"),
        ("build_documents.sources.0.name=5", "", "5"),
        ("build_documents.sources=[]", "", "an empty list"),
        ("build_documents=5", "", "5"),
        ("finetune={x: {examples: x, num_epochs: [true]}}", "finetune.x.num_epochs", "a list"),
        ("sweep=false", "", "False"),
        ("store=gs://", "", "'gs://'"),
    ],
)
def test_wrong_value_is_named(here: Path, change: str, field: str, value: str) -> None:
    with pytest.raises(RecipeError) as error:
        load_recipe(written(here), overrides=[change])
    assert error.value.field == (field or change.partition("=")[0])
    assert error.value.value == value
    assert error.value.path == f"--set {change}"


@pytest.mark.parametrize(
    "change",
    [
        "build_documents.sources.other.language=de",
        "name.x=1",
        "build_tokens={a: [}",
        "store=~nosuchuser/x",
        f"{'.'.join('a' * 3000)}=1",
    ],
)
def test_override_that_cannot_be_set_is_named(here: Path, change: str) -> None:
    with pytest.raises(RecipeError) as error:
        load_recipe(written(here), overrides=[change])
    assert error.value.path == f"--set {change}"[:80]
    assert len(str(error.value)) < 400


def test_store_option_is_named(here: Path) -> None:
    with pytest.raises(RecipeError) as error:
        load_recipe(written(here, f"{RECIPE}store: kept\n"), store="gs://")
    assert (error.value.path, error.value.field) == ("--store", "store")


def test_long_value_is_cut_in_error(here: Path) -> None:
    with pytest.raises(RecipeError) as error:
        load_recipe(written(here), overrides=["build_vocabulary.vocab_size=" + "x" * 9_000])
    assert len(error.value.value) == 80
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
    lines = str(error.value).splitlines()
    assert len(lines) == 1 + len(PROBLEMS)
    assert all(one.field in str(error.value) for one in problems)


def test_error_survives_pickling(here: Path) -> None:
    with pytest.raises(RecipeError) as error:
        load_recipe(written(here), overrides=["seed=1", "nme=2"])
    copy = pickle.loads(pickle.dumps(error.value))
    assert (str(copy), copy.problems, copy.field) == (
        str(error.value),
        error.value.problems,
        error.value.field,
    )


def test_overrides_do_not_change_raw_data(here: Path) -> None:
    data = {"name": "a", "build_documents": {"sources": [{"kind": "text", "name": "x"}]}}
    changes = ["build_documents.sources.0.paths=[a.txt]", "build_documents.min_words=7"]
    recipe = recipe_from(data, where="x", folder=here, overrides=changes)
    assert recipe.build_documents is not None
    assert recipe.build_documents.min_words == 7
    assert data["build_documents"] == {"sources": [{"kind": "text", "name": "x"}]}


NAMED = """\
name: mine
build_documents: &all
  sources: [{kind: text, name: a, paths: a}]
build_instances: {length-64: {max_seq_length: 64}}
build_examples:
  sst: {task: %s, data_dir: x}
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
    (here / "mine.yaml").write_text(NAMED % "sst-2")
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


def test_unknown_task_is_reported_by_line(here: Path) -> None:
    text = NAMED.replace("length-46", "length-64").replace("phase: onee,", "phase: one,")
    text = text.replace(": st\n", ": sst\n").replace("tow", "two").replace("sts", "sst")
    (here / "mine.yaml").write_text(text % "sst2")
    with pytest.raises(RecipeError) as error:
        load_recipe("mine.yaml")
    assert (error.value.line, error.value.field) == (6, "build_examples.sst.task")
    assert "sst-2" in str(error.value)
    (here / "mine.yaml").write_text(text % "sst-2")
    assert load_recipe("mine.yaml").name == "mine"
    whole = load_recipe("mine.yaml", overrides=["build_instances.other={seed: 1}"])
    assert [*whole.build_instances] == ["length-64", "other"]


def test_unknown_recipe_suggests_closest_name(here: Path) -> None:
    (here / "sample").mkdir()
    assert load_recipe("sample").name == "sample"
    with pytest.raises(RecipeError) as error:
        load_recipe("englsh")
    assert error.value.suggestion == "english"
    with pytest.raises(RecipeError):
        load_recipe(str(here))
