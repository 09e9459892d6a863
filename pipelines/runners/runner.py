"""Protocol of runners, and functions on Beam's options."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Protocol

from schemas.errors import ConfigError

if TYPE_CHECKING:
    import apache_beam as beam

BuildPipeline = Callable[["beam.Pipeline"], None]
"""Adds the transforms of a job to a pipeline."""


class Runner(Protocol):
    """Runs the Beam jobs of an `ExecutionConfig`."""

    name: str
    """Name in `RUNNERS`."""

    flags: tuple[str, ...]
    """Options as on Beam's command line, without those that differ from job to job."""

    is_local: bool = False
    """True if jobs run in this process and its worker processes."""

    workers: int = 1
    """Number of processes that this process gives work items to. 1: itself."""

    max_parallel_steps: int = 1
    """Number of steps whose jobs can run at a time."""

    def check_store(self, store: str) -> None:
        """Raise ConfigError if a store is in this process's memory and workers are elsewhere."""
        if store.startswith("memory:") and (self.workers > 1 or not self.is_local):
            raise ConfigError(
                f"store {store}: lives in this process, and runner {self.name!r} has workers in "
                "others. Use a folder or a bucket, or the local runner with one worker"
            )

    def preflight(self, *, store: str, inputs: Sequence[str]) -> None:
        """Check what can be checked before a run, in seconds. Default: nothing.

        Args:
            store: Root of the artifact store.
            inputs: Paths and URLs of the raw input.

        Raises:
            ConfigError: A setting is missing, wrong, or contradicts another one.
            RunnerError: A job service or a cluster does not answer.
        """

    def describe(self, urls: Sequence[str]) -> list[str]:
        """Return the options that Beam gets and what is started, one text per line. Default: none.

        Args:
            urls: URLs of the store and of the raw input.
        """
        del urls
        return []

    def cancel_earlier_jobs(self, job: str) -> None:
        """Cancel the jobs that earlier runs submitted for the same step, and wait for their end.

        The job of this run restores the items that they finished. Default: nothing, as jobs of
        this process end with it.

        Raises:
            RunnerError: The engine does not answer, or the run was asked to stop.
        """

    def run(self, job: str, build: BuildPipeline, *, num_elements: int = 1) -> None:
        """Build a pipeline and run it to its end.

        Args:
            job: Name of the job in errors.
            build: Function that builds the pipeline.
            num_elements: Number of elements in its graph; no engine is asked for more slots.

        Raises:
            BertloomError: A worker in this process raised it.
            RunnerError: Anything else failed on the runner.
        """


def flag_names(flags: Iterable[str]) -> set[str]:
    """Return the names of options, such as `--region`."""
    return {flag.partition("=")[0] for flag in flags}


def merge_flags(own: Sequence[str], options: Sequence[str]) -> tuple[str, ...]:
    """Return the flags of fields, followed by `beam_options`.

    Raises:
        ConfigError: A field and an option set the same flag.
    """
    for flag in options:
        name = flag.partition("=")[0]
        if name in flag_names(own):
            raise ConfigError(
                f"execution.beam_options: expected no {name}, which a field of execution sets, got "
                f"{flag}. Leave one of them out"
            )
        if name in ("--runner", "--job_name"):
            raise ConfigError(f"{flag} cannot be in execution.beam_options: bertloom sets {name}")
    return (*own, *options)
