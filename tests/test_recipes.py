"""Reading recipes: what may stand in them, where their paths lead, and what is wrong with one."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_runs import RECIPE

from flows.bert import steps
from flows.recipes.files import load_recipe, packaged_recipes, parse_yaml, template_text
from flows.recipes.packaged import described_recipes
from schemas.errors import ConfigError
from schemas.recipe import Recipe

VARIABLES = sorted({name for each in described_recipes() for name in each.variables})
"""That packaged recipes take from the environment."""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("BERTLOOM_STORE", "BERTLOOM_SAMPLE", *VARIABLES):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", packaged_recipes())
def test_packaged_recipes_can_be_used(
    name: str, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in VARIABLES:
        monkeypatch.setenv(variable, f"/data/{variable}")
    recipe = load_recipe(name)
    assert recipe.name == name
    assert recipe.store == str(here / "store")
    for source in recipe.build_documents.sources if recipe.build_documents else ():
        assert all(Path(path).is_absolute() for path in source.paths)
    for examples in recipe.build_examples.values():
        assert Path(str(examples.folder)).is_absolute()
    assert steps(recipe)


def test_there_are_recipes() -> None:
    assert {"sample", "english", "italian", "japanese"} <= set(packaged_recipes())


def test_the_template_is_a_recipe_and_tells_the_true_defaults(here: Path) -> None:
    (here / "recipe.yaml").write_text(template_text())
    recipe = load_recipe("recipe.yaml")
    uncommented = template_text().replace("  # min_words: 5 ", "  min_words: 5 ")
    for line in ("vocab_file: vocab.txt", "  # remove_duplicates: true"):
        assert line in uncommented
    for comment, value in [
        ("# duplicates: 1 ", recipe.build_instances["length-128"].duplicates == 1),
        ("# pairing: nsp ", recipe.build_instances["length-128"].pairing == "nsp"),
        ("# seed: 0", recipe.build_instances["length-128"].seed == 0),
        ("# min_words: 5 ", recipe.build_documents.min_words == 5),
        ("# code_identity: closure ", recipe.code_identity == "closure"),
        ("# execution: {runner: local, workers: 1}", recipe.execution.workers == 1),
    ]:
        assert comment in template_text()
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


def test_typed_paths_are_relative_to_where_one_is(here: Path) -> None:
    changes = ["build_documents.sources.notes.paths=[a.txt, s3://b/c.txt]"]
    recipe = load_recipe(written(here), changes=changes, store="st")
    assert paths_of(recipe) == [str(here / "a.txt"), "s3://b/c.txt"]
    assert recipe.store == str(here / "st")


def test_the_store_is_the_environments_if_nobody_says(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = written(here)
    assert load_recipe(file).store == str(here / "store")
    monkeypatch.setenv("BERTLOOM_STORE", "gs://bucket/store")
    assert load_recipe(file).store == "gs://bucket/store"
    assert load_recipe(file, store="memory://x").store == "memory://x"


def test_set_changes_values_of_any_depth(here: Path) -> None:
    recipe = load_recipe(
        written(here),
        changes=[
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


def test_set_reaches_names_with_dots(here: Path) -> None:
    file = written(here, RECIPE.replace("length-64:", "v1.5:"))
    recipe = load_recipe(file, changes=["build_instances.v1.5.seed=7"])
    assert {name: item.seed for name, item in recipe.build_instances.items()} == {"v1.5": 7}


def test_variables_come_from_the_environment(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = RECIPE.replace("texts/*.txt", "'${TEXTS}/${KIND:-plain}/$$1'")
    with pytest.raises(ConfigError, match=r"sources\.0\.paths\.0: .* TEXTS is not set"):
        load_recipe(written(here, text))
    changes = ["build_documents.sources.notes.paths=[x]"]
    assert paths_of(load_recipe(written(here, text), changes=changes)) == [str(here / "x")]
    monkeypatch.setenv("TEXTS", "/data")
    assert paths_of(load_recipe(written(here, text))) == ["/data/plain/$1"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("build_instances.length-64.max_seq_len=8", "no such key; did you mean 'max_seq_length'?"),
        (
            "build_documents.split_bytes=99",
            "build_documents.split_bytes: no such key here; there is "
            "build_documents.sources.NAME.split_bytes (kind: wikipedia, books, bookcorpus, text)",
        ),
        (
            "build_documents.sources.notes.lines_per_document=9",
            "no such key here; there is build_documents.sources.NAME.lines_per_document "
            "(kind: bookcorpus)",
        ),
        ("seed=1", "there is build_instances.NAME.seed, pretrain.NAME.seed, finetune.NAME.seed"),
        ("build_vocabulary.zzz=1", "here may be lowercase, max_alphabet"),
        ("build_instances.length-64.max_seq_length=4", "build_instances.length-64.max_seq_length:"),
        ("build_instances.length-64.max_seq_length=four", "found 'four'"),
        ("build_documents.sources.notes.split_bytes=1", "build_documents.sources.0.split_bytes:"),
        ("build_documents.sources.0.kind=pdf", "pdf"),
        ("build_instances.length-64.masking.mask_rate=0.5", "must be 1"),
        ("build_documents.sources=[]", "build_documents.sources:"),
        ("no_equals", "expected KEY=VALUE"),
        ("build_documents.sources.other.language=de", "no entry 'other'"),
        ("name.x=1", "has no keys"),
        ("build_tokens={a: [}", "not YAML"),
    ],
)
def test_a_wrong_value_is_named(here: Path, change: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_recipe(written(here), changes=[change])
    assert said in str(caught.value)


def test_every_wrong_value_is_named_at_once(here: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load_recipe(written(here, "nme: x\nbuild_tokens: {memory_words: 0}\n"))
    text = str(caught.value)
    assert "name: is missing" in text
    assert "nme: no such key; did you mean 'name'?" in text
    assert "build_tokens.memory_words: input should be greater than or equal to 1, found 0" in text


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: 1\nb: 2\na: 3\n", "line 3: the key 'a' is there already in line 1"),
        ("x:\n  y: 1\n  y: 2\n", "line 3: the key 'y' is there already in line 2"),
        ("- 1\n", "expected keys with values, found a list"),
        ("a: [1\n", "is not YAML"),
        ("1: a\n", "expected text as a key, found 1"),
        ("a: !!python/object/apply:os.system [ls]\n", "line 1: the tag 'tag:yaml.org"),
        ("", "expected keys with values"),
    ],
)
def test_yaml_that_cannot_be_meant_is_refused(text: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_yaml(text, where="file.yaml")
    assert said in str(caught.value)
    assert str(caught.value).startswith("file.yaml")


def test_a_recipe_that_is_not_there_is_said_with_what_is(here: Path) -> None:
    (here / "sample").mkdir()  # a folder of the name of a recipe is none
    assert load_recipe("sample").name == "sample"
    with pytest.raises(ConfigError, match="did you mean 'english'"):
        load_recipe("englsh")
