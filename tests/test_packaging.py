"""What the wheel holds, and what a Beam worker would have to install."""

from __future__ import annotations

import subprocess
import sys
import tomllib
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = {"bertloom", "schemas", "pipelines", "model", "flows"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, check=False,
    )  # fmt: skip
    if listed.returncode:
        pytest.skip("not a git checkout: cannot tell which files belong to the project")
    for name in listed.stdout.decode().split("\0"):
        if name and (ROOT / name).is_file():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).write_bytes((ROOT / name).read_bytes())
    command = ["pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "-w", str(folder)]
    subprocess.run([sys.executable, "-m", *command, str(source)], check=True)
    (path,) = folder.glob("bertloom-*.whl")
    return zipfile.ZipFile(path)


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
    assert "schemas/lineage_event.schema.json" in data
    assert {"flows/sample/texts/articles.txt", "flows/sample/texts/world.yaml"} <= data


def test_worker_needs_neither_torch_nor_prefect(wheel: zipfile.ZipFile) -> None:
    (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    metadata = Parser().parsestr(wheel.read(name).decode())
    required = metadata.get_all("Requires-Dist") or []
    core = [item for item in required if "extra ==" not in item]
    assert not [item for item in core if item.startswith(("torch", "prefect", "typer", "grimp"))]
    assert any(item.startswith("apache-beam==2.77") for item in core)
    assert "Private :: Do Not Upload" in (metadata.get_all("Classifier") or [])


def test_the_command_and_what_engines_start_workers_by(wheel: zipfile.ZipFile) -> None:
    (name,) = (name for name in wheel.namelist() if name.endswith("entry_points.txt"))
    assert wheel.read(name).decode().split() == [
        "[console_scripts]", "bertloom", "=", "flows.__main__:main",
        "bertloom-beam-worker", "=", "pipelines.runners.beam_worker:main",
    ]  # fmt: skip


def test_every_pin_is_in_the_lock() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    locked = {
        line.split("==")[0].lower().replace("_", "-")
        for line in (ROOT / "requirements.lock").read_text(encoding="utf-8").splitlines()
        if "==" in line
    }
    extras = project["optional-dependencies"]
    wanted = [*project["dependencies"], *(p for name in ("flows", "model", "s3", "gcs", "dev", "bench") for p in extras[name])]  # fmt: skip # noqa: E501
    names = {item.split("[")[0].split("=")[0].split("<")[0].split(">")[0] for item in wanted}
    assert {name.lower().replace("_", "-") for name in names} - locked == {"bertloom"}
