"""Contents of the wheel, and requirements of a Beam worker."""

from __future__ import annotations

import functools
import itertools
import platform
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Set
from email.parser import Parser
from pathlib import Path

import grimp
import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from support.clean_environments import (
    clean_python,
    install,
    link_requirements,
    required_paths,
)
from support.paths import ROOT

from flows.sample import write_sample

PACKAGES = {"bertloom", "schemas", "pipelines", "model", "flows"}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files that belong to the project, and no others."""
    folder = tmp_path_factory.mktemp("source")
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, check=False,
    )  # fmt: skip
    if listed.returncode:
        pytest.skip("not a git checkout: the project's files are unknown")
    for name in listed.stdout.decode().split("\0"):
        if name and (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes((ROOT / name).read_bytes())
    return folder


@pytest.fixture(scope="module")
def wheel_file(source: Path) -> Path:
    """Return what `make wheel` builds in a checkout with files of an earlier build."""
    stale = source / "build/lib/flows/removed_module.py"
    stale.parent.mkdir(parents=True)
    stale.touch()
    binaries = Path(sys.executable).parent
    command = ["make", "--assume-old=setup-dev", "wheel", f"BIN={binaries}"]
    subprocess.run(command, cwd=source, check=True)
    (path,) = (source / "dist").glob("bertloom-*.whl")
    return path


@pytest.fixture(scope="module")
def wheel(wheel_file: Path) -> zipfile.ZipFile:
    return zipfile.ZipFile(wheel_file)


@pytest.fixture(scope="module")
def python(wheel_file: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The Python of an environment that has the wheel and nothing else."""
    python = clean_python(tmp_path_factory.mktemp("environment") / "clean")
    install(python, wheel_file)
    return python


def test_wheel_holds_the_packages_and_nothing_else(wheel: zipfile.ZipFile) -> None:
    names = wheel.namelist()
    tops = {name.split("/")[0] for name in names if ".dist-info/" not in name}
    assert tops == PACKAGES
    modules = {
        str(path.relative_to(ROOT)) for top in PACKAGES for path in (ROOT / top).rglob("*.py")
    }
    assert modules <= set(names)
    data = {
        str(path.relative_to(ROOT))
        for top in PACKAGES
        for path in (ROOT / top).rglob("*")
        if path.is_file() and path.suffix not in (".py", ".pyc")
    }
    assert {name for name in names if ".dist-info/" not in name} - modules == data
    assert {"flows/recipes/sample.yaml", "flows/report/templates/page.html.j2"} <= data


def test_worker_needs_neither_torch_nor_prefect_and_has_its_command(wheel: zipfile.ZipFile) -> None:
    (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    metadata = Parser().parsestr(wheel.read(name).decode())
    required = metadata.get_all("Requires-Dist") or []
    core = [item for item in required if "extra ==" not in item]
    assert not [item for item in core if item.startswith(("torch", "prefect", "typer", "grimp"))]
    assert any(item.startswith("apache-beam==2.77") for item in core)
    assert "Private :: Do Not Upload" in (metadata.get_all("Classifier") or [])
    (name,) = (name for name in wheel.namelist() if name.endswith("entry_points.txt"))
    assert wheel.read(name).decode().split()[1:] == [
        *("bertloom", "=", "flows.__main__:main"),
        *("bertloom-beam-worker", "=", "pipelines.runners.beam_worker:main"),
    ]


EXTRAS = (
    "7z", "flows", "model", "openlineage", "mlflow", "wandb", "s3", "gcs", "dataflow", "all",
    "bench", "docs", "dev",
)  # fmt: skip
PYTHONS = ("3.11", "3.12", "3.13")


PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


@pytest.mark.parametrize("python", PYTHONS)
def test_all_requirements_agree_with_the_lock(python: str) -> None:
    """`pip install -c requirements.lock` works with every extra."""
    environment = {"python_version": python, "python_full_version": f"{python}.4"}
    lines = (ROOT / "requirements.lock").read_text(encoding="utf-8").splitlines()
    pins = [Requirement(line) for line in lines if not line.startswith("#")]
    locked = {
        canonicalize_name(pin.name): str(pin.specifier).removeprefix("==")
        for pin in pins
        if pin.marker is None or pin.marker.evaluate(environment)
    }
    extras = PROJECT["optional-dependencies"]
    assert set(extras) == set(EXTRAS)
    for text in itertools.chain(PROJECT["dependencies"], *extras.values()):
        requirement = Requirement(text)
        if requirement.name != "bertloom":
            version = locked[canonicalize_name(requirement.name)]
            assert requirement.specifier.contains(version, prereleases=True), text


def requirements_of(*extras: str) -> list[str]:
    """Return the declared requirements of the package with some extras."""
    declared = PROJECT["optional-dependencies"]
    return [*PROJECT["dependencies"], *(text for extra in extras for text in declared[extra])]


EXTRA_OF_PACKAGE = {"schemas": "", "pipelines": "", "model": "model", "flows": "flows"}
OPTIONAL = {
    "google": "dataflow", "mlflow": "mlflow", "openlineage": "openlineage", "py7zr": "7z",
    "s3fs": "s3", "torch": "model", "wandb": "wandb",
}  # fmt: skip
"""Extras of modules that are imported when a feature is used."""


@functools.cache
def importable(*extras: str) -> Set[str]:
    """Return the top-level modules of the requirements with some extras."""
    paths = required_paths(requirements_of(*filter(None, extras)))
    return {path.parts[0].partition(".")[0] for path in paths}


@pytest.mark.parametrize("package", [*EXTRA_OF_PACKAGE, "bertloom"])
def test_imported_packages_are_required(package: str) -> None:
    """Also those that a function imports: a feature runs if its extra is installed."""
    graph = grimp.build_graph(package, cache_dir=None, include_external_packages=True)
    imported = {name.partition(".")[0] for name in graph.modules}
    extra = EXTRA_OF_PACKAGE.get(package, "flows")
    assert {
        name
        for name in imported - sys.stdlib_module_names - PACKAGES
        if name not in importable(extra, OPTIONAL.get(name, ""))
    } == set()


FEATURES = {
    "": "import pipelines.transforms, pipelines.runners.beam_worker, pipelines.shard_job.pipeline",
    "flows": "import bertloom, flows.cli.app, flows.prefect_flows, flows.report.page",
    "model": (
        "import importlib, model, pkgutil\n"
        "for module in pkgutil.walk_packages(model.__path__, 'model.'):\n"
        "    importlib.import_module(module.name)"
    ),
    "7z": "import py7zr, pipelines.io.compression",
    "s3": "from pipelines.io.file_systems import file_system; file_system('s3://bucket/store')",
    "gcs": "import fsspec; fsspec.get_filesystem_class('gs')",
    "dataflow": (
        "import apache_beam.runners.dataflow.dataflow_runner, apache_beam.io.gcp.gcsfilesystem\n"
        "import google.cloud.dataflow, google_auth_httplib2, gcsfs, pipelines.runners.dataflow"
    ),
    "flows,openlineage": "import flows.lineage.openlineage.listener",
    "flows,mlflow": "import mlflow, flows.trackers",
    "flows,wandb": "import wandb, flows.trackers",
}
"""Code that loads what each extra is for."""


@pytest.mark.slow
@pytest.mark.parametrize("extras", FEATURES)
def test_extra_alone_loads_its_feature(python: str, tmp_path: Path, extras: str) -> None:
    requirements = requirements_of(*filter(None, extras.split(",")))
    environment = link_requirements(tmp_path / "libraries", requirements)
    done = subprocess.run(
        [python, "-P", "-c", FEATURES[extras]], env=environment, cwd=tmp_path,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_installed_wheel_makes_a_model_that_fills_masks(python: str, tmp_path: Path) -> None:
    environment = link_requirements(tmp_path / "libraries", requirements_of("flows", "model"))
    environment |= {"HOME": str(tmp_path / "home"), "BERTLOOM_CACHE": str(tmp_path / "cache")}
    write_sample(str(tmp_path / "wiki"), articles=60, tales=2, seed=1)

    def run(*arguments: str) -> str:
        done = subprocess.run(
            [str(Path(python).with_name("bertloom")), *arguments], env=environment, cwd=tmp_path,
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    output = run("quickstart", "wiki", "--yes", "--minutes", "0.05")
    assert output.count("original: ") == 2
    assert re.search(r"^wiki: \d+ steps, \d+ built, 0 cached, in ", output, re.MULTILINE)
    assert "bertloom fill '" in output
    output = run("fill", "The [MASK] of the town", "-k", "3")
    assert output.splitlines()[1].count("%") == 3


def test_one_list_of_pythons() -> None:
    """Python versions that pip accepts, the index shows and `make` searches."""
    taken = SpecifierSet(PROJECT["requires-python"])
    assert [f"3.{minor}" for minor in range(6, 20) if f"3.{minor}.0" in taken] == list(PYTHONS)
    shown = [item.rpartition(" ")[2] for item in PROJECT["classifiers"] if "Python :: 3." in item]
    assert shown == list(PYTHONS)
    (line,) = (line for line in MAKEFILE.splitlines() if line.startswith("SUPPORTED :="))
    assert line.split()[2:] == list(reversed(PYTHONS))


MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
FAKE_PYTHON = """#!/bin/sh
echo "UV_DEFAULT_INDEX=$UV_DEFAULT_INDEX $*" >> calls
case "$1 $2 $4 $5" in
"-c "*) echo VERSION ;;
"-m venv "*) /bin/mkdir -p "$3/bin" && /bin/cp "$0" "$3/bin/python" ;;
"-m pip config list")
  echo "global.extra-index-url='https://extra.example/simple'"
  test -z "$PIP_INDEX_URL" || echo ":env:.index-url='$PIP_INDEX_URL'" ;;
esac
"""


def test_marks_that_make_searches_for_are_in_test_files() -> None:
    """`make slow`, `engines` and `failures` pass pytest only the test files that name the mark."""
    for path in (ROOT / "tests").rglob("*.py"):
        if not path.name.startswith("test_"):
            assert not re.search(r"mark\.(slow|engines|failures)\b", path.read_text("utf-8")), path


def _setup(
    folder: Path, pythons: dict[str, str], *arguments: str, index: str = ""
) -> tuple[int, str]:
    """Run `make setup` with only these Pythons. One with version "" is a shim that fails.

    `index` is the package index in pip's configuration; "" for none.
    """
    binaries = folder / "bin"
    binaries.mkdir(exist_ok=True)
    for name, version in pythons.items():
        script = FAKE_PYTHON.replace("VERSION", version) if version else "#!/bin/sh\nexit 127\n"
        (binaries / name).write_text(script)
        (binaries / name).chmod(0o755)
    for name in ("Makefile", "requirements.lock", "pyproject.toml"):
        (folder / name).write_bytes((ROOT / name).read_bytes())
    for name in ("sh", "make", "touch", "rm", "sed", "tail", "env", "uname"):
        target = shutil.which(name)
        if target is None:
            pytest.skip(f"{name} is not here")
        (binaries / name).unlink(missing_ok=True)
        (binaries / name).symlink_to(target)
    return _make(folder, "setup", *arguments, index=index)


def _make(folder: Path, *arguments: str, index: str = "") -> tuple[int, str]:
    """Return the exit code and the output of `make` with the programs in `folder/bin`."""
    environment = {"PATH": str(folder / "bin"), "PIP_INDEX_URL": index}
    done = subprocess.run(
        ["make", *arguments], cwd=folder, env=environment,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


def _setup_elsewhere(folder: Path, pythons: dict[str, str], *arguments: str) -> str:
    """Return what `make setup` prints in a new folder."""
    other = folder / f"with-{'-'.join(pythons)}"
    other.mkdir()
    return _setup(other, pythons, *arguments)[1]


@pytest.mark.parametrize(
    ("has_gpu", "variables", "device"),
    [(False, (), "cpu"), (True, (), "cuda"), (False, ("TORCH=cuda",), "cuda")],
    ids=["cpu", "gpu", "variable"],
)
def test_setup_installs_torch_for_the_device(
    tmp_path: Path, has_gpu: bool, variables: tuple[str, ...], device: str
) -> None:
    (tmp_path / "bin").mkdir()
    if has_gpu:
        (tmp_path / "bin/nvidia-smi").write_text("#!/bin/sh\necho GPU 0\n")
        (tmp_path / "bin/nvidia-smi").chmod(0o755)
    code, output = _setup(tmp_path, {"python3": "3.12"}, *variables)
    assert (code, f"PyTorch for {device}" in output) == (0, True), output
    before_lock, *after = (tmp_path / "calls").read_text().split("requirements.lock")
    assert after
    is_for_cpu = device == "cpu" and platform.system() == "Linux"
    assert ("+cpu" in before_lock) == is_for_cpu


def test_setup_for_a_run_leaves_development_tools_out(tmp_path: Path) -> None:
    _setup(tmp_path, {"python3": "3.12"})
    calls = (tmp_path / "calls").read_text()
    assert ".[flows,model]" in calls
    assert "--requirements requirements.lock" not in calls
    _make(tmp_path, "setup-dev")
    assert "--requirements requirements.lock" in (tmp_path / "calls").read_text()


@pytest.mark.parametrize("index", ["", "https://index.example/simple"])
def test_uv_takes_the_package_index_of_pip(tmp_path: Path, index: str) -> None:
    _setup(tmp_path, {"python3": "3.12"}, index=index)
    calls = [line for line in (tmp_path / "calls").read_text().splitlines() if "-m uv" in line]
    assert calls
    assert all(line.startswith(f"UV_DEFAULT_INDEX={index} ") for line in calls)


def test_make_takes_the_newest_supported_python_and_says_which(tmp_path: Path) -> None:
    there = {"python3.14": "3.14", "python3.13": "", "python3.12": "3.12", "python3.11": "3.11"}
    code, said = _setup(tmp_path, there)
    assert (code, ".venv: Python 3.12, python3.12" in said) == (0, True), said
    assert ".venv: Python 3.13, python3\n" in _setup_elsewhere(tmp_path, {"python3": "3.13"})
    named = {"python3.13": "3.13", "mine": "3.11"}
    assert ".venv: Python 3.11, mine\n" in _setup_elsewhere(tmp_path, named, "PYTHON=mine")
    # An existing environment stays.
    (tmp_path / ".venv/.ready-cpu").unlink()
    code, said = _setup(tmp_path, {"python3.13": "3.13"})
    assert (code, ".venv: Python" in said) == (0, False), said


def test_make_names_what_it_looked_for(tmp_path: Path) -> None:
    code, said = _setup(tmp_path, {"python3": "3.9"})
    assert code == 2
    assert "among python3.13 python3.12 python3.11 python3: python3 is 3.9;" in said
    assert "make PYTHON=/path/to/python3.12" in said
    assert not (tmp_path / ".venv").exists()


def test_make_refuses_an_environment_of_another_python(tmp_path: Path) -> None:
    (tmp_path / ".venv/bin").mkdir(parents=True)
    (tmp_path / ".venv/bin/python").write_text(FAKE_PYTHON.replace("VERSION", "3.10"))
    (tmp_path / ".venv/bin/python").chmod(0o755)
    code, said = _setup(tmp_path, {"python3": "3.12"})
    assert code == 2
    assert ".venv is of Python 3.10, supported are 3.13 3.12 3.11: rm -r .venv" in said
