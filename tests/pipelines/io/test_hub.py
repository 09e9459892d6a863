"""Datasets of the Hugging Face Hub, by a stand-in of its file system in this process."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.counting_fs import CountedFiles

from pipelines.counters import Counters
from pipelines.sources import text
from schemas.corpus_configs import TextSource
from schemas.errors import InputError

_CLASSES = sys.modules["fsspec.registry"]._registry
"""File systems by protocol. `fsspec.registry` in code is a read-only view of it."""

ROWS = [f"sentence number {number} did n't end ." for number in range(50)]


class Hub(CountedFiles):
    """`hf://datasets/...`: files of a folder, with the fields that the Hub gives."""

    protocol = "hf"
    root_marker = ""
    folder = Path()

    def _local(self, path: str) -> str:
        return str(self.folder / self._strip_protocol(path))

    def _entry(self, entry: dict[str, Any]) -> dict[str, Any]:
        name = str(Path(entry["name"]).relative_to(self.folder))
        return {**entry, "name": name, "blob_id": str(entry["mtime"])}

    def ls(self, path: str, detail: bool = True, **options: Any) -> list[Any]:
        entries = [self._entry(entry) for entry in self._disk.ls(self._local(path), True)]
        return entries if detail else [entry["name"] for entry in entries]

    def info(self, path: str, **options: Any) -> dict[str, Any]:
        return self._entry(self._disk.info(self._local(path)))

    def _open(self, path: str, mode: str = "rb", **options: Any) -> Any:
        return super()._open(self._local(path), mode)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A dataset of two Parquet files, as its folder on this machine."""
    monkeypatch.setitem(_CLASSES, "hf", Hub)
    monkeypatch.setattr(Hub, "folder", tmp_path / "hub")
    Hub.bytes_read.clear()
    folder = tmp_path / "hub" / "datasets" / "user" / "bookcorpus" / "plain_text"
    folder.mkdir(parents=True)
    for number in range(2):
        pq.write_table(pa.table({"text": ROWS[number * 25 :][:25]}), folder / f"{number}.parquet")
    (folder / "README.md").write_text("a card")
    yield folder
    Hub.clear_instance_cache()


def read(*paths: str) -> list[Sequence[str]]:
    config = TextSource(name="bc", paths=paths, rows_per_document=10)
    return [
        document.paragraphs
        for split in text.plan(config)
        for _, document in text.read(split, config, Counters().count)
    ]


@pytest.mark.usefixtures("fresh_cache")
@pytest.mark.parametrize(
    "path",
    ["", "/plain_text", "/**/*.parquet", "/plain_text/[01].parquet"],
)
def test_dataset_of_the_hub_is_read_like_a_folder(hub: Path, path: str) -> None:
    documents = read(f"hf://datasets/user/bookcorpus{path}")
    assert [len(document) for document in documents] == [10, 10, 5] * 2
    assert [row for document in documents for row in document] == ROWS


@pytest.mark.usefixtures("fresh_cache")
def test_digest_of_a_file_of_the_hub_is_remembered(hub: Path) -> None:
    config = TextSource(name="bc", paths=("hf://datasets/user/bookcorpus",), rows_per_document=10)
    before = text.plan(config)
    size = (hub / "0.parquet").stat().st_size
    assert Hub.bytes_read["0.parquet"] > size
    Hub.bytes_read.clear()
    assert text.plan(config) == before
    assert Hub.bytes_read["0.parquet"] <= size  # the footer, not the whole file again


def test_missing_package_of_the_hub_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    monkeypatch.delitem(_CLASSES, "hf", raising=False)
    with pytest.raises(InputError, match="huggingface_hub"):
        text.plan(TextSource(name="bc", paths=("hf://datasets/user/bookcorpus",)))
