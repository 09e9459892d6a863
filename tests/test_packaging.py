"""What the wheel holds, and what a Beam worker would have to install."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
import tomllib
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

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


EXTRAS = ("flows", "model", "s3", "gcs", "dataflow", "bench", "docs", "dev")


def _locked() -> dict[str, str]:
    lines = (ROOT / "requirements.lock").read_text(encoding="utf-8").splitlines()
    pairs = [line.split("==") for line in lines if "==" in line]
    return {canonicalize_name(name): version for name, version in pairs}


def _declared() -> list[Requirement]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    assert set(extras) == set(EXTRAS)
    texts = [*project["dependencies"], *(text for extra in EXTRAS for text in extras[extra])]
    return [found for text in texts if (found := Requirement(text)).name != "bertloom"]


def test_all_extras_together_agree_with_the_lock() -> None:
    """Also what they depend on, however far: so `pip install -c requirements.lock` has a way."""
    locked, pending = _locked(), _declared()
    seen: set[tuple[str, str]] = set()
    while pending:
        wanted = pending.pop()
        name = canonicalize_name(wanted.name)
        assert name in locked, f"{wanted} is not in the lock"
        assert wanted.specifier.contains(locked[name], prereleases=True), (
            f"{wanted}: {locked[name]}"
        )
        new = {(name, extra) for extra in {"", *wanted.extras}} - seen
        seen |= new
        try:
            needs = [Requirement(text) for text in importlib.metadata.requires(name) or []]
        except importlib.metadata.PackageNotFoundError:
            continue  # in the lock, and not installed here
        pending += [
            need
            for need in needs
            if any(not need.marker or need.marker.evaluate({"extra": extra}) for _, extra in new)
        ]
