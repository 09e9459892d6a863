"""The wheel of what a worker needs: what it holds, the same bytes each time, that it installs."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import parse_wheel_filename
from support.clean_environments import clean_python, install, libraries
from typer.testing import CliRunner

from flows.cli.app import app
from pipelines.runners.code import code_digest, code_files
from pipelines.runners.worker_package import (
    file_system_packages,
    package_name,
    worker_requirements,
    write_worker_package,
)
from schemas.errors import ConfigError


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_worker_package(tmp_path_factory.mktemp("wheel"), file_systems=["gcsfs"])


def test_wheel_is_named_after_its_code_and_has_only_what_a_worker_needs(wheel: Path) -> None:
    _, version, _, tags = parse_wheel_filename(wheel.name)
    assert version.local == f"code.{code_digest()[:16]}"
    assert [str(tag) for tag in tags] == ["py3-none-any"]
    with zipfile.ZipFile(wheel) as opened:
        names = {name for name in opened.namelist() if ".dist-info/" not in name}
    assert names == {name for name, _ in code_files()}
    assert {name.split("/")[0] for name in names} == {"pipelines", "schemas"}
    assert {"pipelines/documents/job.py", "pipelines/mediawiki/languages/en.yaml"} <= names


def test_same_code_makes_the_same_bytes(wheel: Path, tmp_path: Path) -> None:
    again = write_worker_package(tmp_path / "new" / "folder", file_systems=["gcsfs"])
    assert again.read_bytes() == wheel.read_bytes()
    assert write_worker_package(tmp_path).read_bytes() != wheel.read_bytes()


def test_wheel_requires_the_installed_versions(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as opened:
        (name,) = (name for name in opened.namelist() if name.endswith("/METADATA"))
        metadata = Parser().parsestr(opened.read(name).decode())
    required = [Requirement(text) for text in metadata.get_all("Requires-Dist") or []]
    for requirement in required:
        assert str(requirement.specifier) == f"=={importlib.metadata.version(requirement.name)}"
    declared = [Requirement(text) for text in importlib.metadata.requires("bertloom") or []]
    core = {requirement.name for requirement in declared if requirement.marker is None}
    assert {requirement.name for requirement in required} == core | {"gcsfs"}
    assert not {"torch", "prefect", "typer", "grimp"} & {
        requirement.name for requirement in required
    }


def test_file_systems_are_those_of_the_urls() -> None:
    urls = ["s3a://b/s", "gcs://b", "/here", "https://x/y", "memory://x"]
    assert file_system_packages(urls) == ("gcsfs", "s3fs")


def test_missing_library_is_an_error() -> None:
    with pytest.raises(ConfigError, match="workers need no-such-thing"):
        worker_requirements(["no-such-thing"])


def test_command_writes_the_wheel(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["worker-package", str(tmp_path / "to"), "--with", "s3"])
    assert result.exit_code == 0, result.output
    assert [path.name for path in (tmp_path / "to").iterdir()] == [package_name()]
    wrong = CliRunner().invoke(app, ["worker-package", str(tmp_path), "--with", "ftp"])
    assert isinstance(wrong.exception, ConfigError)
    assert str(wrong.exception) == "--with ftp: expected gcs or s3"


IN_A_CLEAN_PYTHON = """
import sys
from pathlib import Path

import pipelines
from pipelines.runners.worker_package import write_worker_package
import pipelines.stages, pipelines.documents.job
import pipelines.shard_job.pipeline, pipelines.vocabulary.word_counts
import pipelines.vocabulary.job, pipelines.tokens.job, pipelines.instances.job

assert Path(pipelines.__file__).is_relative_to(sys.prefix), pipelines.__file__
assert "apache_beam" in sys.modules
loaded = {name.split(".")[0] for name in sys.modules}
assert not loaded & {"torch", "prefect", "flows", "model", "bertloom", "typer"}, loaded
print(write_worker_package(Path(sys.argv[1]), file_systems=["gcsfs"]))
"""


def test_wheel_installs_in_a_clean_python_and_writes_itself_again(
    wheel: Path, tmp_path: Path
) -> None:
    python = clean_python(tmp_path / "clean")
    install(python, wheel)
    ran = subprocess.run(
        [python, "-P", "-c", IN_A_CLEAN_PYTHON, str(tmp_path / "again")],
        env={"PYTHONPATH": libraries()}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert Path(ran.stdout.strip()).read_bytes() == wheel.read_bytes()
    program = Path(python).parent / "bertloom-beam-worker"
    helped = subprocess.run(
        [program, "--help"],
        env={"PYTHONPATH": libraries()}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "--provision_endpoint" in helped.stdout
    assert sys.executable not in program.read_text().splitlines()[0]
