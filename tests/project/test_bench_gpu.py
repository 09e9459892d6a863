"""The GPU benchmark runs at a small scale on a CPU and writes all its fields."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks import bench_gpu
from benchmarks.bench_gpu import Case, Measurement, Settings, Timer, mixed_lengths
from model import bert

TINY = [
    "--device",
    "cpu",
    "--presets",
    "tiny",
    "--lengths",
    "32",
    "--steps",
    "1",
    "--micro-batch-tokens",
    "64",
]


def run_benchmark(
    monkeypatch: pytest.MonkeyPatch, file: Path, *options: str
) -> tuple[int, list[dict[str, Any]]]:
    """Return the exit code and the records of a run."""
    monkeypatch.setattr(sys, "argv", ["bench_gpu", *TINY, "--json", str(file), *options])
    code = bench_gpu.main()
    return code, [json.loads(line) for line in file.read_text().splitlines()]


@pytest.fixture(scope="module")
def _one_thread() -> Any:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("_one_thread")
def test_both_sides_are_measured_on_the_same_instances(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--precisions", "fp32", "--modes", "eager", "--peak-tflops", "2"]
    code, rows = run_benchmark(monkeypatch, tmp_path / "rows.jsonl", *options)
    assert code == 0
    fields = {field.name for field in dataclasses.fields(Measurement)}
    assert [set(row) for row in rows] == [fields, fields]
    ours, peer = rows
    assert (ours["side"], peer["side"]) == ("bertloom", "transformers")
    assert ours["loss"] == ours["cpu_loss"]  # the same device, precision and weights
    assert ours["tokens"] == peer["tokens"] == ours["positions"]
    assert peer["positions"] == 32 * peer["instances"] > peer["tokens"]
    for row in rows:
        assert row["problem"] is None
        assert row["peak_tflops"] == 2
        assert row["tokens_per_second"] == pytest.approx(row["tokens"] / row["step_seconds"])
        assert row["positions_per_second"] == pytest.approx(row["positions"] / row["step_seconds"])
        assert 0 < row["utilization"] < 1
        assert row["memory_bytes"] > 2**20
    assert ours["utilization"] * ours["step_seconds"] == pytest.approx(
        peer["utilization"] * peer["step_seconds"]
    )  # both count the same FLOPs
    ratio = peer["step_seconds"] / ours["step_seconds"]
    assert f"x{ratio:.2f} in tokens" in capsys.readouterr().out


@pytest.mark.usefixtures("_one_thread")
def test_case_that_fails_does_not_end_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("no kernel")

    def do_nothing(*_: object, timer: Timer, **__: object) -> None:
        assert list(timer)

    monkeypatch.setattr(bench_gpu, "run_bertloom", fail)
    monkeypatch.setattr(bench_gpu, "run_peer", do_nothing)
    options = ["--precisions", "fp32", "bf16", "--modes", "eager"]
    code, rows = run_benchmark(monkeypatch, tmp_path / "rows.jsonl", *options)
    assert code == 1
    assert [row["problem"] for row in rows] == ["RuntimeError: no kernel", None] * 2
    assert [row["steps"] for row in rows] == [None, 1, None, 1]


@pytest.mark.usefixtures("_one_thread")
def test_out_of_memory_is_a_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise torch.OutOfMemoryError

    monkeypatch.setattr(bench_gpu, "run_bertloom", fail)
    options = ["--precisions", "fp32", "--modes", "eager", "--peer", "none"]
    code, (row,) = run_benchmark(monkeypatch, tmp_path / "rows.jsonl", *options)
    assert code == 0
    assert "--micro-batch-tokens" in row["problem"]
    assert row["transformers"] is None


@pytest.mark.usefixtures("_one_thread")
def test_initial_weights_are_drawn_once_per_preset(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[str] = []

    def draw(shape: torch.Size, deviation: float, name: str, *, seed: int) -> torch.Tensor:
        drawn.append(name)
        return torch.zeros(shape)

    monkeypatch.setattr(bert, "_cut_normal", draw)
    bench_gpu.initial_model.cache_clear()
    cpu = torch.device("cpu")
    settings = Settings(
        device=cpu, steps=1, max_seconds=1, micro_batch_tokens=64, peer="none", peaks={"fp32": None}
    )
    rows = [
        bench_gpu.measure(Case("bertloom", "tiny", length, "fp32", "eager"), settings)
        for length in (16, 32)
    ]
    bench_gpu.initial_model.cache_clear()
    assert [row.problem for row in rows] == [None, None]
    assert len(drawn) == len(set(drawn)) > 0


@pytest.mark.parametrize("longest", [16, 128, 512])
@pytest.mark.parametrize("tokens", [1, 1_000, 32_768])
def test_mixed_lengths_sum_to_the_tokens(longest: int, tokens: int) -> None:
    lengths = mixed_lengths(longest, tokens=tokens)
    assert abs(int(lengths.sum()) - tokens) <= 2 * longest
    assert (lengths[::2] == longest).all()
    assert longest // 8 <= lengths.min() <= longest
    assert np.mean(lengths) / longest == pytest.approx(0.78, abs=0.06)


def test_default_cases_are_base_at_both_lengths_and_large_at_512(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "argv", ["bench_gpu"])
    cases = [*bench_gpu.list_cases(bench_gpu.parse_arguments())]
    assert {(case.preset, case.length) for case in cases} == {
        ("base", 128), ("base", 512), ("large", 512)
    }  # fmt: skip
    assert [(case.side, case.mode) for case in cases] == [
        ("bertloom", "eager"), ("bertloom", "compiled"), ("transformers", "compiled")
    ] * 3  # fmt: skip
    assert {case.precision for case in cases} == {"bf16"}
