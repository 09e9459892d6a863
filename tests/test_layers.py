"""Who may import whom: schemas -> pipelines -> model -> flows, and what each may load."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import grimp
import pytest

from schemas.fingerprint import FIRST_PARTY, code_fingerprint

ROOT = Path(__file__).parents[1]
# A package imports only from its left.
LAYERS = ["schemas", "pipelines", "model", "flows", "bertloom"]
PRESENT = [name for name in LAYERS if (ROOT / name / "__init__.py").exists()]

PURE = [
    "counters", "seeds", "telling.progress", "runners.launch", "runners.errors",
    "io.encodings",
    "mediawiki.dump_xml", "mediawiki.cleaning", "mediawiki.wikitext",
    "text.sentences",
    "wordpiece.words", "wordpiece.ids", "wordpiece.vocabulary",
    "beam.reuse", "beam.jobs",
    "documents.duplicates", "documents.shards",
    "instances.token_documents", "instances.truncation", "instances.pairing",
    "instances.masking", "instances.creation", "instances.plan",
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


JOBS = [path.stem for path in sorted((ROOT / "pipelines").glob("build_*.py"))]


def test_a_beam_worker_loads_neither_torch_nor_prefect() -> None:
    assert len(JOBS) == 4
    loaded = _loaded_by(
        "; ".join(f"import pipelines.{job}" for job in [*JOBS, "beam.pipeline", "runners.run"])
    )
    assert not loaded & {"torch", "prefect", "flows", "model", "transformers", "typer"}
    assert "apache_beam" in loaded


@pytest.mark.parametrize("job", JOBS)
def test_planning_a_job_loads_no_beam(job: str) -> None:
    loaded = _loaded_by(f"import pipelines.{job}; print(len(sys.modules), 'modules')")
    assert not loaded & {"apache_beam", "torch", "prefect", "grpc", "pandas"}
    assert int(next(word for word in loaded if word.isdigit())) < 700  # with Beam 2,200


@pytest.mark.parametrize("module", PURE)
def test_pure_modules_do_not_load_beam(module: str) -> None:
    if not (ROOT / "pipelines" / f"{module.replace('.', '/')}.py").exists():
        pytest.fail(f"pipelines.{module} is listed here as pure, and is not there")
    loaded = _loaded_by(f"import pipelines.{module}")
    assert not loaded & {"apache_beam", "torch", "prefect", "flows"}


def test_what_is_asked_before_a_run_loads_next_to_nothing() -> None:
    loaded = _loaded_by("import pipelines.documents.plan, pipelines.wordpiece.plan")
    slow = {"apache_beam", "pyarrow", "numpy", "tokenizers", "sentencex", "charset_normalizer"}
    assert not loaded & slow


def test_schemas_load_no_beam() -> None:
    loaded = _loaded_by("import schemas.configs, schemas.arrow, schemas.manifest")
    assert not loaded & {"apache_beam", "pipelines", "torch", "prefect", "numpy.random"}


def test_the_model_loads_neither_beam_nor_prefect() -> None:
    files = sorted((ROOT / "model").rglob("*.py"))
    modules = [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in files]
    assert {"model.encoder.bert", "model.pretraining.loop", "model.finetuning.loop"} <= set(modules)
    loaded = _loaded_by("; ".join(f"import {name}" for name in modules if "__init__" not in name))
    assert not loaded & {"apache_beam", "prefect", "flows", "transformers", "typer"}
    assert "torch" in loaded


STAGES = ["pretrain", "build_examples", "finetune", "evaluate", "tabulate"]


@pytest.mark.parametrize("stage", STAGES)
def test_planning_what_trains_or_evaluates_loads_no_torch(stage: str) -> None:
    loaded = _loaded_by(f"import model.{stage}")
    assert not loaded & {"torch", "apache_beam", "sklearn", "scipy", "matplotlib"}


@pytest.mark.parametrize("stage", STAGES)
def test_code_that_runs_in_another_process_is_in_the_fingerprint(stage: str) -> None:
    expected = {
        "pretrain": {"model.pretraining.loop", "model.optim.schedules", "model.encoder.bert"},
        "finetune": {"model.finetuning.loop", "model.task_types.span", "model.tasks.glue"},
        "evaluate": {
            "model.finetuning.prediction",
            "model.finetuning.saved_models",
            "model.task_types.tagging",
        },
    }.get(stage, set())
    modules = code_fingerprint(f"model.{stage}", packages=FIRST_PARTY)[1]
    assert expected <= set(modules)
    # What reads wikitext has no part in a model's weights.
    assert not {name for name in modules if "wikitext" in name or "book_" in name}


def test_prefect_appears_only_in_flows() -> None:
    found = [
        str(path.relative_to(ROOT))
        for package in ("schemas", "pipelines", "model")
        for path in (ROOT / package).rglob("*.py")
        if "import prefect" in path.read_text(encoding="utf-8")
        or "from prefect" in path.read_text(encoding="utf-8")
    ]
    assert found == []


def test_no_module_holds_everything() -> None:
    """A module is as long as its one purpose needs; from so many lines on it has more than one."""
    long = {
        str(path.relative_to(ROOT)): lines
        for package in PRESENT
        for path in (ROOT / package).rglob("*.py")
        if (lines := len(path.read_text(encoding="utf-8").splitlines())) > 800
    }
    assert long == {}
    names = {path.stem for package in PRESENT for path in (ROOT / package).rglob("*.py")}
    assert not names & {"utils", "helpers", "base", "common", "misc"}
