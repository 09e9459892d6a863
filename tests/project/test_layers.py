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
        "arrays counters seeds terminal white_space",
        "progress",
        "io",
        "lengths",
        "runners",
        "shard_job books mediawiki wordpiece",
        "sources instances",
        "documents",
        "contamination near_duplicates tokens vocabulary",
        "stages transforms",
    ],
    "model": [
        "data formatting hf_config",
        "attention",
        "bert",
        "hf_weights optim task_results",
        "tasks training",
        "summaries pretraining finetuning",
        "filling",
        "tables",
        "pretrain build_examples finetune evaluate tabulate",
        "stages",
    ],
    "flows": [
        "formatting log_filters nested_values plots prefect_settings "
        "prefect_temporary_server record_counts",
        "store",
        "recipes",
        "fetch sample",
        "run",
        "cards trackers",
        "export lineage",
        "artifact_markdown model_loading report",
        "bert",
        "preparation prefect_artifacts",
        "prefect_flows",
        "running",
        "publish quickstart",
        "rebuild reproduce",
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
    "wordpiece.tokenizer", "vocabulary.training",
    "shard_job.item_cache", "shard_job.job",
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


JOBS = [f"{path.parent.name}.job" for path in sorted((ROOT / "pipelines").glob("*/job.py"))]
MODEL = [
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for path in sorted((ROOT / "model").rglob("*.py"))
    if path.stem != "__init__"
]
STAGES = ("pretrain", "build_examples", "finetune", "evaluate", "tabulate")
LOADED = {
    "files": (
        ["pipelines.stages", "pipelines.documents.plan", "pipelines.vocabulary.raw_inputs"],
        "apache_beam pyarrow numpy tokenizers sentencex chardet",
    ),
    "schemas": (
        ["schemas.corpus_configs", "schemas.arrow", "schemas.manifest"],
        "apache_beam pipelines torch prefect numpy.random",
    ),
    "pure modules and plans of jobs": (
        [f"pipelines.{name}" for name in (*PURE, *JOBS)],
        "apache_beam torch prefect flows grpc pandas",
    ),
    "plans of trainings": (
        [
            f"model.{name}"
            for name in ["pretrain", "build_examples", "finetune", "evaluate", "tabulate"]
        ],
        "torch apache_beam sklearn scipy matplotlib",
    ),
    "Beam worker": (
        [f"pipelines.{name}" for name in (*JOBS, "shard_job.pipeline", "runners.job_service")],
        "torch prefect flows model transformers typer",
    ),
    "model": (MODEL, "apache_beam prefect flows transformers typer"),
}
"""Modules that are imported, and those that this must not load."""


@pytest.mark.parametrize("name", LOADED)
def test_import_loads_no_heavy_library(name: str) -> None:
    modules, absent = LOADED[name]
    code = f"import sys, {', '.join(modules)}; print(*sys.modules, sep='\\n')"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    loaded = set(done.stdout.split())
    assert set(modules) <= loaded
    assert not loaded & set(absent.split())


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
