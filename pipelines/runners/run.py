"""Builds a pipeline for a launch and runs it to its end."""

from __future__ import annotations

from collections.abc import Callable

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner import fn_runner
from apache_beam.runners.runner import PipelineState

from pipelines.runners.causes import root_cause
from pipelines.runners.dataflow import DATAFLOW_RUNNER
from pipelines.runners.dataflow_jobs import run_on_dataflow
from pipelines.runners.launch import Launch
from pipelines.runners.portable_jobs import run_on_engine
from pipelines.runners.quiet import without_tracebacks
from pipelines.runners.submission import current_submission
from schemas.errors import BertloomError, RunnerError


def run_pipeline(
    job: str, build: Callable[[beam.Pipeline], None], *, launch: Launch, pieces: int = 1
) -> None:
    """Build a pipeline and run it to its end.

    Args:
        job: what people call it.
        build: adds it to a pipeline.
        launch: where to run it.
        pieces: how many it works on; no engine is asked for more slots.

    Raises:
        BertloomError: as a worker raised it, where it ran in this process.
        RunnerError: anything else that went wrong on the runner.
    """
    submission = current_submission(job)
    if launch.engine is not None:
        run_on_engine(
            job, build, launch=launch, engine=launch.engine, submission=submission, pieces=pieces
        )
        return
    if launch.runner == DATAFLOW_RUNNER:
        run_on_dataflow(job, build, launch=launch, submission=submission)
        return
    # `__main__` is a thin launcher: workers import what they need, nothing is pickled from it.
    # Beam reads sys.argv where it is given no flags; ours are not for Beam.
    options = PipelineOptions(list(launch.flags))
    # By name, `beam.Pipeline` would try to download Prism first.
    pipeline = beam.Pipeline(runner=fn_runner.FnApiRunner(), options=options)
    build(pipeline)
    try:
        with without_tracebacks():
            state = pipeline.run().wait_until_finish()
    except Exception as error:
        raise _explain(job, error) from error
    if state not in (PipelineState.DONE, None):
        raise RunnerError(
            f"{job}: the runner ended in state {state}, expected {PipelineState.DONE}; "
            "its own log says why"
        )


def _explain(job: str, error: BaseException) -> BertloomError:
    """The bertloom error a worker raised, dug out of the runner's own, or a `RunnerError`."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, BertloomError):
            return seen
        seen = seen.__cause__ or seen.__context__
    # Worker processes send their errors as text: the last line is what the worker raised.
    return RunnerError(f"{job}: {root_cause(str(error)) or repr(error)}")
