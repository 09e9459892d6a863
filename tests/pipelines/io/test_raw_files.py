import hashlib
import json
import multiprocessing
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import fsspec
import pytest

from pipelines.io import raw_files as inputs
from pipelines.io import user_cache
from pipelines.io.raw_files import digest_file, expand_paths, open_file
from pipelines.io.user_cache import cache_folder
from schemas.errors import InputError, MissingInputError
from schemas.json_files import load_json


@pytest.fixture(autouse=True)
def _nothing_settles(fresh_cache, monkeypatch):
    monkeypatch.setattr(user_cache, "_SETTLED_NS", -1)


@pytest.fixture
def folder(tmp_path):
    root = tmp_path / "raw"
    (root / "deep" / "er").mkdir(parents=True)
    (root / ".hidden").mkdir()
    for name in ("b.txt", "a.txt", "c.md", "deep/er/d.txt", ".hidden/e.txt", ".f.txt"):
        (root / name).write_text(name)
    return root


def names(pairs):
    return [name for _, name in pairs]


@pytest.mark.parametrize(
    ("paths", "suffixes", "expected"),
    [
        ([""], None, ["a.txt", "b.txt", "c.md", "deep/er/d.txt", "x[1].txt"]),
        (["**/*.txt", "c.md"], None, ["a.txt", "b.txt", "c.md", "d.txt", "x[1].txt"]),
        (["b.txt", "*.txt", "a.txt"], None, ["a.txt", "b.txt", "x[1].txt"]),
        ([".*.txt"], None, [".f.txt"]),
        ([".hidden/*.txt"], None, ["e.txt"]),
        ([".hidden"], None, ["e.txt"]),
        ([""], [".md"], ["c.md"]),
        (["*"], [".md"], ["c.md"]),
        (["a.txt"], [".md"], ["a.txt"]),  # a named file needs no suffix
        (["x[1].txt"], None, ["x[1].txt"]),  # a file before a pattern
    ],
)
def test_paths_are_expanded_in_order_of_names(folder, paths, suffixes, expected):
    (folder / "x[1].txt").write_text("x")
    files = expand_paths([f"{folder}/{path}" for path in paths], suffixes=suffixes)
    assert names(files) == expected


def test_linked_folders_are_entered_once(folder):
    (folder / "deep" / "up").symlink_to(folder)
    (folder / "far").symlink_to(folder / "deep" / "er")
    assert names(expand_paths([str(folder)])).count("deep/er/d.txt") == 1


def test_relative_path_becomes_absolute(folder, monkeypatch):
    monkeypatch.chdir(folder)
    assert expand_paths(["a.txt"]) == [(str(folder / "a.txt"), "a.txt")]


def test_memory_urls_work_like_local_paths():
    fs = fsspec.filesystem("memory")
    fs.pipe("/inputs-test/b/x.txt", b"1")
    fs.pipe("/inputs-test/a.txt", b"22")
    files = expand_paths(["memory://inputs-test"])
    assert names(files) == ["a.txt", "b/x.txt"]
    assert names(expand_paths(["memory://inputs-test/*.txt"])) == ["a.txt"]
    assert digest_file(files[0][0]) == (2, {"sha256": hashlib.sha256(b"22").hexdigest()})
    fs.pipe("/inputs-test/a.txt", b"33")
    assert digest_file(files[0][0]).digests["sha256"] == hashlib.sha256(b"33").hexdigest()


def test_missing_file_is_an_error_with_its_path(folder):
    with pytest.raises(MissingInputError, match=r"z\.txt: no such file"):
        expand_paths([str(folder / "z.txt")])
    with pytest.raises(MissingInputError, match=r"ending in \.xml"):
        expand_paths([str(folder)], suffixes=[".xml"])
    with pytest.raises(MissingInputError):
        open_file(str(folder / "z.txt"))


def count_reads(monkeypatch):
    reads = []
    real = inputs._compute
    monkeypatch.setattr(inputs, "_compute", lambda *a, **k: (reads.append(a[1]), real(*a, **k))[1])
    return reads


def test_digests_are_cached_until_the_file_changes(folder, monkeypatch):
    reads = count_reads(monkeypatch)
    path = folder / "a.txt"
    first = digest_file(str(path))
    assert digest_file(str(path)) == first
    assert len(reads) == 1
    read = digest_file(str(path), algorithms=("sha256", "sha1", "md5"))
    assert [list(names) for names in reads[1:]] == [["sha1", "md5"]]
    assert read.size == 5
    assert read.digests == {
        name: hashlib.new(name, b"a.txt").hexdigest() for name in ("sha256", "sha1", "md5")
    }
    path.write_text("A.TXT")  # as long as before
    changed = digest_file(str(path))
    assert changed.digests["sha256"] == hashlib.sha256(b"A.TXT").hexdigest()
    monkeypatch.setattr(user_cache, "_SETTLED_NS", 2_000_000_000)
    path.write_text("has just changed")
    before = len(reads)
    for _ in range(2):
        digest_file(str(path))
    assert len(reads) == before + 2


def cache_file():
    """The cache's file, which is read again when it is next asked."""
    user_cache._opened.cache_clear()
    return cache_folder() / "digests.ndjson"


@pytest.mark.parametrize(
    "damage",
    ["", "[]", '{"file": "other", "digests": {}}', "CUT", "\x00\xff"],
)
def test_corrupt_cache_entry_is_computed_again(folder, monkeypatch, damage):
    path = folder / "a.txt"
    right = digest_file(str(path))
    whole = cache_file().read_bytes()
    if damage == "CUT":
        damage = whole[:-5].decode()
    cache_file().write_bytes(damage.encode("latin-1"))
    reads = count_reads(monkeypatch)
    assert digest_file(str(path)) == right
    assert len(reads) == 1
    cache_file()
    assert digest_file(str(path)) == right
    assert len(reads) == 1


def test_digest_cache_is_one_for_all_threads_when_first_used_in_parallel(folder):
    lines = (json.dumps({"file": str(n), "version": "v", "digests": {}}) for n in range(5000))
    cache_file().parent.mkdir(parents=True)
    cache_file().write_text("\n".join(lines))  # takes a while to read
    start = threading.Barrier(8)

    def open_cache(_):
        start.wait()
        return user_cache.digest_cache()

    with ThreadPoolExecutor(8) as threads:
        caches = list(threads.map(open_cache, range(8)))
    assert all(cache is caches[0] for cache in caches)


def test_cache_that_cannot_be_written_is_ignored(folder, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv("BERTLOOM_CACHE", str(tmp_path / "file" / "cache"))
    assert digest_file(str(folder / "a.txt")).digests["sha256"]


def test_file_that_changes_while_it_is_read_is_refused(folder, monkeypatch):
    path = folder / "a.txt"
    real = inputs._compute

    def compute(*arguments, **named):
        digests = real(*arguments, **named)
        path.write_text("changed meanwhile")
        return digests

    monkeypatch.setattr(inputs, "_compute", compute)
    with pytest.raises(InputError, match="changed while it was read"):
        digest_file(str(path))


def _digest_many(path: str) -> set[str]:
    return {digest_file(path).digests["sha256"] for _ in range(30)}


def test_concurrent_processes_share_the_cache(folder):
    path = str(folder / "a.txt")
    with multiprocessing.get_context("fork").Pool(3) as pool:
        digests = pool.map(_digest_many, [path] * 3)
    assert set().union(*digests) == {hashlib.sha256(b"a.txt").hexdigest()}
    assert all(load_json(line) for line in cache_file().read_bytes().split(b"\n")[1:])


def test_unchanged_remote_file_is_read_once(folder, counted):
    path = folder / "a.txt"
    sizes = []
    for _ in range(2):
        for _ in range(2):
            digest = digest_file(f"counted://{path}").digests["sha256"]
            assert digest == hashlib.sha256(path.read_bytes()).hexdigest()
            sizes.append(counted.bytes_read["a.txt"])
            cache_file()  # as another process does
        path.with_name("new").write_text("A.TXT")  # a new version, as long as the first one
        path.with_name("new").replace(path)
    start = sizes[0] - 5
    assert [size - start for size in sizes] == [5, 5, 10, 10]


def test_cache_folder_is_set_by_environment(tmp_path, monkeypatch):
    assert cache_folder() == tmp_path / "cache"
    monkeypatch.delenv("BERTLOOM_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/x")
    assert cache_folder() == Path("/x/bertloom")


@pytest.mark.parametrize(
    "uri",
    [
        "ftp://127.0.0.1:1/x.txt",
        "http://127.0.0.1:1/*.txt",
        "s3://bucket/x.txt",
        "nosuchprotocol://a",
    ],
)
def test_unreachable_server_is_an_error_of_one_line(uri, monkeypatch, request):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "y")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    # One that was opened here would be given to later tests, whatever server they name.
    request.addfinalizer(fsspec.get_filesystem_class("s3").clear_instance_cache)
    with pytest.raises(InputError, match="cannot be reached") as raised:
        expand_paths([uri])
    assert str(raised.value).startswith(f"{uri}: ")
    assert "\n" not in str(raised.value)


def test_file_whose_name_is_not_utf_8_is_refused(tmp_path: Path) -> None:
    path = os.fsencode(tmp_path) + b"/caf\xe9.txt"
    with open(path, "wb") as sink:  # noqa: PTH123 - bytes are no Path
        sink.write(b"x")
    for pattern in (str(tmp_path), os.fsdecode(path), f"{tmp_path}/*.txt"):
        with pytest.raises(InputError, match=r"caf\\udce9\.txt' is not UTF-8. Rename it"):
            expand_paths([pattern])


@pytest.mark.parametrize("pattern", ["", "/*", "/**/*"])
def test_suffixes_count_in_any_case_and_one_warning_counts_the_rest(
    folder: Path, pattern: str, caplog: pytest.LogCaptureFixture
) -> None:
    taken = ["B2.TXT", "c3.Txt", "e5.txt.GZ"]
    for name in (*taken, "x.csv", "y.CSV", "z.epub", "t.csv.gz", "README"):
        (folder / name).write_text("x")
    paths = [f"{folder}{pattern}"]
    for _ in range(2):  # as for the cache key and for the job
        chosen = names(expand_paths(paths, suffixes=[".txt", ".txt.gz"]))
    assert {*taken, "a.txt", "b.txt"} <= set(chosen)
    assert sorted(name.rpartition("/")[2] for name in chosen)[-1] == "e5.txt.GZ"
    (record,) = caplog.records
    where, number, counts = record.args or ()
    assert (where, number) == (paths[0], 6)
    assert set(counts.split(", ")) == {
        ".csv 2", ".csv.gz 1", ".epub 1", ".md 1", "file without a suffix 1",
    }  # fmt: skip


@pytest.mark.parametrize("pattern", ["", "/*", "/**/*.txt"])
def test_links_out_of_the_folder_loops_and_broken_links_are_passed_over(
    folder: Path, pattern: str, caplog: pytest.LogCaptureFixture
) -> None:
    outside = folder.parent / "outside"
    outside.mkdir()
    (outside / "secret.txt").write_text("no")
    links = {
        "loop": "..", "deep/up": "../..", "far": str(outside), "gone.txt": "nowhere",
        "self.txt": "self.txt", "out.txt": str(outside / "secret.txt"),
    }  # fmt: skip
    for name, target in links.items():
        (folder / name).symlink_to(target)
    (folder / "inside.txt").symlink_to("a.txt")
    chosen = expand_paths([f"{folder}{pattern}"], suffixes=[".txt"])
    assert {name.rpartition("/")[2] for _, name in chosen} == {
        "a.txt", "b.txt", "d.txt", "inside.txt",
    }  # fmt: skip
    counts = [record.args[2] for record in caplog.records if record.args]
    assert "broken link 2" in counts[0]
    assert "link out of the folder " in counts[0]
    # A link that the user names is followed.
    assert names(expand_paths([str(folder / "out.txt"), str(folder / "far")])) == [
        "out.txt", "secret.txt",
    ]  # fmt: skip


def test_observers_see_a_file_once_with_its_digests(folder: Path) -> None:
    seen: list[bytes] = []

    class Length:
        size = 0

        def update(self, data: bytes, /) -> None:
            seen.append(data)
            self.size += len(data)

        def hexdigest(self) -> str:
            return str(self.size)

    for _ in range(2):
        read = digest_file(str(folder / "a.txt"), observers={"length": Length})
        assert read.digests["length"] == "5"
    assert b"".join(seen) == b"a.txt"
