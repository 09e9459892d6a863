"""The classes of OpenLineage's client, without the transports that it loads beside them.

`import openlineage.client` loads two HTTP libraries, an asynchronous transport and the facets of an
older interface: 0.5 s of processor time, the classes and their serialisation 0.05. A run that finds
everything in the store writes its events too, and is to take a second or two in all.
"""

from __future__ import annotations

import functools
import importlib.metadata
import importlib.util
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

_PACKAGE = "openlineage.client"


@contextmanager
def _without_transports() -> Iterator[None]:
    """Import modules of the client without running its `__init__`.

    Afterwards the import system is as it was: whoever imports the client later gets all of it.
    """
    spec = importlib.util.find_spec(_PACKAGE) if _PACKAGE not in sys.modules else None
    if spec is None:  # it is loaded already, or not installed: then the import says so
        yield
        return
    parent = sys.modules["openlineage"]
    sys.modules[_PACKAGE] = importlib.util.module_from_spec(spec)
    try:
        yield
    finally:
        for name in [name for name in sys.modules if f"{name}.".startswith(f"{_PACKAGE}.")]:
            del sys.modules[name]
        if hasattr(parent, "client"):
            del parent.client


with _without_transports():
    from openlineage.client.generated import base
    from openlineage.client.generated.column_lineage_dataset import ColumnLineageDatasetFacet
    from openlineage.client.generated.dataset_version_dataset import DatasetVersionDatasetFacet
    from openlineage.client.generated.datasource_dataset import DatasourceDatasetFacet
    from openlineage.client.generated.documentation_job import DocumentationJobFacet
    from openlineage.client.generated.error_message_run import ErrorMessageRunFacet
    from openlineage.client.generated.execution_parameters_run import ExecutionParametersRunFacet
    from openlineage.client.generated.input_statistics_input_dataset import (
        InputStatisticsInputDatasetFacet,
    )
    from openlineage.client.generated.job_type_job import JobTypeJobFacet
    from openlineage.client.generated.output_statistics_output_dataset import (
        OutputStatisticsOutputDatasetFacet,
    )
    from openlineage.client.generated.parent_run import ParentRunFacet
    from openlineage.client.generated.processing_engine_run import ProcessingEngineRunFacet
    from openlineage.client.generated.schema_dataset import SchemaDatasetFacet
    from openlineage.client.generated.source_code_location_job import SourceCodeLocationJobFacet
    from openlineage.client.generated.storage_dataset import StorageDatasetFacet
    from openlineage.client.generated.tags_dataset import TagsDatasetFacet
    from openlineage.client.generated.tags_run import TagsRunFacet
    from openlineage.client.serde import Serde
    from openlineage.client.uuid import generate_new_uuid, generate_static_uuid

__all__ = [
    "ColumnLineageDatasetFacet",
    "DatasetVersionDatasetFacet",
    "DatasourceDatasetFacet",
    "DocumentationJobFacet",
    "ErrorMessageRunFacet",
    "ExecutionParametersRunFacet",
    "InputStatisticsInputDatasetFacet",
    "JobTypeJobFacet",
    "OutputStatisticsOutputDatasetFacet",
    "ParentRunFacet",
    "Plain",
    "ProcessingEngineRunFacet",
    "SchemaDatasetFacet",
    "SourceCodeLocationJobFacet",
    "StorageDatasetFacet",
    "TagsDatasetFacet",
    "TagsRunFacet",
    "base",
    "generate_new_uuid",
    "generate_static_uuid",
    "plain",
    "version_of",
]

Plain = dict[str, Any]
"""Something of OpenLineage's as it is written."""


@functools.cache
def version_of(distribution: str) -> str:
    """Of an installed distribution; `unknown` where it is not installed, as in a bare checkout."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


base.set_producer(f"pkg:generic/bertloom@{version_of('bertloom')}")


def plain(kind: Callable[..., Any], **fields: Any) -> Plain:
    """An object of the client as it is written; its class adds the producer and the schema.

    >>> plain(base.Run, runId="1", facets=None)
    {'runId': '1'}
    """
    found: Plain = Serde.to_dict(kind(**fields))
    return found
