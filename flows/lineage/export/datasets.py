"""Artifacts and raw files as OpenLineage's datasets.

artifact  namespace: the store's root as a URL; name: RECIPE/LABEL, whatever artifact that is;
          version: digest of its content, so that each step is one dataset with versions
raw file  namespace `file` and its path, or scheme and host of its URL and the path there
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from urllib.parse import quote, urlsplit

from flows.lineage.export.client import Plain, facet, own_facet
from flows.lineage.export.columns import DIRECT, Sources, Table, table_of
from flows.lineage.export.facets import tags
from flows.run.graph import Step
from schemas.manifest import Manifest, RawInput


def store_namespace(root: str) -> str:
    """A store's root as a URL without credentials."""
    if "://" not in root:
        return f"file://{quote(root)}"
    scheme, host, path = _address(root)
    return f"{scheme}://{host}{quote(path)}".rstrip("/")


def _address(url: str) -> tuple[str, str, str]:
    """Scheme, host and path of a URL; neither credentials nor what follows `?` or `#`."""
    parts = urlsplit(url)
    return parts.scheme, parts.netloc.rpartition("@")[2], parts.path


def input_dataset(
    step: Step, name: str, manifest: Manifest, *, namespace: str, recipe: str
) -> Plain:
    """An artifact that a step reads."""
    read = {}
    # What a stage that works piece by piece reads first, it reads to the last row; of other inputs
    # nobody counted what was read.
    if step.stage.keeps_pieces and step.stage.inputs[:1] == (name,):
        read["inputStatistics"] = facet("input_statistics_input_dataset", **_amounts(manifest))
    return {
        "namespace": namespace,
        "name": f"{recipe}/{step.inputs[name]}",
        "facets": _artifact_facets(manifest, namespace=namespace),
        "inputFacets": read,
    }


def output_dataset(
    step: Step, manifest: Manifest, *, namespace: str, recipe: str, was_cached: bool
) -> Plain:
    """The artifact that a step made or found."""
    facets = _artifact_facets(manifest, namespace=namespace, was_cached=was_cached)
    table = _table(manifest)
    if table is not None and table.made_from in step.inputs:
        given = {"namespace": namespace, "name": f"{recipe}/{step.inputs[table.made_from]}"}
        decided = table.decided_by if manifest.config.get("remove_duplicates", True) else {}
        fields = {
            column.name: {"inputFields": _input_fields(column.sources, given=given)}
            for column in table.columns
            if column.sources
        }
        facets["columnLineage"] = facet(
            "column_lineage_dataset", fields=fields, dataset=_input_fields(decided, given=given)
        )
    written = facet("output_statistics_output_dataset", **_amounts(manifest))
    return {
        "namespace": namespace,
        "name": f"{recipe}/{step.label}",
        "facets": facets,
        "outputFacets": {"outputStatistics": written},
    }


def _input_fields(sources: Sources, *, given: Plain) -> list[Plain]:
    found = []
    for column, use in sources.items():
        kind = "DIRECT" if use in DIRECT else "INDIRECT"
        found.append(
            {**given, "field": column, "transformations": [{"type": kind, "subtype": use}]}
        )
    return found


def raw_datasets(raw: Iterable[RawInput]) -> list[Plain]:
    """Files from outside the store that a step read, each once."""
    found = []
    for (namespace, name), item in {_raw_name(item.uri): item for item in raw}.items():
        compared = {"checksum": item.checksum, "believed": item.believed}
        said = {"file": item.name} | {name: told for name, told in compared.items() if told}
        version = facet("dataset_version_dataset", datasetVersion=f"sha256:{item.sha256}")
        read = facet("input_statistics_input_dataset", size=item.size, fileCount=1)
        found.append(
            {
                "namespace": namespace,
                "name": name,
                "facets": {"version": version, "tags": facet("tags_dataset", tags=tags(said))},
                "inputFacets": {"inputStatistics": read},
            }
        )
    return found


def _raw_name(uri: str) -> tuple[str, str]:
    if "://" not in uri:
        return "file", uri
    scheme, host, path = _address(uri)
    if scheme in ("file", "local"):
        return "file", path
    return f"{scheme}://{host}", path.lstrip("/") or "/"


def _artifact_facets(
    manifest: Manifest, *, namespace: str, was_cached: bool | None = None
) -> dict[str, Plain]:
    """What is known of an artifact; `was_cached` where it is the output of a step."""
    layer = namespace.partition(":")[0]
    artifact = {
        "artifactId": manifest.artifact_id,
        "stage": manifest.stage,
        "stageVersion": manifest.stage_version,
        "cacheKey": manifest.cache_key,
        "manifest": manifest.path,
        "madeByRun": manifest.produced_by.run_id,
        "wasCached": was_cached,
    }
    facets = {
        "version": facet("dataset_version_dataset", datasetVersion=manifest.content),
        "dataSource": facet("datasource_dataset", name="bertloom-store", uri=namespace),
        "storage": facet("storage_dataset", storageLayer=layer, fileFormat=_file_format(manifest)),
        "bertloom_artifact": own_facet("bertloom_artifact", artifact),
    }
    if (table := _table(manifest)) is not None:
        fields = [
            {
                "name": column.name,
                "type": column.type,
                "description": column.description,
                "ordinal_position": number,
                "fields": [],
            }
            for number, column in enumerate(table.columns, start=1)
        ]
        facets["schema"] = facet("schema_dataset", fields=fields)
    return facets


def _table(manifest: Manifest) -> Table | None:
    if all(entry.rows is None for entry in manifest.files):
        return None
    size = manifest.statistics.get("vocab_size")
    return table_of(manifest.table, vocab_size=size if isinstance(size, int) else None)


def _file_format(manifest: Manifest) -> str | None:
    """The format that most bytes of an artifact are in."""
    sizes: Counter[str] = Counter()
    for entry in manifest.files:
        name, dot, suffix = entry.path.rpartition(".")
        if name and dot:
            sizes[suffix] += entry.size
    return max(sizes, key=sizes.__getitem__, default=None)


def _amounts(manifest: Manifest) -> dict[str, int | None]:
    """Rows of the artifact's own table, bytes and files."""
    # Documents come with a table of their duplicates, whose rows are no documents.
    own = (entry for entry in manifest.files if not entry.path.endswith("duplicates.arrow"))
    rows = [entry.rows for entry in own if entry.rows is not None]
    return {
        "rowCount": sum(rows) if rows else None,
        "size": manifest.size,
        "fileCount": len(manifest.files),
    }
