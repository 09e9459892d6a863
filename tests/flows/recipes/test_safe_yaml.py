"""Strict reading of YAML: values of YAML 1.2, and refusal of hostile or ambiguous files."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path

import pytest

from flows.fetch.task_datasets import load_sources
from flows.recipes.errors import RecipeError
from flows.recipes.loader import load_recipe
from flows.recipes.safe_yaml import MAX_BYTES, MAX_DEPTH, parse_yaml


def bomb(levels: int, width: int, *, merge: bool = False) -> str:
    """Return aliases of aliases, which stand for `width` to the power of `levels` values."""
    key = "<<: " if merge else ""
    lines = ["a0: &a0 {x: 1}" if merge else f"a0: &a0 [{', '.join(['x'] * width)}]"]
    for level in range(1, levels):
        names = ", ".join([f"*a{level - 1}"] * width)
        inner = f"{{{key}[{names}]}}" if merge else f"[{names}]"
        lines.append(f"a{level}: &a{level} {inner}")
    return "\n".join(lines)


REFUSED = {
    "mapping in itself": ("n: x\na: &a {b: *a}", 2),
    "merge of itself": ("n: x\na: &a {<<: *a}", 2),
    "nested lists": ("n: x\na: " + "[" * 500 + "]" * 500, 2),
    "nested mappings": ("\n".join(" " * n + "a:" for n in range(500)), MAX_DEPTH),
    "long text": ("n: x\na: " + "t" * 900_000, 2),
    "long number": ("n: x\na: " + "9" * 5000, 2),
    "long hexadecimal number": ("n: x\na: 0x" + "f" * 5000, 2),
    "wrong int": ("n: x\na: !!int abc", 2),
    "infinity": ("n: x\na: -.inf", 2),
    "float that overflows": ("n: x\na: 1e400", 2),
    "not a number": ("n: x\na: .nan", 2),
    "repeated key": ("a: 1\nb: 2\na: 3", 3),
    "number as key": ("a: 1\n2: 3", 2),
    "list as key": ("n: x\n? [a]\n: b", 2),
    "long key": ("n: x\n" + "k" * 300 + ": 1", 2),
    "null character in key": ('n: x\n"\\0": 1', 2),
    "control character": ("a: 1\nb: \x07", 2),
    "escaped null character": ('n: x\na: "\\0"', 2),
    "half of a surrogate pair": ('n: x\na: "\\ud800"', 2),
    "two documents": ("a: 1\n---\nb: 2", 2),
    "bytes": ("n: x\na: !!binary aGk=", 2),
    "Python object": ("n: x\na: !!python/object/apply:os.system [x]", 2),
    "own tag": ("n: x\na: !secret x", 2),
    "open bracket": ("n: x\na: [1,", 2),
    "merge of a number": ("n: x\n<<: 5", 2),
    "too many bytes": ("a: b\n" * (MAX_BYTES // 5 + 1), 0),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_yaml_is_named_by_file_and_line(name: str) -> None:
    text, line = REFUSED[name]
    with pytest.raises(RecipeError) as error:
        parse_yaml(text, where="my.yaml")
    assert (error.value.path, error.value.line) == ("my.yaml", line)
    assert str(error.value).startswith("my.yaml")
    assert len(str(error.value)) < 300


@pytest.mark.parametrize(("levels", "merge"), [(9, True), (60, False)])
def test_alias_bomb_is_refused_in_little_memory(levels: int, merge: bool) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(RecipeError):
            parse_yaml(bomb(levels, 9, merge=merge), where="x")
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("directive", ["", "\ufeff", "%YAML 1.1\n---\n"])
def test_scalars_are_those_of_yaml_1_2(directive: str) -> None:
    text = "a: [yes, off, 5:00, 2001-12-14, true, 0x1f, 0o17, 2e-5, 1., -.5, 3, ~, '3']"
    assert parse_yaml(directive + text, where="x").value["a"] == [
        *("yes", "off", "5:00", "2001-12-14", True, 31, 15, 2e-5, 1.0, -0.5, 3, None, "3")
    ]


def test_merged_mapping_keeps_own_fields() -> None:
    text = "a: &a {x: 1, y: 1}\nb: &b {y: 2, z: 2}\nc: {<<: [*a, *b], x: 3}"
    assert parse_yaml(text, where="x").value["c"] == {"x": 3, "y": 1, "z": 2}


def test_value_with_aliases_is_changed_in_one_place_only(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(
        "name: mine\n"
        "build_documents: {sources: [{kind: text, name: a, paths: [a.txt]}]}\n"
        "build_instances: {a: &a {max_seq_length: 32}, b: *a}\n"
    )
    recipe = load_recipe(str(file), overrides=["build_instances.b.max_seq_length=64"])
    lengths = {name: entry.max_seq_length for name, entry in recipe.build_instances.items()}
    assert lengths == {"a": 32, "b": 64}


@pytest.mark.parametrize(
    ("field", "line"),
    [
        ("a", 1),
        ("a.b", 2),
        ("a.b.unknown", 2),
        ("a.c.1", 5),
        ("a.c.1.name", 5),
        ("v1.5.seed", 7),
        ("v1.seed", 6),
        ("unknown", 0),
    ],
)
def test_line_is_that_of_field_or_nearest_parent(field: str, line: int) -> None:
    text = "a:\n  b: 1\n  c:\n  - x\n  - name: y\nv1: {seed: 1}\nv1.5: {seed: 1}\n"
    assert parse_yaml(text, where="x").find_line(field) == line


@pytest.mark.parametrize(
    ("data", "line"),
    [
        (b"a: 1\nb: \xe9", 0),
        ("a: 1".encode("utf-16"), 0),
        (b"# long\n" * MAX_BYTES, 0),
        (b"n: x\na: &a [*a]", 2),
    ],
)
def test_recipes_and_sources_are_read_strictly(data: bytes, line: int, tmp_path: Path) -> None:
    file = tmp_path / "own.yaml"
    file.write_bytes(data)
    for read in (load_recipe, load_sources):
        with pytest.raises(RecipeError) as error:
            read(str(file))
        assert error.value.path.endswith(str(file))
        assert error.value.line == line


@pytest.mark.parametrize("text", ["", "# only a comment", "- a\n- b", "word"])
def test_recipe_is_a_mapping(text: str, tmp_path: Path) -> None:
    file = tmp_path / "own.yaml"
    file.write_text(text)
    with pytest.raises(RecipeError) as error:
        load_recipe(str(file))
    assert error.value.path == str(file)


def test_recipe_may_be_json(tmp_path: Path) -> None:
    data = {"name": "base", "build_documents": {"sources": [{"kind": "text", "name": "a"}]}}
    data["build_documents"]["sources"][0]["paths"] = ["a\t.txt"]  # type: ignore[index]
    (tmp_path / "base.json").write_text(json.dumps(data, indent=2))
    (tmp_path / "own.json").write_text('{"name": "own", "extends": "base.json"}')
    recipe = load_recipe(str(tmp_path / "own.json"))
    assert recipe.name == "own"
    assert recipe.build_documents is not None
    assert recipe.build_documents.sources[0].paths == (str(tmp_path / "a\t.txt"),)


@pytest.mark.parametrize("value", ["{a: [}", "[" * 500, "!!int x", "9" * 5000])
def test_value_of_override_is_read_strictly(value: str) -> None:
    with pytest.raises(RecipeError) as error:
        load_recipe("sample", overrides=[f"name={value}"])
    assert error.value.path.startswith("--set name=")
    assert len(str(error.value)) < 400
