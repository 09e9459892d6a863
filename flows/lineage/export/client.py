"""The classes of OpenLineage's client, without the transports that it loads beside them.

`import openlineage.client` loads two HTTP libraries, an asynchronous transport and the facets of an
older interface: 0.5 s of processor time, the classes and their serialisation 0.05. A run that finds
everything in the store writes its events too, and is to take a second or two in all.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager

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
    from openlineage.client.generated import (
        base,
        column_lineage_dataset,
        dataset_version_dataset,
        datasource_dataset,
        documentation_job,
        error_message_run,
        execution_parameters_run,
        input_statistics_input_dataset,
        job_type_job,
        output_statistics_output_dataset,
        parent_run,
        processing_engine_run,
        schema_dataset,
        source_code_location_job,
        storage_dataset,
        tags_dataset,
        tags_run,
    )
    from openlineage.client.serde import Serde
    from openlineage.client.uuid import generate_new_uuid, generate_static_uuid

__all__ = [
    "Serde",
    "base",
    "column_lineage_dataset",
    "dataset_version_dataset",
    "datasource_dataset",
    "documentation_job",
    "error_message_run",
    "execution_parameters_run",
    "generate_new_uuid",
    "generate_static_uuid",
    "input_statistics_input_dataset",
    "job_type_job",
    "output_statistics_output_dataset",
    "parent_run",
    "processing_engine_run",
    "schema_dataset",
    "source_code_location_job",
    "storage_dataset",
    "tags_dataset",
    "tags_run",
]
