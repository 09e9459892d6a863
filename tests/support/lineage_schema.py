"""OpenLineage's published JSON Schemas: the core, and one for each facet."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from jsonschema import Draft202012Validator, FormatChecker
from referencing import Registry, Resource

CORE = "https://openlineage.io/spec/2-0-2/OpenLineage.json"
FORMATS = FormatChecker()


@FORMATS.checks("uri", raises=ValueError)
def is_uri(value: object) -> bool:
    """Return whether a value is an absolute URI."""
    if not isinstance(value, str):
        return True
    return bool(urlsplit(value).scheme) and not set(value) & set(' <>"{}|\\^`\n')


def all_facets(event: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every facet of an event with its name."""
    for owner in (event["run"], event["job"], *event["inputs"], *event["outputs"]):
        for key in ("facets", "inputFacets", "outputFacets"):
            yield from owner.get(key, {}).items()


class LineageSchemas:
    """Validates events against the schemas in a folder."""

    def __init__(self, folder: Path) -> None:
        paths = [folder / "OpenLineage.json", *sorted((folder / "facets").glob("*.json"))]
        self._schemas = {s["$id"]: s for s in (json.loads(path.read_text()) for path in paths)}
        self._registry: Registry[Any] = Registry().with_resources(
            (name, Resource.from_contents(schema)) for name, schema in self._schemas.items()
        )

    def errors(self, event: Mapping[str, Any]) -> list[str]:
        """Return the errors of an event and of its facets."""
        errors = self._validate(CORE, event)
        for name, facet in all_facets(event):
            schema, _, pointer = facet["_schemaURL"].partition("#")
            reference = self._schemas.get(schema, {}).get("properties", {}).get(name, {})
            if reference.get("$ref") != f"#{pointer}":
                errors.append(f"{name}: {facet['_schemaURL']} is not its schema")
            else:
                errors += [f"{name}: {text}" for text in self._validate(schema, {name: facet})]
        return errors

    def _validate(self, schema: str, value: Any) -> list[str]:
        validator = Draft202012Validator(
            {"$ref": schema}, registry=self._registry, format_checker=FORMATS
        )
        return [error.message for error in validator.iter_errors(value)]
