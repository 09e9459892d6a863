"""A run and its steps in OpenLineage's terms.

The job of a run is `bertloom.RECIPE`, that of a step `bertloom.RECIPE.LABEL`.
"""

from __future__ import annotations

import functools
import json
import os
import platform
from collections.abc import Mapping
from typing import Any

import attr

from flows.engine.provenance import checkout
from flows.engine.stages import Step
from flows.lineage.export.client import (
    DocumentationJobFacet,
    ErrorMessageRunFacet,
    ExecutionParametersRunFacet,
    JobTypeJobFacet,
    ParentRunFacet,
    Plain,
    ProcessingEngineRunFacet,
    SourceCodeLocationJobFacet,
    TagsRunFacet,
    base,
    plain,
    version_of,
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


# Runs


def parent_facet(run_id: str, recipe: str) -> Plain:
    """Of a step: the run of the recipe, which has none above it."""
    run = {"runId": run_id, "facets": {}}
    above = {"run": run, "job": {"namespace": _namespace(), "name": _name(recipe), "facets": {}}}
    return plain(ParentRunFacet, **above, root=above)


@functools.cache
def engine_facet(distribution: str, name: str = "") -> Plain:
    """What does the work of a run or a step: a distribution, or `python`."""
    is_python = distribution == "python"
    return plain(
        ProcessingEngineRunFacet,
        version=platform.python_version() if is_python else version_of(distribution),
        name=name or distribution,
        openlineageAdapterVersion=version_of("bertloom"),
    )


def step_engine_facet(stage: Stage, *, runner: str) -> Plain:
    """What does the work of a stage."""
    integration, distribution = _engine(stage)
    return engine_facet(distribution, f"Apache Beam ({runner})" if integration == "BEAM" else "")


def _engine(stage: Stage) -> tuple[str, str]:
    """The integration, as OpenLineage names it, and the distribution."""
    if stage.module.startswith("pipelines."):
        return "BEAM", "apache-beam"
    return ("TORCH", "torch") if "torch" in stage.libraries else ("PYTHON", "python")


def parameters_facet(config: Mapping[str, Any]) -> Plain:
    """A configuration, flattened to `masking.max_predictions`; credentials cut out."""
    found = [{"key": key, "value": _shown(key, value)} for key, value in leaves(config).items()]
    return plain(ExecutionParametersRunFacet, parameters=found)


def _shown(key: str, value: Any) -> str:
    if is_secret_name(key):
        return "***"
    text: str = without_secrets(value if isinstance(value, str) else json.dumps(value))
    return text


def error_facet(error: BaseException | str) -> Plain:
    """What went wrong, in words; no stack trace, which would tell of folders and values."""
    text = error if isinstance(error, str) else f"{type(error).__name__}: {error}"
    message = without_secrets(text)[:_MESSAGE_CHARACTERS]
    return plain(ErrorMessageRunFacet, message=message, programmingLanguage="python")


def cache_tags(manifest: Manifest, *, was_cached: bool) -> Plain:
    """Whether a step was a cache hit, and under which key."""
    found = {"cache": "hit" if was_cached else "miss", "cache_key": manifest.cache_key}
    return plain(TagsRunFacet, tags=tags(found))


def tags(found: Mapping[str, str]) -> list[Plain]:
    """Tags of a run or a dataset."""
    return [{"key": key, "value": value, "source": "BERTLOOM"} for key, value in found.items()]


# Jobs


def recipe_job(recipe: str) -> Plain:
    """The job that a run of a recipe is a run of."""
    description = f"All stages of the recipe {recipe}"
    return _job(_name(recipe), "FLOW", integration="BERTLOOM", about=description, path="flows")


def step_job(recipe: str, step: Step) -> Plain:
    """The job that a run of a step is a run of."""
    stage = step.stage
    return _job(
        _name(recipe, step.label),
        "STAGE",
        integration=_engine(stage)[0],
        about=" ".join((stage.config.__doc__ or stage.name).split()),
        path=f"{stage.module.replace('.', '/')}.py",
    )


def _namespace() -> str:
    return os.environ.get("OPENLINEAGE_NAMESPACE") or JOB_NAMESPACE


def _name(recipe: str, label: str = "") -> str:
    return f"bertloom.{recipe}" + (f".{label}" if label else "")


def _job(name: str, kind: str, *, integration: str, about: str, path: str) -> Plain:
    facets = {
        "jobType": plain(
            JobTypeJobFacet, processingType="BATCH", integration=integration, jobType=kind
        ),
        "documentation": plain(DocumentationJobFacet, description=about, contentType="text/plain"),
    }
    if commit := checkout().commit:
        # The specification wants a URL, and a checkout need not have one: this names the commit.
        url = f"swh:1:rev:{commit}"
        facets["sourceCodeLocation"] = plain(
            SourceCodeLocationJobFacet, type="git", url=url, path=path, version=commit
        )
    return {"namespace": _namespace(), "name": name, "facets": facets}
