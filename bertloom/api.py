"""The public functions and classes of `bertloom`.

They print nothing, start no event loop and need no server, so that they work in notebooks and
within Prefect flows. The examples are run by the tests, in a folder with the recipe `tiny.yaml`.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.dataset as ds

from flows.bert import plan_recipe
from flows.cards.cards import card_of, recorded_cards_config
from flows.export.export import Format
from flows.export.export import export as export_artifact
from flows.export.push import push as push_artifact
from flows.formatting import format_bytes, format_count
from flows.lineage import queries, resolve
from flows.lineage.row_trace import Trace, trace_row
from flows.lineage.shards import find_shard
from flows.nested_values import numeric_leaves
from flows.recipes import loader
from flows.reproduce import Reproduction, reproduce
from flows.run.log_lines import LogLines
from flows.run.machines import JOIN_TIMEOUT, parse_machine_options
from flows.run.plan import PlannedStep
from flows.run.run import find_store
from flows.run.stages import get_stage
from flows.running import flow_parameters, run_recipe
from flows.store.artifact import StoredArtifact
from flows.store.artifacts import ArtifactStore
from pipelines.io.file_systems import file_system, is_local
from schemas.errors import StoreError
from schemas.manifest import FileEntry, Manifest
from schemas.recipe import Recipe
from schemas.redaction import redact

if TYPE_CHECKING:
    from model.filling import FilledText

_TABLES = ("documents", "tokens", "instances", "examples")


@dataclass(frozen=True, repr=False)
class Artifact:
    """Output of a step: immutable files and their manifest.

    >>> tokens = open_store("store").artifact("tiny/build-tokens")
    >>> tokens.summary
    '218 tokens'
    >>> tokens.load().to_table(columns=["document_id"]).num_rows
    4
    """

    manifest: Manifest
    """Files, inputs, configuration, counters and statistics of the artifact."""

    _store: ArtifactStore = field(repr=False)

    def __repr__(self) -> str:
        return f"Artifact({self.stage} {self.id}: {self.summary})"

    def _repr_html_(self) -> str:
        """Return a table for notebooks: what the artifact is, its inputs and its files."""
        inputs = [f"{ref.name}: {ref.stage} {ref.artifact_id}" for ref in self.manifest.inputs]
        size, produced = format_bytes(self.manifest.size_bytes), self.manifest.produced_by
        rows = {
            "artifact": f"{self.stage} {self.id}",
            "content": self.summary,
            "files": f"{format_count(len(self.manifest.files), 'file')}, {size}",
            "inputs": ", ".join(inputs),
            "raw inputs": ", ".join(item.name for item in self.manifest.raw_inputs),
            "built": f"{produced.ended_at} by run {produced.run_id}",
            "store": self._store.root,
        }
        cells = (
            f"<tr><th>{html.escape(name)}</th><td>{html.escape(redact(text))}</td></tr>"
            for name, text in rows.items()
            if text
        )
        return f"<table>{''.join(cells)}</table>"

    @property
    def id(self) -> str:
        """Identifier of 16 hex digits, unique in the store."""
        return self.manifest.artifact_id

    @property
    def stage(self) -> str:
        """Name of the stage that wrote the artifact."""
        return self.manifest.stage

    @property
    def summary(self) -> str:
        """Size of the content in a few words."""
        return get_stage(self.stage).summary(self.manifest)

    def load(self) -> ds.Dataset | Path | dict[str, float]:
        """Return the rows as a PyArrow dataset, an evaluation's metrics, or the path of a folder.

        >>> open_store("store").artifact("tiny/build-vocabulary").load().name
        'data'
        """
        content = get_stage(self.stage).output_type
        if content in _TABLES:
            return self.dataset()
        return self.metrics() if content == "evaluation" else self.path()

    def dataset(self, split: str = "") -> ds.Dataset:
        """Return the rows of the shards.

        >>> open_store("store").artifact("tiny/build-documents").dataset("duplicates").count_rows()
        1

        Args:
            split: "" for the main table, `held-out` of instances, `duplicates` of documents, or a
                split of examples.

        Raises:
            ArtifactNotFoundError: The artifact has no such rows.
            ArtifactCorruptError: A file is not what was written.
        """
        paths = [entry.path for entry in self.manifest.files if _is_in_split(entry, split)]
        return self._files.table(paths)

    def metrics(self) -> dict[str, float]:
        """Return the statistics that are numbers, by dotted name.

        >>> open_store("store").artifact("tiny/build-vocabulary").metrics()
        {'vocab_size': 150}
        """
        return numeric_leaves(self.manifest.statistics)

    def path(self) -> Path:
        """Return the path of the folder with the files.

        Raises:
            StoreError: The store is not on this machine.
            ArtifactCorruptError: A file is not what was written.
        """
        return self._local(self._files.folder())

    def file(self, name: str) -> Path:
        """Return the path of a file by its name in the manifest.

        >>> open_store("store").artifact("tiny/build-vocabulary").file("vocab.txt").exists()
        True

        Raises:
            ArtifactNotFoundError: The artifact has no file with this name.
            StoreError: The store is not on this machine.
            ArtifactCorruptError: The file is not what was written.
        """
        return self._local(self._files.url(name))

    def export(self, folder: str | Path, *, format: Format = "hf") -> str:
        """Write the artifact for `datasets.load_dataset(folder)`, transformers and others.

        >>> open_store("store").artifact("tiny/build-tokens").export("exported")
        '4 train'

        Args:
            folder: New or empty folder: a path or an fsspec URL.
            format: `hf`, `parquet` or `arrow-stream`, see `flows.export.export`.

        Returns:
            Number of rows by split, or the written model.

        Raises:
            UsageError: The folder is not empty, or the artifact has no such format.
            ConfigError: The artifact has no rows and no model.
        """
        cards = recorded_cards_config(self.manifest, store=self._store)
        target = str(folder)
        return export_artifact(self.manifest, target, store=self._store, format=format, cards=cards)

    def push(self, repository: str, *, format: Format = "hf") -> str:
        """Export the artifact to a repository of the Hugging Face Hub, in one commit.

        Args:
            repository: `ORG/NAME`. A missing one is created as a private one. The environment
                variable HF_TOKEN must have a token that may write to it.
            format: As for `export`.

        Returns:
            URL of the commit and what it has, such as `hf://ORG/NAME@COMMIT: 4 train`.

        Raises:
            ConfigError: HF_TOKEN is not set, or the artifact has no rows and no model.
            InputError: The token has no access, or the Hub does not answer.
        """
        cards = recorded_cards_config(self.manifest, store=self._store)
        return push_artifact(
            self.manifest, repository, store=self._store, format=format, cards=cards
        )

    def card(self) -> str:
        """Return the card in Markdown: sources and licenses, dropped records, figures, loading.

        >>> card = open_store("store").artifact("tiny/build-documents").card()
        >>> "pretty_name: Documents of own" in card
        True

        Raises:
            ConfigError: The artifact has no rows and no model.
        """
        cards = recorded_cards_config(self.manifest, store=self._store)
        return card_of(self.manifest, store=self._store, cards=cards)

    def trace(self, row: int, *, raw: bool = False) -> Trace:
        """Return the source documents of a row; see `trace`."""
        return Store(self._store).trace(self.id, row, raw=raw)

    def lineage(self, *, direction: queries.Direction = "upstream") -> queries.Lineage:
        """Return the upstream or downstream artifacts and files; see `lineage`."""
        return queries.lineage(self._store, self.id, direction=direction)

    def reproduce(
        self,
        into: str | Path,
        *,
        overrides: Sequence[str] = (),
        workers: int | None = None,
        log: Callable[[str], None] | None = None,
    ) -> Reproduction:
        """Build the artifact again in another store, and compare the content of every step.

        >>> open_store("store").artifact("tiny/build-documents").reproduce("again").is_equal
        True

        Args:
            into: Folder or URL of the other store.
            overrides: `KEY=VALUE` texts, for example new paths of raw files.
            workers: Replaces that of the recipe.
            log: Function that takes one line of text per step, such as `print`.

        Raises:
            ArtifactNotFoundError: A record of the artifact's run is not in the store.
            InputError: A raw file is missing or changed.
            BertloomError: A step failed.
        """
        listeners = [LogLines(log or _discard)]
        return reproduce(
            self.id, store=self._store, into=str(into), overrides=overrides, workers=workers,
            listeners=listeners,
        )  # fmt: skip

    @property
    def _files(self) -> StoredArtifact:
        return self._store.artifact(self.manifest)

    def _local(self, url: str) -> Path:
        if not is_local(url):
            message = "expected a store on this machine. Copy the folder, or read it with fsspec"
            raise StoreError(f"{url}: {message}")
        return Path(file_system(url)[1])


def _is_in_split(entry: FileEntry, split: str) -> bool:
    if entry.rows is None or not entry.path.endswith(".arrow"):
        return False
    if not split:
        return "/" not in entry.path
    return entry.path == f"{split}.arrow" or entry.path.startswith(f"__{split}__/")


class Store:
    """An artifact store; see `open_store`.

    >>> store = open_store("store")
    >>> [artifact.stage for artifact in store.artifacts()]
    ['build-instances', 'build-tokens', 'build-vocabulary', 'build-documents']
    """

    def __init__(self, store: ArtifactStore) -> None:
        self._store = store

    def __repr__(self) -> str:
        return f"Store({self.root!r})"

    @property
    def root(self) -> str:
        """Folder or URL of the store."""
        return self._store.root

    def artifact(self, name: str) -> Artifact:
        """Return the artifact with a name: `RECIPE/STEP`, an id, a path, or a stage for its newest.

        Raises:
            ArtifactNotFoundError: No artifact, or more than one, has the name.
        """
        return Artifact(resolve.resolve(name, store=self._store), self._store)

    def artifacts(self, stage: str | None = None) -> list[Artifact]:
        """Return all artifacts, or those of a stage, newest first."""
        return [
            Artifact(self._store.read_manifest(pointer.manifest), self._store)
            for pointer in self._store.pointers(stage)
        ]

    def lineage(
        self, name: str = "", *, direction: queries.Direction | None = None
    ) -> queries.Lineage:
        """Return the lineage of a name; see the function `lineage`."""
        return queries.lineage(self._store, name, direction=direction)

    def trace(self, name: str, row: int, *, raw: bool = False) -> Trace:
        """Return the source documents of a row; see the function `trace`."""
        shard = find_shard(name, open_store=lambda: self._store)
        return trace_row(shard, row, raw=raw)


def open_store(root: str | None = None) -> Store:
    """Open an existing store.

    >>> open_store("store").artifact("tiny/build-documents").summary
    '5 documents'

    Args:
        root: Folder or URL. None: $BERTLOOM_STORE, or `store` in the working directory.

    Raises:
        ArtifactNotFoundError: The store does not exist.
    """
    return Store(resolve.open_store(root))


def load_recipe(
    name: str,
    *,
    overrides: Sequence[str] = (),
    store: str | None = None,
    workers: int | None = None,
) -> Recipe:
    """Load a recipe.

    >>> recipe = load_recipe("tiny.yaml", overrides=["build_instances.length-32.dupe_factor=2"])
    >>> recipe.build_instances["length-32"].dupe_factor
    2

    Args:
        name: YAML file, or name of a packaged recipe.
        overrides: `KEY=VALUE` texts, as for `bertloom run --set`.
        store, workers: Replace those of the recipe.

    Raises:
        ConfigError: The recipe does not exist or is not valid.
    """
    return loader.load_recipe(name, overrides=overrides, store=store, workers=workers)


def plan(
    recipe: Recipe | str, *, rebuild: Sequence[str] = (), until: str = ""
) -> list[PlannedStep]:
    """Return the steps of a recipe, each with its state, cached or to build, and the reason.

    >>> [(step.label, step.state) for step in plan("tiny.yaml", until="build-tokens")]
    [('build-documents', 'cached'), ('build-vocabulary', 'cached'), ('build-tokens', 'cached')]

    Args:
        recipe: Recipe, or name for `load_recipe`.
        rebuild: Stages or steps to build even if they are cached.
        until: Stage or step to plan, with all upstream steps. "": all.

    Raises:
        InputError: A raw file is missing or does not match its checksum.
    """
    loaded = _load(recipe)
    return plan_recipe(loaded, store=find_store(loaded.store), rebuild=rebuild, until=until)


def run(
    recipe: Recipe | str,
    *,
    engine: str = "local",
    rebuild: Sequence[str] = (),
    until: str = "",
    log: Callable[[str], None] | None = None,
    nnodes: int | None = None,
    node_rank: int | None = None,
    rdzv_endpoint: str | None = None,
    join_timeout: float = JOIN_TIMEOUT,
) -> dict[str, Artifact]:
    """Run the steps that are not cached; return the artifact of each step by label.

    >>> built = run("tiny.yaml")
    >>> built["build-instances.length-32"].load().count_rows() > 0
    True

    Args:
        recipe: Recipe, or name for `load_recipe`.
        engine: `local` runs in this process. `prefect` runs a Prefect flow, on the configured
            server or a temporary one. `auto` takes `prefect` where PREFECT_API_URL or the active
            profile of Prefect names a server, and else `local`.
        rebuild: Stages or steps to build even if they are cached; `all`.
        until: Stage or step to run, with all upstream steps. "": all.
        log: Function that takes one line of text per step, such as `print`.
        nnodes: Number of machines that train; call this on each. None: this machine alone.
        node_rank: Rank of this machine. The one with rank 0 runs the recipe. None: $SLURM_NODEID or
            $GROUP_RANK.
        rdzv_endpoint: HOST:PORT, on the machine with rank 0.
        join_timeout: Seconds to wait for a machine that is missing.

    Raises:
        BertloomError: A step failed. Steps that do not depend on it have run.
        MachinesError: A machine did not come.
    """
    machines = parse_machine_options(nnodes, node_rank, rdzv_endpoint, join_timeout)
    loaded = _load(recipe)
    results = run_recipe(
        loaded,
        log=log or _discard,
        engine=engine,
        parameters=flow_parameters(recipe) if isinstance(recipe, str) else None,
        rebuild=rebuild,
        until=until,
        machines=machines,
    )
    store = ArtifactStore(loaded.store, create=False)
    return {result.label: Artifact(result.manifest, store) for result in results}


def fill(
    texts: str | Sequence[str], *, model: str = "", store: str | None = None, top_k: int = 5
) -> list[FilledText]:
    """Predict the masked tokens of texts, as `bertloom fill` does.

        [result] = bertloom.fill("The [MASK] was cold.", model="mine/pretrain.short")
        result.filled, [piece.token for piece in result.masks[0]]

    Args:
        texts: One text or several independent ones, each with at least one `[MASK]`.
        model: Artifact, or folder or URL in Hugging Face format. "": best pretraining of the
            newest run with one.
        store: Store as for `open_store`.
        top_k: Number of predictions for each mask, most probable first.

    Raises:
        ConfigError: The model does not exist.
        CheckpointError: The model has no masked LM head.
        PredictionsError: A text has no `[MASK]`, or is too long for the model.
    """
    from flows.model_loading import open_filler  # loads torch

    filler = open_filler(model, store=store)
    return list(filler.fill([texts] if isinstance(texts, str) else texts, k=top_k))


def lineage(
    name: str | Artifact = "",
    *,
    store: str | None = None,
    direction: queries.Direction | None = None,
) -> queries.Lineage:
    """Return what a result was made from, back to the raw files, or what was made from it.

    >>> result = lineage("tiny/build-tokens", store="store")
    >>> [node.title for node in result.graph.nodes.values() if node.kind == "file"]
    ['texts.txt']

    Args:
        name: Artifact, raw file (path, name or sha256) or metric. "": last metric of the newest
            run.
        store: Store as for `open_store`; an `Artifact` has its own.
        direction: `upstream`, `downstream` or `both`. None: downstream for a raw file, upstream
            for other names.

    Raises:
        ArtifactNotFoundError: Nothing, or more than one result, has the name.
    """
    if isinstance(name, Artifact):
        return name.lineage(direction=direction or "upstream")
    return open_store(store).lineage(name, direction=direction)


def trace(name: str | Artifact, row: int, *, store: str | None = None, raw: bool = False) -> Trace:
    """Return the source documents of a row: their text, and their bytes in the raw files.

    >>> document = trace("tiny/build-tokens", 0, store="store").segments["document"]
    >>> document.raw_file.name, document.byte_start
    ('texts.txt', 0)

    Args:
        name: Artifact, or one of its shards.
        row: Row number from 0. Rows of an artifact are counted across its shards.
        store: Store as for `open_store`; an `Artifact` has its own.
        raw: Read the raw text too.

    Raises:
        ArtifactNotFoundError: The row does not exist, or an upstream artifact is missing.
    """
    if isinstance(name, Artifact):
        return name.trace(row, raw=raw)
    return open_store(store).trace(name, row, raw=raw)


def _load(recipe: Recipe | str) -> Recipe:
    return load_recipe(recipe) if isinstance(recipe, str) else recipe


def _discard(line: str) -> None:
    del line
