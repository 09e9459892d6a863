from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.cli_runner import Cli
from support.store_builder import STAGE, add_cards, damage, prepared, published, write_run

from flows.store.artifacts import ArtifactStore
from flows.store.leases import Lease, acquire_or_holder
from schemas.errors import DeterminismError


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ArtifactStore:
    root = str(tmp_path / "store")
    monkeypatch.setenv("BERTLOOM_STORE", root)
    return ArtifactStore(root)


def write_two_steps(store: ArtifactStore, run_id: str, **changes: Any) -> None:
    """A run that planned two steps, of which one was there."""
    steps = [{"label": "a", "manifest": "x", "was_cached": True, "seconds": 1.0}]
    planned = {"engine": "local", "planned": ["a", "b"], "steps": steps}
    write_run(store, run_id, **{**planned, **changes})


def trial(store: ArtifactStore, number: int, **changes: Any) -> Any:
    statistics = {"task": "sst-2", "metrics": {"dev": {"accuracy": 0.9 + number / 100}}}
    return published(
        store,
        f"trial {number}",
        stage="finetune",
        spec={"trial": number},
        statistics=statistics,
        **changes,
    )


def test_ls_shows_the_newest_first_with_what_they_hold(cli: Cli, store: ArtifactStore) -> None:
    first = published(store)
    second = published(store, "two", spec={"seed": 1})
    store.set_ref("fake/build-tokens", first)
    store.pin(second, reason="why not")
    lines = cli("ls").out.splitlines()
    assert lines[0].split() == ["artifact", "stage", "committed", "holds", "size", "refs"]
    assert lines[1].startswith(second.artifact_id)
    assert lines[1].endswith("(pinned)")
    assert "1 file" in lines[2]
    assert lines[2].endswith("fake/build-tokens")
    found = json.loads(cli("ls", STAGE, "--json").out)
    assert [item["artifact_id"] for item in found] == [second.artifact_id, first.artifact_id]
    assert found[1]["refs"] == ["fake/build-tokens"]
    assert found[0]["is_pinned"]
    assert json.loads(cli("ls", "build-documents", "--json").out) == []


def test_ls_shows_the_trials_of_a_grid_as_one(cli: Cli, store: ArtifactStore) -> None:
    for number in range(3):
        name = f"fake/finetune.sst-2.bs32-lr5e-5-ep3-r{number + 1}"
        store.set_ref(name, trial(store, number))
    collapsed = cli("ls").out.splitlines()
    assert len(collapsed) == 2
    assert "3 trials, accuracy 90.0 to 92.0" in collapsed[1]
    assert collapsed[1].endswith("fake/finetune.sst-2")
    assert len(cli("ls", "--trials").out.splitlines()) == 4
    assert len(json.loads(cli("ls", "--json").out)) == 3


def test_ls_says_who_builds_what_and_by_which_job(cli: Cli, store: ArtifactStore) -> None:
    with acquire_or_holder(store, STAGE, "ab" * 32, holder="a-run") as lease:
        assert isinstance(lease, Lease)
        lease.name_job("7f", "http://flink:8081/#/job/7f/overview")
        (_, line) = cli("ls").out.splitlines()
        assert line.startswith(f"being built: {STAGE} abababababab by a-run (process ")
        assert line.endswith("; job 7f http://flink:8081/#/job/7f/overview)")
        assert "being built" not in cli("ls", "build-documents").out
        assert json.loads(cli("ls", "--json").out) == []
    assert "being built" not in cli("ls").out


def test_ls_says_what_is_damaged(cli: Cli, store: ArtifactStore) -> None:
    manifest = published(store)
    store.backend.replace(manifest.manifest_path, b"{")
    assert "CORRUPT" in cli("ls").out


def test_refs_and_pins_are_listed(cli: Cli, store: ArtifactStore) -> None:
    manifest = published(store)
    store.set_ref("fake/build-tokens", manifest)
    assert cli("pin", "fake/build-tokens", "--reason", "table 2").code == 0
    assert manifest.artifact_id in cli("ls", "--refs").out
    [ref] = json.loads(cli("ls", "--refs", "--json").out)
    assert (ref["ref"], ref["artifact_id"]) == ("fake/build-tokens", manifest.artifact_id)
    assert "table 2" in cli("ls", "--pins").out
    assert manifest.artifact_id in json.loads(cli("ls", "--pins", "--json").out)
    assert cli("ls", "--refs", "--pins").code == 2
    assert cli("unpin", manifest.artifact_id).code == 0
    said = cli("unpin", "fake/build-tokens")
    assert (said.code, "not pinned" in said.err) == (1, True)
    assert cli("pin", "fake/build-tokens", "--reason", " ").code == 2


def test_runs_are_listed_with_those_that_died(cli: Cli, store: ArtifactStore) -> None:
    write_two_steps(store, "20260101t000000-aa")
    write_two_steps(store, "20260102t000000-bb", state="running")
    write_two_steps(store, "20260103t000000-cc", state="running", pid=2**22 + 1)
    write_two_steps(store, "20260104t000000-dd", state="running", host="elsewhere", pid=1)
    write_two_steps(store, "20260105t000000-ee", state="failed", failures={"b": "no"})
    store.backend.replace("runs/20260106t000000-ff/run.json", b"{")
    states = [line.split()[1] for line in cli("runs").out.splitlines()[1:]]
    assert states == [
        "corrupt", "failed", "running", "crashed", "running", "completed",
    ]  # fmt: skip
    lines = cli("runs").out.splitlines()
    assert lines[0].split()[-5:] == ["started", "took", "steps", "cached", "result"]
    assert lines[2].split()[:4] == ["20260105t000000-ee", "failed", "fake", "local"]
    assert lines[2].split()[-4:] == ["1/2", "1", "b", "failed"]
    assert [run["state"] for run in json.loads(cli("runs", "--json").out)] == states


def test_gc_says_first_and_deletes_when_asked(cli: Cli, store: ArtifactStore) -> None:
    kept, unused = published(store), published(store, "two", spec={"seed": 1})
    store.set_ref("fake/x", kept)
    assert unused.artifact_path not in cli("gc").out.partition("would be deleted")[2]  # it is young
    said = cli("gc", "--grace-period", "0")
    assert said.code == 0
    before, _, after = said.out.partition("would be deleted")
    assert kept.artifact_path in before
    assert "ref fake/x" in before
    assert unused.artifact_path in after
    assert store.lookup(STAGE, unused.cache_key) is not None
    found = json.loads(cli("gc", "--grace-period", "0", "--delete", "--json").out)
    assert found["deleted"]
    assert [item["path"] for item in found["removable"]] == [unused.artifact_path]
    assert found["freed_bytes"] > unused.size_bytes
    assert store.lookup(STAGE, unused.cache_key) is None
    assert cli("gc", "--grace-period", "0", "--delete", "--delete-run-records").code == 0


def test_verify_says_conflicts(cli: Cli, store: ArtifactStore) -> None:
    winner, loser = prepared(store, "one"), prepared(store, "two")
    store.commit(winner)
    with pytest.raises(DeterminismError):
        store.commit(loser)
    add_cards(store)
    said = cli("verify")
    assert said.code == 0
    assert f"quarantine/conflicts/{STAGE}/{loser.artifact_id}.json" in said.err


def test_verify_exits_with_1_for_damage(cli: Cli, store: ArtifactStore) -> None:
    manifest = published(store)
    add_cards(store)
    assert cli("verify", "--rows").code == 0
    damage(store, manifest, b"onf")
    assert cli("verify", "--sizes-only").code == 0
    said = cli("verify", "--rows", "--json", "--no-quarantine")
    assert said.code == 1
    [verdict] = json.loads(said.out)
    assert verdict["artifact_id"] == manifest.artifact_id
    assert cli("verify", "--rows", "--sizes-only").code == 2
    assert cli("verify").code == 1
    assert store.lookup(STAGE, manifest.cache_key) is None


def test_doctor_exits_with_1_if_something_is_wrong(
    cli: Cli, store: ArtifactStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = cli("doctor")
    assert said.code == 0
    assert "compare-and-swap hold" in said.out
    store.backend.replace("refs/fake/x.json", b"{")
    said = cli("doctor", "--json")
    assert said.code == 1
    [wrong] = [item for item in json.loads(said.out) if item["state"] == "FAIL"]
    assert wrong["check"] == "ref"
    said = cli("doctor")
    assert any(line.startswith("FAIL  ref") and " -> " in line for line in said.out.splitlines())


def test_a_pointer_that_cannot_be_read_stops_nobody(cli: Cli, store: ArtifactStore) -> None:
    sound = published(store)
    other = published(store, "two", spec={"seed": 1})
    add_cards(store)
    broken = Path(store.root, "keys", STAGE, other.cache_key[:2], f"{other.cache_key}.json")
    broken.write_text("{")
    assert sound.artifact_id in cli("ls").out
    assert cli("pin", sound.artifact_id, "--reason", "x").code == 0
    kept = cli("verify", "--no-quarantine")
    assert kept.code == 1
    assert f"CORRUPT  {broken}" in kept.out
    assert f"{sound.artifact_id}  ok" in kept.out
    assert broken.exists()
    assert cli("verify").code == 1
    assert not broken.exists()
    assert cli("verify").code == 0
