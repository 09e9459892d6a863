"""Allowed imports: between packages, within packages, and of heavy libraries."""

from __future__ import annotations

import graphlib
import subprocess
import sys

import grimp
import pytest
from support.paths import ROOT

# A package imports only from its left.
LAYERS = ["schemas", "pipelines", "model", "flows", "bertloom"]
PRESENT = [name for name in LAYERS if (ROOT / name / "__init__.py").exists()]

ORDER = {
    "pipelines": [
        "arrays counters progress seeds",
        "io",
        "lengths",
        "runners",
        "beam books mediawiki wordpiece",
        "sources instances",
        "documents",
        "contamination",
        "build_documents build_vocabulary build_tokens build_instances transforms "
        "find_contamination find_near_duplicates",
    ],
    "model": [
        "data",
        "encoder",
        "optim launch",
        "tasks",
        "task_types training",
        "monitoring",
        "pretraining finetuning",
        "filling",
        "tables",
        "pretrain build_examples finetune evaluate tabulate",
    ],
    "flows": [
        "formatting log_filters nested_values plots prefect_settings record_counts",
        "recipes",
        "fetch sample store",
        "run",
        "cards trackers",
        "export lineage",
        "artifact_markdown model_loading report",
        "corpus finetuning pretraining",
        "evaluation",
        "bert",
        "prefect_server prefect_server_process",
        "preparation prefect_artifacts",
        "prefect_flows",
        "running",
        "publish quickstart",
        "rebuild reproduction",
        "cli",
        "__main__",
    ],
}
"""Modules and sub-packages of each package, lowest first. A module imports only from lines before
its own; modules of one line do not import each other."""

PURE = [
    "counters", "seeds", "progress", "runners.registry", "runners.job_context",
    "io.encodings",
    "mediawiki.dumps", "mediawiki.cleaning", "mediawiki.wikitext",
    "documents.sentences",
    "wordpiece.tokenizer", "wordpiece.vocab_training",
    "beam.item_cache", "beam.shard_job",
    "documents.duplicates", "documents.exclusions",
    "instances.token_documents", "instances.pairing",
    "instances.masking", "instances.plan",
]  # fmt: skip


@pytest.fixture(scope="module")
def graph() -> grimp.ImportGraph:
    return grimp.build_graph(*PRESENT, cache_dir=None, exclude_type_checking_imports=True)


def test_packages_import_only_from_their_left(graph: grimp.ImportGraph) -> None:
    wrong = [
        f"{importer} imports {imported}"
        for importer in sorted(graph.modules)
        for imported in sorted(graph.find_modules_directly_imported_by(importer))
        if LAYERS.index(imported.split(".")[0]) > LAYERS.index(importer.split(".")[0])
    ]
    assert wrong == []


@pytest.mark.parametrize("package", ORDER)
def test_modules_import_only_from_lower_lines(package: str, graph: grimp.ImportGraph) -> None:
    level = {name: i for i, line in enumerate(ORDER[package]) for name in line.split()}
    within = [name.split(".") for name in graph.modules if name.startswith(f"{package}.")]
    assert {name[1] for name in within} == set(level), "modules, and those that ORDER lists"
    wrong = [
        f"{importer} imports {imported}"
        for importer in sorted(graph.modules)
        for imported in sorted(graph.find_modules_directly_imported_by(importer))
        if (there := _room(imported, package)) and (here := _room(importer, package))
        if here != there and level[there] >= level[here]
    ]
    assert wrong == []


def _room(module: str, package: str) -> str:
    top, _, rest = module.partition(".")
    return rest.partition(".")[0] if top == package else ""


def test_no_import_circles(graph: grimp.ImportGraph) -> None:
    imports = {name: graph.find_modules_directly_imported_by(name) for name in graph.modules}
    try:
        graphlib.TopologicalSorter(imports).prepare()
    except graphlib.CycleError as error:
        pytest.fail(" <- ".join(error.args[1]))


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
        "; ".join(
            f"import pipelines.{job}" for job in [*JOBS, "beam.pipeline", "runners.job_service"]
        )
    )
    assert not loaded & {"torch", "prefect", "flows", "model", "transformers", "typer"}
    assert "apache_beam" in loaded


def test_pure_modules_and_plans_of_jobs_do_not_load_beam() -> None:
    modules = [f"import pipelines.{name}" for name in [*PURE, *JOBS]]
    loaded = _loaded_by(f"{'; '.join(modules)}; print(len(sys.modules), 'modules')")
    assert not loaded & {"apache_beam", "torch", "prefect", "flows", "grpc", "pandas"}
    assert int(next(word for word in loaded if word.isdigit())) < 900  # with Beam 2,200


@pytest.mark.parametrize(
    ("modules", "libraries"),
    [
        (
            "pipelines.documents.plan, pipelines.wordpiece.vocab_files",
            "apache_beam pyarrow numpy tokenizers sentencex charset_normalizer",
        ),
        (
            "schemas.corpus_configs, schemas.arrow, schemas.manifest",
            "apache_beam pipelines torch prefect numpy.random",
        ),
        (
            "model.pretrain, model.build_examples, model.finetune, model.evaluate, model.tabulate",
            "torch apache_beam sklearn scipy matplotlib",
        ),
    ],
    ids=["files", "schemas", "stages"],
)
def test_planning_loads_no_heavy_library(modules: str, libraries: str) -> None:
    assert not _loaded_by(f"import {modules}") & set(libraries.split())


def test_the_model_loads_neither_beam_nor_prefect() -> None:
    files = sorted((ROOT / "model").rglob("*.py"))
    modules = [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in files]
    assert {"model.encoder.bert", "model.pretraining.loop", "model.finetuning.loop"} <= set(modules)
    loaded = _loaded_by("; ".join(f"import {name}" for name in modules if "__init__" not in name))
    assert not loaded & {"apache_beam", "prefect", "flows", "transformers", "typer"}
    assert "torch" in loaded


def test_no_module_holds_everything() -> None:
    """Longer modules usually have more than one purpose."""
    long = {
        str(path.relative_to(ROOT)): lines
        for package in PRESENT
        for path in (ROOT / package).rglob("*.py")
        if (lines := len(path.read_text(encoding="utf-8").splitlines())) > 800
    }
    assert long == {}
    names = {path.stem for package in PRESENT for path in (ROOT / package).rglob("*.py")}
    assert not names & {"utils", "helpers", "base", "common", "misc"}
