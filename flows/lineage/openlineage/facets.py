"""Jobs, datasets and facets of OpenLineage events.

An artifact is the dataset `RECIPE/LABEL` in the namespace of its store; its version is the digest
of its content. A raw file is named by its path or URL.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from urllib.parse import quote, urlsplit

import pyarrow as pa
from openlineage.client import facet_v2 as ol
from openlineage.client.event_v2 import InputDataset, Job, OutputDataset

from flows.run.graph import Step
from flows.run.provenance import environment
from flows.run.run import Run
from flows.run.step_execution import StepResult
from flows.store.artifact import StoredArtifact
from flows.store.artifacts import ArtifactStore
from flows.store.runs import read_run
from schemas import arrow
from schemas.errors import StoreError
from schemas.manifest import Manifest
from schemas.redaction import redact

RunFacets = dict[str, ol.RunFacet]
_NAMESPACE = os.environ.get("OPENLINEAGE_NAMESPACE") or "bertloom"
_MAX_MESSAGE_CHARACTERS = 4000
_SCHEMAS = {
    schema.metadata[arrow.TABLE_KEY].decode(): schema
    for schema in vars(arrow).values()
    if isinstance(schema, pa.Schema)
}
ol.set_producer(f"pkg:generic/bertloom@{environment().packages.get('bertloom', 'unknown')}")


def job(recipe: str, label: str = "") -> Job:
    """Return the job of a recipe or of one of its steps."""
    job_type = ol.job_type_job.JobTypeJobFacet("BATCH", "BERTLOOM", "STEP" if label else "RECIPE")
    return Job(_NAMESPACE, f"bertloom.{recipe}.{label}".rstrip("."), {"jobType": job_type})


def parent_facets(run_id: str, recipe: str) -> RunFacets:
    """Return the facet that names the run of the recipe as the parent of a step."""
    run, parent_job = ol.parent_run.Run(run_id), ol.parent_run.Job(_NAMESPACE, f"bertloom.{recipe}")
    return {"parent": ol.parent_run.ParentRunFacet(run, parent_job)}


def cache_facets(result: StepResult) -> RunFacets:
    """Return tags: whether a step was cached, and its cache key."""
    tags = {"cache": "hit" if result.was_cached else "miss", "cache_key": result.manifest.cache_key}
    fields = [ol.tags_run.TagsRunFacetFields(k, v, "BERTLOOM") for k, v in tags.items()]
    return {"tags": ol.tags_run.TagsRunFacet(fields)}


def error_facets(text: str) -> RunFacets:
    """Return the facet with the message of an error, without secrets; {} for an empty text."""
    message = redact(text)[:_MAX_MESSAGE_CHARACTERS]
    facet = ol.error_message_run.ErrorMessageRunFacet(message, "python")
    return {"errorMessage": facet} if text else {}


def input_datasets(run: Run, step: Step, inputs: Mapping[str, Manifest]) -> list[InputDataset]:
    """Return the artifacts that a step reads."""
    labels = {step.inputs[name]: manifest for name, manifest in inputs.items()}
    return [InputDataset(*_name(run, label), facets=_facets(labels[label])) for label in labels]


def output_dataset(run: Run, step: Step, manifest: Manifest) -> OutputDataset:
    """Return the artifact of a step."""
    rows = [entry.rows for entry in manifest.shards or manifest.files if entry.rows is not None]
    statistics = ol.output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(
        sum(rows) if rows else None, manifest.size_bytes, len(manifest.files)
    )
    name, facets = _name(run, step.label), _facets(manifest)
    return OutputDataset(*name, {"outputStatistics": statistics}, facets=facets)


def artifact_datasets(run: Run, step: Step, manifest: Manifest) -> list[InputDataset]:
    """Return the artifacts that a step read by their paths and no step of the run built."""
    datasets = []
    for ref in manifest.inputs:
        if ref.name not in step.inputs:
            with contextlib.suppress(StoreError):  # deleted, or its store cannot be opened
                artifact = run.store.input(ref)
                name = _namespace(artifact.store), _dataset_name(artifact)
                datasets.append(InputDataset(*name, facets=_facets(artifact.manifest)))
    return datasets


def _dataset_name(artifact: StoredArtifact) -> str:
    """Return the name that the run of an artifact reported; its path if the record is deleted."""
    manifest = artifact.manifest
    with contextlib.suppress(StoreError):  # the record of the run was deleted
        record = read_run(artifact.store, manifest.produced_by.run_id)
        for step in record.steps:
            if step.manifest == manifest.manifest_path:
                return f"{record.recipe['name']}/{step.label}"
    return manifest.artifact_path


def raw_datasets(manifest: Manifest) -> list[InputDataset]:
    """Return the files from outside the store that a step read, each once."""
    facet, version, datasets = ol.input_statistics_input_dataset, ol.dataset_version_dataset, {}
    for raw in manifest.raw_inputs:
        if raw.input_name:
            continue
        scheme, host, path = _split_url(raw.uri)
        name = ("file", path) if scheme == "file" else (f"{scheme}://{host}", path.lstrip("/"))
        size = facet.InputStatisticsInputDatasetFacet(size=raw.size_bytes, fileCount=1)
        digest = version.DatasetVersionDatasetFacet(f"sha256:{raw.sha256}")
        datasets[name] = InputDataset(*name, {"inputStatistics": size}, facets={"version": digest})
    return list(datasets.values())


def _name(run: Run, label: str) -> tuple[str, str]:
    """Return namespace and name of the artifact of a step."""
    return _namespace(run.store), f"{run.recipe.name}/{label}"


def _namespace(store: ArtifactStore) -> str:
    """Return the namespace of the artifacts of a store."""
    scheme, host, path = _split_url(store.root)
    return f"{scheme}://{host}{quote(path)}".rstrip("/")


def _split_url(url: str) -> tuple[str, str, str]:
    """Return scheme, host and path of a URL or local path, without credentials and parameters."""
    if "://" not in url:
        return "file", "", url
    parts = urlsplit(url)
    return parts.scheme, parts.netloc.rpartition("@")[2], parts.path


def _facets(manifest: Manifest) -> dict[str, ol.DatasetFacet]:
    """Return the version of an artifact, and the schema of its table if it has one."""
    schema = _SCHEMAS.get(manifest.table_name)
    if manifest.table_name in ("tokens", "instances") and "vocab_size" in manifest.statistics:
        with_ids = (
            arrow.tokens_schema if manifest.table_name == "tokens" else arrow.instances_schema
        )
        schema = with_ids(manifest.statistics["vocab_size"])
    version, facet = ol.dataset_version_dataset, ol.schema_dataset
    columns = [facet.SchemaDatasetFacetFields(c.name, str(c.type)) for c in schema or ()]
    facets = {"version": version.DatasetVersionDatasetFacet(manifest.content_digest)}
    return {**facets, "schema": facet.SchemaDatasetFacet(columns)} if columns else {**facets}
