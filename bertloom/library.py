"""The functions behind the names of `bertloom`.

None of them prints, starts an event loop or needs a server, so that they work in a notebook and
within a Prefect flow. The examples are run by the tests, in a folder with the recipe `tiny.yaml`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.dataset as ds

from flows.bert import plan_recipe
from flows.cards.cards import card_of, recorded_cards_config
from flows.export.exporting import Format, export
from flows.lineage import queries
from flows.lineage.names import resolve
from flows.lineage.rows import find_shard
from flows.lineage.tracing import Trace, trace_row
from flows.nested_values import numeric_leaves
from flows.recipes import files
from flows.reproduction.writing import write_reproduction
from flows.run.plan import PlannedStep
from flows.run.stages import get_stage
from flows.running import run_recipe
from flows.store.artifacts import ArtifactStore
from pipelines.io.file_systems import file_system, is_local
from schemas.errors import ArtifactNotFoundError, StoreError
from schemas.manifest import FileEntry, Manifest
from schemas.recipe import Recipe

if TYPE_CHECKING:
    from model.filling import FilledText

_TABLES = ("documents", "tokens", "instances", "examples")
_RESULTS = ("evaluation",)


@dataclass(frozen=True)
class Artifact:
    """What a step made: immutable files, and the manifest that says what they are.

    >>> tokens = open_store("store").artifact("tiny/build-tokens")
    >>> tokens.amount
    '218 tokens'
    >>> tokens.open().to_table(columns=["document_id"]).num_rows
    4
    """

    manifest: Manifest
    """Everything that is known of it."""

    _store: ArtifactStore = field(repr=False)

    @property
    def id(self) -> str:
        """16 hex digits, unique in the store."""
        return self.manifest.artifact_id

    @property
    def stage(self) -> str:
        """Name of the stage that made it."""
        return self.manifest.stage

    @property
    def amount(self) -> str:
        """How much it holds, in a few words."""
        return get_stage(self.stage).amount(self.manifest)

    def open(self) -> ds.Dataset | Path | dict[str, float]:
        """What it holds: a PyArrow dataset of its rows; metrics of an evaluation; else its folder.

        >>> open_store("store").artifact("tiny/build-vocabulary").open().name
        'data'
        """
        holds = get_stage(self.stage).holds
        if holds in _TABLES:
            return self.dataset()
        return self.metrics() if holds in _RESULTS else self.folder()

    def dataset(self, part: str = "") -> ds.Dataset:
        """Rows of its shards.

        >>> open_store("store").artifact("tiny/build-documents").dataset("duplicates").count_rows()
        1

        Args:
            part: "" for the table itself; `held-out` of instances, `duplicates` of documents, or
                a split of examples.

        Raises:
            ArtifactNotFoundError: it has no such rows.
        """
        entries = [entry for entry in self.manifest.files if _is_of(entry, part)]
        if not entries:
            names = ", ".join(entry.path for entry in self.manifest.files)
            raise ArtifactNotFoundError(
                f"{self.stage} {self.id}: expected shards of {part or 'a table'}, found {names}"
            )
        urls = [self._url(entry) for entry in entries]
        fs, _ = file_system(urls[0])
        paths = [file_system(url)[1] for url in urls]
        return ds.dataset(paths, format="ipc", filesystem=None if is_local(urls[0]) else fs)

    def metrics(self) -> dict[str, float]:
        """Its numbers, by dotted names.

        >>> open_store("store").artifact("tiny/build-vocabulary").metrics()
        {'vocab_size': 150}
        """
        return numeric_leaves(self.manifest.statistics)

    def folder(self) -> Path:
        """The folder of its files.

        Raises:
            StoreError: the store is not on this machine.
        """
        url = self._store.url(self.manifest.data)
        if not is_local(url):
            raise StoreError(
                f"{url}: expected a store on this machine, as a path was asked for; copy the "
                "folder, or open its files with fsspec"
            )
        return Path(file_system(url)[1])

    def file(self, name: str) -> Path:
        """One of its files by its logical name.

        >>> open_store("store").artifact("tiny/build-vocabulary").file("vocab.txt").exists()
        True

        Raises:
            ArtifactNotFoundError: it has none of that name.
            StoreError: the store is not on this machine.
        """
        entry = self.manifest.file(name)
        if entry is None:
            names = ", ".join(entry.path for entry in self.manifest.files)
            raise ArtifactNotFoundError(f"{self.stage} {self.id}: no file {name!r} among {names}")
        return self.folder() / entry.object

    def export(self, folder: str | Path, *, form: Format = "hf") -> str:
        """Write it as `datasets.load_dataset(folder)`, transformers and others open it.

        >>> open_store("store").artifact("tiny/build-tokens").export("exported")
        '4 train'

        Args:
            folder: new or empty; a path or an fsspec URL.
            form: `hf`, `parquet` or `arrow-stream` (`flows.export.exporting`).

        Raises:
            UsageError: there is something in the folder, or no such format of it.
            ConfigError: it holds neither rows nor a model.
        """
        said = recorded_cards_config(self.manifest, store=self._store)
        return export(self.manifest, str(folder), store=self._store, form=form, cards=said)

    def card(self) -> str:
        """Its card in Markdown: whose the texts are, what was dropped, figures, how to load it.

        >>> open_store("store").artifact("tiny/build-documents").card().splitlines()[1]
        'pretty_name: Documents of own'

        Raises:
            ConfigError: it holds neither rows nor a model.
        """
        said = recorded_cards_config(self.manifest, store=self._store)
        return card_of(self.manifest, store=self._store, cards=said)

    def trace(self, row: int, *, raw: bool = False) -> Trace:
        """The documents that a row was made from (`trace`)."""
        return Store(self._store).trace(self.id, row, raw=raw)

    def lineage(self, *, direction: queries.Direction = "up") -> queries.Lineage:
        """What it was made from, or what was made from it (`lineage`)."""
        return queries.lineage(self._store, self.id, direction=direction)

    def reproduce(self, folder: str | Path, *, copy_inputs: bool = False) -> Path:
        """Write all that makes it again elsewhere, to be run with `FOLDER/reproduce.sh`.

        >>> folder = open_store("store").artifact("tiny/build-tokens").reproduce("again")
        >>> sorted(path.name for path in folder.iterdir())[:3]
        ['README.md', 'expected.json', 'inputs']

        Args:
            folder: not there yet, or empty.
            copy_inputs: put the raw files into it as well.

        Raises:
            ArtifactNotFoundError: something that it was made from is gone from the store.
            ConfigError: the folder holds something, or no one recipe makes the artifact.
        """
        write_reproduction(self.id, Path(folder), store=self._store, copy_inputs=copy_inputs)
        return Path(folder)

    def _url(self, entry: FileEntry) -> str:
        return self._store.url(f"{self.manifest.data}/{entry.object}")


def _is_of(entry: FileEntry, part: str) -> bool:
    if entry.rows is None or not entry.path.endswith(".arrow"):
        return False
    if not part:
        return "/" not in entry.path
    return entry.path == f"{part}.arrow" or entry.path.startswith(f"__{part}__/")


class Store:
    """A store of artifacts, to look things up in.

    >>> store = open_store("store")
    >>> [artifact.stage for artifact in store.artifacts()]
    ['build-instances', 'build-tokens', 'build-vocabulary', 'build-documents']
    """

    def __init__(self, opened: ArtifactStore) -> None:
        """Use `open_store`."""
        self._store = opened

    def __repr__(self) -> str:
        return f"Store({self.root!r})"

    @property
    def root(self) -> str:
        """Its folder or URL."""
        return self._store.root

    def artifact(self, name: str) -> Artifact:
        """The artifact of a name: `RECIPE/STEP`, an id, a stage (its newest one) or a path.

        Raises:
            ArtifactNotFoundError: nothing is named so, or more than one artifact is.
        """
        return Artifact(resolve(name, store=self._store), self._store)

    def artifacts(self, stage: str | None = None) -> list[Artifact]:
        """All of a stage, or of all stages, the newest first."""
        found = sorted(self._store.pointers(stage), key=lambda item: item.committed, reverse=True)
        return [Artifact(self._store.read_manifest(item.manifest), self._store) for item in found]

    def lineage(
        self, name: str = "", *, direction: queries.Direction | None = None
    ) -> queries.Lineage:
        """As `lineage`."""
        return queries.lineage(self._store, name, direction=direction)

    def trace(self, name: str, row: int, *, raw: bool = False) -> Trace:
        """As `trace`."""
        shard = find_shard(name, open_store=lambda: self._store)
        return trace_row(shard, row, raw=raw)


def open_store(root: str | None = None) -> Store:
    """Open a store that is there.

    >>> open_store("store").artifact("tiny/build-documents").amount
    '5 documents'

    Args:
        root: its folder or URL; None for $BERTLOOM_STORE, or `store` in this folder.

    Raises:
        ArtifactNotFoundError: there is none.
    """
    return Store(ArtifactStore(root or files.default_store(), create=False))


def load_recipe(
    name: str, *, changes: Sequence[str] = (), store: str | None = None, workers: int | None = None
) -> Recipe:
    """Read a recipe.

    >>> recipe = load_recipe("tiny.yaml", changes=["build_instances.length-32.duplicates=2"])
    >>> recipe.build_instances["length-32"].duplicates
    2

    Args:
        name: a YAML file, or the name of a packaged recipe.
        changes: `KEY=VALUE` texts, as of `bertloom run --set`.
        store, workers: in place of what the recipe says.

    Raises:
        ConfigError: there is none, or something in it cannot be used.
    """
    return files.load_recipe(name, changes=changes, store=store, workers=workers)


def plan(
    recipe: Recipe | str, *, rebuild: Sequence[str] = (), until: str = ""
) -> list[PlannedStep]:
    """What a run would do with each step: take an artifact that is there, or build one, and why.

    >>> [(step.label, step.state) for step in plan("tiny.yaml", until="build-tokens")]
    [('build-documents', 'cached'), ('build-vocabulary', 'cached'), ('build-tokens', 'cached')]

    Args:
        recipe: as `load_recipe` gives it, or the name of one.
        rebuild: stages or steps that would be built even if they are there.
        until: a stage or a step: it and what it needs are planned; "" for all.

    Raises:
        InputError: a raw file is missing, or is not what its checksum says.
    """
    loaded = _recipe(recipe)
    store: ArtifactStore | None = None
    with contextlib.suppress(ArtifactNotFoundError):  # nothing is built yet: a plan makes no store
        store = ArtifactStore(loaded.store, create=False)
    return plan_recipe(loaded, store=store, rebuild=rebuild, until=until)


def run(
    recipe: Recipe | str,
    *,
    engine: str = "local",
    rebuild: Sequence[str] = (),
    until: str = "",
    say: Callable[[str], None] | None = None,
) -> dict[str, Artifact]:
    """Build what is not there yet. The artifact of each step, by its label.

    >>> built = run("tiny.yaml")
    >>> built["build-instances.length-32"].open().count_rows() > 0
    True

    Args:
        recipe: as `load_recipe` gives it, or the name of one.
        engine: `local` works in this process; `prefect` runs a Prefect flow, on the server that is
            configured or one that it starts.
        rebuild: stages or steps to build even if they are there; `all`.
        until: a stage or a step: it and what it needs are run; "" for all.
        say: takes a line of text on each step, such as `print`.

    Raises:
        BertloomError: a step failed; those that do not depend on it have run.
    """
    loaded = _recipe(recipe)
    results = run_recipe(
        loaded, log=say or _say_nothing, engine=engine, rebuild=rebuild, until=until
    )
    store = ArtifactStore(loaded.store, create=False)
    return {result.label: Artifact(result.manifest, store) for result in results}


def fill(
    texts: str | Sequence[str], *, model: str = "", store: str | None = None, k: int = 5
) -> list[FilledText]:
    """What a pretrained model puts where texts have `[MASK]`, as `bertloom fill`.

        [found] = bertloom.fill("The capital of [MASK] is", model="mine/pretrain.short")
        found.filled, [piece.token for piece in found.masks[0]]

    Args:
        texts: one, or several that are filled independently; each has a `[MASK]` or more.
        model: an artifact, or a folder or URL in Hugging Face's layout; "" for the newest
            pretraining of the store's last run.
        store: as of `open_store`.
        k: word pieces for each mask, the likeliest first.

    Raises:
        ConfigError: there is no such model.
        CheckpointError: it has no masked LM head.
        PredictionsError: a text has no `[MASK]`, or is too long for the model.
    """
    from flows.cli.models import open_filler  # start-up: 2 s, torch

    filler = open_filler(model, store=store)
    return list(filler.fill([texts] if isinstance(texts, str) else texts, k=k))


def lineage(
    name: str = "", *, store: str | None = None, direction: queries.Direction | None = None
) -> queries.Lineage:
    """What something was made from, back to the raw files, or what was made from it.

    >>> found = lineage("tiny/build-tokens", store="store")
    >>> [node.title for node in found.graph.nodes.values() if node.kind == "file"]
    ['texts.txt']

    Args:
        name: an artifact, a raw file (path, name, sha256) or a metric; "" for the newest run's
            last number.
        store: as of `open_store`.
        direction: `up`, `down` or `both`; None: down for a raw file, up for all else.

    Raises:
        ArtifactNotFoundError: nothing is named so, or more than one thing.
    """
    return open_store(store).lineage(name, direction=direction)


def trace(name: str, row: int, *, store: str | None = None, raw: bool = False) -> Trace:
    """The documents that a row was made from: their text, and their bytes in the raw files.

    >>> found = trace("tiny/build-tokens", 0, store="store").segments["document"]
    >>> found.raw_file.name, found.byte_start
    ('texts.txt', 0)

    Args:
        name: an artifact, or a shard of one; shards of an artifact follow each other.
        row: from 0.
        store: as of `open_store`.
        raw: whether the raw text is read too.

    Raises:
        ArtifactNotFoundError: there is no such row, or an artifact on the way is gone.
    """
    return open_store(store).trace(name, row, raw=raw)


def _recipe(recipe: Recipe | str) -> Recipe:
    return load_recipe(recipe) if isinstance(recipe, str) else recipe


def _say_nothing(line: str) -> None:
    del line
