"""The kit for a GPU machine: what travels trains on a machine that has little installed."""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from support.paths import ROOT

from deploy.gpu import kit, report
from flows.recipes.loader import load_recipe
from flows.sample import write_sample
from schemas.errors import ConfigError, UsageError

MACHINE = (
    "torch", "numpy", "pyarrow", "safetensors", "tensorboard", "tokenizers", "transformers",
    "scikit-learn", "scipy", "fsspec", "tqdm", "pytest",
)  # fmt: skip
"""Packages of a GPU machine."""

BLOCK = """
from importlib.machinery import PathFinder

BLOCKED = frozenset({blocked!r})
find = PathFinder.find_spec


@classmethod
def find_unless_blocked(cls, name, path=None, target=None):
    return None if name.partition(".")[0] in BLOCKED else find(name, path, target)


PathFinder.find_spec = find_unless_blocked
"""
RECIPE = """
name: small
build_documents:
  sources: [{{kind: wikipedia, name: wiki, paths: ["{pages}"]}}]
build_vocabulary: {{vocab_size: 400}}
build_instances:
  short: {{max_seq_length: 32, held_out_fraction: 0.1, masking: {{max_predictions_per_seq: 6}}}}
pretrain:
  phase-1:
    instances: short
    model: &model
      {{num_hidden_layers: 1, hidden_size: 16, num_attention_heads: 2, max_position_embeddings: 32}}
    budget: {{max_steps: 10}}
    batch: {{global_batch_size: 8, per_device_max_tokens: 4096}}
    logging_steps: 5
    num_threads: 1
build_examples:
  cola: {{task: cola, data_dir: "{tasks}/cola", max_samples: {{train: 32, dev: 32}}}}
finetune:
  cola: &tuned
    examples: cola
    init_from_phase: phase-1
    max_seq_length: 32
    batch_size: [16]
    learning_rate: [1.0e-3]
    num_epochs: [1]
    restarts: 2
    num_threads: 1
  cola-scratch: {{<<: *tuned, init_from_phase: null, model: *model, restarts: 1}}
"""
TRIALS = (
    "finetune.cola.bs16-lr0.001-ep1-r0",
    "finetune.cola-scratch.bs16-lr0.001-ep1-r0",
    "finetune.cola.bs16-lr0.001-ep1-r1",
)


def closure(names: Iterable[str]) -> set[str]:
    """Return distributions with all that they require."""
    found: set[str] = set()
    waiting = list(names)
    while waiting:
        if (name := canonicalize_name(waiting.pop())) in found:
            continue
        found.add(name)
        try:
            required = map(Requirement, importlib.metadata.requires(name) or ())
        except importlib.metadata.PackageNotFoundError:
            continue
        waiting += [
            r.name for r in required if r.marker is None or r.marker.evaluate({"extra": ""})
        ]
    return found


def blocked_modules() -> set[str]:
    """Return the modules of packages that a GPU machine lacks and that do not travel."""
    available = closure([*MACHINE, *kit.WHEELS])
    return {
        module
        for module, distributions in importlib.metadata.packages_distributions().items()
        if not available & {canonicalize_name(name) for name in distributions}
        and module.isidentifier()
        and not (ROOT / module).exists()
    }


class Traveled(NamedTuple):
    """A copy of what travels."""

    checkout: Path
    environment: dict[str, str]

    def run(self, script: str, *arguments: str, out: Path, **variables: str) -> Any:
        """Run a script of deploy/gpu."""
        environment = {**self.environment, "OUT": str(out), **variables}
        command = [str(self.checkout / "deploy" / "gpu" / script), *arguments]
        return subprocess.run(
            command, env=environment, cwd="/", capture_output=True, text=True, check=False
        )


@pytest.fixture(scope="module")
def small_kit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("kit")
    raw = write_sample(str(folder / "raw"), articles=60, tales=1)
    path = folder / "small.yaml"
    path.write_text(RECIPE.format(pages=raw.pages, tasks=raw.tasks), encoding="utf-8")
    recipe = load_recipe(str(path), store=str(folder / "store"))
    kit.build_kit(recipe, folder / "kit", has_wheels=False)
    return folder / "kit"


@pytest.fixture(scope="module")
def traveled(small_kit: Path, tmp_path_factory: pytest.TempPathFactory) -> Traveled:
    """The checkout's folders that a GPU machine uses, the kit, and a Python with few packages."""
    folder = tmp_path_factory.mktemp("machine")
    checkout = folder / "checkout"
    for name in ("schemas", "pipelines", "model", "benchmarks", "deploy"):
        shutil.copytree(ROOT / name, checkout / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", checkout)
    shutil.copytree(small_kit, checkout / "build" / "gpu-kit")
    (folder / "site").mkdir()
    (folder / "site" / "sitecustomize.py").write_text(BLOCK.format(blocked=blocked_modules()))
    environment = {
        **os.environ,
        "PYTHON": sys.executable,
        "PYTHONPATH": str(folder / "site"),
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",  # plugins of blocked packages
        "BERTLOOM_CACHE": str(folder / "cache"),
    }
    return Traveled(checkout, environment)


@pytest.fixture(scope="module")
def trained(traveled: Traveled, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Results of train.sh on a CPU."""
    out = tmp_path_factory.mktemp("out")
    result = traveled.run("train.sh", "--minutes", "20", "--jobs", "1", out=out, TRAIN_SECONDS="0")
    assert result.returncode == 0, result.stdout + result.stderr
    return out


@pytest.mark.slow
def test_training_needs_only_what_travels(trained: Path) -> None:
    steps = json.loads((trained / "training.json").read_text())["steps"]
    assert [step["label"] for step in steps] == [
        "pretrain.phase-1",
        *TRIALS,  # first restarts first
        "evaluate.cola",
        "evaluate.cola-scratch",
    ]
    assert {step["state"] for step in steps} == {"done"}
    assert steps[0]["counters"]["steps"] == 10
    assert [len(step["statistics"]["cells"]) for step in steps[-2:]] == [2, 1]
    files = {str(path.relative_to(trained)) for path in trained.rglob("*") if path.is_file()}
    curves = {f"pretrain.phase-1/{name}.jsonl" for name in ("curves", "timing")}
    assert files == {"machine.json", "train.txt", "training.json", *curves}


@pytest.mark.slow
def test_training_without_time_records_what_it_skips(traveled: Traveled, tmp_path: Path) -> None:
    result = traveled.run("train.sh", "--minutes", "0", out=tmp_path)
    steps = json.loads((tmp_path / "training.json").read_text())["steps"]
    assert {step["state"] for step in steps} == {"skipped"}
    assert {step["label"] for step in steps} > {"pretrain.phase-1", *TRIALS}
    assert result.returncode == 0
    assert json.loads((tmp_path / "machine.json").read_text())["gpu"] is None


@pytest.mark.slow
def test_check_leaves_records_of_tests_and_benchmark(traveled: Traveled, tmp_path: Path) -> None:
    tests = tmp_path / "test_passing.py"
    tests.write_text("def test_passes():\n    pass\n")
    small = "--device cpu --presets tiny --lengths 32 --precisions fp32 --modes eager --steps 1"
    result = traveled.run(
        "check.sh", *small.split(), "--micro-batch-tokens", "64",
        out=tmp_path / "out", TESTS=str(tests), TEST_SECONDS="0", BENCH_SECONDS="0",
    )  # fmt: skip
    assert result.returncode == 0, result.stdout + result.stderr
    assert "1 passed" in (tmp_path / "out" / "tests.txt").read_text()
    assert (tmp_path / "out" / "bench.jsonl").read_text().count("\n") >= 1


@pytest.mark.slow
def test_report_of_a_cpu_keeps_the_sentence_and_has_all_results(
    trained: Path, tmp_path: Path
) -> None:
    page = tmp_path / "gpu.md"
    page.write_text(
        (ROOT / "docs" / "how-to" / "gpu.md").read_text(encoding="utf-8"), encoding="utf-8"
    )
    report.write_page([trained], page)
    written = page.read_text(encoding="utf-8")
    assert report.NO_GPU in written
    assert "| pretrain.phase-1 | 10 |" in written
    assert re.search(r"^\| cola .*\| phase-1 \| matthews \| 2 \|", written, re.M)
    assert re.search(r"^\| cola .*\| scratch \| matthews \| 1 \|", written, re.M)
    report.write_page([trained], page)
    assert page.read_text(encoding="utf-8") == written


def bench_row(**values: Any) -> dict[str, Any]:
    row = {
        "side": "bertloom", "preset": "base", "length": 512, "precision": "bf16",
        "mode": "compiled", "tokens_per_second": 123_456.0, "utilization": 0.456,
        "memory_bytes": 5 * 2**30, "loss": 11.1, "cpu_loss": 11.2, "problem": None,
    }  # fmt: skip
    return {**row, **values}


def test_report_of_a_gpu_replaces_the_sentence(tmp_path: Path) -> None:
    machine = {
        "gpu": "NVIDIA H100 80GB HBM3", "gpu_bytes": 80 * 2**30, "driver": "580.1", "cuda": "13.0",
        "cores": 16, "torch": "2.11.0", "python": "3.12.3",
    }  # fmt: skip
    rows = [
        bench_row(),
        bench_row(side="transformers", tokens_per_second=None, problem="no memory"),
    ]
    (tmp_path / "machine.json").write_text(json.dumps(machine))
    (tmp_path / "bench.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "tests.txt").write_text("....\n4 passed in 1.00s\n")
    page = tmp_path / "gpu.md"
    page.write_text(f"# GPUs\n\n{report.BEGIN}\n{report.NO_GPU}\n{report.END}\n\n## Hand-written\n")
    report.write_page([tmp_path], page)
    text = page.read_text()
    assert report.NO_GPU not in text
    assert "NVIDIA H100" in text
    assert "4 passed" in text
    assert "| 123,456 | 45.6% |" in text
    assert "| no memory |" in text
    assert text.startswith("# GPUs\n")
    assert text.endswith("\n\n## Hand-written\n")


def test_report_needs_results_and_markers(tmp_path: Path) -> None:
    page = tmp_path / "gpu.md"
    page.write_text("# GPUs\n")
    with pytest.raises(UsageError, match=re.escape(str(page))):
        report.write_page([tmp_path], page)
    page.write_text(f"{report.BEGIN}\n{report.END}\n")
    with pytest.raises(UsageError, match=r"machine\.json"):
        report.write_page([tmp_path], page)


def test_page_has_the_markers() -> None:
    text = (ROOT / "docs" / "how-to" / "gpu.md").read_text(encoding="utf-8")
    assert text.index(report.BEGIN) < text.index(report.END)


def test_wheels_bring_all_that_they_require() -> None:
    assert closure(kit.WHEELS) == {canonicalize_name(name) for name in kit.WHEELS}


@pytest.mark.parametrize("data", [None, "nowhere"])
def test_missing_data_names_the_variable(
    data: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("BERTLOOM_DATA", raising=False)
    if data is not None:
        monkeypatch.setenv("BERTLOOM_DATA", str(tmp_path / data))
    options = ["--store", str(tmp_path / "store"), "--kit", str(tmp_path / "kit"), "--no-wheels"]
    monkeypatch.setattr(sys, "argv", ["kit", *options])
    with pytest.raises(SystemExit, match="BERTLOOM_DATA"):
        kit.main()
    assert not (tmp_path / "kit").exists()


@pytest.mark.slow
def test_kit_that_is_too_large_is_an_error(
    small_kit: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kit, "MAX_BYTES", 1000)
    folder = small_kit.parent
    recipe = load_recipe(str(folder / "small.yaml"), store=str(folder / "store"))
    with pytest.raises(ConfigError, match="expected at most"):
        kit.build_kit(recipe, tmp_path / "kit", has_wheels=False)


def test_recipe_trains_each_task_pretrained_and_from_scratch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("BERTLOOM_DATA", "/data")
    recipe = load_recipe(str(ROOT / "deploy" / "gpu" / "mini.yaml"))
    starts = {(e.examples, e.init_from_phase is None) for e in recipe.finetune.values()}
    assert starts == {(task, start) for task in recipe.build_examples for start in (False, True)}
    assert len(recipe.build_examples) == 5
    text = yaml.safe_load((ROOT / "deploy" / "gpu" / "mini.yaml").read_text(encoding="utf-8"))
    assert text["name"] == "gpu-mini"
