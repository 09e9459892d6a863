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
from pipelines.io.raw_files import describe_file, digest_file, expand_paths, open_file
from pipelines.io.user_cache import cache_folder
from schemas.checksummed import dump_line, load_json
from schemas.errors import InputError, MissingInputError


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


def test_a_folder_gives_names_relative_to_it_in_order(folder):
    found = expand_paths([str(folder)])
    assert names(found) == ["a.txt", "b.txt", "c.md", "deep/er/d.txt"]
    assert found[0][0] == str(folder / "a.txt")


def test_files_and_patterns_give_base_names(folder):
    found = expand_paths([str(folder / "**" / "*.txt"), str(folder / "c.md")])
    assert names(found) == ["a.txt", "b.txt", "c.md", "d.txt"]


def test_hidden_files_are_taken_only_by_a_pattern_that_says_so(folder):
    assert names(expand_paths([str(folder / ".*.txt")])) == [".f.txt"]
    assert names(expand_paths([str(folder / ".hidden" / "*.txt")])) == ["e.txt"]
    assert names(expand_paths([str(folder / ".hidden")])) == ["e.txt"]


def test_order_and_repetition_of_paths_do_not_matter(folder):
    once = expand_paths([str(folder / "a.txt"), str(folder / "b.txt")])
    assert expand_paths([str(folder / "b.txt"), str(folder / "*.txt")]) == once


def test_suffixes_filter_folders_and_patterns_but_not_named_files(folder):
    assert names(expand_paths([str(folder)], suffixes=[".md"])) == ["c.md"]
    assert names(expand_paths([str(folder / "*")], suffixes=[".md"])) == ["c.md"]
    assert names(expand_paths([str(folder / "a.txt")], suffixes=[".md"])) == ["a.txt"]
    with pytest.raises(MissingInputError, match=r"ending in \.xml"):
        expand_paths([str(folder)], suffixes=[".xml"])


def test_a_relative_path_becomes_absolute(folder, monkeypatch):
    monkeypatch.chdir(folder)
    assert expand_paths(["a.txt"]) == [(str(folder / "a.txt"), "a.txt")]


def test_a_name_with_brackets_is_a_file_first(folder):
    (folder / "x[1].txt").write_text("x")
    assert names(expand_paths([str(folder / "x[1].txt")])) == ["x[1].txt"]


def test_linked_folders_are_entered_once(folder):
    (folder / "deep" / "up").symlink_to(folder)
    (folder / "far").symlink_to(folder / "deep" / "er")
    assert names(expand_paths([str(folder)])).count("deep/er/d.txt") == 1


def test_memory_urls_work_like_local_paths():
    fs = fsspec.filesystem("memory")
    fs.pipe("/inputs-test/b/x.txt", b"1")
    fs.pipe("/inputs-test/a.txt", b"22")
    found = expand_paths(["memory://inputs-test"])
    assert names(found) == ["a.txt", "b/x.txt"]
    assert names(expand_paths(["memory://inputs-test/*.txt"])) == ["a.txt"]
    described = describe_file(found[0][0], name="a.txt")
    assert (described.size, described.sha256) == (2, hashlib.sha256(b"22").hexdigest())
    fs.pipe("/inputs-test/a.txt", b"33")
    assert describe_file(found[0][0], name="a.txt").sha256 == hashlib.sha256(b"33").hexdigest()


def test_what_is_missing_is_told_with_what_lies_beside(folder):
    with pytest.raises(MissingInputError, match=r"z\.txt: no such file.*there is: .*a\.txt"):
        expand_paths([str(folder / "z.txt")])
    with pytest.raises(MissingInputError, match=r"\*\.zip"):
        expand_paths([str(folder / "*.zip")])
    with pytest.raises(InputError, match="cannot be reached"):
        expand_paths(["nosuchprotocol://a"])
    with pytest.raises(MissingInputError):
        open_file(str(folder / "z.txt"))


def test_digests_of_one_pass(folder):
    path = folder / "a.txt"
    read = digest_file(str(path), algorithms=("sha256", "sha1", "md5"))
    data = path.read_bytes()
    assert read.size == len(data)
    assert read.digests == {
        name: hashlib.new(name, data).hexdigest() for name in ("sha256", "sha1", "md5")
    }


def count_reads(monkeypatch):
    reads = []
    real = inputs._compute
    monkeypatch.setattr(inputs, "_compute", lambda *a, **k: (reads.append(a[1]), real(*a, **k))[1])
    return reads


def test_a_digest_is_remembered_until_the_file_changes(folder, monkeypatch):
    reads = count_reads(monkeypatch)
    path = folder / "a.txt"
    first = digest_file(str(path))
    assert digest_file(str(path)) == first
    assert len(reads) == 1
    assert "sha1" in digest_file(str(path), algorithms=("sha256", "sha1")).digests
    assert reads[1:] == [["sha1"]]
    path.write_text("A.TXT")  # as long as before
    changed = digest_file(str(path))
    assert changed.digests["sha256"] == hashlib.sha256(b"A.TXT").hexdigest()


def test_a_file_that_has_just_changed_is_not_remembered(folder, monkeypatch):
    monkeypatch.setattr(user_cache, "_SETTLED_NS", 2_000_000_000)
    reads = count_reads(monkeypatch)
    digest_file(str(folder / "a.txt"))
    digest_file(str(folder / "a.txt"))
    assert len(reads) == 2


def cache_file():
    """The cache's file, which is read again when it is next asked."""
    user_cache._opened.cache_clear()
    return cache_folder() / "digests.ndjson"


@pytest.mark.parametrize(
    "damage",
    ["", "{", "[]", "null", '{"file": "other", "digests": {}}', "FLIP", "CUT", "\x00\xff"],
)
def test_a_broken_cache_entry_is_computed_again(folder, monkeypatch, damage):
    path = folder / "a.txt"
    right = digest_file(str(path))
    whole = cache_file().read_bytes()
    if damage == "FLIP":
        damage = whole.decode().replace(right.digests["sha256"], "0" * 64)
    elif damage == "CUT":
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
    cache_file().write_text("\n".join(map(dump_line, lines)))  # takes a while to read
    start = threading.Barrier(8)

    def open_cache(_):
        start.wait()
        return user_cache.digest_cache()

    with ThreadPoolExecutor(8) as threads:
        caches = list(threads.map(open_cache, range(8)))
    assert all(cache is caches[0] for cache in caches)


def test_what_is_known_of_earlier_versions_is_left_out(folder, monkeypatch):
    monkeypatch.setattr(user_cache, "_MOST_STALE_LINES", 3)
    path = folder / "a.txt"
    for number in range(5):
        path.write_text(str(number))
        last = digest_file(str(path))
    assert len(cache_file().read_bytes().split()) > 5
    reads = count_reads(monkeypatch)
    assert digest_file(str(path)) == last
    assert reads == []
    assert len(cache_file().read_bytes().splitlines()) == 2  # of which the first is empty


def test_a_cache_that_cannot_be_written_costs_only_time(folder, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv("BERTLOOM_CACHE", str(tmp_path / "file" / "cache"))
    assert digest_file(str(folder / "a.txt")).digests["sha256"]


def test_a_file_that_changes_while_it_is_read_is_refused(folder, monkeypatch):
    path = folder / "a.txt"
    real = inputs._compute

    def compute(*arguments, **named):
        found = real(*arguments, **named)
        path.write_text("changed meanwhile")
        return found

    monkeypatch.setattr(inputs, "_compute", compute)
    with pytest.raises(InputError, match="changed while it was read"):
        digest_file(str(path))


def _digest_many(path: str) -> set[str]:
    return {digest_file(path).digests["sha256"] for _ in range(30)}


def test_runs_side_by_side_share_the_cache(folder):
    path = str(folder / "a.txt")
    with multiprocessing.get_context("fork").Pool(3) as pool:
        found = pool.map(_digest_many, [path] * 3)
    assert set().union(*found) == {hashlib.sha256(b"a.txt").hexdigest()}
    assert all(load_json(line) for line in cache_file().read_bytes().split(b"\n")[1:])


def test_the_cache_folder_follows_the_environment(tmp_path, monkeypatch):
    assert cache_folder() == tmp_path / "cache"
    monkeypatch.delenv("BERTLOOM_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/x")
    assert cache_folder() == Path("/x/bertloom")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder() == Path.home() / ".cache" / "bertloom"
    assert os.environ.get("BERTLOOM_CACHE") is None


@pytest.mark.parametrize(
    "uri",
    [
        "ftp://127.0.0.1:1/x.txt",
        "http://127.0.0.1:1/x.txt",
        "http://127.0.0.1:1/*.txt",
        "s3://bucket/x.txt",
        "s3://bucket/*.txt",
    ],
)
def test_a_server_that_is_out_of_reach_is_one_sentence(
    uri: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """ftp:// and s3:// ended in errors of their clients."""
    for name, value in {
        "AWS_ENDPOINT_URL": "http://127.0.0.1:1",
        "AWS_ACCESS_KEY_ID": "x",
        "AWS_SECRET_ACCESS_KEY": "y",
        "AWS_MAX_ATTEMPTS": "1",
    }.items():
        monkeypatch.setenv(name, value)
    # One that was opened here would be given to later tests, whatever server they name.
    request.addfinalizer(fsspec.get_filesystem_class("s3").clear_instance_cache)
    with pytest.raises(InputError, match="cannot be reached") as raised:
        expand_paths([uri])
    assert str(raised.value).startswith(f"{uri}: ")
    assert "\n" not in str(raised.value)


def test_a_file_whose_name_is_no_utf_8_is_named(tmp_path: Path) -> None:
    path = os.fsencode(tmp_path) + b"/caf\xe9.txt"
    with open(path, "wb") as sink:  # noqa: PTH123 - bytes are no Path
        sink.write(b"x")
    for given in (str(tmp_path), os.fsdecode(path), f"{tmp_path}/*.txt"):
        with pytest.raises(InputError, match=r"caf\\udce9\.txt' is not UTF-8. Rename it"):
            expand_paths([given])
