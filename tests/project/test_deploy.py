"""Contents of the container images agree with the code. No image is built here."""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import re
from pathlib import Path

import yaml
from packaging.specifiers import SpecifierSet
from prefect.workers.process import ProcessWorker
from support.paths import ROOT

from pipelines.runners.worker_package import package_name

DEPLOY = ROOT / "deploy"
DOCKERFILE = (DEPLOY / "worker.Dockerfile").read_text(encoding="utf-8")
FLOW = (DEPLOY / "flow.Dockerfile").read_text(encoding="utf-8")


def test_images_have_the_pinned_beam_our_python_and_our_packages() -> None:
    beam = importlib.metadata.version("apache-beam")
    assert f"FROM apache/beam_python${{PYTHON}}_sdk:{beam}\n" in DOCKERFILE
    (python,) = re.findall(r"^ARG PYTHON=(\S+)$", DOCKERFILE, re.M)
    asked = importlib.metadata.metadata("bertloom")["Requires-Python"]
    assert SpecifierSet(asked).contains(f"{python}.0")
    (base,) = re.findall(r"^FROM python:(\S+)-slim-trixie$", FLOW, re.M)
    assert SpecifierSet(asked).contains(base)
    (copied,) = re.findall(r"^COPY (\S+) ", DOCKERFILE, re.M)
    assert Path(package_name()).match(copied)
    packages = set(re.findall(r"^COPY (\w+) \1$", FLOW, re.M))
    assert packages == {"bertloom", "flows", "model", "pipelines", "schemas"}
    assert FLOW.rindex("USER 1000") > FLOW.rindex("RUN ")


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
