"""Description of a stage. `pipelines/stages.py` and `model/stages.py` list them:

    Stage(name="build-tokens", version=1, run="pipelines.tokens.job:build_tokens", ...)

The graph of a recipe (`flows/bert.py`) adds the steps of a stage.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from schemas.base_configs import Config
from schemas.manifest import Manifest, RawInput, StageOutput

VARIADIC = "*"
"""Marker among a stage's inputs: any number of further inputs, named by the recipe."""


@dataclass(frozen=True, kw_only=True)
class Stage:
    """Function from a configuration and input artifacts to an artifact, and its properties.

    Functions are named as `MODULE:FUNCTION`, and imported when they are called.
    """

    name: str
    """Name, such as `build-tokens`."""

    version: int
    """Version in the cache key. Raise it if the output for the same input changes."""

    run: str
    """Function that builds an artifact; see `load`."""

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

    raw_inputs: str = ""
    """Function that digests the raw files of a configuration. Plans call it, so it is fast. "" if
    the stage reads no raw files."""

    supports_resume: bool = False
    """True if the stage resumes from a folder `work`, one per cache key."""

    supports_reuse: bool = False
    """True if the stage reuses finished work items from a folder `pieces`."""

    has_metrics: bool = False
    """True if the statistics are the stage's results."""

    uses_gpu: bool = False
    """True if the stage computes on a GPU, if available."""

    summarize: str = ""
    """Function that summarizes an artifact. "": count the rows of its table."""

    summarize_many: str = ""
    """Function that summarizes several artifacts, such as the trials of a grid. "": count them."""

    @property
    def package(self) -> str:
        """Package of the stage: `pipelines`, whose stages are Beam jobs, or `model`."""
        return self.run.partition(".")[0]

    def load(self) -> Callable[..., StageOutput]:
        """Import and return the function that builds an artifact.

        It is called as `function(config, inputs=..., output=..., execution=...)`, with the URL of a
        folder `work` if the stage supports resuming, and `pieces` if it supports reuse.
        """
        function: Callable[..., StageOutput] = pkgutil.resolve_name(self.run)
        return function

    def find_raw_inputs(self, config: Config) -> tuple[RawInput, ...]:
        """Return the raw files of a configuration, with their digests."""
        return tuple(pkgutil.resolve_name(self.raw_inputs)(config)) if self.raw_inputs else ()

    def summary(self, manifest: Manifest) -> str:
        """Return the summary of an artifact: `1,234 documents`."""
        if not self.summarize:
            return count_summary(manifest)
        return str(pkgutil.resolve_name(self.summarize)(manifest))

    def summary_of(self, manifests: Sequence[Manifest]) -> str:
        """Return the summary of several artifacts: `5 trials, f1 81.0 to 84.0`."""
        if self.summarize_many:
            return str(pkgutil.resolve_name(self.summarize_many)(manifests))
        return f"{len(manifests):,} artifact{'s' if len(manifests) != 1 else ''}"


def count_summary(manifest: Manifest) -> str:
    """Return the number of rows of an artifact's table, or of its files."""
    if (rows := manifest.counters.get(manifest.table_name)) is not None:
        return f"{rows:,} {manifest.table_name}"
    if shard_rows := [entry.rows for entry in manifest.shards if entry.rows is not None]:
        return f"{sum(shard_rows):,} {manifest.table_name or 'rows'}"
    return f"{len(manifest.files):,} file{'s' if len(manifest.files) != 1 else ''}"
