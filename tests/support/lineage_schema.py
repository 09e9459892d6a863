"""Lineage events held against JSON Schemas: OpenLineage's published ones, and our own stricter."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from jsonschema import Draft202012Validator, FormatChecker
from referencing import Registry, Resource
from support.paths import ROOT

from flows.bert import recipe_steps
from schemas.manifest import Manifest
from schemas.recipe import Recipe

OURS = ROOT / "schemas" / "lineage_event.schema.json"
CORE = "https://openlineage.io/spec/2-0-2/OpenLineage.json"

FORMATS = FormatChecker()


@FORMATS.checks("uri", raises=ValueError)
def is_uri(value: object) -> bool:
    """Absolute, and without the characters that no URI has."""
    if not isinstance(value, str):
        return True
    return bool(urlsplit(value).scheme) and not set(value) & set(' <>"{}|\\^`\n')


def all_facets(event: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every facet of an event with the name it has there."""
    for owner in (event["run"], event["job"]):
        yield from owner.get("facets", {}).items()
    for side, extra in (("inputs", "inputFacets"), ("outputs", "outputFacets")):
        for dataset in event.get(side, ()):
            yield from dataset.get("facets", {}).items()
            yield from dataset.get(extra, {}).items()


class Published:
    """The published schemas: the core, and one for each facet."""

    def __init__(self, folder: Path) -> None:
        paths = [folder / "OpenLineage.json", *sorted((folder / "facets").glob("*.json"))]
        self.schemas = {
            schema["$id"]: schema for schema in (json.loads(path.read_text()) for path in paths)
        }
        self.registry: Registry[Any] = Registry().with_resources(
            (name, Resource.from_contents(schema)) for name, schema in self.schemas.items()
        )
        self.core = self._validator({"$ref": CORE})

    def _validator(self, schema: Any) -> Draft202012Validator:
        return Draft202012Validator(schema, registry=self.registry, format_checker=FORMATS)

    def faults(self, event: Mapping[str, Any]) -> list[str]:
        """What is wrong with an event; our own facets are left to our own schema."""
        found = [error.message for error in self.core.iter_errors(event)]
        for name, facet in all_facets(event):
            where = str(facet.get("_schemaURL", ""))
            schema, _, pointer = where.partition("#")
            if name.startswith("bertloom_"):
                continue
            if schema not in self.schemas or name not in self.schemas[schema]["properties"]:
                found.append(f"{name}: no facet of that name in {schema!r}")
                continue
            if self.schemas[schema]["properties"][name]["$ref"] != f"#{pointer}":
                found.append(f"{name}: {where} is another facet")
            checker = self._validator({"$ref": schema})
            found += [f"{name}: {error.message}" for error in checker.iter_errors({name: facet})]
        return found


class Ours:
    """The project's own schema."""

    def __init__(self) -> None:
        self.schema = json.loads(OURS.read_text())
        Draft202012Validator.check_schema(self.schema)
        self.whole = Draft202012Validator(self.schema, format_checker=FORMATS)

    def faults(self, event: Mapping[str, Any]) -> list[str]:
        """What is wrong with an event."""
        return [f"{error.json_path}: {error.message}" for error in self.whole.iter_errors(event)]


def check_datasets(
    recipe: Recipe, made: Mapping[str, Manifest], events: Sequence[Mapping[str, Any]]
) -> None:
    """Each artifact is an output once, and an input of every step that reads it."""
    outputs = Counter(
        (dataset["name"], dataset["facets"]["bertloom_artifact"]["artifactId"])
        for event in events
        for dataset in event["outputs"]
    )
    assert outputs == Counter(
        (f"{recipe.name}/{label}", manifest.artifact_id) for label, manifest in made.items()
    )
    told_of = {(event["eventType"], event["job"]["name"]): event for event in events}
    for step in recipe_steps(recipe):
        for kind in ("START", "COMPLETE"):
            event = told_of[kind, f"bertloom.{recipe.name}.{step.label}"]
            read = {
                dataset["name"]: dataset["facets"]["version"]["datasetVersion"]
                for dataset in event["inputs"]
                if "bertloom_artifact" in dataset["facets"]
            }
            assert read == {
                f"{recipe.name}/{label}": made[label].content for label in step.inputs.values()
            }
        raw = {
            dataset["facets"]["version"]["datasetVersion"]
            for dataset in event["inputs"]
            if "bertloom_artifact" not in dataset["facets"]
        }
        assert raw == {f"sha256:{item.sha256}" for item in made[step.label].raw_inputs}
