"""Who may import whom: schemas -> pipelines -> model -> flows, and what each may load."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).parents[1]
LAYERS = ["schemas", "pipelines", "model", "flows"]  # a package imports only from its left
PRESENT = [name for name in LAYERS if (ROOT / name / "__init__.py").exists()]

PURE = [
    "wikitext", "cleaning", "sentences", "wordpiece", "vocabulary", "pairing", "masking", "seeds",
    "counters", "truncation", "token_documents", "instances", "words", "encodings", "dump_xml",
]  # fmt: skip


@pytest.fixture(scope="module")
def graph() -> grimp.ImportGraph:
    return grimp.build_graph(*PRESENT, cache_dir=None)


def test_packages_import_only_from_their_left(graph: grimp.ImportGraph) -> None:
    wrong = [
        f"{importer} imports {imported}"
        for importer in sorted(graph.modules)
        for imported in sorted(graph.find_modules_directly_imported_by(importer))
        if LAYERS.index(imported.split(".")[0]) > LAYERS.index(importer.split(".")[0])
    ]
    assert wrong == []


def _loaded_by(statement: str) -> set[str]:
    """Top-level modules that a fresh interpreter has loaded after a statement."""
    code = f"import sys; {statement}; print(*{{name.split('.')[0] for name in sys.modules}})"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return set(done.stdout.split())


def test_a_beam_worker_loads_neither_torch_nor_prefect() -> None:
    jobs = [path.stem for path in sorted((ROOT / "pipelines").glob("build_*.py"))]
    assert len(jobs) == 4
    loaded = _loaded_by("; ".join(f"import pipelines.{job}" for job in jobs))
    assert not loaded & {"torch", "prefect", "flows", "model", "transformers", "typer"}
    assert "apache_beam" in loaded


@pytest.mark.parametrize("module", PURE)
def test_pure_modules_do_not_load_beam(module: str) -> None:
    if not (ROOT / "pipelines" / f"{module}.py").exists():
        pytest.fail(f"pipelines/{module}.py is listed here as pure, and is not there")
    loaded = _loaded_by(f"import pipelines.{module}")
    assert not loaded & {"apache_beam", "torch", "prefect", "flows"}


def test_schemas_load_no_beam() -> None:
    loaded = _loaded_by("import schemas.configs, schemas.arrow, schemas.manifest")
    assert not loaded & {"apache_beam", "pipelines", "torch", "prefect", "numpy.random"}


def test_the_model_loads_neither_beam_nor_prefect() -> None:
    modules = [path.stem for path in sorted((ROOT / "model").glob("*.py"))]
    assert {"bert", "loader", "training", "pretrain"} <= set(modules)
    loaded = _loaded_by("; ".join(f"import model.{name}" for name in modules))
    assert not loaded & {"apache_beam", "prefect", "flows", "transformers", "typer"}
    assert "torch" in loaded


def test_planning_a_pretraining_loads_no_torch() -> None:
    assert not _loaded_by("import model.pretrain") & {"torch", "apache_beam"}


def test_prefect_appears_only_in_flows() -> None:
    found = [
        str(path.relative_to(ROOT))
        for package in ("schemas", "pipelines", "model")
        for path in (ROOT / package).rglob("*.py")
        if "import prefect" in path.read_text(encoding="utf-8")
        or "from prefect" in path.read_text(encoding="utf-8")
    ]
    assert found == []


def test_modules_keep_to_their_size() -> None:
    long = {
        str(path.relative_to(ROOT)): lines
        for package in PRESENT
        for path in (ROOT / package).rglob("*.py")
        if (lines := len(path.read_text(encoding="utf-8").splitlines())) > 400
    }
    assert long == {}
    names = {path.stem for package in PRESENT for path in (ROOT / package).rglob("*.py")}
    assert not names & {"utils", "helpers", "base", "common", "misc"}
