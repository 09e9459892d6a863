"""Raw files are read once for a key and its job, several at once."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from support.counting_fs import CountedFiles
from support.dump_builder import page, write_multistream

from pipelines.documents.plan import plan, raw_inputs
from pipelines.io import raw_files
from pipelines.io.user_cache import cache_value, cached_value
from pipelines.mediawiki import multistream
from pipelines.sources import wikipedia
from schemas.corpus_configs import DocumentsConfig, WikipediaSource

pytestmark = pytest.mark.usefixtures("fresh_cache")


@pytest.fixture(autouse=True)
def _nothing_planned_before() -> None:
    wikipedia._plan_file.cache_clear()


def _dumps(folder: Path, *, count: int = 3) -> list[Path]:
    paths = []
    for number in range(count):
        own = folder / str(number)
        own.mkdir(parents=True)
        pages = [page(1000 * number + one) for one in range(300)]
        path, _ = write_multistream(own, pages, per_stream=2)
        next(own.glob("*-index*")).unlink()
        paths.append(path)
    return paths


def _config(folder: object, **settings: object) -> DocumentsConfig:
    source = WikipediaSource.model_validate(
        {"name": "w", "paths": [str(folder)], "target_split_bytes": 4096, **settings}
    )
    return DocumentsConfig(sources=(source,))


def test_a_key_and_its_job_read_each_file_once(
    tmp_path: Path, counted: type[CountedFiles], monkeypatch: pytest.MonkeyPatch
) -> None:
    dumps = _dumps(tmp_path / "raw")
    probed: list[int] = []
    probe = multistream.is_stream
    monkeypatch.setattr(
        multistream, "is_stream", lambda uri, at: probed.append(at) or probe(uri, at)
    )
    searched: list[str] = []
    search = multistream.find_streams
    monkeypatch.setattr(
        multistream, "find_streams", lambda uri, **how: searched.append(uri) or search(uri, **how)
    )
    config = _config(f"counted://{tmp_path}/raw")
    raw = raw_inputs(config)
    assert len(raw) == len(dumps)
    read, probes = counted.bytes_read.total(), len(probed)
    assert searched == []  # streams were found while the files were hashed
    planned = plan(config)
    assert len(planned) > 20
    assert (counted.bytes_read.total(), len(probed)) == (read, probes)
    # Another process knows what was found, too.
    wikipedia._plan_file.cache_clear()
    raw_files.digest_cache.__globals__["_opened"].cache_clear()
    assert plan(config) == planned
    assert searched == []


@pytest.mark.parametrize("damage", ["value", "bytes", "folder"])
def test_a_damaged_or_unwritable_cache_costs_a_search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    (path,) = _dumps(tmp_path / "a", count=1)
    planned = plan(_config(path))
    assert len(planned) > 5
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    streams = multistream.find_all_streams(str(path), name=path.name, size=path.stat().st_size)
    assert cached_value("bzip2-streams", digest) == list(streams)
    if damage == "value":
        cache_value("bzip2-streams", digest, ["damaged"])
    elif damage == "bytes":
        (cached,) = (tmp_path / "cache" / "bzip2-streams").glob("*/*")
        cached.write_bytes(cached.read_bytes().replace(b"[0,", b"[1,"))
    else:
        (tmp_path / "file").write_text("no folder")
        monkeypatch.setenv("BERTLOOM_CACHE", str(tmp_path / "file"))
    wikipedia._plan_file.cache_clear()
    assert plan(_config(path)) == planned


def test_unwritable_cache_is_logged_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("BERTLOOM_CACHE", str(tmp_path / "file"))
    caplog.set_level("INFO")
    for number in range(3):
        cache_value("bzip2-streams", hashlib.sha256(b"%d" % number).hexdigest(), [number])
    assert caplog.text.count(f"{tmp_path / 'file'}: cannot be written") == 1
