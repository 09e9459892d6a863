"""`flows.recipes.yaml_texts`: YAML of a user, and each way in which it may be no use, as one
sentence."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest
from support.cli_runner import Cli

from flows.fetch.labelled_sets import load_sources
from flows.recipes.files import load_recipe, packaged_recipes, packaged_text, parse_yaml
from flows.recipes.yaml_texts import MAX_BYTES, MAX_NESTING, MAX_VALUES, load_yaml
from schemas.errors import ConfigError


def bomb(levels: int, width: int, *, merge: bool = False) -> str:
    """Aliases of aliases: `width` to the power of `levels` values."""
    key = "<<: " if merge else ""
    lines = ["a0: &a0 {x: 1}" if merge else f"a0: &a0 [{', '.join(['x'] * width)}]"]
    for level in range(1, levels):
        names = ", ".join([f"*a{level - 1}"] * width)
        inner = f"{{{key}[{names}]}}" if merge else f"[{names}]"
        lines.append(f"a{level}: &a{level} {inner}")
    return "\n".join(lines)


BAD = {
    "an alias bomb": (
        bomb(9, 9),
        "line 6, column 10: has more than 100,000 values, aliases written out",
    ),
    "a bomb of merges": (bomb(9, 9, merge=True), "has more than 100,000 values"),
    "many values": (
        "a: [" + "x," * MAX_VALUES + "]",
        "line 1, column 199999: has more than 100,000 values",
    ),
    "a list in itself": ("n: x\na: &a [*a]", "line 2, column 8: *a stands inside of what &a names"),
    "keys in themselves": ("a: &a {b: *a}", "line 1, column 11: *a stands inside of what &a names"),
    "a merge of itself": ("a: &a\n  <<: *a", "line 2, column 7: *a stands inside of what &a names"),
    "brackets, nested": (
        "a: " + "[" * 500 + "]" * 500,
        "line 1, column 53: is nested more than 50 levels",
    ),
    "lines, nested": (
        "\n".join(" " * n + "a:" for n in range(500)),
        "line 51, column 51: is nested more",
    ),
    "no date": (
        "a: x\nb: 2001-99-99",
        "line 2, column 4: expected a value of YAML's timestamp, found '2001",
    ),
    "a long number": (
        "a: " + "9" * 5000,
        "line 1, column 4: expected a number of at most 40 characters",
    ),
    "a long hex number": (
        "a: 0x" + "f" * 5000,
        "line 1, column 4: expected a number of at most 40",
    ),
    "no int": ("a: !!int abc", "line 1, column 4: expected a value of YAML's int, found 'abc'"),
    "no bool": (
        "a: !!bool perhaps",
        "line 1, column 4: expected a value of YAML's bool, found 'perhaps'",
    ),
    "no float": ("a: !!float x", "line 1, column 4: expected a value of YAML's float, found 'x'"),
    "infinity": ("a: -.inf", "line 1, column 4: expected a finite number, found '-.inf'"),
    "not a number": ("a: .nan", "line 1, column 4: expected a finite number, found '.nan'"),
    "a tab": ("a:\n\tb: 1", "line 2, column 1: is not YAML: while scanning for the next token"),
    "a key twice": ("a: 1\nb: 2\na: 3", "line 3, column 1: the key 'a' is there already in line 1"),
    "a number as key": ("a: 1\n2: 3", "line 2, column 1: expected text as a key, found 2"),
    "a list as key": ("? [a]\n: b", "line 1, column 3: expected text as a key, found ['a']"),
    "a control character": ("a: 1\nb: \x07", "line 2, column 4: is not YAML: the character U+0007"),
    "an escaped zero": ('a: "\\0"', "line 1, column 4: a text has the character U+0000"),
    "half a character": (
        'a: "\\ud800"',
        "line 1, column 4: a text has the character U+0000 or half of",
    ),
    "two documents": (
        "a: 1\n---\nb: 2",
        "line 2, column 1: is not YAML: expected a single document",
    ),
    "bytes": (
        "a: !!binary aGk=",
        "line 1, column 4: the tag 'tag:yaml.org,2002:binary' means nothing here",
    ),
    "a set": (
        "a: !!set {x}",
        "line 1, column 4: the tag 'tag:yaml.org,2002:set' means nothing here",
    ),
    "a Python object": (
        "a: !!python/object/apply:os.system [x]",
        "line 1, column 4: the tag 'tag:yaml.org",
    ),
    "an own tag": ("a: !secret x", "line 1, column 4: the tag '!secret' means nothing here"),
    "no such alias": ("a: *b", "line 1, column 4: is not YAML: found undefined alias 'b'"),
    "an open bracket": ("a: [1,", "line 1, column 7: is not YAML: while parsing a flow node"),
    "a merge of a number": ("<<: 5", "line 1, column 5: is not YAML: while constructing a mapping"),
    "a list": ("- a\n- b", "expected keys with values, found a list"),
    "a word": ("word", "expected keys with values, found 'word'"),
    "nothing": ("# only a comment", "is empty: expected keys with values"),
    "too much": ("a: b\n" * (MAX_BYTES // 5 + 1), "is longer than 1,048,576 characters"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_cannot_be_used_is_one_sentence_with_its_line(name: str) -> None:
    text, said = BAD[name]
    with pytest.raises(ConfigError) as caught:
        parse_yaml(text, where="my.yaml")
    message = str(caught.value)
    assert message.startswith("my.yaml")
    assert said in message
    assert "\n" not in message
    assert len(message) < 300


def test_scalars_are_those_of_yaml_1_2() -> None:
    text = "a: [yes, off, 5:00, 010, true, 1_000, 0x1f, 2e-5, 1., -.5, 3]"
    assert parse_yaml(text, where="my.yaml")["a"] == [
        "yes", "off", "5:00", "010", True, 1000, 31, 2e-5, 1.0, -0.5, 3,
    ]  # fmt: skip


def test_a_bomb_costs_nothing() -> None:
    tracemalloc.start()
    try:
        with pytest.raises(ConfigError):
            load_yaml(bomb(60, 9), where="x")
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"a: 1\nb: \xe9", "line 2: expected UTF-8, found the byte 0xe9"),
        ("a: 1".encode("utf-16"), "is UTF-16: expected UTF-8"),
        (b"# long\n" * MAX_BYTES, "is larger than 1,048,576 bytes"),
        (b"a: &a [*a]", "line 1, column 8: *a stands inside"),
    ],
)
def test_files_of_a_user_pass_one_door(data: bytes, said: str, tmp_path: Path) -> None:
    file = tmp_path / "own.yaml"
    file.write_bytes(data)
    for read in (load_recipe, load_sources):
        with pytest.raises(ConfigError, match=r"own\.yaml") as caught:
            read(str(file))
        assert said in str(caught.value)
    with pytest.raises(ConfigError, match="is a folder"):
        load_recipe(str(tmp_path))


@pytest.mark.parametrize("value", ["[" * 500, "2001-99-99", "!!int x", "&a [*a]", "9" * 5000])
def test_a_value_of_set_passes_it_too(value: str) -> None:
    with pytest.raises(ConfigError, match=r"--set name="):
        load_recipe("sample", changes=[f"name={value}"])


def test_a_change_may_not_go_endlessly_deep() -> None:
    with pytest.raises(ConfigError, match=f"names more than {MAX_NESTING} levels"):
        load_recipe("sample", changes=[".".join("a" * 3000) + "=1"])


def test_somebody_who_has_no_home() -> None:
    with pytest.raises(ConfigError, match=r"--set store=\S+: store: \S+: there is no user"):
        load_recipe("sample", changes=["store=~nosuchuser/x"])


def test_an_alias_is_a_copy_that_is_changed_by_itself() -> None:
    data = parse_yaml("a: &a {x: [1]}\nb: *a\nc: {<<: *a, y: 2}", where="x")
    assert data == {"a": {"x": [1]}, "b": {"x": [1]}, "c": {"x": [1], "y": 2}}
    data["a"]["x"].append(2)
    assert (data["b"], data["c"]["x"]) == ({"x": [1]}, [1])


@pytest.mark.parametrize("name", packaged_recipes())
def test_recipes_that_are_sound_are_read(name: str) -> None:
    text = packaged_text(name)
    assert parse_yaml("\ufeff" + text, where=name) == parse_yaml(text, where=name)


def test_the_command_ends_with_a_sentence(tmp_path: Path, cli: Cli) -> None:
    file = tmp_path / "own.yaml"
    file.write_text(bomb(9, 9))
    said = cli("plan", str(file))
    assert said.code == 1
    assert said.err.startswith(f"error: {file}, line 6, column 10: has more than 100,000 values")
    assert said.err.count("\n") == 1
