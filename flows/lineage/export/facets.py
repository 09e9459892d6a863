"""A run and its steps in OpenLineage's terms.

The job of a run is `bertloom.RECIPE`, that of a step `bertloom.RECIPE.LABEL`.
"""

from __future__ import annotations

import functools
import importlib.metadata
import json
import os
import platform
from collections.abc import Mapping
from typing import Any

import attr

from flows.engine.provenance import checkout
from flows.engine.stages import Step
from flows.lineage.export.client import (
    base,
    documentation_job,
    error_message_run,
    execution_parameters_run,
    job_type_job,
    parent_run,
    processing_engine_run,
    source_code_location_job,
    tags_run,
)
from flows.nested import leaves
from schemas.disclosure import is_secret_name, without_secrets
from schemas.manifest import Manifest
from schemas.stage import Stage

JOB_NAMESPACE = "bertloom"
"""Of all jobs, unless $OPENLINEAGE_NAMESPACE names another."""

SCHEMA_ID = "pkg:generic/bertloom?file=schemas/lineage_event.schema.json"
"""`$id` of the schema that every event fits; our own facets point into it."""

_MESSAGE_CHARACTERS = 4000


@attr.define
class RunOfRecipe(base.RunFacet):
    """Which run of which recipe this belongs to."""

    runId: str  # noqa: N815 - names are as OpenLineage writes them
    recipe: str
    label: str | None = None
    flowRunId: str | None = None  # noqa: N815
    gitDirty: bool | None = None  # noqa: N815

    @staticmethod
    def _get_schema() -> str:
        return f"{SCHEMA_ID}#/$defs/bertloom_run"


@functools.cache
def version_of(distribution: str) -> str:
    """Of an installed distribution; `unknown` where it is not installed, as in a bare checkout."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


base.set_producer(f"pkg:generic/bertloom@{version_of('bertloom')}")


# Runs


def parent_facet(run_id: str, recipe: str) -> parent_run.ParentRunFacet:
    """Of a step: the run of the recipe, which has none above it."""
    namespace, name = job_namespace(), job_name(recipe)
    return parent_run.ParentRunFacet(
        run=parent_run.Run(run_id),
        job=parent_run.Job(namespace, name),
        root=parent_run.Root(parent_run.RootRun(run_id), parent_run.RootJob(namespace, name)),
    )


@functools.cache
def engine_facet(
    distribution: str, name: str = ""
) -> processing_engine_run.ProcessingEngineRunFacet:
    """What does the work of a run or a step: a distribution, or `python`."""
    is_python = distribution == "python"
    return processing_engine_run.ProcessingEngineRunFacet(
        version=platform.python_version() if is_python else version_of(distribution),
        name=name or distribution,
        openlineageAdapterVersion=version_of("bertloom"),
    )


def step_engine_facet(
    stage: Stage, *, runner: str
) -> processing_engine_run.ProcessingEngineRunFacet:
    """What does the work of a stage."""
    integration, distribution = _engine(stage)
    return engine_facet(distribution, f"Apache Beam ({runner})" if integration == "BEAM" else "")


def _engine(stage: Stage) -> tuple[str, str]:
    """The integration, as OpenLineage names it, and the distribution."""
    if stage.module.startswith("pipelines."):
        return "BEAM", "apache-beam"
    return ("TORCH", "torch") if "torch" in stage.libraries else ("PYTHON", "python")


def parameters_facet(
    config: Mapping[str, Any],
) -> execution_parameters_run.ExecutionParametersRunFacet:
    """A configuration, flattened to `masking.max_predictions`; credentials cut out."""
    return execution_parameters_run.ExecutionParametersRunFacet(
        parameters=[
            execution_parameters_run.ExecutionParameter(key=key, value=_parameter(key, value))
            for key, value in leaves(config).items()
        ]
    )


def _parameter(key: str, value: Any) -> str:
    if is_secret_name(key):
        return "***"
    text: str = without_secrets(value if isinstance(value, str) else json.dumps(value))
    return text


def error_facet(error: BaseException | str) -> error_message_run.ErrorMessageRunFacet:
    """What went wrong, in words; no stack trace, which would tell of folders and values."""
    text = error if isinstance(error, str) else f"{type(error).__name__}: {error}"
    return error_message_run.ErrorMessageRunFacet(
        message=without_secrets(text)[:_MESSAGE_CHARACTERS], programmingLanguage="python"
    )


def cache_tags(manifest: Manifest, *, was_cached: bool) -> tags_run.TagsRunFacet:
    """Whether a step was a cache hit, and under which key."""
    tags = {"cache": "hit" if was_cached else "miss", "cache_key": manifest.cache_key}
    return tags_run.TagsRunFacet(
        tags=[
            tags_run.TagsRunFacetFields(key=key, value=value, source="BERTLOOM")
            for key, value in tags.items()
        ]
    )


# Jobs


def job_namespace() -> str:
    """Namespace of all jobs."""
    return os.environ.get("OPENLINEAGE_NAMESPACE") or JOB_NAMESPACE


def job_name(recipe: str, label: str = "") -> str:
    """Of a run, or of a step of it."""
    return f"bertloom.{recipe}" + (f".{label}" if label else "")


def recipe_job(recipe: str) -> base.Job:
    """The job that a run of a recipe is a run of."""
    return _job(
        job_name(recipe),
        job_type_job.JobTypeJobFacet("BATCH", "BERTLOOM", "FLOW"),
        description=f"All stages of the recipe {recipe}",
        path="flows",
    )


def step_job(recipe: str, step: Step) -> base.Job:
    """The job that a run of a step is a run of."""
    return _job(
        job_name(recipe, step.label),
        job_type_job.JobTypeJobFacet("BATCH", _engine(step.stage)[0], "STAGE"),
        description=" ".join((step.stage.config.__doc__ or step.stage.name).split()),
        path=f"{step.stage.module.replace('.', '/')}.py",
    )


def _job(name: str, kind: job_type_job.JobTypeJobFacet, *, description: str, path: str) -> base.Job:
    facets: dict[str, base.JobFacet] = {
        "jobType": kind,
        "documentation": documentation_job.DocumentationJobFacet(description, "text/plain"),
    }
    if commit := checkout().commit:
        # The specification wants a URL, and a checkout need not have one: this names the commit.
        facets["sourceCodeLocation"] = source_code_location_job.SourceCodeLocationJobFacet(
            type="git", url=f"swh:1:rev:{commit}", path=path, version=commit
        )
    return base.Job(job_namespace(), name, facets)
