"""Corpora in a store, with counters that a test sets."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from support.store_builder import describe, produced_by

from flows.bert import recipe_steps
from flows.run.artifact_inputs import input_ref
from flows.store.artifacts import ArtifactStore
from pipelines.io.files import write_text_file
from schemas.corpus_configs import DocumentsConfig, InstancesConfig, WikipediaSource
from schemas.fingerprint import cache_key
from schemas.manifest import Manifest, RawInput
from schemas.publish_configs import ChangeLimits, PublishConfig
from schemas.recipe import Recipe

RECIPE = """
name: tiny
build_documents: {sources: [{kind: wikipedia, name: tinywiki, paths: ["${NO_SUCH:-none.xml}"]}]}
build_instances: {one: {}}
publish: {name: corpus/tiny}
"""
"""Recipe of the corpora. Its steps are run with fake stages only."""

LABELS = ("build-documents", "build-vocabulary", "build-tokens", "build-instances.one")


def figures(documents: int = 1000, **changes: int) -> dict[str, dict[str, int]]:
    """Return the counters of a corpus by label; `changes` replace counters of all steps."""
    counters_by_label = {
        "build-documents": {
            "pages-in": documents * 2,
            "pages-kept": documents,
            "pages-dropped-redirect": documents * 3 // 4,
            "pages-dropped-namespace": documents // 4,
            "documents-in": documents,
            "documents-kept": documents,
            "words": documents * 50,
            "raw-bytes": documents * 400,
            "duplicates-same-text": documents // 100,
        },
        "build-vocabulary": {"vocabulary-size": 3},
        "build-tokens": {
            "documents-in": documents,
            "documents-kept": documents - documents // 100,
            "documents-dropped-duplicate": documents // 100,
            "tokens": documents * 70,
            "unknown-tokens": documents * 7 // 100,
        },
        "build-instances.one": {"instances": documents * 3, "held-out-instances": documents // 10},
    }
    return {
        label: {name: changes.get(name.replace("-", "_"), n) for name, n in counters.items()}
        for label, counters in counters_by_label.items()
    }


def corpus_recipe(
    store: str, *, limits: ChangeLimits | None = None, keep_versions: int = 3
) -> Recipe:
    """Return a recipe that publishes `corpus/tiny`; its steps are never run."""
    source = WikipediaSource(name="tinywiki", paths=("nowhere.xml",))
    return Recipe(
        name="tiny",
        store=store,
        build_documents=DocumentsConfig(sources=(source,)),
        build_instances={"one": InstancesConfig()},
        publish=PublishConfig(
            name="corpus/tiny", limits=limits or ChangeLimits(), keep_versions=keep_versions
        ),
    )


def build(
    store: ArtifactStore,
    counters: Mapping[str, Mapping[str, int]],
    *,
    date: str = "20261001",
    vocab: str = "[PAD]\na\nb\n",
    run_id: str = "20261002t030000-00000001",
    configs: Mapping[str, Mapping[str, Any]] | None = None,
    vocabulary_statistics: Mapping[str, Any] | None = None,
    recipe: Recipe | None = None,
) -> dict[str, Manifest]:
    """Commit a corpus with these counters and set the refs; return its manifests by label.

    `recipe` is `corpus_recipe` by default.
    """
    made: dict[str, Manifest] = {}
    for step in recipe_steps(recipe or corpus_recipe(store.root), part="corpus"):
        label, stage = step.label, step.stage.name
        attempt = store.begin(stage)
        text = json.dumps([date, vocab, dict(counters[label])])
        files = [write_text_file("part-00000.txt", text, output=attempt.output)]
        if stage == "build-vocabulary":
            files = [write_text_file("vocab.txt", vocab, output=attempt.output)]
        inputs = {name: made[needed] for name, needed in step.inputs.items()}
        config = (configs or {}).get(label, {})
        spec = {"stage": label, "config": dict(config), "text": text}
        spec["inputs"] = {name: manifest.content_digest for name, manifest in inputs.items()}
        manifest = describe(
            attempt,
            files,
            stage=stage,
            cache_key=cache_key(spec),
            cache_key_inputs=spec,
            counters=dict(counters[label]),
            statistics=dict(vocabulary_statistics or {}) if stage == "build-vocabulary" else {},
            raw_inputs=_raw(date) if stage == "build-documents" else (),
            inputs=tuple(input_ref(name, manifest) for name, manifest in inputs.items()),
            produced_by=produced_by(run_id),
        )
        made[label] = store.commit(manifest).manifest
        store.set_ref(f"tiny/{label}", made[label])
    return made


def _raw(date: str) -> tuple[RawInput, ...]:
    name = f"tinywiki-{date}-pages-articles-multistream.xml.bz2"
    return (RawInput(name=name, uri=f"/dumps/{name}", size_bytes=1, sha256="0" * 64),)
