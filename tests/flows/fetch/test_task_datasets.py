"""Labelled sets: pinned files, archives that are not trusted, and the layouts that tasks read."""

from __future__ import annotations

import hashlib
import io
import stat
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.fake_site import FakeSite, Fault

from flows.fetch import client
from flows.fetch.labelled_sets import FetchedSet, fetch_sets, load_sources
from model.tasks import TASKS
from model.tasks.official_files import find_files
from schemas.errors import ChecksumError, ConfigError, FetchError
from schemas.task_configs import ExamplesConfig

pytestmark = pytest.mark.network

FILES = {
    "RTE/train.tsv": b"index\tsentence1\tsentence2\tlabel\n0\ta\tb\tentailment\n",
    "RTE/dev.tsv": b"index\tsentence1\tsentence2\tlabel\n0\tc\td\tnot_entailment\n",
    "RTE/test.tsv": b"index\tsentence1\tsentence2\n0\te\tf\n",
    "RTE/readme.md": b"not asked for",
}
UNPACK = {name: name.partition("/")[2] for name in list(FILES)[:3]}


def zipped(files: dict[str, bytes], edit: Callable[[zipfile.ZipInfo], None] | None = None) -> bytes:
    stored = io.BytesIO()
    with zipfile.ZipFile(stored, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            info = zipfile.ZipInfo(name)
            info.compress_type = zipfile.ZIP_DEFLATED
            if edit is not None:
                edit(info)
            archive.writestr(info, data)
    return stored.getvalue()


class Sets:
    """A file of sources for the site, and fetching by it."""

    def __init__(self, site: FakeSite, folder: Path) -> None:
        self.site, self.folder = site, folder
        self.said: list[str] = []
        self.sets: dict[str, Any] = {}

    def add(self, name: str, files: list[dict[str, Any]], **more: Any) -> None:
        self.sets[name] = {
            "title": name, "benchmark": "glue", "folder": f"glue/{name.upper()}",
            "licence": "none", "homepage": self.site.url, "files": files,
        } | more  # fmt: skip

    def file(self, path: str, data: bytes, **more: Any) -> dict[str, Any]:
        self.site.files[path] = data
        return {
            "url": self.site.url + path,
            "size": len(data),
            "sha256": hashlib.sha256(data).hexdigest(),
        } | more

    def write(self) -> str:
        path = self.folder / "sources.yaml"
        path.write_text(yaml.safe_dump({"sets": self.sets}, sort_keys=False))
        return str(path)

    def __call__(self, *names: str, **more: Any) -> list[FetchedSet]:
        return fetch_sets(
            names or tuple(self.sets),
            sources=load_sources(self.write()),
            folder=str(self.folder / "data"),
            say=self.said.append,
            **more,
        )

    def there(self, name: str = "rte") -> dict[str, bytes]:
        folder = self.folder / "data" / self.sets[name]["folder"]
        return {p.name: p.read_bytes() for p in folder.iterdir() if not p.name.startswith(".")}


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeSite]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(client, "_FIRST_WAIT", 0.0)
    with FakeSite() as served:
        yield served


@pytest.fixture
def sets(site: FakeSite, tmp_path: Path) -> Sets:
    made = Sets(site, tmp_path)
    made.add("rte", [made.file("/RTE.zip", zipped(FILES), unpack=UNPACK)])
    return made


def test_an_archive_becomes_the_folder_that_its_task_reads(sets: Sets, tmp_path: Path) -> None:
    (fetched,) = sets()
    assert sets.there() == {name: FILES[f"RTE/{name}"] for name in UNPACK.values()}
    assert fetched.files == tuple(f"{fetched.folder}/{name}" for name in UNPACK.values())
    assert fetched.bytes_downloaded == len(sets.site.files["/RTE.zip"])
    for folder in (fetched.folder, str(tmp_path / "data" / "glue")):
        found = find_files(ExamplesConfig(task="rte", data_dir=folder), task=TASKS["rte"])
        assert set(found) == {"train", "dev", "test"}


def test_what_is_unpacked_and_right_is_not_fetched_again(sets: Sets, site: FakeSite) -> None:
    sets()
    (again,) = sets()
    assert (again.bytes_downloaded, again.files_reused) == (0, 3)
    assert len(site.seen) == 1
    dev = Path(again.folder) / "dev.tsv"
    dev.write_bytes(b"edited")
    (repaired,) = sets()
    assert repaired.files_reused == 0
    assert dev.read_bytes() == FILES["RTE/dev.tsv"]


def test_a_new_pin_fetches_again(sets: Sets, site: FakeSite) -> None:
    sets()
    changed = FILES | {"RTE/dev.tsv": b"index\tsentence1\tsentence2\tlabel\n"}
    sets.add("rte", [sets.file("/RTE.zip", zipped(changed), unpack=UNPACK)])
    sets()
    assert sets.there()["dev.tsv"] == changed["RTE/dev.tsv"]


def test_a_wrong_archive_is_refused_and_nothing_of_it_unpacked(sets: Sets, site: FakeSite) -> None:
    site.files["/RTE.zip"] = site.files["/RTE.zip"][:-1] + b"x"
    with pytest.raises(ChecksumError, match="expected sha256"):
        sets()
    assert sets.there() == {}


def test_a_cut_archive_is_resumed(sets: Sets, site: FakeSite) -> None:
    site.faults["/RTE.zip"] = [Fault(cut_after=100)]
    sets()
    assert site.asked("/RTE.zip") == [None, "bytes=100-"]
    assert len(sets.there()) == 3


def test_two_sets_in_one_folder_keep_each_other(sets: Sets, site: FakeSite) -> None:
    for version in ("1.1", "2.0"):
        files = [sets.file(f"/{part}-v{version}.json", b"{}" * 9) for part in ("train", "dev")]
        sets.add(f"squad-{version}", files, folder="squad", benchmark="squad")
    sets()
    assert set(sets.there("squad-1.1")) == {
        "train-v1.1.json", "dev-v1.1.json", "train-v2.0.json", "dev-v2.0.json",
    }  # fmt: skip
    reused = {found.name: found.files_reused for found in sets()}
    assert reused == {"rte": 3, "squad-1.1": 2, "squad-2.0": 2}


UNSAFE = ["../evil.tsv", "/etc/evil.tsv", "RTE/../../evil.tsv", "RTE\\evil.tsv", "C:evil.tsv"]


@pytest.mark.parametrize("name", UNSAFE)
def test_archives_that_lead_out_of_the_folder_are_refused(sets: Sets, name: str) -> None:
    sets.add("rte", [sets.file("/RTE.zip", zipped(FILES | {name: b"evil"}), unpack=UNPACK)])
    with pytest.raises(FetchError, match="leads out of the folder"):
        sets()
    assert list(sets.folder.rglob("evil*")) == []
    assert not [name for name in sets.there() if name.endswith(".tsv")]


def as_link(info: zipfile.ZipInfo) -> None:
    if info.filename == "RTE/dev.tsv":
        info.external_attr = (stat.S_IFLNK | 0o777) << 16


def test_archives_with_links_are_refused(sets: Sets) -> None:
    linked = zipped(FILES | {"RTE/dev.tsv": b"/etc/passwd"}, as_link)
    sets.add("rte", [sets.file("/RTE.zip", linked, unpack=UNPACK)])
    with pytest.raises(FetchError, match="is a link"):
        sets()


def test_archives_that_unpack_to_too_much_are_refused(sets: Sets) -> None:
    bomb = zipped(FILES | {"RTE/train.tsv": bytes(10_000_000)})
    sets.add("rte", [sets.file("/RTE.zip", bomb, unpack=UNPACK)])
    with pytest.raises(FetchError, match="expected to unpack to"):
        sets()


def test_a_lying_size_in_an_archive_is_noticed(sets: Sets) -> None:
    data = zipped(FILES)
    size = len(FILES["RTE/dev.tsv"])
    # In the local header and in the directory at the end.
    lying = data.replace(size.to_bytes(4, "little"), (size - 9).to_bytes(4, "little"))
    assert lying != data
    sets.add("rte", [sets.file("/RTE.zip", lying, unpack=UNPACK)])
    with pytest.raises(FetchError, match=r"damaged|longer"):
        sets()


@pytest.mark.parametrize("data", [b"no archive", b"", zipped(FILES)[:-40]])
def test_damaged_archives_are_refused(sets: Sets, data: bytes) -> None:
    sets.add("rte", [sets.file("/RTE.zip", data, unpack=UNPACK)])
    with pytest.raises(FetchError, match="damaged"):
        sets()


def test_a_missing_member_is_named(sets: Sets) -> None:
    sets.add("rte", [sets.file("/RTE.zip", zipped(FILES), unpack={"RTE/other.tsv": "other.tsv"})])
    with pytest.raises(FetchError, match=r"expected RTE/other\.tsv in it, found RTE/dev\.tsv"):
        sets()


def test_an_unpinned_file_is_refused_until_it_is_trusted(sets: Sets, site: FakeSite) -> None:
    data = b"sent1,sent2\n"
    sets.add("swag", [sets.file("/train.csv", data, sha256=None, size=None)], folder="swag")
    with pytest.raises(FetchError, match="--trust-first"):
        sets("swag")
    assert site.seen == []
    (fetched,) = sets("swag", trust_first=True)
    digest = hashlib.sha256(data).hexdigest()
    assert fetched.unpinned == ((f"{site.url}/train.csv", digest, len(data)),)
    assert sets.there("swag") == {"train.csv": data}


def test_unknown_sets_are_named(sets: Sets) -> None:
    with pytest.raises(ConfigError, match="found nonsense"):
        sets("nonsense")


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"folder": "../x"}, "folder below"),
        ({"folder": "/x"}, "folder below"),
        ({"files": []}, "files"),
        ({"files": [{"url": "ftp://a.org/x"}]}, "url"),
        ({"files": [{"url": "https://a.org/x", "sha256": "abc"}]}, "sha256"),
        ({"files": [{"url": "https://a.org/x", "save_as": "../y"}]}, "save_as"),
        ({"files": [{"url": "https://a.org/x", "unpack": {"a": "../y"}}]}, "unpack"),
        ({"files": [{"url": "https://a.org/"}]}, "files"),
        ({"files": [{"url": "https://a.org/x"}, {"url": "https://b.org/x"}]}, "one name"),
        ({"surprise": 1}, "surprise"),
    ],
)
def test_faults_in_a_file_of_sources_are_named(
    sets: Sets, change: dict[str, Any], text: str
) -> None:
    sets.sets["rte"] |= change
    with pytest.raises(ConfigError, match=text):
        load_sources(sets.write())


def test_every_packaged_set_is_pinned_and_one_that_a_task_reads(tmp_path: Path) -> None:
    sources = load_sources()
    assert len(sources.sets) == 13
    for name, found in sources.sets.items():
        assert found.is_pinned, name
        assert found.size, name
        assert all(file.url.startswith("https://") for file in found.files), name
        folder = tmp_path / found.folder
        folder.mkdir(parents=True, exist_ok=True)
        for file in found.files:
            for target in file.targets:
                (folder / target).write_text("")
    for name, found in sources.sets.items():
        config = ExamplesConfig(task=name, data_dir=str(tmp_path / found.folder))
        splits = find_files(config, task=TASKS[name])
        needed = {"test"} if name == "ax" else {"train", "dev"}
        assert needed <= set(splits), name
    mnli = ExamplesConfig(task="mnli", data_dir=str(tmp_path / "glue"))
    assert set(find_files(mnli, task=TASKS["mnli"])) == set(TASKS["mnli"].splits)


def test_the_pins_that_can_be_checked_here_are_right(real_data: Path) -> None:
    (file,) = load_sources().sets["ax"].files
    stored = (real_data / "glue" / "AX" / "diagnostic.tsv").read_bytes()
    assert (file.size, file.sha256) == (len(stored), hashlib.sha256(stored).hexdigest())
