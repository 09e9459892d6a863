"""Sweeps: entries of each variant, their names, shared work, and refused sweeps."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic import ValidationError
from support.paths import ROOT

from flows.bert import recipe_steps
from flows.recipes.errors import RecipeError
from flows.recipes.loader import load_recipe, recipe_from
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


def test_only_changed_entries_are_copied(read) -> None:
    recipe = read(BASE + SWEEP)
    assert [*recipe.build_instances] == ["short", "long"]
    assert [*recipe.pretrain] == [
        *("first", "first.no-nsp", "first.ltr"),
        *("second", "second.no-nsp", "second.ltr"),
    ]
    assert [name for name in recipe.finetune if name.startswith(("ner", "scratch"))] == [
        *("ner", "ner.no-nsp", "ner.ltr", "scratch")
    ]
    # The last two variants pretrain alike, and so on one phase.
    assert recipe.finetune["cola.ltr-longer"].init_from_phase == "second.ltr"
    assert recipe.pretrain["second.ltr"].init_from_phase == "first.ltr"
    assert recipe.pretrain["second.ltr"].objective == "left-to-right"
    assert recipe.finetune["cola.ltr-longer"].num_epochs == (2,)
    assert recipe.ensembles["both.ltr-longer"].members == ("cola.ltr-longer",)


def test_tables_know_variant_of_each_entry(read) -> None:
    recipe = read(BASE + SWEEP)
    entries = [
        (item.entry, item.of, item.variants["tasks"], item.phase) for item in recipe.expanded_sweep
    ]
    assert entries == [
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


def test_unchanged_steps_equal_those_without_sweep(read) -> None:
    plain, swept = read(BASE), read(BASE + SWEEP)
    by_label = {step.label: step for step in recipe_steps(swept)}
    for step in recipe_steps(plain):
        if step.label != "tabulate":
            assert by_label[step.label] == step
    assert plain.expanded_sweep is None
    assert list(recipe_steps(plain))[-1].config == TabulateConfig()
    assert read(BASE + SWEEP, "sweep=null") == plain
    assert read(BASE + SWEEP, "sweep.tasks=null") == plain


def test_axes_are_combined_where_they_change_an_entry(read) -> None:
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


def test_overrides_apply_to_entries_and_variants(read) -> None:
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


def test_expanded_recipe_is_loaded_unchanged(read) -> None:
    recipe = read(BASE + SWEEP)
    again = recipe_from(recipe.model_dump(mode="json"), where="again", folder=Path.cwd())
    assert again.model_dump() == recipe.model_dump()
    unexpanded = recipe.unexpanded.model_dump(mode="json", exclude={"expanded_sweep"})
    first = recipe_from(unexpanded, where="first", folder=Path.cwd())
    assert first.model_dump() == recipe.model_dump()
    with pytest.raises(ValidationError):
        Recipe.model_validate(recipe.model_dump() | {"expanded_sweep": None})


VARIANT = "sweep.x.variants.b"


@pytest.mark.parametrize(
    ("variants", "line", "field"),
    [
        ("{a: {}, b: {}}", 20, VARIANT),
        ("{a: {}, b: {pretrain.first.objective: mlm+nsp}}", 20, VARIANT),
        ("{a: {}}", 20, "sweep.x.variants"),
        ("{a: {}, b: {pretrain.frist.seed: 1}}", 20, f"{VARIANT}.pretrain.frist.seed"),
        ("{a: {}, b: {build_documents.min_words: 1}}", 20, f"{VARIANT}.build_documents.min_words"),
        ("{a: {}, b: {pretrain.*.seed: one}}", 20, f"{VARIANT}.pretrain.first.seed"),
        ("{a: {}, b: {build_examples.ner.task: nre}}", 20, f"{VARIANT}.build_examples.ner.task"),
        ("{a: {}, b: {pretrain.first: 3}}", 20, f"{VARIANT}.pretrain.first"),
        ("{a: {}, b: 3}", 20, VARIANT),
        ("{a: {}, B: {}}", 20, "sweep.x.variants.B"),
        (f"{{a: {{}}, b{'b' * 62}: {{pretrain.first.seed: 1}}}}", 18, "sweep"),
        ("{a: {}, bs8-lr1e-05-ep3-r0: {finetune.ner.seed: 1}}", 18, "sweep"),
        (f"{{{', '.join(f'v{n}: {{}}' for n in range(257))}}}", 18, "sweep"),
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


def test_extends_inherits_top_level_fields(read, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "base.yaml").write_text(BASE)
    child = "name: child\nextends: there/base.yaml\nfinetune: {}\nensembles: {}\n"
    recipe = read(child)
    assert (recipe.name, recipe.finetune) == ("child", {})
    assert [*recipe.pretrain] == ["first", "second"]
    # Paths are relative to the file that contains them.
    assert recipe.build_documents.sources[0].paths == (str(tmp_path / "there" / "notes.txt"),)
    assert recipe.build_examples["cola"].data_dir == str(tmp_path / "there" / "cola")


def test_recipe_that_cannot_be_extended_is_named(read) -> None:
    for name, suggestion in (("mine.yaml", ""), ("no.yaml", ""), ("englsh", "english")):
        with pytest.raises(RecipeError) as error:
            read(f"name: child\nextends: {name}\n")
        assert (error.value.line, error.value.field) == (2, "extends")
        assert error.value.suggestion == suggestion


def test_steps_of_a_sweep_share_the_corpus(read) -> None:
    steps = Counter(step.stage.name for step in recipe_steps(read(BASE + SWEEP)))
    # Of the three combinations each trains both phases; one more fine-tunes longer.
    assert (steps["build-tokens"], steps["build-instances"]) == (1, 2)
    assert (steps["pretrain"], steps["finetune"], steps["evaluate"]) == (6, 8, 12)


TABLES = {
    "tasks": ("table-5", {"mnli", "qnli", "mrpc", "sst-2", "squad-1.1"}),
    "size": ("table-6", {"mnli", "mrpc", "sst-2"}),
    "features": ("table-7", {"ner"}),
    "steps": ("figure-5", {"mnli"}),
    "masking": ("table-8", {"mnli", "ner", "ner-features"}),
}


@pytest.mark.parametrize("scale", ["", "-sample"])
@pytest.mark.parametrize("name", TABLES)
def test_ablation_has_rows_and_columns_of_its_table(
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
    entries = [(item.of, *item.variants.values()) for item in recipe.expanded_sweep]
    assert sorted(entries) == sorted((column, *row) for column in columns for row in rows)
    (axis, *_), (papers, *_) = (each.sweep.values() for each in (recipe, paper))
    if name != "size":  # whose rows are the sizes that a scale can have
        assert [*axis.variants] == [*papers.variants]
    own = {entry.restarts for entry in recipe.finetune.values()}
    assert own == {5} or scale == ""


def test_sweep_in_the_docs_is_valid(read) -> None:
    page = ROOT / "docs" / "how-to" / "paper-tables.md"
    (text,) = re.findall(r"```yaml\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    recipe = read(text, "sweep.masked.variants.more.pretrain.phase-1.seed=1")
    assert recipe.build_instances["length-16.more"].masking.masked_lm_prob == 0.3
    assert [*recipe.finetune] == ["cola", "cola.more", "cola.whole-words"]
    assert recipe.pretrain["phase-1.more"].seed == 1
