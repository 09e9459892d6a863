"""A run and its steps in OpenLineage's terms, built with its client's classes.

Imported within `openlineage_classes.without_transports`, and only by what writes events. The job of
a run is `bertloom.RECIPE`, that of a step `bertloom.RECIPE.LABEL`.
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
from openlineage.client.generated import (
    base,
    documentation_job,
    error_message_run,
    execution_parameters_run,
    job_type_job,
    nominal_time_run,
    parent_run,
    processing_engine_run,
    source_code_location_job,
    tags_run,
)

from flows.engine.provenance import checkout
from flows.engine.stages import Step
from schemas.disclosure import is_secret_name, without_secrets
from schemas.manifest import Manifest
from schemas.stage import Stage

JOB_NAMESPACE = "bertloom"
"""Of all jobs, unless $OPENLINEAGE_NAMESPACE names another."""

SCHEMA_ID = "pkg:generic/bertloom?file=schemas/lineage_event.schema.json"
"""`$id` of the schema that every event fits; our own facets point into it."""

_WITH_TORCH = frozenset({"pretrain", "finetune", "evaluate"})

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


def engine_facet(stage: Stage, runner: str) -> processing_engine_run.ProcessingEngineRunFacet:
    """What does the work of a stage."""
    integration, distribution = _engine(stage)
    name = f"Apache Beam ({runner})" if integration == "BEAM" else distribution
    return _engine_facet(name, distribution)


def flow_engine_facet(*, is_prefect: bool) -> processing_engine_run.ProcessingEngineRunFacet:
    """What runs the stages."""
    name = "prefect" if is_prefect else "bertloom"
    return _engine_facet(name, name)


@functools.cache
def _engine_facet(name: str, distribution: str) -> processing_engine_run.ProcessingEngineRunFacet:
    python = distribution == "python"
    return processing_engine_run.ProcessingEngineRunFacet(
        version=platform.python_version() if python else version_of(distribution),
        name=name,
        openlineageAdapterVersion=version_of("bertloom"),
    )


def _engine(stage: Stage) -> tuple[str, str]:
    if stage.module.startswith("pipelines."):
        return "BEAM", "apache-beam"
    return ("TORCH", "torch") if stage.name in _WITH_TORCH else ("PYTHON", "python")


def parameters_facet(
    config: Mapping[str, Any],
) -> execution_parameters_run.ExecutionParametersRunFacet:
    """A configuration, flattened to `masking.max_predictions`; credentials cut out."""
    return execution_parameters_run.ExecutionParametersRunFacet(
        parameters=[
            execution_parameters_run.ExecutionParameter(key=key, value=value)
            for key, value in _flat(config)
        ]
    )


def _flat(value: Any, key: str = "") -> list[tuple[str, str]]:
    named: list[tuple[str, Any]] = []
    if isinstance(value, dict):
        named = [(f"{key}.{name}" if key else str(name), item) for name, item in value.items()]
    elif isinstance(value, (list, tuple)) and any(isinstance(item, (dict, list)) for item in value):
        named = [(f"{key}.{number}", item) for number, item in enumerate(value)]
    else:
        text = value if isinstance(value, str) else json.dumps(value)
        return [(key, "***" if is_secret_name(key) else without_secrets(text))]
    return [pair for name, item in named for pair in _flat(item, name)]


def nominal_facet(start: str) -> nominal_time_run.NominalTimeRunFacet:
    """The time that a schedule gave, ISO 8601."""
    return nominal_time_run.NominalTimeRunFacet(nominalStartTime=start)


def error_facet(error: BaseException | str) -> error_message_run.ErrorMessageRunFacet:
    """What went wrong, in words; no stack trace, which would tell of folders and values."""
    text = error if isinstance(error, str) else f"{type(error).__name__}: {error}"
    return error_message_run.ErrorMessageRunFacet(
        message=without_secrets(text)[:_MESSAGE_CHARACTERS], programmingLanguage="python"
    )


def cache_tags(manifest: Manifest, *, was_cached: bool) -> tags_run.TagsRunFacet:
    """Whether a step was found, and under which key."""
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
    return base.Job(
        job_namespace(),
        job_name(recipe),
        {
            "jobType": job_type_job.JobTypeJobFacet("BATCH", "BERTLOOM", "FLOW"),
            "documentation": documentation_job.DocumentationJobFacet(
                f"All stages of the recipe {recipe}", "text/plain"
            ),
            **_source_code("flows"),
        },
    )


def step_job(recipe: str, step: Step) -> base.Job:
    """The job that a run of a step is a run of."""
    described = " ".join((step.stage.config.__doc__ or step.stage.name).split())
    return base.Job(
        job_namespace(),
        job_name(recipe, step.label),
        {
            "jobType": job_type_job.JobTypeJobFacet("BATCH", _engine(step.stage)[0], "STAGE"),
            "documentation": documentation_job.DocumentationJobFacet(described, "text/plain"),
            **_source_code(f"{step.stage.module.replace('.', '/')}.py"),
        },
    )


def _source_code(path: str) -> dict[str, base.JobFacet]:
    commit = checkout().commit
    if not commit:
        return {}
    # The specification wants a URL, and a checkout need not have one: this names the commit itself.
    return {
        "sourceCodeLocation": source_code_location_job.SourceCodeLocationJobFacet(
            type="git", url=f"swh:1:rev:{commit}", path=path, version=commit
        )
    }
