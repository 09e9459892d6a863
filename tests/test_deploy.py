"""What is built into images agrees with the code. No image is built here."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import json
import re
import sys
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.ipc as ipc
import pytest
from corpus_runs import small_sample

from pipelines.runners.worker_package import package_name
from pipelines.transforms import PairAndMask, WriteShards
from pipelines.wordpiece.vocab_files import FIXED_PIECES, vocab_text
from schemas.arrow import instances_schema
from schemas.configs import InstancesConfig, MaskingConfig, SourceConfig, VocabularyConfig

DEPLOY = Path(__file__).parents[1] / "deploy"
DOCKERFILE = (DEPLOY / "worker.Dockerfile").read_text(encoding="utf-8")
PARAMETERS: list[dict[str, Any]] = json.loads(
    (DEPLOY / "flex_template.json").read_text(encoding="utf-8")
)["parameters"]


@pytest.fixture
def launch(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The template's program, as a module."""
    monkeypatch.syspath_prepend(str(DEPLOY))
    import launch_instances

    yield launch_instances
    del sys.modules["launch_instances"]


def test_images_have_the_pinned_beam_and_this_python() -> None:
    (base,) = re.findall(r"^FROM (\S+) AS worker$", DOCKERFILE, re.M)
    (launcher,) = re.findall(r"^COPY --from=(\S+) ", DOCKERFILE, re.M)
    beam = importlib.metadata.version("apache-beam")
    python = f"{sys.version_info[0]}.{sys.version_info[1]}"
    assert base == f"apache/beam_python{python}_sdk:{beam}"
    assert f"python{python.replace('.', '')}-template-launcher-base" in launcher


def test_images_have_the_package_and_the_program() -> None:
    copied = re.findall(r"^COPY (?!--from)(\S+) ", DOCKERFILE, re.M)
    assert copied == ["bertloom-*.whl", "launch_instances.py"]
    assert Path(package_name()).match(copied[0])
    assert (DEPLOY / copied[1]).is_file()
    program = re.findall(r"FLEX_TEMPLATE_PYTHON_PY_FILE=(\S+)", DOCKERFILE)
    assert program == [f"/template/{copied[1]}"]


def test_parameters_are_the_programs_and_fields_of_a_recipe(launch: Any) -> None:
    parser: ArgumentParser = launch.parser()
    arguments = {action.dest: action for action in parser._actions if action.dest != "help"}
    assert [parameter["name"] for parameter in PARAMETERS] == list(arguments)
    fields = {"kind", "output", "pools", "shards"}
    for config in (SourceConfig, VocabularyConfig, InstancesConfig, MaskingConfig):
        fields |= config.model_fields.keys()
    assert {*arguments} <= fields
    assert {"output", "shards"} <= {field.name for field in dataclasses.fields(WriteShards)}
    assert "pools" in {field.name for field in dataclasses.fields(PairAndMask)}
    for parameter in PARAMETERS:
        action = arguments[parameter["name"]]
        assert parameter.get("isOptional", False) != action.required
        assert parameter.get("defaultValue") == (None if action.required else str(action.default))
        (pattern,) = parameter["regexes"]
        if not action.required:
            assert re.search(pattern, str(action.default))


def test_the_program_makes_instances(launch: Any, tmp_path: Path) -> None:
    sample = small_sample(tmp_path / "sample")
    vocab = tmp_path / "vocab.txt"
    letters = [chr(code) for code in range(ord("a"), ord("z") + 1)]
    pieces = [*FIXED_PIECES, *letters, *(f"##{letter}" for letter in letters), ".", ","]
    vocab.write_text(vocab_text(pieces), encoding="utf-8")
    given = {
        "name": "wiki", "paths": sample.pages, "vocab_file": vocab,
        "max_seq_length": 64, "output": tmp_path / "out", "shards": 2,
    }  # fmt: skip
    launch.main([*(f"--{name}={value}" for name, value in given.items()), "--runner=FnApiRunner"])
    tables = [ipc.open_file(path).read_all() for path in sorted((tmp_path / "out").iterdir())]
    assert len(tables) == 2
    table = pa.concat_tables(tables)
    assert {*instances_schema(len(pieces)).names} - {*table.column_names} == {
        "document_row", "segment_b_row", "segment_b_shard",
    }  # fmt: skip
    assert table.num_rows > 500
    assert set(table["next_sentence_label"].to_pylist()) == {0, 1}
    assert all(name.startswith("wiki:") for name in table["document_id"].to_pylist())
    assert max(len(ids) for ids in table["input_ids"].to_pylist()) <= 64
