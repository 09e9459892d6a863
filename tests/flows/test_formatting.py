"""Numbers and tables as text."""

from __future__ import annotations

import pytest

from flows.formatting import (
    align_columns,
    format_bytes,
    format_duration,
    format_metric,
    format_statistic,
)


def test_columns_are_aligned() -> None:
    assert align_columns([("a", "1"), ("bcd", "22")], right=(1,)) == ["a     1", "bcd  22"]


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0 B"), (999, "999 B"), (1500, "1.5 kB"), (2_500_000_000_000, "2.5 TB")]
)
def test_format_bytes(size: int, text: str) -> None:
    assert format_bytes(size) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(1.26, "1.3 s"), (245.2, "4 min 05 s"), (7620, "2 h 07 min")]
)
def test_format_duration(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


@pytest.mark.parametrize(
    ("name", "value", "sd", "text"),
    [
        ("f1", 0.3342, None, "33.4"),
        ("entity-f1:LOC", 0.3342, 0.012, "33.4 ± 1.2"),
        ("matthews", -0.05, None, "-5.0"),
        ("perplexity", 1234.5678, None, "1,234.57"),
        ("mlm_loss", 2.5, None, "2.50"),
    ],
)
def test_metrics_are_times_100_except_losses(
    name: str, value: float, sd: float | None, text: str
) -> None:
    assert format_metric(name, value, sd=sd) == text


@pytest.mark.parametrize(
    ("path", "value", "text"),
    [
        ("metrics.dev.accuracy", 0.5, "50.0"),
        ("cells.0.metrics.test.f1", 0.25, "25.0"),
        ("held_out.mlm_accuracy", 0.5, "50.0"),
        ("held_out.perplexity", 12.5, "12.50"),
        ("entries.squad-1.1.mean", 0.5, "50.0"),
        ("points.0.sd", 0.01, "1.0"),
        ("entries.squad-1.1.runs", 3, "3"),
        ("vocab_size", 30522, "30,522"),
        ("mean_fill", 0.954588, "95.5"),
        ("cell.learning_rate", 0.0005, "0.0005"),
    ],
)
def test_statistics_format_metrics_by_their_path(path: str, value: float, text: str) -> None:
    assert format_statistic(path, value) == text
