"""Description of a stage. Each stage's module ends with one:

    STAGE = Stage(name="build-tokens", module=__name__, version=1, run=build_tokens, ...)

The stage `build-tokens` is in `pipelines/build_tokens.py` or `model/build_tokens.py`. The graph
of a recipe (`flows/bert.py`) adds its steps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from schemas.base_configs import Config
from schemas.manifest import Manifest, RawInput, StageOutput

VARIADIC = "*"
"""Marker among a stage's inputs: any number of further inputs, named by the recipe."""


@dataclass(frozen=True, kw_only=True)
class Stage:
    """Function from a configuration and input artifacts to an artifact, and its properties."""

    name: str
    """Name, such as `build-tokens`."""

    module: str
    """Module that defines the stage."""

    version: int
    """Version in the cache key. Raise it if the output for the same input changes."""

    run: Callable[..., StageOutput]
    """Function that is called as `run(config, inputs=..., output=..., execution=...)`, with `work`
    if the stage supports resuming and `pieces` if it supports reuse."""

    config: type[Config]
    output_type: str
    """Name of the output as an input of later stages: `tokens`."""

    libraries: tuple[str, ...] = ()
    """Distributions whose versions can change the output."""

    python_independent: bool = False
    """True if all supported Python versions give the same output, so that the version is not in the
    key. Requires that results do not depend on Python's Unicode tables (`isalpha`, `\\w`,
    `casefold`), which grow, and not on `sum` of floats, which is exact since 3.12.
    `tests/project/test_pythons.py` compares outputs."""

    inputs: tuple[str, ...] = ()
    """Names of required inputs; VARIADIC: and others."""

    optional_inputs: tuple[str, ...] = ()
    """Names of optional inputs."""

    raw_inputs: Callable[[Any], Sequence[RawInput]] | None = None
    """Function that digests the raw files of a configuration. Plans call it, so it is fast."""

    supports_resume: bool = False
    """True if the stage resumes from a folder `work`, one per cache key."""

    supports_reuse: bool = False
    """True if the stage reuses finished work items from a folder `pieces`."""

    has_metrics: bool = False
    """True if the statistics are the stage's results."""

    uses_gpu: bool = False
    """True if the stage computes on a GPU, if available."""

    summarize: Callable[[Manifest], str] | None = None
    """Function that summarizes an artifact. None: count the rows of its table."""

    summarize_many: Callable[[Sequence[Manifest]], str] | None = None
    """Function that summarizes several artifacts, such as the trials of a grid."""

    def summary(self, manifest: Manifest) -> str:
        """Return the summary of an artifact: `1,234 documents`."""
        return self.summarize(manifest) if self.summarize is not None else count_summary(manifest)

    def summary_of(self, manifests: Sequence[Manifest]) -> str:
        """Return the summary of several artifacts: `5 trials, f1 81.0 to 84.0`."""
        if self.summarize_many is not None:
            return self.summarize_many(manifests)
        return f"{len(manifests):,} artifact{'s' if len(manifests) != 1 else ''}"


def count_summary(manifest: Manifest) -> str:
    """Return the number of rows of an artifact's table, or of its files."""
    if (rows := manifest.counters.get(manifest.table_name)) is not None:
        return f"{rows:,} {manifest.table_name}"
    if shard_rows := [entry.rows for entry in manifest.shards if entry.rows is not None]:
        return f"{sum(shard_rows):,} {manifest.table_name or 'rows'}"
    return f"{len(manifest.files):,} file{'s' if len(manifest.files) != 1 else ''}"
