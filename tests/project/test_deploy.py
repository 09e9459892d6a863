"""Contents of the container images agree with the code. No image is built here."""

from __future__ import annotations

import dataclasses
import importlib
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
import yaml
from packaging.specifiers import SpecifierSet
from prefect.workers.process import ProcessWorker
from support.corpus_builder import small_sample
from support.paths import ROOT

from pipelines.runners.worker_package import package_name
from pipelines.transforms import PairAndMask, WriteShards
from pipelines.wordpiece.vocab_files import FIXED_TOKENS, vocab_text
from schemas.arrow import instances_schema
from schemas.corpus_configs import InstancesConfig, MaskingConfig, SourceConfig, VocabularyConfig

DEPLOY = ROOT / "deploy"
DOCKERFILE = (DEPLOY / "worker.Dockerfile").read_text(encoding="utf-8")
FLOW = (DEPLOY / "flow.Dockerfile").read_text(encoding="utf-8")
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


def test_images_have_the_pinned_beam_our_python_and_our_packages() -> None:
    beam = importlib.metadata.version("apache-beam")
    assert f"FROM apache/beam_python${{PYTHON}}_sdk:{beam} AS worker\n" in DOCKERFILE
    (python,) = re.findall(r"^ARG PYTHON=(\S+)$", DOCKERFILE, re.M)
    assert f"ARG LAUNCHER={python.replace('.', '')}\n" in DOCKERFILE
    asked = importlib.metadata.metadata("bertloom")["Requires-Python"]
    assert SpecifierSet(asked).contains(f"{python}.0")
    (base,) = re.findall(r"^FROM python:(\S+)-slim-trixie$", FLOW, re.M)
    assert SpecifierSet(asked).contains(base)
    copied = re.findall(r"^COPY (?!--from)(\S+) ", DOCKERFILE, re.M)
    assert copied == ["bertloom-*.whl", "launch_instances.py"]
    assert Path(package_name()).match(copied[0])
    packages = set(re.findall(r"^COPY (\w+) \1$", FLOW, re.M))
    assert packages == {"bertloom", "flows", "model", "pipelines", "schemas"}
    assert FLOW.rindex("USER 1000") > FLOW.rindex("RUN ")


def test_parameters_are_the_programs_and_fields_of_a_recipe(launch: Any) -> None:
    parser: ArgumentParser = launch.parser()
    arguments = {action.dest: action for action in parser._actions if action.dest != "help"}
    assert [parameter["name"] for parameter in PARAMETERS] == list(arguments)
    fields = {"kind"} | {
        field.name for step in (WriteShards, PairAndMask) for field in dataclasses.fields(step)
    }
    for config in (SourceConfig, VocabularyConfig, InstancesConfig, MaskingConfig):
        fields |= config.model_fields.keys()
    assert {*arguments} <= fields
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
    pieces = [*FIXED_TOKENS, *letters, *(f"##{letter}" for letter in letters), ".", ","]
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


# The flow's image, compose, and deployments for workers elsewhere


def test_the_services_of_compose_are_told_secrets_by_the_environment_alone() -> None:
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))["services"]
    assert set(services) == {"store", "bucket", "prefect", "worker"}
    named = [value for one in services.values() for value in one["environment"].items()]
    secret = [value for name, value in named if "SECRET" in name or "PASSWORD" in name]
    assert len(secret) == 3
    assert set(secret) == {"${STORE_PASSWORD:?set STORE_PASSWORD}"}
    for one in services.values():
        assert {*one.get("depends_on", {})} <= {*services}
        assert ":latest" not in one["image"]


REMOTE = yaml.safe_load((DEPLOY / "prefect-remote.yaml").read_text(encoding="utf-8"))


def test_a_remote_deployment_names_what_is_there() -> None:
    for one in REMOTE["deployments"]:
        file, _, name = one["entrypoint"].partition(":")
        assert (DEPLOY.parent / file).is_file()
        module = importlib.import_module(file.removesuffix(".py").replace("/", "."))
        flow = getattr(module, name)
        assert {*one["parameters"]} <= {*flow.parameters.properties}
        # `prefect deploy` fills blocks in here, and everybody could read them.
        assert "prefect.blocks" not in json.dumps(one)
    assert any("pip_install_requirements" in key for step in REMOTE["pull"] for key in step)


def test_the_work_pool_takes_credentials_from_secrets_when_a_run_begins() -> None:
    template = json.loads((DEPLOY / "work-pool.json").read_text(encoding="utf-8"))
    known = ProcessWorker.get_default_base_job_template()
    assert template["job_configuration"] == known["job_configuration"]
    properties = template["variables"]["properties"]
    assert {*properties} == {*known["variables"]["properties"]}
    keys = {name: value for name, value in properties["env"]["default"].items() if "KEY" in name}
    assert keys
    for value in keys.values():
        assert re.fullmatch(r"\{\{ prefect\.blocks\.secret\.bertloom-s3-\w+ \}\}", value)
