"""The classes of OpenLineage's client, without the transports that it loads beside them.

`import openlineage.client` loads two HTTP libraries, an asynchronous transport and the facets of an
older interface: 0.5 s of processor time, the classes and their serialisation 0.05. A run that finds
everything in the store writes its events too, and is to take a second or two in all.
"""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
import importlib.util
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

_PACKAGE = "openlineage.client"
_FACETS = (
    "column_lineage_dataset",
    "dataset_version_dataset",
    "datasource_dataset",
    "documentation_job",
    "error_message_run",
    "execution_parameters_run",
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
)
_SCHEMA_ID = "pkg:generic/bertloom?file=schemas/lineage_event.schema.json"
"""`$id` of the schema that every event fits; our own facets point into it."""

Plain = dict[str, Any]
"""Something of OpenLineage's as it is written."""


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


def _facet_class(name: str) -> Any:
    module = importlib.import_module(f"{_PACKAGE}.generated.{name}")
    return getattr(module, f"{name.title().replace('_', '')}Facet")


with _without_transports():
    from openlineage.client.generated import base
    from openlineage.client.serde import Serde
    from openlineage.client.uuid import generate_new_uuid as generate_new_uuid
    from openlineage.client.uuid import generate_static_uuid as generate_static_uuid

    _CLASSES = {name: _facet_class(name) for name in _FACETS}


@functools.cache
def version_of(distribution: str) -> str:
    """The version of an installed distribution; `unknown` in a bare checkout."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


_PRODUCER = f"pkg:generic/bertloom@{version_of('bertloom')}"
base.set_producer(_PRODUCER)


def facet(name: str, /, **fields: Any) -> Plain:
    """A facet as it is written; its class adds the producer and the schema.

    >>> facet("tags_run", tags=[])["_schemaURL"].rpartition("/")[2]
    'TagsRunFacet'
    """
    found: Plain = Serde.to_dict(_CLASSES[name](**fields))
    return found


def own_facet(name: str, fields: Mapping[str, Any]) -> Plain:
    """A facet of ours; fields that are None are left out."""
    about = {"_producer": _PRODUCER, "_schemaURL": f"{_SCHEMA_ID}#/$defs/{name}"}
    return about | {key: value for key, value in fields.items() if value is not None}


def run_event(kind: str, *, time: str, run: Plain, job: Plain) -> Plain:
    """An event of a run, without datasets."""
    event: Any = base.RunEvent  # which takes plain objects as well as its own
    found: Plain = Serde.to_dict(
        event(eventTime=time, eventType=base.EventType(kind), run=run, job=job)
    )
    return found
