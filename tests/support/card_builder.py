"""A fine-tuned model with two pretraining phases, written by hand, for the tests of its card."""

from __future__ import annotations

from typing import Any

from support.lineage_builder import put, raw_file

from flows.store.artifacts import ArtifactStore
from schemas.manifest import Manifest

POINT = "bs16-lr2e-05-ep3"
RESTARTS = (0.30, 0.34, 0.38)


def put_model(
    store: ArtifactStore,
    *,
    data: str = "the sample world",
    file: str = "train.tsv",
    note: str = "a note",
    **evaluation: Any,
) -> dict[str, Manifest]:
    """Publish a model that three restarts were fine-tuned from, and return its steps by label.

    Args:
        store: Store to publish to.
        data: Label of the task's data.
        file: Name of the task's file.
        note: Note of the task's data.
        **evaluation: Statistics of the evaluation in place of the usual ones.
    """
    documents = put(
        store,
        "build-documents",
        config={"sources": [{"name": "own", "kind": "text", "language": "en"}]},
        raw=[raw_file("texts.txt")],
    )
    tokens = put(
        store,
        "build-tokens",
        {"documents": documents},
        counters={"documents-kept": 4471, "tokens": 294380},
    )
    steps = {"tokens": tokens}
    for number, (length, count) in enumerate(((16, 1000), (32, 100)), start=1):
        instances = put(store, "build-instances", {"tokens": tokens}, key=str(length))
        before = {"checkpoint": steps["phase-1"]} if number == 2 else {}
        steps[f"phase-{number}"] = put(
            store,
            "pretrain",
            {"instances": instances, **before},
            counters={"steps": count, "tokens": 50 * count, "instances": 5 * count},
            statistics={
                "objective": "mlm+nsp",
                "max_seq_length": length,
                "held_out": {"perplexity": 21.597217, "mlm_accuracy": 0.253},
                "snapshots": {"40": {"tokens": 2000}},
            },
            config={"model": {"num_hidden_layers": 2, "hidden_size": 64} if number == 1 else None},
        )
    examples = put(
        store,
        "build-examples",
        table_name="tag-examples",
        statistics={"task": "conll-2003", "data": data, "splits": {"train": 320, "dev": 400}},
        raw=[raw_file(file)],
        notes=(note,),
    )
    steps["build-examples"] = examples
    about = {"task": "conll-2003", "kind": "tagging", "method": "fine-tune"}
    trials = {
        f"{POINT}-r{number}": put(
            store,
            "finetune",
            {"examples": examples, "checkpoint": steps["phase-2"]},
            key=str(number),
            statistics={**about, "metrics": {"dev": {"entity-f1": score}}},
            cache_key_inputs={"config": {"num_epochs": 3, "model": None}},
        )
        for number, score in enumerate(RESTARTS)
    }
    statistics: dict[str, Any] = {
        **about,
        "members": [f"{POINT}-r2"],
        "metrics": {"dev": {"entity-f1": RESTARTS[2]}},
        "baseline": {"dev": {"entity-f1": 0.05}},
        "cells": [
            {"name": name, "metrics": trial.statistics["metrics"]} for name, trial in trials.items()
        ],
        "best_point": POINT,
        **evaluation,
    }
    inputs = {"examples": examples, **trials}
    return {**steps, **trials, "evaluate": put(store, "evaluate", inputs, statistics=statistics)}
