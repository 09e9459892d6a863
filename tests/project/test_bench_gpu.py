"""The GPU benchmark runs at a small scale on a CPU and prints all its columns."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from benchmarks import bench_gpu


def test_a_case_is_measured_and_its_loss_is_the_cpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    small = "--device cpu --presets tiny --lengths 32 --precisions fp32 --modes eager --steps 1"
    file = tmp_path / "rows.jsonl"
    arguments = [*small.split(), "--micro-batch-tokens", "64", "--json", str(file)]
    monkeypatch.setattr(sys, "argv", ["bench_gpu", *arguments])
    bench_gpu.main()
    (row,) = [json.loads(line) for line in file.read_text().splitlines()]
    assert row["loss"] == row["cpu_loss"]  # the same device, precision and weights
    for side in ("", "peer_"):
        assert row[f"{side}tokens_per_second"] > 0
        assert row[f"{side}utilization"] is None  # the peak of a CPU is not known
        assert row[f"{side}memory_bytes"] > 2**20
    assert "tokens/s" in capsys.readouterr().out
