"""Artifacts and raw files as OpenLineage's datasets.

artifact  namespace: the store's root as a URL; name: RECIPE/LABEL, whatever artifact that is;
          version: digest of its content, so that each step is one dataset with versions
raw file  namespace `file` and its path, or scheme and host of its URL and the path there
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from urllib.parse import quote, urlsplit

import attr

from flows.engine.stages import Step
from flows.lineage.export.client import (
    base,
    column_lineage_dataset,
    dataset_version_dataset,
    datasource_dataset,
    input_statistics_input_dataset,
    output_statistics_output_dataset,
    schema_dataset,
    storage_dataset,
    tags_dataset,
)
from flows.lineage.export.columns import DIRECT, Source, Table, table_of
from flows.lineage.export.facets import SCHEMA_ID
from schemas.manifest import Manifest, RawInput


@attr.define
class ArtifactFacet(base.DatasetFacet):
    """The artifact that a dataset is at that moment."""

    artifactId: str  # noqa: N815 - names are as OpenLineage writes them
    stage: str
    stageVersion: int  # noqa: N815
    cacheKey: str  # noqa: N815
    manifest: str
    madeByRun: str  # noqa: N815
    wasCached: bool | None = None  # noqa: N815

    @staticmethod
    def _get_schema() -> str:
        return f"{SCHEMA_ID}#/$defs/bertloom_artifact"


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
) -> base.InputDataset:
    """An artifact that a step reads."""
    read: dict[str, base.InputDatasetFacet] = {}
    # What a stage that works piece by piece reads first, it reads to the last row; of other inputs
    # nobody counted what was read.
    if step.stage.keeps_pieces and step.stage.inputs[:1] == (name,):
        rows, size, count = _amounts(manifest)
        read["inputStatistics"] = input_statistics_input_dataset.InputStatisticsInputDatasetFacet(
            rowCount=rows, size=size, fileCount=count
        )
    facets = _artifact_facets(manifest, namespace=namespace)
    return base.InputDataset(namespace, f"{recipe}/{step.inputs[name]}", read, facets=facets)


def output_dataset(
    step: Step, manifest: Manifest, *, namespace: str, recipe: str, was_cached: bool
) -> base.OutputDataset:
    """The artifact that a step made or found."""
    rows, size, count = _amounts(manifest)
    facets = _artifact_facets(manifest, namespace=namespace, was_cached=was_cached)
    table = _table(manifest)
    if table is not None and table.made_from in step.inputs:
        made_from = f"{recipe}/{step.inputs[table.made_from]}"
        decided = table.decided_by if manifest.config.get("remove_duplicates", True) else ()
        facets["columnLineage"] = column_lineage_dataset.ColumnLineageDatasetFacet(
            fields={
                column.name: column_lineage_dataset.Fields(
                    _input_fields(column.sources, namespace=namespace, dataset=made_from)
                )
                for column in table.columns
                if column.sources
            },
            dataset=_input_fields(decided, namespace=namespace, dataset=made_from),
        )
    written: dict[str, base.OutputDatasetFacet] = {
        "outputStatistics": output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(
            rowCount=rows, size=size, fileCount=count
        )
    }
    return base.OutputDataset(namespace, f"{recipe}/{step.label}", written, facets=facets)


def _input_fields(
    sources: Sequence[Source], *, namespace: str, dataset: str
) -> list[column_lineage_dataset.InputField]:
    return [
        column_lineage_dataset.InputField(
            namespace,
            dataset,
            source.column,
            [
                column_lineage_dataset.Transformation(
                    "DIRECT" if source.kind in DIRECT else "INDIRECT", source.kind
                )
            ],
        )
        for source in sources
    ]


def raw_datasets(raw: Sequence[RawInput]) -> list[base.InputDataset]:
    """Files from outside the store that a step read, each once."""
    found: dict[tuple[str, str], base.InputDataset] = {}
    for item in raw:
        namespace, name = _raw_name(item.uri)
        tags = {"file": item.name, **({"checksum": item.checksum} if item.checksum else {})}
        facets: dict[str, base.DatasetFacet] = {
            "version": dataset_version_dataset.DatasetVersionDatasetFacet(f"sha256:{item.sha256}"),
            "tags": tags_dataset.TagsDatasetFacet(
                tags=[
                    tags_dataset.TagsDatasetFacetFields(key=key, value=value, source="BERTLOOM")
                    for key, value in tags.items()
                ]
            ),
        }
        read: dict[str, base.InputDatasetFacet] = {
            "inputStatistics": input_statistics_input_dataset.InputStatisticsInputDatasetFacet(
                size=item.size, fileCount=1
            )
        }
        found[namespace, name] = base.InputDataset(namespace, name, read, facets=facets)
    return list(found.values())


def _raw_name(uri: str) -> tuple[str, str]:
    if "://" not in uri:
        return "file", uri
    scheme, host, path = _address(uri)
    if scheme in ("file", "local"):
        return "file", path
    return f"{scheme}://{host}", path.lstrip("/") or "/"


def _artifact_facets(
    manifest: Manifest, *, namespace: str, was_cached: bool | None = None
) -> dict[str, base.DatasetFacet]:
    """What is known of an artifact; `was_cached` where it is the output of a step."""
    facets: dict[str, base.DatasetFacet] = {
        "version": dataset_version_dataset.DatasetVersionDatasetFacet(manifest.content),
        "dataSource": datasource_dataset.DatasourceDatasetFacet("bertloom-store", namespace),
        "storage": storage_dataset.StorageDatasetFacet(
            storageLayer=namespace.partition(":")[0], fileFormat=_file_format(manifest)
        ),
        "bertloom_artifact": ArtifactFacet(
            artifactId=manifest.artifact_id,
            stage=manifest.stage,
            stageVersion=manifest.stage_version,
            cacheKey=manifest.cache_key,
            manifest=manifest.path,
            madeByRun=manifest.produced_by.run_id,
            wasCached=was_cached,
        ),
    }
    if (table := _table(manifest)) is not None:
        facets["schema"] = schema_dataset.SchemaDatasetFacet(
            fields=[
                schema_dataset.SchemaDatasetFacetFields(
                    name=column.name,
                    type=column.type,
                    description=column.description,
                    ordinal_position=number,
                )
                for number, column in enumerate(table.columns, start=1)
            ]
        )
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


def _amounts(manifest: Manifest) -> tuple[int | None, int, int]:
    """Rows of the artifact's own table, bytes and files."""
    # Documents come with a table of their duplicates, whose rows are no documents.
    rows = [
        entry.rows
        for entry in manifest.files
        if entry.rows is not None and not entry.path.endswith("duplicates.arrow")
    ]
    return (sum(rows) if rows else None), manifest.size, len(manifest.files)
