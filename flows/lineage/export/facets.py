"""Runs, steps and their jobs in OpenLineage's terms.

The job of a run is `bertloom.RECIPE`, that of a step `bertloom.RECIPE.LABEL`.
"""

from __future__ import annotations

import functools
import json
import os
import platform
from collections.abc import Mapping
from typing import Any

from flows.lineage.export.client import Plain, facet, version_of
from flows.nested_values import flatten
from flows.run.graph import Step
from flows.run.provenance import checkout
from schemas.disclosure import is_secret_name, recorded, without_secrets
from schemas.manifest import Manifest
from schemas.stage import Stage

_MESSAGE_CHARACTERS = 4000

# Runs


def parent_facet(run_id: str, recipe: str) -> Plain:
    """The run of the recipe that a step is part of, which has none above it."""
    job = {"namespace": _namespace(), "name": _name(recipe), "facets": {}}
    above = {"run": {"runId": run_id, "facets": {}}, "job": job}
    return facet("parent_run", **above, root=above)


@functools.cache
def engine_facet(distribution: str, name: str = "") -> Plain:
    """What does the work of a run or a step: a distribution, or `python`."""
    is_python = distribution == "python"
    return facet(
        "processing_engine_run",
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
    found = [{"key": key, "value": _shown(key, value)} for key, value in flatten(config).items()]
    return facet("execution_parameters_run", parameters=found)


def _shown(key: str, value: Any) -> str:
    if is_secret_name(key):
        return "***"
    shown = recorded(value)
    return shown if isinstance(shown, str) else json.dumps(shown)


def error_facet(error: BaseException | str) -> Plain:
    """What went wrong, in words; no stack trace, which would tell of folders and values."""
    text = error if isinstance(error, str) else f"{type(error).__name__}: {error}"
    message = without_secrets(text)[:_MESSAGE_CHARACTERS]
    return facet("error_message_run", message=message, programmingLanguage="python")


def cache_tags(manifest: Manifest, *, was_cached: bool) -> Plain:
    """Whether a step was a cache hit, under which key, and what code its workers ran."""
    found = {"cache": "hit" if was_cached else "miss", "cache_key": manifest.cache_key}
    if code := manifest.produced_by.worker_code:
        found["worker_code"] = code
    return facet("tags_run", tags=tags(found))


def tags(found: Mapping[str, str]) -> list[Plain]:
    """Tags of a run or a dataset."""
    return [{"key": key, "value": value, "source": "BERTLOOM"} for key, value in found.items()]


# Jobs


def recipe_job(recipe: str) -> Plain:
    """The job of the runs of a recipe."""
    about = f"All stages of the recipe {recipe}"
    return _job(_name(recipe), "FLOW", integration="BERTLOOM", about=about, path="flows")


def step_job(recipe: str, step: Step) -> Plain:
    """The job of the runs of a step."""
    stage = step.stage
    about = " ".join((stage.config.__doc__ or stage.name).split())
    path = f"{stage.module.replace('.', '/')}.py"
    name = f"{_name(recipe)}.{step.label}"
    return _job(name, "STAGE", integration=_engine(stage)[0], about=about, path=path)


def _namespace() -> str:
    return os.environ.get("OPENLINEAGE_NAMESPACE") or "bertloom"


def _name(recipe: str) -> str:
    return f"bertloom.{recipe}"


def _job(name: str, kind: str, *, integration: str, about: str, path: str) -> Plain:
    job_type = {"processingType": "BATCH", "integration": integration, "jobType": kind}
    facets = {
        "jobType": facet("job_type_job", **job_type),
        "documentation": facet("documentation_job", description=about, contentType="text/plain"),
    }
    if commit := checkout().commit:
        # The specification wants a URL, and a checkout need not have one: this names the commit.
        code = {"type": "git", "url": f"swh:1:rev:{commit}", "path": path, "version": commit}
        facets["sourceCodeLocation"] = facet("source_code_location_job", **code)
    return {"namespace": _namespace(), "name": name, "facets": facets}
