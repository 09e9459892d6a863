import gc
import hashlib
import os
from pathlib import Path

import fsspec
import numpy as np
import pyarrow as pa
import pytest
from support.instance_builder import (
    LONGEST,
    VOCAB_SIZE,
    Row,
    random_shards,
    training_rows,
    write_artifact,
)

from model.data.dataset import InstanceDataset
from schemas.arrow import VERSION_KEY, instances_schema
from schemas.errors import ArtifactCorruptError, InstanceDataError

pytestmark = pytest.mark.usefixtures("fresh_cache")


@pytest.fixture
def shards():
    return random_shards(90)


@pytest.fixture
def artifact(tmp_path, shards):
    folder = tmp_path / "data"
    folder.mkdir()
    return write_artifact(str(folder), shards)


def opened(artifact, **changes):
    options = {"vocab_size": VOCAB_SIZE, "max_seq_length": LONGEST, **changes}
    return InstanceDataset.open(artifact, **options)


def file_of(artifact, number=1) -> Path:
    return Path(artifact.data) / artifact.files[number].stored_name


def with_content(artifact, number, content):
    """Replace the content of a file, and its digest in the manifest."""
    file_of(artifact, number).write_bytes(content)
    files = list(artifact.files)
    digest = hashlib.sha256(content).hexdigest()
    files[number] = files[number].model_copy(update={"sha256": digest})
    return artifact.model_copy(update={"files": tuple(files)})


def check_rows(actual, rows, numbers):
    headers = actual.headers
    assert headers.rows.tolist() == list(numbers)
    assert len(actual.offsets) == len(actual.masked_offsets) == len(numbers) + 1
    for at, number in enumerate(numbers):
        row = rows[number]
        tokens = slice(actual.offsets[at], actual.offsets[at + 1])
        masked = slice(actual.masked_offsets[at], actual.masked_offsets[at + 1])
        assert actual.input_ids[tokens].tolist() == row.input_ids
        assert headers.segment_b_start[at] == row.segment_b_start
        assert actual.masked_positions[masked].tolist() == row.positions
        assert actual.masked_ids[masked].tolist() == row.masked_ids
        assert headers.next_sentence_label[at] == row.label


def test_gather_returns_written_rows_in_any_order(artifact, shards):
    instances, rows = opened(artifact), training_rows(shards)
    assert len(instances) == len(rows) == 90
    assert instances.tokens == sum(len(row.input_ids) for row in rows)
    numbers = np.random.default_rng(0).integers(0, 90, 400)
    actual = instances.gather(numbers)
    check_rows(actual, rows, numbers)
    check_rows(actual.part(7, 30), rows, numbers[7:30])
    assert actual.headers.lengths.tolist() == [len(rows[n].input_ids) for n in numbers]
    check_rows(instances.gather(np.array([], np.int64)), rows, [])


def test_ids_of_large_vocabulary_are_uint32(tmp_path):
    row = Row([2, 90_000, 3], 3, [1], [99_999], -1)
    artifact = write_artifact(str(tmp_path), {"part-0.arrow": [[row]]}, vocab_size=100_000)
    instances = InstanceDataset.open(artifact, vocab_size=100_000, max_seq_length=40)
    actual = instances.gather(np.array([0]))
    assert actual.input_ids.dtype == np.uint32
    check_rows(actual, [row], [0])


def test_row_numbers_do_not_depend_on_order_of_manifest(artifact, shards):
    turned = artifact.model_copy(update={"files": artifact.files[::-1]})
    check_rows(opened(turned).gather(np.arange(90)), training_rows(shards), range(90))


def test_held_out_part_has_only_held_out_rows(artifact, shards):
    held_out = opened(artifact, part="held-out")
    (rows,) = shards["__held-out__/held-out-00000.arrow"]
    check_rows(held_out.gather(np.arange(len(held_out))), rows, range(4))


def test_locate_returns_shard_and_row(artifact, shards):
    instances, row = opened(artifact), 0
    for path in sorted(shards):
        if path.startswith("part-"):
            for position in range(sum(map(len, shards[path]))):
                assert instances.locate(row) == (path, position)
                row += 1
    for wrong in (-1, 90):
        with pytest.raises(IndexError, match="expected a row of 0 to 89"):
            instances.locate(wrong)
        with pytest.raises(IndexError, match="expected rows of 0 to 89"):
            instances.gather(np.array([0, wrong]))


def test_files_are_closed_and_gathered_arrays_outlive_the_dataset(artifact, shards):
    files = Path("/proc/self/fd")
    before = len(list(files.iterdir())) if files.exists() else 0
    instances = opened(artifact)
    if before:
        assert len(list(files.iterdir())) <= before
    actual = instances.gather(np.arange(90))
    del instances
    gc.collect()
    check_rows(actual, training_rows(shards), range(90))


def test_artifact_that_does_not_fit_is_refused(artifact):
    with pytest.raises(InstanceDataError, match="vocabulary of 300 tokens, the model one of 301"):
        opened(artifact, vocab_size=301)
    with pytest.raises(InstanceDataError, match="up to 40 tokens, the model has positions for 39"):
        opened(artifact, max_seq_length=39)


def flip_byte(artifact):
    content = bytearray(file_of(artifact).read_bytes())
    content[len(content) // 2] ^= 1
    file_of(artifact).write_bytes(content)


def with_other_content(artifact):
    return with_content(artifact, 1, b"x" * artifact.files[1].size_bytes)


def with_rows(artifact, rows):
    files = list(artifact.files)
    files[1] = files[1].model_copy(update={"rows": rows})
    return artifact.model_copy(update={"files": tuple(files)})


@pytest.mark.parametrize(
    ("damage", "kind", "problem"),
    [
        (flip_byte, ArtifactCorruptError, "is damaged"),
        (lambda a: os.truncate(file_of(a), 100), ArtifactCorruptError, "is damaged"),
        (lambda a: file_of(a).unlink(), InstanceDataError, "no such file"),
        (with_other_content, ArtifactCorruptError, "an Arrow IPC file"),
        (lambda a: with_rows(a, 99), ArtifactCorruptError, "expected 99 rows, got 18"),
    ],
)
def test_damaged_shard_is_refused(artifact, damage, kind, problem):
    damaged = damage(artifact) or artifact
    with pytest.raises(kind, match=rf"part-00001-pass-00\.arrow.*{problem}"):
        opened(damaged)


NEWER = instances_schema(VOCAB_SIZE).with_metadata(
    {**instances_schema(VOCAB_SIZE).metadata, VERSION_KEY: b"9"}
)


@pytest.mark.parametrize(
    ("options", "problem"),
    [({"schema": NEWER}, "got 'instances' version 9"), ({"compression": "zstd"}, "compressed")],
)
def test_shards_of_another_format_are_refused(tmp_path, shards, options, problem):
    artifact = write_artifact(str(tmp_path), shards, **options)
    with pytest.raises(ArtifactCorruptError, match=rf"part-00000.*{problem}"):
        opened(artifact)


@pytest.mark.parametrize(
    ("part", "hint"), [("training", "corpus"), ("held-out", "held_out_fraction")]
)
def test_part_without_instances_is_refused(tmp_path, part, hint):
    empty = {"part-00000-pass-00.arrow": [], "__held-out__/held-out-00000.arrow": [[]]}
    artifact = write_artifact(str(tmp_path), empty)
    with pytest.raises(InstanceDataError, match=f"has no {part} instances.*{hint}"):
        opened(artifact, part=part)


GOOD = Row([2, 10, 3, 11, 3], 3, [1], [12], 0)


@pytest.mark.parametrize(
    ("row", "kind", "problem"),
    [
        (GOOD._replace(input_ids=[2, 300, 3, 11, 3]), InstanceDataError, "token id 300"),
        (GOOD._replace(masked_ids=[301]), InstanceDataError, "token id 301"),
        (GOOD._replace(input_ids=[5] * 41), ArtifactCorruptError, r"more than max_seq_length \(40"),
        (GOOD._replace(input_ids=[]), ArtifactCorruptError, "it has no token"),
        (GOOD._replace(segment_b_start=6), ArtifactCorruptError, "segment_b_start is past"),
        (GOOD._replace(positions=[5]), ArtifactCorruptError, "masked_lm_position is past"),
        (GOOD._replace(positions=[1, 3]), ArtifactCorruptError, "differ in length"),
        (GOOD._replace(label=2), ArtifactCorruptError, "not -1, 0 or 1"),
    ],
)
def test_invalid_row_is_refused_when_it_is_read(tmp_path, row, kind, problem):
    shards = {"part-0.arrow": [[GOOD] * 4], "part-1.arrow": [[GOOD] * 3, [GOOD, row, GOOD]]}
    artifact = write_artifact(str(tmp_path), shards)
    instances = opened(artifact)
    check_rows(instances.gather(np.arange(8)), [GOOD] * 8, range(8))
    with pytest.raises(kind, match=rf"shard part-1\.arrow, row 4: .*{problem}"):
        instances.gather(np.array([9, 8, 1]))


def test_offsets_outside_of_their_buffer_are_refused(tmp_path):
    artifact = write_artifact(str(tmp_path), {"part-0.arrow": [[GOOD] * 4]})
    path = file_of(artifact, 0)
    content = path.read_bytes()
    offsets = np.array([0, 5, 10, 15, 20], np.int32).tobytes()
    assert content.count(offsets) == 1
    wrong = np.array([0, 5, 10, 15, 1 << 30], np.int32).tobytes()
    instances = opened(with_content(artifact, 0, content.replace(offsets, wrong)))
    with pytest.raises(ArtifactCorruptError, match=r"row 3: a list is outside"):
        instances.gather(np.array([0, 3]))


@pytest.fixture
def remote(shards):
    folder = "memory://instances-of-a-test/data"
    yield write_artifact(folder, shards)
    fsspec.filesystem("memory").rm("/instances-of-a-test", recursive=True)


def copies(tmp_path):
    return sorted((tmp_path / "cache" / "shards").rglob("*"))


def test_remote_shards_are_copied_once(remote, shards, tmp_path, caplog):
    check_rows(opened(remote).gather(np.arange(90)), training_rows(shards), range(90))
    files = [path for path in copies(tmp_path) if path.is_file()]
    used = {entry.sha256 for entry in remote.files if entry.path.startswith("part-")}
    assert {path.stem for path in files} == used
    content = files[0].read_bytes()
    files[0].write_bytes(b"\0" * len(content))
    opened(remote)
    assert files[0].read_bytes() == content
    assert "copying again" in caplog.text
    memory = fsspec.filesystem("memory")
    for entry in remote.files:  # nothing is fetched a second time
        memory.rm_file(f"/instances-of-a-test/data/{entry.stored_name}")
    check_rows(opened(remote).gather(np.arange(90)), training_rows(shards), range(90))
    memory.pipe_file("/instances-of-a-test/data/keep", b"")


def test_damaged_or_missing_remote_shard_leaves_no_copy(remote, tmp_path):
    memory = fsspec.filesystem("memory")
    for entry in remote.files:
        if entry.path == "part-00002-pass-00.arrow":
            path = f"/instances-of-a-test/data/{entry.stored_name}"
            memory.pipe_file(path, memory.cat_file(path)[:-1] + b"?")
    with pytest.raises(ArtifactCorruptError, match=r"part-00002.*is damaged"):
        opened(remote)
    memory.rm_file(path)
    with pytest.raises(InstanceDataError, match=r"part-00002.*no such file"):
        opened(remote)
    bad = next(entry for entry in remote.files if "00002" in entry.path).sha256
    assert not [path for path in copies(tmp_path) if bad in path.name or path.suffix == ".part"]


def test_shard_that_cannot_be_mapped_is_named(artifact, monkeypatch):
    def fail(path):
        raise OSError("Memory mapping file failed: Cannot allocate memory")

    monkeypatch.setattr(pa, "memory_map", fail)
    with pytest.raises(InstanceDataError, match=r"part-00000-pass-00\.arrow.*max_map_count"):
        opened(artifact)
