"""`bertloom ls`, `runs`, `ref`, `gc`, `verify` and `doctor` on stores that tests write."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.cli_runner import Cli
from support.store_builder import STAGE, damage, published, write_heartbeat, write_run

from flows.store.activity import ActiveRun
from flows.store.artifacts import ArtifactStore
from flows.store.leases import Lease, acquire_or_holder
from flows.store.pointers import key_path


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ArtifactStore:
    root = str(tmp_path / "store")
    monkeypatch.setenv("BERTLOOM_STORE", root)
    return ArtifactStore(root)


def write_two_steps(store: ArtifactStore, run_id: str, **changes: Any) -> None:
    """Write the record of a run that planned two steps, of which one was cached."""
    steps = [{"label": "a", "manifest": "x", "was_cached": True, "seconds": 1.0}]
    write_run(
        store, run_id, **{"engine": "local", "planned": ["a", "b"], "steps": steps, **changes}
    )


def test_ls_lists_newest_first(cli: Cli, store: ArtifactStore) -> None:
    first = published(store)
    second = published(store, "two", spec={"seed": 1})
    store.set_ref("fake/build-tokens", first)
    store.set_ref("table-2", second)
    lines = cli("ls").out.splitlines()
    assert lines[0].split() == ["artifact", "stage", "created", "contents", "size", "refs"]
    assert [line.split()[0] for line in lines[1:]] == [second.artifact_id, first.artifact_id]
    assert lines[1].endswith("table-2")
    assert lines[2].endswith("fake/build-tokens")
    items = json.loads(cli("ls", STAGE, "--json").out)
    assert [item["artifact_id"] for item in items] == [second.artifact_id, first.artifact_id]
    assert [item["contents"] for item in items] == ["1 file", "1 file"]
    assert [item["refs"] for item in items] == [["table-2"], ["fake/build-tokens"]]


def test_ls_merges_trials_of_a_grid(cli: Cli, store: ArtifactStore) -> None:
    for number in range(3):
        statistics = {"task": "sst-2", "metrics": {"dev": {"accuracy": 0.9 + number / 100}}}
        trial = published(
            store, f"trial {number}", stage="finetune", spec={"trial": number},
            statistics=statistics,
        )  # fmt: skip
        store.set_ref(f"fake/finetune.sst-2.bs32-lr5e-5-ep3-r{number + 1}", trial)
    _, row = cli("ls").out.splitlines()
    assert "3 trials, accuracy 90.0 to 92.0" in row
    assert row.endswith("fake/finetune.sst-2")
    assert len(cli("ls", "--trials").out.splitlines()) == 4
    assert len(json.loads(cli("ls", "--json").out)) == 3


def test_ls_shows_artifacts_in_progress(cli: Cli, store: ArtifactStore) -> None:
    with ActiveRun(store, "a-run") as run, acquire_or_holder(run, STAGE, "ab" * 32) as lease:
        assert isinstance(lease, Lease)
        line = cli("ls").out.splitlines()[-1]
        assert line.startswith(f"being built: {STAGE} abababababab by a-run (process ")
        assert "being built" not in cli("ls", "build-documents").out
    assert "being built" not in cli("ls").out


def test_ref_of_user_is_set_moved_listed_and_deleted(cli: Cli, store: ArtifactStore) -> None:
    first, second = published(store), published(store, "two", spec={"seed": 1})
    store.set_ref("fake/build-tokens", second)
    assert cli("ref", "set", "table-2", first.artifact_id).code == 0
    assert cli("show", "table-2", "--json").code == 0
    listed = {ref["ref"]: ref["artifact_id"] for ref in json.loads(cli("ref", "ls", "--json").out)}
    assert listed == {"fake/build-tokens": second.artifact_id, "table-2": first.artifact_id}
    assert cli("ref", "set", "table-2", "fake/build-tokens").code == 0
    assert second.artifact_id in cli("ref", "ls").out.splitlines()[-1]
    assert cli("ref", "rm", "table-2").code == 0
    assert store.refs() == ["fake/build-tokens"]
    assert cli("ref", "rm", "table-2").code == 1


@pytest.mark.parametrize("name", ["fake/build-tokens", "corpus/x/latest", "pretrain", "/x"])
def test_ref_of_user_has_no_name_that_runs_use(cli: Cli, store: ArtifactStore, name: str) -> None:
    manifest = published(store)
    assert cli("ref", "set", name, manifest.artifact_id).code == 2
    assert store.refs() == []


@pytest.mark.parametrize("name", ["..", ".hidden", ""])
def test_ref_of_user_has_a_valid_name(cli: Cli, store: ArtifactStore, name: str) -> None:
    manifest = published(store)
    assert cli("ref", "set", name, manifest.artifact_id).code != 0
    assert store.refs() == []


def test_runs_shows_crashed_runs(cli: Cli, store: ArtifactStore) -> None:
    write_two_steps(store, "20260101t000000-aa")
    write_two_steps(store, "20260102t000000-bb", state="running")
    write_heartbeat(store, "20260102t000000-bb")
    write_two_steps(store, "20260103t000000-cc", state="running", pid=2**22 + 1)
    write_two_steps(store, "20260104t000000-dd", state="running", host="elsewhere", pid=1)
    write_heartbeat(store, "20260104t000000-dd", host="elsewhere", pid=1)
    write_two_steps(store, "20260105t000000-ee", state="failed", failures={"b": "no"})
    store.backend.replace("runs/20260106t000000-ff/run.json", b"{")
    states = ["corrupt", "failed", "running", "crashed", "running", "completed"]
    header, *lines = cli("runs").out.splitlines()
    assert header.split()[-5:] == ["started", "duration", "steps", "cached", "result"]
    assert [line.split()[1] for line in lines] == states
    assert lines[1].split()[:4] == ["20260105t000000-ee", "failed", "fake", "local"]
    assert lines[1].split()[-4:] == ["1/2", "1", "b:", "no"]
    assert [run["state"] for run in json.loads(cli("runs", "--json").out)] == states


def test_gc_deletes_with_option_only(cli: Cli, store: ArtifactStore) -> None:
    used, unused = published(store), published(store, "two", spec={"seed": 1})
    store.set_ref("fake/x", used)
    assert unused.artifact_path not in cli("gc").out.partition("would be deleted")[2]  # too new
    result = cli("gc", "--grace-period", "0")
    assert result.code == 0
    retained, _, removable = result.out.partition("would be deleted")
    assert used.artifact_path in retained
    assert "ref fake/x" in retained
    assert unused.artifact_path in removable
    assert store.lookup(STAGE, unused.cache_key) is not None
    data = json.loads(cli("gc", "--grace-period", "0", "--delete", "--json").out)
    assert [item["path"] for item in data["removable"]] == [unused.artifact_path]
    assert data["freed_bytes"] > unused.size_bytes
    assert store.lookup(STAGE, unused.cache_key) is None


def test_gc_refuses_while_a_run_is_active(cli: Cli, store: ArtifactStore) -> None:
    unused = published(store)
    options = ("gc", "--delete", "--grace-period", "0")
    with ActiveRun(store, "a-run"):
        assert cli(*options).code == 1
        assert "a-run" in cli("gc").out
        assert store.lookup(STAGE, unused.cache_key) is not None
    assert cli(*options, "--wait").code == 0
    assert store.lookup(STAGE, unused.cache_key) is None


def test_verify_quarantines_artifact_with_flipped_bit(cli: Cli, store: ArtifactStore) -> None:
    manifest = published(store)
    damage(store, manifest, b"onf")
    assert cli("verify", "--sizes-only").code == 0
    result = cli("verify", "--no-quarantine")
    assert (result.code, "CORRUPT" in result.out, "vocab.txt" in result.out) == (1, True, True)
    assert store.lookup(STAGE, manifest.cache_key) == manifest
    result = cli("verify", STAGE, "--json")
    assert (result.code, len(json.loads(result.out)[0]["errors"])) == (1, 1)
    assert store.lookup(STAGE, manifest.cache_key) is None


def test_verify_accepts_killed_run_without_report(cli: Cli, store: ArtifactStore) -> None:
    manifest = published(store)
    store.set_ref("fake/build-tokens", manifest)
    steps = [
        {
            "label": "build-tokens",
            "manifest": manifest.manifest_path,
            "was_cached": False,
            "seconds": 1.0,
        }
    ]
    write_run(store, "20260101t000000-aa", steps=steps)
    assert cli("verify").code == 0


@pytest.mark.parametrize("kind", ["manifest", "pointer", "run"])
def test_verify_names_missing_record(cli: Cli, store: ArtifactStore, kind: str) -> None:
    manifest = published(store)
    store.set_ref("fake/build-tokens", manifest)
    write_run(store, "a-run")
    store.backend.replace("runs/a-run/report.html", b"x")
    assert cli("verify").code == 0
    path = {
        "manifest": manifest.manifest_path,
        "pointer": key_path(STAGE, manifest.cache_key),
        "run": "runs/a-run/run.json",
    }[kind]
    store.backend.delete(path)
    result = cli("verify")
    assert (result.code, f"{path}: missing" in result.out) == (1, True)


@pytest.mark.parametrize("path", ["refs/x.json", "runs/r/run.json", f"keys/{STAGE}/ab/x.json"])
def test_verify_names_field_of_corrupt_record(cli: Cli, store: ArtifactStore, path: str) -> None:
    store.backend.replace(path, b'{"unknown": 1}')
    result = cli("verify")
    assert (result.code, path in result.out) == (1, True)


def test_commands_work_next_to_corrupt_pointer(cli: Cli, store: ArtifactStore) -> None:
    sound = published(store)
    other = published(store, "two", spec={"seed": 1})
    store.backend.replace(other.manifest_path, b"{")
    assert "CORRUPT" in cli("ls").out
    corrupt = Path(store.root, "keys", STAGE, other.cache_key[:2], f"{other.cache_key}.json")
    corrupt.write_text("{")
    assert sound.artifact_id in cli("ls").out
    assert cli("ref", "set", "x", sound.artifact_id).code == 0
    result = cli("verify", "--no-quarantine")
    assert result.code == 1
    assert str(corrupt) in result.out
    assert f"{sound.artifact_id}  ok" in result.out
    assert store.lookup(STAGE, other.cache_key) is None  # a run quarantines it
    assert not corrupt.exists()
    assert cli("verify").code == 0
