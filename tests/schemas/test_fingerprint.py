from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import grimp
import pytest
from support.paths import ROOT

from flows.bert import stages
from schemas.errors import FingerprintError
from schemas.fingerprint import (
    cache_key,
    canonical_json,
    code_fingerprint,
    content_digest,
    fingerprint,
    is_uncounted,
    key_spec,
    logical_digest,
    source_digest,
)
from schemas.manifest import FileEntry


def entry(path: str, **changes: Any) -> FileEntry:
    return FileEntry(
        **{"path": path, "object": f"{path}-x", "size": 3, "sha256": "1" * 64, **changes}
    )


def test_canonical_json_does_not_depend_on_the_order_of_keys() -> None:
    assert canonical_json({"b": 1, "a": [1.0, None, True]}) == b'{"a":[1,null,true],"b":1}'
    assert canonical_json((1, 2)) == canonical_json([1, 2])


def test_integers_that_doubles_cannot_hold_stay_apart() -> None:
    big = (1 << 62) + 1
    assert len({fingerprint(value) for value in (big, big - 1, str(big), -big)}) == 4


@pytest.mark.parametrize(
    "value", [float("nan"), float("inf"), {1, 2}, {1: "a"}, b"x", Path("x"), "\ud800"]
)
def test_what_is_no_json_is_refused(value: object) -> None:
    with pytest.raises(FingerprintError, match="expected"):
        fingerprint({"value": value})


def test_the_content_digest_is_that_of_names_and_bytes() -> None:
    files = [entry("a"), entry("b")]
    known = content_digest(files)
    assert content_digest(reversed(files)) == known
    assert content_digest([entry("a", object="elsewhere"), entry("b", rows=3)]) == known
    for other in (
        [entry("a")],
        [entry("a"), entry("c")],
        [entry("a"), entry("b", size=4)],
        [entry("a"), entry("b", sha256="2" * 64)],
    ):
        assert content_digest(other) != known


def test_two_files_of_one_name_have_no_content_digest() -> None:
    with pytest.raises(FingerprintError, match="a"):
        content_digest([entry("a"), entry("a", size=4)])


def test_the_logical_digest_does_not_depend_on_shards() -> None:
    one = [entry("a", rows=5, logical=f"{7:032x}")]
    two = [
        entry("a", rows=2, logical=f"{(1 << 128) - 3:032x}"),
        entry("b", rows=3, logical=f"{10:032x}"),
        entry("vocab.txt"),
    ]
    assert logical_digest(one) == logical_digest(two) == f"5:{7:032x}"
    assert logical_digest([entry("vocab.txt")]) == ""


SPEC: dict[str, Any] = {
    "stage_version": 1,
    "config": {"seed": 0},
    "inputs": {"tokens": {"content": "sha256:1"}},
    "raw_inputs": ["b", "a"],
    "code": "sha256:2",
    "environment": {"python": "3.11"},
}


def test_a_key_does_not_depend_on_the_order_of_raw_files() -> None:
    other = {**SPEC, "raw_inputs": ["a", "b"]}
    assert cache_key(key_spec("x", **SPEC)) == cache_key(key_spec("x", **other))


@pytest.mark.parametrize(
    "change",
    [
        {"stage_version": 2},
        {"config": {"seed": 1}},
        {"inputs": {"tokens": {"content": "sha256:9"}}},
        {"inputs": {"other": {"content": "sha256:1"}}},
        {"raw_inputs": ["a"]},
        {"code": "version"},
        {"environment": {"python": "3.12"}},
    ],
)
def test_a_key_depends_on_every_part(change: dict[str, Any]) -> None:
    known = cache_key(key_spec("x", **SPEC))
    assert cache_key(key_spec("x", **{**SPEC, **change})) != known
    assert cache_key(key_spec("y", **SPEC)) != known


def test_comments_docstrings_and_layout_are_no_code() -> None:
    plain = "class A:\n    size: int = 1\n\n    def f(self):\n        return 'x'\n"
    written = (
        '"""Module."""\n# comment\nclass A:\n    """Class."""\n\n    size: int = 1\n'
        '    """Attribute."""\n\n\n    def f(self):\n        """Function."""\n'
        '        return ("x")\n'
    )
    assert source_digest(written) == source_digest(plain)
    assert source_digest(plain.replace("'x'", "'y'")) != source_digest(plain)
    assert source_digest(plain.replace("= 1", "= 2")) != source_digest(plain)


def test_what_a_stage_says_of_itself_is_no_code() -> None:
    job = "def build():\n    return 1\n"
    said = 'STAGE = Stage(name="build", amount=lambda m: f"{m.rows} rows")\n'
    assert source_digest(job + said) == source_digest(job + said.replace("rows", "lines"))
    assert source_digest(job + said) == source_digest(job)
    typed = said.replace("STAGE", "STAGE: Stage")
    assert source_digest(job + typed) == source_digest(job)
    # Another name is code, and so is one within a function.
    assert source_digest(job + said.replace("STAGE", "OTHER")) != source_digest(job)
    inner = job.replace("return 1", "STAGE = 1\n    return STAGE")
    assert source_digest(inner) != source_digest(inner.replace("= 1", "= 2"))


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "fakecode"
    (folder / "far").mkdir(parents=True)
    for name, text in {
        "__init__": "",
        "stage": "from fakecode import near\n\nRESULT = near.value()\n",
        "near": "from fakecode.far.away import VALUE\n\n\ndef value():\n    return VALUE\n",
        "far/__init__": "FAR = 1\n",
        "far/away": "VALUE = 1\n",
        "unrelated": "import fakecode.stage\n",
    }.items():
        (folder / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    return folder


def digest_of(module: str = "fakecode.stage") -> tuple[str, dict[str, str]]:
    return code_fingerprint(module, packages=("fakecode",))


def test_code_is_followed_through_imports(package: Path) -> None:
    whole, modules = digest_of()
    assert sorted(modules) == [
        "fakecode",
        "fakecode.far",
        "fakecode.far.away",
        "fakecode.near",
        "fakecode.stage",
    ]
    (package / "far" / "away.py").write_text("VALUE = 22\n")
    changed, after = digest_of()
    assert changed != whole
    assert {name for name in after if after[name] != modules[name]} == {"fakecode.far.away"}


def test_the_init_of_a_package_on_the_way_counts(package: Path) -> None:
    whole, _ = digest_of()
    (package / "far" / "__init__.py").write_text("FAR = 22\n")
    assert digest_of()[0] != whole


def test_comments_and_unrelated_modules_do_not_count(package: Path) -> None:
    whole, _ = digest_of()
    (package / "near.py").write_text("# why\n" + (package / "near.py").read_text())
    (package / "unrelated.py").write_text("import fakecode.stage\n\nX = 1\n")
    assert digest_of()[0] == whole


def test_rooms_that_only_show_do_not_count(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("schemas.fingerprint.UNCOUNTED", ("fakecode.far",))
    whole, modules = digest_of()
    assert sorted(modules) == ["fakecode", "fakecode.near", "fakecode.stage"]
    (package / "far" / "away.py").write_text("VALUE = 22\n")
    assert digest_of()[0] == whole
    # A name that only begins like the room's is another module.
    (package / "farther.py").write_text("X = 1\n")
    (package / "near.py").write_text("from fakecode import farther\n")
    assert "fakecode.farther" in digest_of()[1]


def test_code_that_cannot_be_read_is_no_weaker_key(package: Path) -> None:
    (package / "near.py").write_text("def broken(:\n")
    with pytest.raises(FingerprintError, match="near"):
        digest_of()


@pytest.mark.parametrize("module", ["fakecode.missing", "elsewhere.stage"])
def test_a_module_that_is_not_there_is_refused(package: Path, module: str) -> None:
    with pytest.raises(FingerprintError, match=module):
        digest_of(module)


@pytest.mark.parametrize("stage", sorted(stages()))
def test_a_stage_loads_no_code_that_its_fingerprint_misses(stage: str) -> None:
    module = stages()[stage].module
    script = f"import sys, {module}; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )
    packages = ("schemas", "pipelines", "model", "flows")
    loaded = {name for name in done.stdout.split() if name.partition(".")[0] in packages}
    assert module in loaded
    shown = {name for name in loaded if is_uncounted(name)}
    graph = grimp.build_graph(*packages, cache_dir=None)
    by_shown = {name for room in shown for name in graph.find_upstream_modules(room)}
    assert loaded <= {*code_fingerprint(module)[1], *shown, *by_shown}
