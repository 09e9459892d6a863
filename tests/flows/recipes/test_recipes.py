"""Reading recipes: what may stand in them, where their paths lead, and what is wrong with one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.cli_runner import RECIPE

from flows.bert import recipe_steps
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
    assert recipe_steps(recipe)


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


WRONG = """\
nme: x
extends: %s
build_documents:
  sources:
    - {kind: txt, name: a, paths: a}
    - kind: text
      name: b
      lines_per_document: 3
      split_bytes: many
build_tokens: {memory_words: 0}
build_instances:
  length-64:
    masking: {strategy: whole_word}
  length-32: {max_seq_length: "${NOT_SET:-four}"}
pretrain:
  one: {instances: length-64, model: {preset: lage}, budget: {steps: 1}}
"""
BASE = "name: base\nbuild_vocabulary:\n  lowercase: perhaps\n"
FAULTS = [
    "mine.yaml: name: is missing",
    "mine.yaml, line 1, column 1: nme: no such key; did you mean 'name'?",
    "mine.yaml, line 5, column 14: build_documents.sources.0.kind: expected one of bookcorpus, "
    "books, text, wikipedia, found 'txt'; did you mean 'text'?",
    "mine.yaml, line 6, column 7: build_documents.sources.1.paths: is missing",
    "mine.yaml, line 8, column 7: build_documents.sources.1.lines_per_document: no such key here; "
    "there is build_documents.sources.NAME.lines_per_document (kind: bookcorpus)",
    "mine.yaml, line 9, column 20: build_documents.sources.1.split_bytes: expected a whole number, "
    "found 'many'",
    "mine.yaml, line 10, column 30: build_tokens.memory_words: expected at least 1, found 0",
    "mine.yaml, line 13, column 25: build_instances.length-64.masking.strategy: expected "
    "'wordpiece', 'whole-word', 'span' or 'none', found 'whole_word'; did you mean 'whole-word'?",
    "mine.yaml, line 14, column 31: build_instances.length-32.max_seq_length: expected a whole "
    "number, found 'four'",
    "mine.yaml, line 16, column 47: pretrain.one.model: preset: no model 'lage'; choose from tiny, "
    "mini, small, medium, base, large, 3-768-12, 6-768-3, 6-768-12, 12-768-12, 12-1024-16, "
    "24-1024-16; did you mean 'large'?",
    "base.yaml, line 3, column 14: build_vocabulary.lowercase: expected true or false, found "
    "'perhaps'",
    "--set publish.nam=x: publish.nam: no such key; did you mean 'name'?",
]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ("build_instances.length-64.seed=true", "build_instances.length-64"),
        ("build_instances.length-64.seed=yes", "build_instances.length-64.seed"),
        ("build_vocabulary.vocab_size=5:00", "build_vocabulary.vocab_size"),
        ("finetune={x: {examples: x, epochs: [true]}}", "finetune.x"),
        ("sweep=false", "sweep"),
        ("store=gs://", "store"),
    ],
)
def test_value_of_wrong_kind_is_named(here: Path, change: str, field: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_recipe(written(here), changes=[change])
    assert f"{field}: " in str(caught.value)


def test_long_value_is_cut_in_error(here: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load_recipe(written(here), changes=["build_vocabulary.vocab_size=" + "x" * 100_000])
    assert len(str(caught.value)) < 400


def test_every_wrong_value_is_named_at_once_with_its_line(here: Path) -> None:
    (here / "mine.yaml").write_text(WRONG % "base.yaml")
    (here / "base.yaml").write_text(BASE)
    with pytest.raises(ConfigError) as caught:
        load_recipe("mine.yaml", changes=["publish.name=x", "publish.nam=x"])
    first, *lines = str(caught.value).replace(f"{here}/", "").splitlines()
    assert first == f"mine.yaml: {len(FAULTS)} things cannot be used"
    assert [line.removeprefix("  ") for line in lines] == FAULTS


NAMED = """\
name: mine
build_documents: &all
  sources: [{kind: text, name: a, paths: a}]
build_instances: {length-64: {max_seq_length: 64}}
build_examples:
  sst: {task: %s, folder: x}
pretrain:
  one: {instances: length-46, model: {preset: tiny}, budget: {steps: 1}}
  two: {instances: length-64, start_from: onee, budget: {steps: 1}}
finetune:
  sst:
    examples: st
    start_from: tow
ensembles: {both: {members: [sts]}}
"""


def test_every_name_that_leads_nowhere_is_said_with_the_one_meant(here: Path) -> None:
    (here / "mine.yaml").write_text(NAMED % "sst-2")
    with pytest.raises(ConfigError) as caught:
        load_recipe("mine.yaml")
    lines = str(caught.value).splitlines()[1:]
    assert [
        re.split(", which| \\(before", line)[0].removeprefix("  mine.yaml, ") for line in lines
    ] == [
        "line 8, column 20: pretrain.one.instances: no 'length-46' in build_instances",
        "line 9, column 43: pretrain.two.start_from: no phase 'onee' before this one",
        "line 12, column 15: finetune.sst.examples: no 'st' in build_examples",
        "line 13, column 17: finetune.sst.start_from: no phase 'tow' in pretrain",
        "line 14, column 20: ensembles.both.members: no 'sts' in finetune",
    ]
    meant = ["'length-64'?", "'one'?", "'sst'?", "'two'?", "'sst'?"]
    assert [line.split()[-1] for line in lines] == meant
    sound = NAMED.replace("length-46", "length-64").replace("from: onee,", "from: one,")
    sound = sound.replace(": st\n", ": sst\n").replace("tow", "two").replace("sts", "sst")
    (here / "mine.yaml").write_text(sound % "sst2")
    said = r"line 6, column 15: build_examples\.sst\.task: no task 'sst2'\. Did you mean sst-2"
    with pytest.raises(ConfigError, match=said):
        load_recipe("mine.yaml")
    (here / "mine.yaml").write_text(sound % "sst-2")
    assert load_recipe("mine.yaml").name == "mine"
    with pytest.raises(ConfigError, match=r"did you mean 'length-64'.*a new entry is given"):
        load_recipe("mine.yaml", changes=["build_instances.lenght-64.seed=1"])
    whole = load_recipe("mine.yaml", changes=["build_instances.lenght-64={seed: 1}"])
    assert [*whole.build_instances] == ["length-64", "lenght-64"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: 1\nb: 2\na: 3\n", "line 3, column 1: the key 'a' is there already in line 1"),
        ("x:\n  y: 1\n  y: 2\n", "line 3, column 3: the key 'y' is there already in line 2"),
        ("- 1\n", "expected keys with values, found a list"),
        ("a: [1\n", "is not YAML"),
        ("1: a\n", "expected text as a key, found 1"),
        ("a: !!python/object/apply:os.system [ls]\n", "line 1, column 4: the tag 'tag:yaml.org"),
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
