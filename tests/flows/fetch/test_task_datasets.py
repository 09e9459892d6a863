"""Labeled datasets: pinned files, untrusted archives, and the layouts that tasks read."""

from __future__ import annotations

import hashlib
import io
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.fake_site import FakeSite

from flows.fetch.http_client import HttpClient
from flows.fetch.task_datasets import fetch_dataset, load_sources
from model.tasks import TASKS
from model.tasks.official_files import find_files
from schemas.errors import ChecksumError, ConfigError, FetchError
from schemas.finetune_configs import ExamplesConfig

pytestmark = pytest.mark.network

FILES = {
    "RTE/train.tsv": b"index\tsentence1\tsentence2\tlabel\n0\ta\tb\tentailment\n",
    "RTE/dev.tsv": b"index\tsentence1\tsentence2\tlabel\n0\tc\td\tnot_entailment\n",
    "RTE/test.tsv": b"index\tsentence1\tsentence2\n0\te\tf\n",
    "RTE/readme.md": b"not requested",
}
UNPACK = {name: name.partition("/")[2] for name in list(FILES)[:3]}


def zip_files(files: dict[str, bytes]) -> bytes:
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as target:
        for name, data in files.items():
            target.writestr(name, data)
    return archive.getvalue()


class Datasets:
    """Datasets of a site, listed in a file for `--sources`."""

    def __init__(self, site: FakeSite, folder: Path) -> None:
        self.site, self.folder, self.log = site, folder, list[str]()
        self.entries: dict[str, Any] = {}

    def add_file(self, name: str, path: str, data: bytes, **fields: Any) -> None:
        entry = {"title": name, "benchmark": "glue", "folder": name, "license": "", "homepage": ""}
        self.site.files[path] = data
        sha256 = hashlib.sha256(data).hexdigest()
        file = {"url": self.site.url + path, "size": len(data), "sha256": sha256} | fields
        self.entries.setdefault(name, {**entry, "files": []})["files"].append(file)

    def add_archive(self, data: bytes, unpack: dict[str, str] = UNPACK) -> None:
        self.entries.clear()
        self.add_file("rte", "/RTE.zip", data, unpack=unpack)

    def write(self) -> str:
        path = self.folder / "sources.yaml"
        path.write_text(yaml.safe_dump({"datasets": self.entries}, sort_keys=False))
        return str(path)

    def __call__(self) -> list[str]:
        dataset = load_sources(self.write())["rte"]
        with HttpClient(log=self.log.append) as client:
            return fetch_dataset("rte", dataset, self.folder / "data", client=client)

    def content(self, name: str = "rte") -> dict[str, bytes]:
        folder = self.folder / "data" / name
        return {path.name: path.read_bytes() for path in folder.glob("[!.]*.[tj]s*")}


@pytest.fixture
def datasets(site: FakeSite, tmp_path: Path) -> Datasets:
    datasets = Datasets(site, tmp_path)
    datasets.add_archive(zip_files(FILES))
    return datasets


def test_archive_becomes_folder_that_task_reads(datasets: Datasets, site: FakeSite) -> None:
    fetched = datasets()
    folder = datasets.folder / "data" / "rte"
    assert datasets.content() == {name: FILES[f"RTE/{name}"] for name in UNPACK.values()}
    assert fetched == [str(folder / name) for name in UNPACK.values()]
    splits = find_files(ExamplesConfig(task="rte", data_dir=str(folder)), task=TASKS["rte"])
    assert set(splits) == {"train", "dev", "test"}


def test_complete_dataset_is_verified_and_repaired(datasets: Datasets, site: FakeSite) -> None:
    datasets()
    path = Path(datasets()[1])
    path.write_bytes(b"edited")
    datasets()
    assert len(site.requests) == 1
    assert path.read_bytes() == FILES["RTE/dev.tsv"]
    changed = FILES | {"RTE/dev.tsv": b"index\tsentence1\tsentence2\tlabel\n"}
    datasets.add_archive(zip_files(changed))
    datasets()
    assert path.read_bytes() == changed["RTE/dev.tsv"]


@pytest.mark.parametrize(
    "name", ["../evil.tsv", "/etc/evil.tsv", "RTE/../../evil.tsv", "RTE\\evil.tsv", "C:evil.tsv"]
)
def test_archive_writes_only_requested_files(datasets: Datasets, name: str) -> None:
    datasets.add_archive(zip_files(FILES | {name: b"evil"}))
    datasets()
    assert list(datasets.folder.rglob("*evil*")) == []
    datasets.add_archive(zip_files(FILES | {name: b"evil"}), {name: "../evil.tsv"})
    with pytest.raises(ConfigError):
        datasets()


SIZE = len(FILES["RTE/dev.tsv"]).to_bytes(4, "little")
OTHER_SIZE = (len(FILES["RTE/dev.tsv"]) - 9).to_bytes(4, "little")
BAD_ARCHIVES = {
    "wrong size": zip_files(FILES).replace(SIZE, OTHER_SIZE),
    "missing member": zip_files({"RTE/train.tsv": b""}),
    "empty": b"",
    "cut": zip_files(FILES)[:-40],
}


@pytest.mark.parametrize("data", BAD_ARCHIVES.values(), ids=BAD_ARCHIVES)
def test_bad_archives_are_refused(datasets: Datasets, data: bytes) -> None:
    datasets.add_archive(data)
    with pytest.raises(FetchError) as error:
        datasets()
    assert error.value.url == f"{datasets.site.url}/RTE.zip"
    assert "dev.tsv" not in datasets.content()
    datasets.site.files["/RTE.zip"] = data[:-1] + b"?"  # not what the checksum says
    with pytest.raises((ChecksumError, FetchError)):
        datasets()
    assert "dev.tsv" not in datasets.content()


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"folder": "../x"}, "folder"),
        ({"files": []}, "files"),
        ({"files": [{"url": "ftp://a.org/x"}]}, "url"),
        ({"files": [{"url": "https://a.org/x", "sha256": "abc"}]}, "sha256"),
        ({"files": [{"url": "https://a.org/x", "size": 3}]}, "sha256"),
        ({"files": [{"url": "https://a.org/x", "save_as": "../y"}]}, "save_as"),
        ({"files": [{"url": "https://a.org/x", "unpack": {"a": "../y"}}]}, "unpack"),
        ({"unknown": 1}, "unknown"),
    ],
)
def test_errors_in_sources_name_the_field(
    datasets: Datasets, fields: dict[str, Any], name: str
) -> None:
    datasets.entries["rte"] |= fields
    with pytest.raises(ConfigError) as error:
        load_sources(datasets.write())
    assert name in str(error.value)


def test_packaged_datasets_are_pinned_and_readable_by_their_tasks(tmp_path: Path) -> None:
    datasets = load_sources()
    assert len(datasets) == 13
    for name, dataset in datasets.items():
        folder = tmp_path / dataset.folder
        folder.mkdir(parents=True, exist_ok=True)
        for file in dataset.files:
            assert file.url.startswith("https://"), name
            for target in file.unpack.values() or [file.save_as]:
                (folder / target).touch()
    for name, dataset in datasets.items():
        config = ExamplesConfig(task=name, data_dir=str(tmp_path / dataset.folder))
        splits = find_files(config, task=TASKS[name])
        assert set(splits) >= ({"test"} if name == "ax" else {"train", "dev"}), name
    mnli = ExamplesConfig(task="mnli", data_dir=str(tmp_path / "glue"))
    assert set(find_files(mnli, task=TASKS["mnli"])) == set(TASKS["mnli"].splits)


def test_pin_of_diagnostic_set_matches_real_file(real_data: Path) -> None:
    [file] = load_sources()["ax"].files
    data = (real_data / "glue" / "AX" / "diagnostic.tsv").read_bytes()
    assert (file.size, file.sha256) == (len(data), hashlib.sha256(data).hexdigest())
