"""Sweeps: entries of each variant, their names, shared work, and refused sweeps."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic import ValidationError
from support.paths import ROOT

from flows.bert import recipe_steps
from flows.recipes.errors import RecipeError
from flows.recipes.loader import load_recipe, recipe_from
from flows.run.plan import PlannedStep
from flows.run.sweep_summary import summarize_sweep, sweep_rows
from schemas.finetune_configs import ExpandedAxis, TabulateConfig
from schemas.recipe import Recipe

BASE = """\
name: mine
build_documents: {sources: [{kind: text, name: notes, paths: [notes.txt]}]}
build_instances:
  short: {max_seq_length: 32}
  long: {max_seq_length: 64}
pretrain:
  first: {instances: short, model: {preset: tiny}, budget: {max_steps: 20}}
  second: {instances: long, init_from_phase: first, budget: {max_steps: 10}}
build_examples:
  cola: {task: cola, data_dir: cola}
  ner: {task: conll-2003, data_dir: ner}
finetune:
  cola: {examples: cola, init_from_phase: second, batch_size: 8, learning_rate: 0.01, num_epochs: 1}
  ner: {examples: ner, init_from_phase: second, batch_size: 8, learning_rate: 1.0e-3, num_epochs: 1}
  scratch: {examples: cola, model: {preset: tiny}, batch_size: 8, learning_rate: 0.1, num_epochs: 1}
ensembles:
  both: {members: [cola], ensemble_size: 2}
"""
SWEEP = """\
sweep:
  tasks:
    table: table-5
    variants:
      full:
      no-nsp: {pretrain.*.objective: mlm}
      ltr: {pretrain: {first: {objective: left-to-right}, second.objective: left-to-right}}
      ltr-longer: {pretrain.*.objective: left-to-right, finetune.cola.num_epochs: 2}
"""
STEPS = """\
  rate:
    variants:
      low: {finetune.cola.learning_rate: 1.0e-4}
      high: {finetune.cola.learning_rate: 1.0e-1}
"""


@pytest.fixture
def read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Recipe]:
    monkeypatch.chdir(tmp_path)

    def read(text: str, *changes: str) -> Recipe:
        Path("mine.yaml").write_text(text)
        return load_recipe("mine.yaml", overrides=changes)

    return read


def test_what_differs_is_there_once_for_each_way_and_all_else_once(read) -> None:
    recipe = read(BASE + SWEEP)
    assert [*recipe.build_instances] == ["short", "long"]
    assert [*recipe.pretrain] == [
        *("first", "first.no-nsp", "first.ltr"),
        *("second", "second.no-nsp", "second.ltr"),
    ]
    # The last two variants pretrain alike, and so on one phase.
    assert {name: entry.init_from_phase for name, entry in recipe.finetune.items()} == {
        "cola": "second",
        "cola.no-nsp": "second.no-nsp",
        "cola.ltr": "second.ltr",
        "cola.ltr-longer": "second.ltr",
        "ner": "second",
        "ner.no-nsp": "second.no-nsp",
        "ner.ltr": "second.ltr",
        "scratch": None,
    }
    assert recipe.pretrain["second.ltr"].init_from_phase == "first.ltr"
    assert recipe.pretrain["second.ltr"].objective == "left-to-right"
    assert recipe.finetune["cola.ltr-longer"].num_epochs == (2,)
    assert {name: entry.members for name, entry in recipe.ensembles.items()} == {
        "both": ("cola",),
        "both.no-nsp": ("cola.no-nsp",),
        "both.ltr": ("cola.ltr",),
        "both.ltr-longer": ("cola.ltr-longer",),
    }


def test_tables_know_which_entry_is_of_which_variant(read) -> None:
    recipe = read(BASE + SWEEP)
    found = [
        (item.entry, item.of, item.variants["tasks"], item.phase) for item in recipe.expanded_sweep
    ]
    assert found == [
        ("cola", "cola", "full", "second"),
        ("cola.no-nsp", "cola", "no-nsp", "second.no-nsp"),
        ("cola.ltr", "cola", "ltr", "second.ltr"),
        ("cola.ltr-longer", "cola", "ltr-longer", "second.ltr"),
        ("ner", "ner", "full", "second"),
        ("ner.no-nsp", "ner", "no-nsp", "second.no-nsp"),
        ("ner.ltr", "ner", "ltr", "second.ltr"),
        ("ner.ltr", "ner", "ltr-longer", "second.ltr"),  # one entry stands for two variants
        ("both", "both", "full", "second"),
        ("both.no-nsp", "both", "no-nsp", "second.no-nsp"),
        ("both.ltr", "both", "ltr", "second.ltr"),
        ("both.ltr-longer", "both", "ltr-longer", "second.ltr"),
    ]
    tables = list(recipe_steps(recipe))[-1]
    variants = ("full", "no-nsp", "ltr", "ltr-longer")
    axes = {"tasks": ExpandedAxis(table="table-5", variants=variants)}
    assert tables.config == TabulateConfig(axes=axes, expanded_sweep=recipe.expanded_sweep)
    assert tables.inputs["ner.ltr"] == "evaluate.ner.ltr"
    phases = {name for name in tables.inputs if name.startswith("pretrain.")}
    assert phases == {"pretrain.second", "pretrain.second.no-nsp", "pretrain.second.ltr"}
    assert all(tables.inputs[name] == name for name in phases)


def test_what_a_variant_leaves_is_what_the_recipe_makes_without_a_sweep(read) -> None:
    plain, swept = read(BASE), read(BASE + SWEEP)
    by_label = {step.label: step for step in recipe_steps(swept)}
    for step in recipe_steps(plain):
        if step.label != "tabulate":
            assert by_label[step.label] == step
    assert plain.expanded_sweep is None
    assert list(recipe_steps(plain))[-1].config == TabulateConfig()
    assert read(BASE + SWEEP, "sweep=null") == plain
    assert read(BASE + SWEEP, "sweep.tasks=null") == plain


def test_several_axes_make_every_combination_of_what_they_change(read) -> None:
    recipe = read(
        BASE + SWEEP.replace("finetune.cola.num_epochs: 2", "finetune.ner.num_epochs: 2") + STEPS
    )
    assert [name for name in recipe.finetune if name.startswith("cola")] == [
        f"cola.{tasks}.{rate}" for tasks in ("full", "no-nsp", "ltr") for rate in ("low", "high")
    ]
    assert [name for name in recipe.finetune if name.startswith("ner")] == [
        *("ner", "ner.no-nsp", "ner.ltr", "ner.ltr-longer")
    ]
    first = recipe.expanded_sweep[0]
    assert (first.entry, first.variants) == ("cola.full.low", {"tasks": "full", "rate": "low"})
    assert [item.variants for item in recipe.expanded_sweep if item.of == "ner"][1] == {
        "tasks": "no-nsp"
    }


def test_set_reaches_entries_before_the_sweep_and_variants_themselves(read) -> None:
    recipe = read(
        BASE + SWEEP,
        "pretrain.first.seed=7",
        "sweep.tasks.variants.ltr.pretrain.first.model.preset=mini",
        "sweep.tasks.variants.other.finetune.ner.num_epochs=3",
    )
    assert {phase.seed for name, phase in recipe.pretrain.items() if "first" in name} == {7}
    assert recipe.pretrain["first.ltr"].model.num_hidden_layers == 4
    assert recipe.pretrain["first.ltr-longer"].model.num_hidden_layers == 2
    assert recipe.finetune["ner.other"].num_epochs == (3,)
    assert recipe.finetune["ner.other"].init_from_phase == "second"


def test_a_recipe_that_was_read_is_read_again_as_it_is(read) -> None:
    recipe = read(BASE + SWEEP)
    again = recipe_from(recipe.model_dump(mode="json"), where="again", folder=Path.cwd())
    assert again == recipe
    with pytest.raises(ValidationError):
        Recipe.model_validate(recipe.model_dump() | {"expanded_sweep": None})


def test_until_names_an_entry_with_its_copies_or_one_copy(read) -> None:
    recipe = read(BASE + SWEEP)
    labels = {step.label for step in recipe_steps(recipe, until="evaluate.ner.ltr")}
    assert {label for label in labels if label.startswith("pretrain")} == {
        *("pretrain.first.ltr", "pretrain.second.ltr")
    }
    labels = {step.label for step in recipe_steps(recipe, until="finetune.ner")}
    assert len([label for label in labels if label.startswith("finetune")]) == 3


VARIANT = "sweep.x.variants.b"


@pytest.mark.parametrize(
    ("variants", "line", "field"),
    [
        ("{a: {}, b: {}}", 20, VARIANT),
        ("{a: {}, b: {pretrain.first.objective: mlm+nsp}}", 20, VARIANT),
        ("{a: {}}", 20, "sweep.x.variants"),
        ("{a: {}, b: {pretrain.frist.seed: 1}}", 20, f"{VARIANT}.pretrain.frist.seed"),
        ("{a: {}, b: {build_documents.min_words: 1}}", 20, f"{VARIANT}.build_documents.min_words"),
        ("{a: {}, b: {pretrain.first.sed: 1}}", 20, f"{VARIANT}.pretrain.first.sed"),
        ("{a: {}, b: {pretrain.first.seed: one}}", 20, f"{VARIANT}.pretrain.first.seed"),
        ("{a: {}, b: {pretrain.*.seed: one}}", 20, f"{VARIANT}.pretrain.first.seed"),
        (
            "{a: {}, b: {pretrain.second.init_from_phase: third}}",
            20,
            f"{VARIANT}.pretrain.second.init_from_phase",
        ),
        ("{a: {}, b: {build_examples.ner.task: nre}}", 20, f"{VARIANT}.build_examples.ner.task"),
        ("{a: {}, b: {pretrain.first: 3}}", 20, f"{VARIANT}.pretrain.first"),
        ("{a: {}, b: {pretrain: 3}}", 20, f"{VARIANT}.pretrain"),
        ("{a: {}, b: 3}", 20, VARIANT),
        ("{a: {}, B: {}}", 20, "sweep.x.variants.B"),
        (f"{{a: {{}}, b{'b' * 62}: {{pretrain.first.seed: 1}}}}", 18, "sweep"),
        ("{a: {}, bs8-lr1e-05-ep3-r0: {finetune.ner.seed: 1}}", 18, "sweep"),
        ("{a: {}, b: {finetune.ner.seed: 1}}\n    tabel: table-5", 21, "sweep.x.tabel"),
        ("{a: {}, b: {finetune.ner.seed: 1}}\n    table: table-9", 21, "sweep.x.table"),
        (
            "{a: {}, b: {finetune.ner.seed: 1}}\n  y:\n    variants: {c: {}, "
            "d: {finetune.*: {seed: 2}}}",
            22,
            "sweep.y.variants.d",
        ),
    ],
)
def test_wrong_sweep_is_named_by_line(read, variants: str, line: int, field: str) -> None:
    with pytest.raises(RecipeError) as error:
        read(f"{BASE}sweep:\n  x:\n    variants: {variants}\n")
    facts = error.value.path, error.value.line, error.value.field
    assert facts == ("mine.yaml", line, field)


def test_name_of_copy_must_be_free(read) -> None:
    text = BASE.replace("  scratch:", "  ner.no-nsp:")
    with pytest.raises(RecipeError) as error:
        read(text + SWEEP)
    assert error.value.field == "sweep"
    assert "ner.no-nsp" in str(error.value)


def test_too_many_combinations_are_refused(read) -> None:
    axes = "".join(
        f"  x{axis}:\n    variants: {{{', '.join(f'v{n}: {{}}' for n in range(7))}}}\n"
        for axis in range(3)
    )
    with pytest.raises(RecipeError) as error:
        read(f"{BASE}sweep:\n{axes}")
    assert error.value.field == "sweep"


def test_a_recipe_extends_another_by_whole_keys(read, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "base.yaml").write_text(BASE)
    child = "name: child\nextends: there/base.yaml\nfinetune: {}\nensembles: {}\n"
    recipe = read(child)
    assert (recipe.name, recipe.finetune) == ("child", {})
    assert [*recipe.pretrain] == ["first", "second"]
    # Paths are relative to the file that they stand in.
    assert recipe.build_documents.sources[0].paths == (str(tmp_path / "there" / "notes.txt"),)
    assert recipe.build_examples["cola"].data_dir == str(tmp_path / "there" / "cola")


@pytest.mark.parametrize(
    ("name", "suggestion"),
    [("mine.yaml", ""), ("no.yaml", ""), ("englsh", "english"), ("[english]", "english")],
)
def test_recipe_that_cannot_be_extended_is_named(read, name: str, suggestion: str) -> None:
    with pytest.raises(RecipeError) as error:
        read(f"name: child\nextends: {name}\n")
    assert error.value.path.endswith("mine.yaml")
    assert (error.value.line, error.value.field) == (2, "extends")
    assert error.value.suggestion == suggestion


def test_a_plan_says_what_is_shared_and_what_each_variant_adds(read) -> None:
    recipe = read(BASE + SWEEP)
    whole = recipe_steps(recipe)
    planned = [
        PlannedStep(step.label, "cached" if step.stage.name == "build-instances" else "build")
        for step in whole
    ]
    rows = sweep_rows(summarize_sweep(recipe, whole, planned))
    assert rows == [
        ("sweep of tasks", "steps", "to build", "trainings"),
        # Five of the corpus, two of examples, the one from scratch with its evaluation, the tables.
        ("shared", "10", "8", "1 finetune"),
        ("full", "7", "7", "2 pretrain, 2 finetune"),
        ("no-nsp", "7", "7", "2 pretrain, 2 finetune"),
        ("ltr", "7", "7", "2 pretrain, 2 finetune"),
        ("ltr-longer", "3", "3", "1 finetune"),
        ("total", "34", "32", "6 pretrain, 8 finetune"),
    ]
    assert len(whole) == 34
    until = [step for step in planned if step.label.startswith("pretrain")]
    assert [one.steps for one in summarize_sweep(recipe, whole, until)] == [
        *({}, {"pretrain": 2}, {"pretrain": 2}, {"pretrain": 2}, {})
    ]
    assert summarize_sweep(read(BASE), whole, planned) == []


TABLES = {
    "tasks": ("table-5", {"mnli", "qnli", "mrpc", "sst-2", "squad-1.1"}),
    "size": ("table-6", {"mnli", "mrpc", "sst-2"}),
    "features": ("table-7", {"ner"}),
    "steps": ("figure-5", {"mnli"}),
    "masking": ("table-8", {"mnli", "ner", "ner-features"}),
}


@pytest.mark.parametrize("scale", ["", "-small", "-sample"])
@pytest.mark.parametrize("name", TABLES)
def test_each_ablation_has_the_rows_and_columns_of_its_table(
    name: str, scale: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("ENWIKI", "BOOKS", "GLUE", "SQUAD", "CONLL"):
        monkeypatch.setenv(variable, f"/data/{variable}")
    recipe, paper = load_recipe(f"ablation-{name}{scale}"), load_recipe(f"ablation-{name}")
    table, columns = TABLES[name]
    if (name, scale) == ("steps", "-sample"):
        columns = columns | {"conll-2003"}  # where both directions matter most
    assert {axis.table for axis in recipe.sweep.values()} == {table}
    rows = [*itertools.product(*(axis.variants for axis in recipe.sweep.values()))]
    found = [(item.of, *item.variants.values()) for item in recipe.expanded_sweep]
    assert sorted(found) == sorted((column, *row) for column in columns for row in rows)
    (axis, *_), (papers, *_) = (each.sweep.values() for each in (recipe, paper))
    if name != "size":  # whose rows are the sizes that a scale can have
        assert [*axis.variants] == [*papers.variants]
    own = {entry.restarts for entry in recipe.finetune.values()}
    assert own == {5} or scale == ""


def test_the_shown_sweep_is_one(read) -> None:
    page = ROOT / "docs" / "sweeps.md"
    (text,) = re.findall(r"```yaml\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    recipe = read(text, "sweep.masked.variants.more.pretrain.phase-1.seed=1")
    assert recipe.build_instances["length-16.more"].masking.masked_lm_prob == 0.3
    assert [*recipe.finetune] == ["cola", "cola.more", "cola.whole-words"]
    assert recipe.pretrain["phase-1.more"].seed == 1
