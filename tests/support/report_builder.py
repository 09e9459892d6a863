"""Runs to report on: a small real corpus, with artifacts of training and tasks written by hand."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from support.corpus_builder import small_recipe
from support.evaluation_builder import BASE, SCRATCH, artifact, written

from flows.run.artifact_inputs import input_ref
from flows.running import run_recipe
from flows.sample import write_sample
from flows.store.artifacts import ArtifactStore
from flows.store.runs import RunRecord, StepRecord, read_run, run_ids
from model.tabulate import tabulate
from schemas.execution_configs import ExecutionConfig
from schemas.finetune_configs import TabulateConfig
from schemas.fingerprint import content_digest
from schemas.manifest import FileEntry, Manifest


def corpus_run(folder: Path) -> tuple[ArtifactStore, RunRecord]:
    """A finished run of the four corpus stages."""
    root = str(folder / "store")
    sample = write_sample(str(folder / "sample"), articles=60, tales=2, pages_per_stream=20)
    recipe = small_recipe(sample).model_copy(update={"store": root})
    run_recipe(recipe, log=lambda _: None, engine="local")
    store = ArtifactStore(root)
    return store, read_run(store, run_ids(store)[-1])


def whole_run(folder: Path) -> tuple[ArtifactStore, RunRecord]:
    """Return a run with two phases, seven trainings, evaluations, and tables with the paper's."""
    store, record = corpus_run(folder)
    return store, with_trainings(store, record, folder)


ENTRIES: Mapping[str, tuple[str, Sequence[float]]] = {
    "cola": ("cola", [0.42, 0.51, 0.47, 0.44]),
    "cola-scratch": ("cola", [0.05, 0.11, 0.02]),
}
"""Task and dev scores of each entry; names of those from scratch end so."""


def with_trainings(
    store: ArtifactStore,
    record: RunRecord,
    folder: Path,
    entries: Mapping[str, tuple[str, Sequence[float]]] = ENTRIES,
) -> RunRecord:
    """Write phases, trainings, evaluations and tables next to a corpus; return the record."""
    made = Written(store, record)
    tokens, vocabulary = made.manifest("build-tokens"), made.manifest("build-vocabulary")
    first = made.phase("pretrain.first", 60, inputs={"tokens": tokens, "vocabulary": vocabulary})
    last = made.phase("pretrain.second", 20, inputs={"checkpoint": first})
    examples = {
        task: made.publish(
            f"build-examples.{task}", statistics={"task": task, "splits": {"train": 40, "dev": 20}}
        )
        for task in dict.fromkeys(task for task, _ in entries.values())
    }
    evaluations = {}
    for entry, (task, runs) in entries.items():
        is_scratch = entry.endswith("scratch")
        inputs = {"vocabulary": vocabulary} if is_scratch else {"checkpoint": last}
        results = written(entry, task, runs, model=SCRATCH if is_scratch else BASE)
        cells = {}
        for cell in results["cells"]:
            statistics = {"task": task, "metrics": cell["metrics"]}
            label = f"finetune.{entry}.{cell['name']}"
            cells[cell["name"]] = made.publish(label, statistics=statistics, inputs=inputs)
        results["members"] = [results["best"]]
        of = {"examples": examples[task], **cells}
        label = f"evaluate.{entry}"
        evaluations[entry] = made.publish(label, statistics=results, inputs=of)
    made.tables(evaluations, folder)
    return made.record


class Written:
    """Adds artifacts to a store, and their steps to a record."""

    def __init__(self, store: ArtifactStore, record: RunRecord) -> None:
        self.store, self.record = store, record
        self._pattern = self.manifest("build-tokens")

    def manifest(self, label: str) -> Manifest:
        step = next(step for step in self.record.steps if step.label == label)
        return self.store.read_manifest(step.manifest)

    def publish(
        self,
        label: str,
        files: Mapping[str, bytes] | None = None,
        *,
        entries: Sequence[FileEntry] = (),
        location: tuple[str, str] | None = None,
        inputs: Mapping[str, Manifest] | None = None,
        **more: Any,
    ) -> Manifest:
        """Write an artifact, as its stage would have; `more` are fields of the manifest."""
        stage = label.partition(".")[0]
        artifact_id, artifact_path = location or self.begin(stage)
        all_entries = list(entries)
        for path, content in (files or {}).items():
            self.store.backend.put_if_absent(f"{artifact_path}/data/{path}", content)
            digest = hashlib.sha256(content).hexdigest()
            all_entries.append(
                FileEntry(path=path, stored_name=path, size_bytes=len(content), sha256=digest)
            )
        update = {
            "artifact_id": artifact_id,
            "stage": stage,
            "cache_key": hashlib.sha256(label.encode()).hexdigest(),
            "artifact_path": artifact_path,
            "files": tuple(all_entries),
            "content_digest": content_digest(tuple(all_entries)),
            "inputs": tuple(input_ref(name, manifest) for name, manifest in (inputs or {}).items()),
            "counters": {},
            "statistics": {},
            "table_name": "",
            "notes": (),
            "raw_inputs": (),
            **more,
        }
        manifest = self.store.commit(self._pattern.model_copy(update=update)).manifest
        step = StepRecord(
            label=label, manifest=manifest.manifest_path, was_cached=False, seconds=1.5
        )
        steps, planned = (*self.record.steps, step), (*self.record.planned, label)
        self.record = self.record.model_copy(update={"steps": steps, "planned": planned})
        return manifest

    def begin(self, stage: str) -> tuple[str, str]:
        attempt = self.store.begin(stage)
        return attempt.artifact_id, attempt.location

    def phase(self, label: str, steps: int, *, inputs: Mapping[str, Manifest]) -> Manifest:
        """A phase of pretraining with its curves."""
        curves, timing = [], []
        for step in range(10, steps + 1, 10):
            value = 5 / (1 + step / 20)
            curves.append(
                {"kind": "train", "step": step, "mlm_loss": value, "mlm_accuracy": 1 / (1 + value)}
                | {"learning_rate": 1e-3, "nsp_loss": 0.6, "nsp_accuracy": 0.6}
            )
            timing.append({"step": step, "tokens_per_second": 9000.0})
        held_out = {"mlm_loss": 2.5, "perplexity": 12.18, "mlm_accuracy": 0.4, "nsp_accuracy": 0.7}
        curves.append(
            {"kind": "held-out", "step": steps, "held_out_mlm_loss": 2.5, "perplexity": 12.18}
            | {"held_out_mlm_accuracy": "nan"}
        )
        return self.publish(
            label,
            {"curves.jsonl": _lines(curves), "timing.jsonl": _lines(timing)},
            inputs=inputs,
            counters={"steps": steps, "tokens": 40_000},
            statistics={"max_seq_length": 64, "held_out": held_out},
        )

    def tables(self, evaluations: Mapping[str, Manifest], folder: Path) -> Manifest:
        """Run the real stage on written evaluations."""
        artifact_id, artifact_path = self.begin("tabulate")
        inputs = {e: artifact(folder / "evaluated", m.statistics) for e, m in evaluations.items()}
        made = tabulate(
            TabulateConfig(),
            inputs=inputs,
            output=self.store.url(f"{artifact_path}/data"),
            execution=ExecutionConfig(),
        )
        return self.publish(
            "tabulate",
            entries=made.files,
            location=(artifact_id, artifact_path),
            inputs=evaluations,
            statistics=made.statistics,
        )


def _lines(records: Sequence[Mapping[str, Any]]) -> bytes:
    return "".join(f"{json.dumps(record)}\n" for record in records).encode()
